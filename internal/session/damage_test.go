package session_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

var torn = api.Damage{Server: "own", Why: "its log was cut", Kept: api.KeptPart}

// damaged says in short what a session is damaged by.
func damaged(all []api.Damage) string {
	out := ""
	for _, d := range all {
		if d.At.IsZero() {
			out += "(at no time) "
		}
		out += d.Text() + "\n"
	}
	return out
}

func wantDamage(t *testing.T, what string, all []api.Damage, want string) {
	t.Helper()
	if got := damaged(all); got != want {
		t.Errorf("%s is damaged by %q, want %q", what, got, want)
	}
}

const tornText = "server \"own\": its log was cut; kept: part\n"

// lines are the steps of a session's trajectory, calls left out.
func (w *world) lines(s *session.Session) string {
	w.t.Helper()
	out := ""
	err := w.Trajectory(context.Background(), s.ID, func(st api.Step) error {
		if st.Type != "call" {
			out += st.Type + " " + st.Server + " " + st.Kept + " " + st.Reason + "|"
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out
}

// A damaged session stays so, and everything that is made of it is damaged too,
// until it is rewound to before.
func TestDamageLastsAndIsInherited(t *testing.T) {
	w := newWorld(t, lasting)
	s := w.opened(session.OpenOptions{Servers: []string{"own", "mem", "tree"}})
	w.remember(s, "then")
	before := w.frozen(s, "before")
	w.Damage(s, torn)
	w.Damage(s, api.Damage{Server: "mem", Why: "it ended", Kept: api.KeptFiles})
	w.Damage(s, torn)
	both := "server \"own\": its log was cut; kept: part (2 times)\nserver \"mem\": it ended; kept: files\n"
	wantDamage(t, "the session", w.Describe(s, true).Damaged, both)
	testkit.Has(t, "its trajectory", w.lines(s), "damage own part its log was cut|damage mem files it ended|damage own part its log was cut|")

	child := w.fork(s, 1)[0]
	wantDamage(t, "a fork", child.Damaged(), both)
	after := w.frozen(s, "after")
	wantDamage(t, "a snapshot", after.Damaged, both)
	w.crash(lasting)
	s, child = w.Get(s.ID), w.Get(child.ID)
	wantDamage(t, "the session after a restart", s.Damaged(), both)
	wantDamage(t, "the fork after a restart", child.Damaged(), both)
	found, _, err := w.Find(context.Background(), store.SessionFilter{})
	if err != nil || len(found) != 2 || len(found[0].Damaged) != 2 || len(found[1].Damaged) != 2 {
		t.Errorf("the list of sessions is %+v, %v", found, err)
	}
	wantDamage(t, "a session of the snapshot", w.opened(session.OpenOptions{From: after.ID}).Damaged(), both)
	wantDamage(t, "one that has only the other server",
		w.opened(session.OpenOptions{From: after.ID, Servers: []string{"mem"}}).Damaged(), "server \"mem\": it ended; kept: files\n")
	var file bytes.Buffer
	if err := w.Export(context.Background(), after.ID, nil, &file); err != nil {
		t.Fatal(err)
	}
	in, err := w.Import(context.Background(), session.ImportOptions{Name: "again"}, &file)
	if err != nil {
		t.Fatal(err)
	}
	wantDamage(t, "an imported snapshot", in.Damaged, both)

	if err := w.Rewind(context.Background(), s, before.ID, 0); err != nil {
		t.Fatal(err)
	}
	wantDamage(t, "what was rewound to before", s.Damaged(), "")
	if err := w.Rewind(context.Background(), s, after.ID, 0); err != nil {
		t.Fatal(err)
	}
	wantDamage(t, "what was rewound to after", s.Damaged(), both)
	w.CloseSession(context.Background(), child)
	w.Damage(child, torn)
	ended, ok, err := w.Closed(context.Background(), child.ID)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	wantDamage(t, "what was closed", ended.Damaged, both)
}

// A session that begins with a part of a damaged snapshot has the damage of that
// part, whether the session or the config named the snapshot.
func TestDamageOfATemplate(t *testing.T) {
	w := newWorld(t, inside)
	s := w.opened(session.OpenOptions{})
	set(t, s, "mem", "a", "1")
	do(t.Context(), t, s, "tree", "write", "path", "f", "text", "x")
	w.Damage(s, api.Damage{Server: "mem", Why: "its log was cut", Kept: api.KeptPart})
	w.Damage(s, api.Damage{Why: "a file is gone", Kept: api.KeptPart})
	w.Damage(s, api.Damage{Server: "other", Why: "it ended", Kept: api.KeptNothing})
	snap := w.frozen(s, "base")
	mem := fmt.Sprintf("server \"mem\": it began with snapshot %s, which is damaged: its log was cut; kept: part\n", snap.ID)
	both := fmt.Sprintf("it began with snapshot %s, which is damaged: a file is gone; kept: part\n%s", snap.ID, mem)

	one := w.opened(session.OpenOptions{Members: map[string]catalog.Member{"mem": {Template: raw("snapshot:base")}}})
	wantDamage(t, "one that asked for it", one.Damaged(), mem)
	const from = `
workspace: {template: "snapshot:base"}
servers:
  mem: {builtin: memory, template: "snapshot:base"}
  tree: {builtin: files}
`
	w.apply(from)
	n := w.opened(session.OpenOptions{})
	wantDamage(t, "one that used nothing yet", n.Damaged(), "")
	if got := do(t.Context(), t, n, "tree", "read", "path", "f"); got != `"x"` {
		t.Errorf("its file has %s", got)
	}
	wantDump(t, "one with the config's template", n, "mem", `{"a":"1"}`)
	wantDamage(t, "one with the config's template", n.Damaged(), both)
	w.crash(from)
	wantDamage(t, "after a restart", w.Get(n.ID).Damaged(), both)
	wantDamage(t, "who asked, after a restart", w.Get(one.ID).Damaged(), mem)
}

// A damage names the last call of its own session, whatever other sessions called meanwhile.
func TestTheCallBeforeADamage(t *testing.T) {
	w := recording(t, lasting)
	s := w.opened(session.OpenOptions{Servers: []string{"own", "mem", "tree"}})
	named := func(what string, s *session.Session, want string) {
		t.Helper()
		w.Damage(s, api.Damage{Server: what, Why: "it ended", Kept: api.KeptNothing})
		all := s.Damaged()
		if got := all[len(all)-1].Call; got != want {
			t.Errorf("%s: the last call before the damage is %q, want %q", what, got, want)
		}
	}
	named("before the first call", s, "")
	set(t, s, "mem", "a", "1")
	own := store.CallID(w.journal.Last())
	child := w.fork(s, 1)[0]
	set(t, child, "mem", "a", "2")
	named("after a call of a fork", s, own)
	named("of the fork", child, store.CallID(w.journal.Last()))
	w.Network(t.Context(), driver.Network{Session: s.ID, Server: "own", Host: "a.example", Port: 443})
	named("after a connection", s, own)
	w.crash(lasting)
	named("after a restart", w.Get(s.ID), own)
}

// failing is a store whose sessions can't be written for a while.
type failing struct {
	store.Store
	fails bool
}

func (f *failing) PutSessions(ctx context.Context, all ...store.Session) error {
	if f.fails {
		return errors.New("the disk is full")
	}
	return f.Store.PutSessions(ctx, all...)
}

// A mark that could not be written counts, and is written with the next change.
func TestDamageThatCannotBeWritten(t *testing.T) {
	var db *failing
	w := makeWorld(t, lasting, func(w *world) {
		w.wrap = func(s store.Store) store.Store {
			db = &failing{Store: s}
			return db
		}
	})
	s := w.opened(session.OpenOptions{})
	db.fails = true
	w.Damage(s, torn)
	wantDamage(t, "the session", s.Damaged(), tornText)
	db.fails = false
	if err := w.Amend(context.Background(), s, map[string]string{"a": "b"}, nil, nil); err != nil {
		t.Fatal(err)
	}
	w.crash(lasting)
	wantDamage(t, "the session after a restart", w.Get(s.ID).Damaged(), tornText)
}
