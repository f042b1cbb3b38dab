//go:build linux || darwin

package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/family"
)

// A package is fetched without what depends on a session, and not ahead where its tool
// depends on that too.
func TestToolOfASession(t *testing.T) {
	bin, fetched := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "npx"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := New(Options{Environ: []string{"PATH=" + bin, "HOME=/home/x", "SECRET=1"}, Fetched: fetched})
	defer d.Close()
	spec := driver.Spec{Server: "s", Command: "npx", Args: []string{"-y", "pkg", "${workspace}"}, Env: map[string]string{"A": "1", "FILE": "${state.data}/x"}}
	cmd, ok := d.toolOf(spec, "token")
	if !ok || cmd.Path != filepath.Join(bin, "npx") || cmd.Dir != "" || !slices.Equal(cmd.Env, []string{"A=1", "HOME=/home/x", "PATH=" + bin, family.Variable + "=token"}) {
		t.Errorf("got %+v, %t", cmd, ok)
	}
	spec.WorkspacePath = "/workspace"
	if cmd, ok := d.toolOf(spec, "token"); !ok || cmd.Dir != fetched {
		t.Errorf("with a workspace it runs in %q, %t", cmd.Dir, ok)
	}
	spec.Cwd = "/srv"
	if cmd, ok := d.toolOf(spec, "token"); !ok || cmd.Dir != "/srv" {
		t.Errorf("with a folder it runs in %q, %t", cmd.Dir, ok)
	}
	spec.Env["npm_config_cache"] = "${state.data}"
	if cmd, ok := d.toolOf(spec, "token"); ok {
		t.Errorf("with a cache of the session's it is %+v", cmd)
	}
	if err := d.Fetch(t.Context(), driver.Spec{Server: "s", Command: "no-such-program"}, time.Minute); err != nil {
		t.Errorf("a missing program is the start's to report: %v", err)
	}
}

// What a killed gateway left of its fetches is ended by the next one.
func TestSweepEndsFetches(t *testing.T) {
	d := New(Options{Fetched: filepath.Join(t.TempDir(), "fetched")})
	defer d.Close()
	if _, err := d.Sweep(t.Context(), t.TempDir(), nil); err != nil {
		t.Fatal(err)
	}
	f, err := d.fetching()
	if err != nil {
		t.Fatal(err)
	}
	left := exec.Command("sleep", "600")
	left.Env = []string{family.Variable + "=outer" + family.Separator + f.token}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	next := New(Options{Fetched: d.opts.Fetched})
	defer next.Close()
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	if _, err := next.Sweep(t.Context(), t.TempDir(), nil); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil { // killed, or waited for by the sweep
		t.Error("it ended by itself")
	}
	if g, err := next.fetching(); err != nil || g.token != f.token {
		t.Errorf("the next gateway has %+v, %v", g, err)
	}
}
