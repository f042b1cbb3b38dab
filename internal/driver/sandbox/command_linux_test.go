//go:build amd64 || arm64

package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// A root that can't be one is named, with what to mend, before anything is made.
func TestWrongRoot(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"empty.tar": "", "text.tar": strings.Repeat("not an archive\n", 100)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "bare"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"no/such/folder": `no/such/folder" does not exist; make it, or mend servers.attacker.sandbox.root`,
		"no.tar":         `no.tar" does not exist; make it, or mend servers.attacker.sandbox.root`,
		"empty.tar":      "empty.tar: it is not an image",
		"text.tar":       "text.tar: it is not an image",
		"bare":           `command "server" is not found in the root`,
	} {
		t.Run(name, func(t *testing.T) {
			d := New(Options{Dir: filepath.Join(dir, "driver")})
			defer d.Close()
			spec := driver.Spec{Server: "attacker", Session: "ses_1", Dir: filepath.Join(dir, "instance"), Command: "server", Options: box()}
			options(spec).Root = filepath.Join(dir, name)
			inst, err := d.Start(t.Context(), spec)
			if err == nil {
				t.Fatal("it runs", inst.Stop(t.Context()))
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
			if exists(spec.Dir) {
				t.Error("the instance has a folder")
			}
		})
	}
}

// A sandbox that can't be made is reported before its packages are fetched.
func TestNothingIsFetchedForNoSandbox(t *testing.T) {
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	npm := "#!/bin/sh\ntouch " + asked + "\nexit 1\n"
	for _, name := range []string{"npm", "npx"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(npm), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	d := New(Options{Dir: filepath.Join(dir, "driver"), Binary: filepath.Join(dir, "nowhere")})
	defer d.Close()
	spec := driver.Spec{Server: "attacker", Command: "npx", Args: []string{"-y", "some-package"}, Options: box()}
	err := d.Fetch(t.Context(), spec, time.Minute)
	if err == nil || !strings.Contains(err.Error(), "sandbox_binary") || !isFinal(err) {
		t.Errorf("got %v", err)
	}
	if exists(asked) {
		t.Error("the packages were asked for")
	}
}
