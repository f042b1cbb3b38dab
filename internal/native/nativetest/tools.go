// Package nativetest holds a native server against the reference server it
// stands in for: it finds the reference server, connects the official client to
// both, and compares what they list and answer.
//
// Reference servers are looked for in the folder that TINE_TEST_TOOLS names, by
// default .cache/tools at the root of the repository: npm's below node_modules,
// PyPI's below venv. A test whose server is missing says so and skips, except
// with CI=true, where it fails.
package nativetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// NPM returns the command of a server that is installed from npm.
func NPM(t testing.TB, bin string, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		Missing(t, "node is not on PATH; install Node.js")
	}
	path := filepath.Join(tools(t), "node_modules", ".bin", bin)
	if runtime.GOOS == "windows" {
		path += ".cmd"
	}
	return command(t, path, args)
}

// PyPI returns the command of a server that is installed from PyPI.
func PyPI(t testing.TB, bin string, args ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join(tools(t), "venv", "bin", bin)
	if runtime.GOOS == "windows" {
		path = filepath.Join(tools(t), "venv", "Scripts", bin+".exe")
	}
	return command(t, path, args)
}

func command(t testing.TB, path string, args []string) *exec.Cmd {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		Missing(t, "reference server "+path+" is not installed; install it there or set TINE_TEST_TOOLS")
	}
	return exec.Command(path, args...)
}

// Missing ends a test whose requirement is not installed: it skips, and fails in
// CI.
func Missing(t testing.TB, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip(what)
}

func tools(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("TINE_TEST_TOOLS"); dir != "" {
		return dir
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, ".cache", "tools")
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.mod above the test's folder; set TINE_TEST_TOOLS")
		}
		dir = up
	}
}
