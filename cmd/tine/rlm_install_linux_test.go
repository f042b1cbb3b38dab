package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// A folder that may not be written to is a plain error, and nothing is left in it.
func TestRLMInstallInAReadOnlyFolder(t *testing.T) {
	in := newInstaller(t)
	dir := filepath.Join(in.home, ".cursor")
	file := write(t, filepath.Join(dir, "mcp.json"), "{}")
	for path, mode := range map[string]os.FileMode{file: 0o666, dir: 0o555, filepath.Dir(in.home): 0o755} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	runs := []*testCLI{in.cli("install", "cursor"), in.cli("install", "cursor", "--file", filepath.Join(dir, "new", "mcp.json"))}
	if os.Geteuid() == 0 { // whom modes don't stop
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := syscall.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Setfsuid(0); err != nil {
				t.Error(err)
			}
		}()
	}
	for _, tc := range runs {
		if code := tc.cli.run(t.Context()); code != exitFailed || !strings.Contains(tc.err.String(), "permission denied") || !strings.Contains(tc.err.String(), dir) {
			t.Errorf("%q: exit %d, %s", tc.args, code, tc.err.String())
		}
	}
	if textOf(t, file) != "{}" {
		t.Errorf("the file is %s", textOf(t, file))
	}
	has(t, dir, "mcp.json")
}
