package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// With this variable the test binary is tine itself, for tests that kill it.
const beTine = "TINE_TEST_BE_TINE"

// A restore that is killed at any moment can be run again, and has then kept
// everything: the damaged database, and all sessions.
func TestStateRestoreKilled(t *testing.T) {
	made := t.TempDir()
	stop := gatewayOn(t, made)
	old := openWith(t, made, "old")
	stop()
	stop = gatewayOn(t, made)
	newer := openWith(t, made, "newer")
	stop()
	damaged := []byte(strings.Repeat("damaged ", 4000))
	if err := os.WriteFile(databaseOf(made), damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	restore := func(state string) *exec.Cmd {
		cmd := exec.Command(os.Args[0], "state", "restore", "--yes", "--state", state)
		cmd.Env = append(os.Environ(), beTine+"=1")
		return cmd
	}
	began := time.Now()
	whole := t.TempDir()
	if err := os.CopyFS(whole, os.DirFS(made)); err != nil {
		t.Fatal(err)
	}
	if out, err := restore(whole).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	takes := time.Since(began)
	const rounds = 6
	for i := range rounds {
		state := t.TempDir()
		if err := os.CopyFS(state, os.DirFS(made)); err != nil {
			t.Fatal(err)
		}
		cmd := restore(state)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(takes * time.Duration(i+1) / rounds) // killed in the middle
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		ok(t, state, "state", "restore", "--yes")
		kept := false
		for _, content := range filesIn(t, state) {
			kept = kept || content == string(damaged)
		}
		if !kept {
			t.Errorf("killed after %d of %d: the damaged database is gone", i+1, rounds)
		}
		if i%3 != 0 { // a gateway takes its time
			continue
		}
		stop := gatewayOn(t, state)
		knows(t, state, old, "old")
		knows(t, state, newer, "newer")
		stop()
	}
}
