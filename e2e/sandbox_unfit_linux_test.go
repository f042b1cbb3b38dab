//go:build linux && (amd64 || arm64)

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

// TestSandboxMemoryThatDoesNotFit changes the program of a server while the gateway
// is stopped: one that was only touched goes on with its memory; with another program
// the first call is told, the memory waits for the program to be put back, and only
// the next call begins anew.
func TestSandboxMemoryThatDoesNotFit(t *testing.T) {
	t.Parallel()
	built, err := sandServer()
	if err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(built)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "srv")
	put := func(b []byte) {
		t.Helper()
		if err := os.WriteFile(program, b, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	put(was)
	w := startCell(t, "servers:\n"+yamlServer(sand, program, nil, sandboxed))
	session := openSession(t, w.client(t), api.NewSession{}).ID
	sandShelf.mustPut(t, w.client(t), session, "k", "v")
	remembers := map[string]string{"k": "v"}
	restart := func(change func()) {
		t.Helper()
		if code, err := w.stop(); err != nil || code != 0 {
			t.Fatalf("the gateway ended with %d, %v", code, err)
		}
		change()
		if err := w.start(); err != nil {
			t.Fatal(err)
		}
	}
	lost := func() {
		t.Helper()
		_, err := use(t.Context(), w.client(t), session, sand+"__life", object{})
		refusedFor(t, "the first call", err, []string{`server "` + sand + `"`, program + " is another", "put back what has changed", "the next call begins anew"})
		if all, _ := filepath.Glob(filepath.Join(w.state(), "sessions", session, sand, "image", "*")); len(all) == 0 {
			t.Fatal("the memory is gone")
		}
		info, err := w.client(t).Session(t.Context(), session)
		if err != nil || len(info.Damaged) != 1 || info.Damaged[0].Kept != api.KeptNothing {
			t.Errorf("the session is damaged by %+v, %v", info.Damaged, err)
		}
	}
	sound := func(what string) {
		t.Helper()
		if info, err := w.client(t).Session(t.Context(), session); err != nil || len(info.Damaged) != 0 {
			t.Errorf("%s: the session is damaged by %+v, %v", what, info.Damaged, err)
		}
	}

	later := time.Now().Add(time.Hour)
	restart(func() {
		if err := os.Chtimes(program, later, later); err != nil {
			t.Fatal(err)
		}
	})
	sandShelf.mustHold(t, w.client(t), session, remembers)
	sound("touched")

	other := append(slices.Clone(was), 'x')
	restart(func() { put(other) })
	lost()
	put(was)
	sandShelf.mustHold(t, w.client(t), session, remembers)
	sound("put back")

	restart(func() { put(other) })
	lost()
	sandShelf.mustHold(t, w.client(t), session, map[string]string{})
	if info, err := w.client(t).Session(t.Context(), session); err != nil || len(info.Damaged) != 1 || !strings.Contains(info.Damaged[0].Why, "does not fit") {
		t.Errorf("the session is damaged by %+v, %v", info.Damaged, err)
	}
	if err := w.client(t).CloseSession(t.Context(), session); err != nil {
		t.Error(err)
	}
	w.over(t)
}
