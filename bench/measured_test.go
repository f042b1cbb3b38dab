package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// tineBinary is the gateway that TINE_BIN names, or one that is built for the test.
func tineBinary(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("TINE_BIN"); path != "" {
		return path
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-trimpath", "-o", dir, "../cmd/...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the gateway: %v: %s", err, out)
	}
	return filepath.Join(dir, "tine")
}

// need skips a test for which something is missing; in CI that is a failure.
func need(t *testing.T, missing error) {
	t.Helper()
	switch {
	case missing == nil:
	case os.Getenv("CI") != "":
		t.Fatal(missing)
	default:
		t.Skip(missing)
	}
}

// measured runs rows with these flags. It returns the report, and how many cases each row
// has, of which none failed, and looks that nothing is left behind.
func measured(t *testing.T, tine string, flags ...string) (rep report, cases map[string]int) {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	var out, progress bytes.Buffer
	code := cli(t.Context(), append([]string{"--tine", tine, "--json", "--rounds", "1"}, flags...), &out, &progress)
	t.Log(progress.String())
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		t.Fatal(err)
	}
	cases = make(map[string]int)
	for _, r := range rep.Readings {
		if cases[r.Row]++; r.Failure != "" {
			t.Errorf("%+v", r)
		}
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
	return rep, cases
}
