package session_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/storetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// A gateway that dies when the end of a session is written down, and nothing else, leaves
// the handles of its instances. The next one ends those and forgets the handles.
func TestDeathAfterTheEndOfASession(t *testing.T) {
	w := newWorld(t, ways)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "a", "1")
	set(t, s, "both", "a", "1")
	child := w.fork(s, 1)[0]
	w.runs("both own own")
	crashed := w.dieAt("did put sessions", 0)
	_ = w.CloseSession(t.Context(), s)
	if !crashed() {
		t.Fatal("the gateway lives")
	}
	w.runs("both own own")
	w.rise(ways)
	if w.Get(s.ID) != nil {
		t.Error("the session is back")
	}
	w.runs("both own")
	if got := w.handles(); got != "both own" {
		t.Errorf("there are handles of %q", got)
	}
	if n := len(w.handleFiles()); n != 2 {
		t.Errorf("%d handles have files", n)
	}
	wantDump(t, "what the child shares", w.Get(child.ID), "both", `{"a":"1"}`)
	wantDump(t, "what the child has", w.Get(child.ID), "own", `{"a":"1"}`)
	w.sound()
}

// An instance that can't be stopped when its session is closed is tried again, and is then the
// next gateway's.
func TestInstanceThatCannotBeStopped(t *testing.T) {
	w := newWorld(t, two)
	var fails atomic.Bool
	w.m.stopping = func(string) error {
		if fails.Load() {
			return errFailed
		}
		return nil
	}
	s := w.opened(session.OpenOptions{})
	testkit.Has(t, "a call", call(t, s, "own", "x"), `{"pid":`)
	fails.Store(true)
	if err := w.CloseSession(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	w.runs("own")
	if got := w.handles(); got != "own" || len(w.handleFiles()) != 1 {
		t.Errorf("an instance runs, and there are handles of %q and %d files", got, len(w.handleFiles()))
	}
	// It is tried again, and what is left the next start ends.
	again := w.opened(session.OpenOptions{})
	testkit.Has(t, "a call", call(t, again, "own", "x"), `{"pid":`)
	fails.Store(false)
	testkit.Eventually(t, "the instance that was left is stopped", func() bool { return len(w.handleFiles()) == 1 })
	fails.Store(true)
	if err := w.CloseSession(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	w.close(true)
	fails.Store(false)
	w.open(two)
	w.runs("")
	if got := w.handles(); got != "" || len(w.handleFiles()) != 0 {
		t.Errorf("there are handles of %q and %d files", got, len(w.handleFiles()))
	}
}

// Earlier versions wrote another session into the handle of what it shared with one that
// was closed. The instance is still that of all who use it.
func TestHandleThatWasGivenToAnotherSession(t *testing.T) {
	w := newWorld(t, ways)
	s := w.opened(session.OpenOptions{})
	pid := do(t.Context(), t, s, "both", "x")
	children := w.fork(s, 2)
	w.CloseSession(t.Context(), s)
	all, err := w.db.Handles(t.Context())
	if err != nil || len(all) != 1 || all[0].Session != s.ID {
		t.Fatalf("the handles are %+v, %v", all, err)
	}
	all[0].Session = children[0].ID
	if err := w.db.PutHandle(t.Context(), all[0]); err != nil {
		t.Fatal(err)
	}
	w.crash(ways)
	w.CloseSession(t.Context(), w.Get(children[0].ID))
	w.crash(ways)
	if got := do(t.Context(), t, w.Get(children[1].ID), "both", "x"); got != pid {
		t.Errorf("the other uses %s, and the first one %s", got, pid)
	}
	w.CloseSession(t.Context(), w.Get(children[1].ID))
	w.runs("")
	w.sound()
}

// Catalogs may be dropped at any time: sessions and snapshots that are being made have
// their servers with them.
func TestCatalogsDroppedMeanwhile(t *testing.T) {
	w := newWorld(t, kept)
	// made does something, and drops catalogs when it comes to a point.
	made := func(point string, do func() error, before func()) {
		t.Helper()
		there, letOn := w.m.block(point, 0)
		done := make(chan error, 1)
		go func() { done <- do() }()
		testkit.Within(t, point, there)
		before()
		if err := w.db.DropCatalogs(t.Context()); err != nil {
			t.Fatal(err)
		}
		letOn()
		if err := testkit.Within(t, "the end of it", done); err != nil {
			t.Fatal(failure(err))
		}
	}
	var s *session.Session
	made("put sessions", func() (err error) {
		s, _, err = w.OpenSession(context.Background(), session.OpenOptions{})
		return err
	}, func() {})
	rec, _, err := w.db.Session(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := w.db.Catalog(t.Context(), rec.Catalog); !ok || err != nil {
		t.Errorf("the session is without its servers (%v)", err)
	}
	set(t, s, "own", "it", "1")
	made("put snapshot", func() error {
		_, err := w.Freeze(context.Background(), s, session.SnapshotOptions{})
		return err
	}, func() { w.CloseSession(t.Context(), s) })
	if _, ok, err := w.db.Catalog(t.Context(), rec.Catalog); !ok || err != nil {
		t.Errorf("the snapshot is without its servers (%v)", err)
	}
}

// The end of an instance that forks share, at a start, is the loss of all of them, also
// where the one that had it first is closed.
func TestLossOfWhatForksShareAtAStart(t *testing.T) {
	w := newWorld(t, ways)
	s := w.opened(session.OpenOptions{})
	set(t, s, "both", "a", "1")
	children := w.fork(s, 2)
	w.CloseSession(t.Context(), s)
	no := false
	if err := storetest.PutOverride(t.Context(), w.db, "both", store.Override{Enabled: &no}); err != nil {
		t.Fatal(err)
	}
	w.crash(ways)
	w.runs("")
	for _, c := range children {
		if all := w.Get(c.ID).Damaged(); len(all) != 1 || all[0].Server != "both" {
			t.Errorf("%s is damaged by %+v", c.ID, all)
		}
	}
}
