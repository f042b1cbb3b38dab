package session_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

// ring returns the automatic snapshots of a session, the oldest first.
func (w *world) ring(s *session.Session) []api.Snapshot {
	all := slices.DeleteFunc(w.Snapshots(), func(a api.Snapshot) bool { return a.Session != s.ID || !a.Auto })
	slices.Reverse(all)
	return all
}

func TestAutosnapshotEvery(t *testing.T) {
	const yaml = "sessions: {autosnapshot: {every: 3, keep: 2}}\n" + kept
	w := newWorld(t, yaml)
	s := w.opened(session.OpenOptions{})
	for _, k := range strings.Split("abcdefghijk", "") {
		set(t, s, "own", "it", k)
	}
	ring := w.ring(s)
	if len(ring) != 2 {
		t.Fatalf("there are %d snapshots", len(ring))
	}
	// They are of before the 7th and the 10th call.
	for i, want := range []string{"f", "i"} {
		w.rewound(s, ring[i].ID)
		// Not through the gate, so that it does not count.
		if got := call(t, s, "own", "dump"); !strings.Contains(got, want) {
			t.Errorf("snapshot %d has %s, want %s", i, got, want)
		}
	}
	// The ring goes on after a restart, and ends with the session.
	w.crash(yaml)
	s = w.Get(s.ID)
	for range 7 {
		set(t, s, "own", "it", "x")
	}
	if got := w.ring(s); len(got) != 2 || got[0].ID == ring[0].ID || got[1].ID == ring[1].ID {
		t.Errorf("after a restart the ring is %+v, and was %+v", got, ring)
	}
	named := w.frozen(s, "stays")
	w.CloseSession(t.Context(), s)
	if got := w.Snapshots(); len(got) != 1 || got[0].ID != named.ID {
		t.Errorf("after the end of the session there are %+v", got)
	}
	wantLeft(t, w, named.ID)
	w.reopen(yaml)
	wantLeft(t, w, named.ID)
}

func TestAutosnapshotBefore(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{Auto: &config.Autosnapshot{Before: []string{"own__s*"}, Keep: 8}})
	other := w.opened(session.OpenOptions{})
	for _, x := range []*session.Session{s, other} {
		dump(t, x, "own")
		set(t, x, "own", "it", "1")
		set(t, x, "mem", "it", "1")
		set(t, x, "own", "it", "2")
	}
	if a, b := w.ring(s), w.ring(other); len(a) != 2 || len(b) != 0 {
		t.Fatalf("%d and %d snapshots", len(a), len(b))
	}
	w.rewound(s, w.ring(s)[1].ID)
	wantDump(t, "before the second", s, "own", `{"it":"1"}`)
	// A nested call is part of the one that was preceded by a snapshot.
	ctx, leave := entered(t, t.Context(), s, "set")
	do(ctx, t, s, "own", "set", "k", "it", "v", "3")
	leave()
	if n := len(w.ring(s)); n != 3 {
		t.Errorf("%d snapshots", n)
	}
	// A call that must be preceded by one is not made without.
	w.m.fail("freeze own", 0)
	testkit.Has(t, "a call without its snapshot", do(t.Context(), t, s, "own", "set", "k", "it", "v", "4"), "refused: ", "own__set", errFailed.Error())
	wantDump(t, "after it", s, "own", `{"it":"3"}`)
	// A fork has it too.
	child := w.fork(s, 1)[0]
	set(t, child, "own", "it", "5")
	if n := len(w.ring(child)); n != 1 {
		t.Errorf("%d snapshots of the fork", n)
	}
	w.crash(kept)
	set(t, w.Get(child.ID), "own", "it", "6")
	if n := len(w.ring(w.Get(child.ID))); n != 2 {
		t.Errorf("%d snapshots of the fork after a restart", n)
	}
}

// Where a snapshot is only due now and then, a call goes on without.
func TestAutosnapshotThatFails(t *testing.T) {
	w := newWorld(t, "sessions: {autosnapshot: {every: 1}}\n"+kept)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "it", "1")
	w.m.fail("freeze own", 0)
	set(t, s, "own", "it", "2")
	if n := len(w.ring(s)); n != 0 {
		t.Errorf("%d snapshots", n)
	}
	set(t, s, "own", "it", "3")
	if n := len(w.ring(s)); n != 1 {
		t.Errorf("%d snapshots", n)
	}
}

// The session ends while a snapshot of it is written down.
func TestCloseDuringAnAutosnapshot(t *testing.T) {
	w := newWorld(t, "sessions: {autosnapshot: {before: [\"own__*\"]}}\n"+kept)
	s := w.opened(session.OpenOptions{})
	there, letOn := w.m.block("put snapshot", 0)
	called := make(chan string, 1)
	go func() { called <- do(context.Background(), t, s, "own", "set", "k", "it", "v", "1") }()
	testkit.Within(t, "the snapshot", there)
	w.CloseSession(t.Context(), s)
	letOn()
	testkit.Has(t, "the call", testkit.Within(t, "its end", called), "refused: ", "closed")
	if n := len(w.Snapshots()); n != 0 {
		t.Errorf("%d snapshots are left", n)
	}
	wantLeft(t, w)
}
