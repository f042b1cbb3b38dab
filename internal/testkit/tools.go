package testkit

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// NPM returns the command of a program that is installed from npm.
func NPM(t testing.TB, bin string, args ...string) *exec.Cmd {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		Missing(t, "node is not on PATH; install Node.js")
	}
	path := filepath.Join(Tools(t), "node_modules", ".bin", bin)
	if runtime.GOOS == "windows" {
		path += ".cmd"
	}
	return command(t, path, args)
}

// PyPI returns the command of a program that is installed from PyPI.
func PyPI(t testing.TB, bin string, args ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join(Tools(t), "venv", "bin", bin)
	if runtime.GOOS == "windows" {
		path = filepath.Join(Tools(t), "venv", "Scripts", bin+".exe")
	}
	return command(t, path, args)
}

// ClaudeCode returns the path of Claude Code. It is the platform's program: the package
// beside it is only a launcher that an install script would have replaced.
func ClaudeCode(t testing.TB) string {
	t.Helper()
	arch := cmp.Or(map[string]string{"amd64": "x64"}[runtime.GOARCH], runtime.GOARCH)
	return command(t, filepath.Join(Tools(t), "node_modules", "@anthropic-ai", "claude-code-"+runtime.GOOS+"-"+arch, "claude"), nil).Path
}

func command(t testing.TB, path string, args []string) *exec.Cmd {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		Missing(t, path+" is not installed; run make setup, or set TINE_TEST_TOOLS to the folder that has it")
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

// Tools is the folder of the real programs that tests run, which make setup fills:
// npm's below node_modules, PyPI's below venv. A test whose program is missing says so and
// skips, except with CI=true, where it fails.
func Tools(t testing.TB) string {
	t.Helper()
	dir, err := filepath.Abs(cmp.Or(os.Getenv("TINE_TEST_TOOLS"), "."))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("TINE_TEST_TOOLS") != "" {
		return dir
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "internal", "testkit")); err == nil {
			return filepath.Join(dir, ".cache", "tools")
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("the test runs outside of its repository; set TINE_TEST_TOOLS")
		}
		dir = up
	}
}
