package session_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

// seeing has two servers that see the workspace: what one writes the other
// reads. One is a program, so it is a folder.
const seeing = `
servers:
  own: {command: own, state: [data], args: ["${state.data}"]}
  prog: {command: prog, workspace: true, fork: files}
  tree: {builtin: files}
`

// inside is the same without a program: the workspace is a tree.
const inside = `
servers:
  mem: {builtin: memory}
  tree: {builtin: files}
`

func TestForkIsolates(t *testing.T) {
	for name, tt := range map[string]struct{ yaml, keeps, writes, reads string }{
		"with a program": {seeing, "own", "prog", "tree"},
		"all inside":     {inside, "mem", "tree", "tree"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.yaml)
			ctx := t.Context()
			write := func(s *session.Session, text string) {
				t.Helper()
				set(t, s, tt.keeps, "at", text)
				if got := do(ctx, t, s, tt.writes, "write", "path", "f", "text", text); got != `"ok"` {
					t.Fatal(got)
				}
			}
			holds := func(what string, s *session.Session, text string) {
				t.Helper()
				wantDump(t, what, s, tt.keeps, `{"at":"`+text+`"}`)
				if got := do(ctx, t, s, tt.reads, "read", "path", "f"); got != `"`+text+`"` {
					t.Errorf("%s: the file has %s, want %s", what, got, text)
				}
			}
			parent := w.opened(session.OpenOptions{})
			write(parent, "before")
			c := w.fork(parent, 3)
			holds("a child", c[0], "before")
			write(parent, "parent")
			write(c[1], "second")
			holds("a sibling", c[0], "before")
			holds("the one that wrote", c[1], "second")
			holds("the parent", parent, "parent")
			// A fork of a fork, and the end of those in between.
			grand := w.fork(c[1], 1)[0]
			w.CloseSession(ctx, c[1])
			w.CloseSession(ctx, parent)
			holds("the grandchild", grand, "second")
			write(grand, "grand")
			holds("the last child", c[2], "before")
			// All of it over a restart.
			w.crash(tt.yaml)
			holds("the grandchild after a restart", w.Get(grand.ID), "grand")
			holds("a child after a restart", w.Get(c[0].ID), "before")
			for _, s := range w.Sessions() {
				w.CloseSession(ctx, s)
			}
			wantLeft(t, w)
			if n := w.layersLeft(); n != 0 {
				t.Errorf("%d layers are left", n)
			}
			w.runs("")
		})
	}
}

func TestForksOfForks(t *testing.T) {
	w := newWorld(t, inside)
	s := w.opened(session.OpenOptions{Labels: map[string]string{"root": "yes"}})
	first := s
	const depth = 30
	for n := range depth {
		k := fmt.Sprint(n)
		set(t, s, "mem", k, "v")
		do(t.Context(), t, s, "tree", "write", "path", k, "text", k)
		s = w.fork(s, 1)[0]
		if n%7 == 6 {
			w.CloseSession(t.Context(), w.Get(s.Parent))
		}
	}
	if got := strings.Count(dump(t, s, "mem"), "v"); got != depth {
		t.Errorf("the last one remembers %d of %d", got, depth)
	}
	for _, k := range []string{"0", fmt.Sprint(depth - 1)} {
		if got := do(t.Context(), t, s, "tree", "read", "path", k); got != `"`+k+`"` {
			t.Errorf("file %s of the last one has %s", k, got)
		}
	}
	if d := w.Describe(s, false); d.Depth != depth || d.Labels["root"] != "yes" {
		t.Errorf("the last one is %+v", d)
	}
	// The whole line is known, closed ones too.
	tree, err := w.Family(t.Context(), s.ID)
	if err != nil {
		t.Fatal(err)
	}
	n, closed := 0, 0
	for at := &tree; ; at = &at.Children[0] {
		if at.Session.Depth != n || at.Session.ID == "" {
			t.Fatalf("at depth %d the family has %+v", n, at.Session)
		}
		if !at.Session.Closed.IsZero() {
			closed++
		}
		if len(at.Children) == 0 {
			if at.Session.ID != s.ID {
				t.Errorf("the line ends with %s", at.Session.ID)
			}
			break
		}
		n++
	}
	if tree.Session.ID != first.ID || n != depth || closed != 4 {
		t.Errorf("the family begins with %s and is %d deep, %d closed", tree.Session.ID, n, closed)
	}
}

func TestForkOfMany(t *testing.T) {
	w := newWorld(t, inside)
	s := w.opened(session.OpenOptions{})
	set(t, s, "mem", "a", "1")
	do(t.Context(), t, s, "tree", "write", "path", "f", "text", "x")
	const count = 100
	f, err := w.Fork(t.Context(), s, session.ForkOptions{Count: count})
	if err != nil {
		t.Fatal(failure(err))
	}
	if len(f.Children) != count || len(f.Tokens) != count {
		t.Fatalf("%d children, %d tokens", len(f.Children), len(f.Tokens))
	}
	ids, tokens := map[string]bool{s.ID: true}, map[string]bool{}
	for i, c := range f.Children {
		ids[c.ID], tokens[f.Tokens[i]] = true, true
		sum := sha256.Sum256([]byte(f.Tokens[i]))
		if found, _, _ := w.ByToken(hex.EncodeToString(sum[:])); found != c {
			t.Errorf("the token of %s leads to %v", c.ID, found)
		}
		if i%20 == 0 {
			wantDump(t, "a child", c, "mem", `{"a":"1"}`)
			if got := do(t.Context(), t, c, "tree", "read", "path", "f"); got != `"x"` {
				t.Errorf("a child's file has %s", got)
			}
		}
	}
	if len(ids) != count+1 || len(tokens) != count {
		t.Errorf("%d ids and %d tokens", len(ids), len(tokens))
	}
	// Members that are light start when they are used.
	if got := w.m.passed("start mem"); got != 6 {
		t.Errorf("%d were started", got)
	}
	if found, _, _ := w.ByToken(strings.Repeat("0", 64)); found != nil {
		t.Error("an unknown token leads to a session")
	}
}

func TestWhatForksInherit(t *testing.T) {
	for name, tt := range map[string]struct {
		open    session.OpenOptions
		fork    session.ForkOptions
		labels  map[string]string
		ttl     time.Duration
		idle    string
		servers int
	}{
		"nothing set":     {session.OpenOptions{}, session.ForkOptions{}, nil, 2 * time.Hour, "1h0m0s", 3},
		"the parent's":    {session.OpenOptions{Labels: map[string]string{"a": "1", "b": "1"}, Idle: time.Minute, Servers: []string{"mem", "all"}}, session.ForkOptions{}, map[string]string{"a": "1", "b": "1"}, 2 * time.Hour, "1m0s", 2},
		"the fork's":      {session.OpenOptions{Labels: map[string]string{"a": "1", "b": "1"}, Idle: time.Minute}, session.ForkOptions{Labels: map[string]string{"b": "2", "c": "3"}, TTL: time.Minute, Idle: time.Second}, map[string]string{"a": "1", "b": "2", "c": "3"}, time.Minute, "1s", 3},
		"first labels":    {session.OpenOptions{}, session.ForkOptions{Labels: map[string]string{"x": "y"}}, map[string]string{"x": "y"}, 2 * time.Hour, "1h0m0s", 3},
		"none of either":  {session.OpenOptions{TTL: -1, Idle: -1}, session.ForkOptions{TTL: -1, Idle: -1}, nil, 0, "", 3},
		"no idle of hers": {session.OpenOptions{Idle: -1}, session.ForkOptions{}, nil, 2 * time.Hour, "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "sessions: {ttl: 2h, idle: 1h}\n"+kept)
			tt.open.Owner = session.Owner{Name: "ada", Pinned: []byte(`{"role":"x"}`)}
			parent := w.opened(tt.open)
			tt.fork.Count = 2
			f, err := w.Fork(t.Context(), parent, tt.fork)
			if err != nil {
				t.Fatal(failure(err))
			}
			check := func(c *session.Session) {
				t.Helper()
				d := w.Describe(c, true)
				if !maps.Equal(d.Labels, tt.labels) || d.Idle != tt.idle || len(d.Members) != tt.servers {
					t.Errorf("a child has labels %v, idle %q and %d members", d.Labels, d.Idle, len(d.Members))
				}
				if left := d.Expires.Sub(d.Created); tt.ttl == 0 != d.Expires.IsZero() || tt.ttl > 0 && (left-tt.ttl).Abs() > time.Minute/2 {
					t.Errorf("a child expires %v after it was made, want %v", left, tt.ttl)
				}
				if d.Parent != parent.ID || d.Depth != 1 || d.Owner != "ada" || d.Kind != api.SessionOpened {
					t.Errorf("a child is %+v", d)
				}
			}
			sum := sha256.Sum256([]byte(f.Tokens[1]))
			check(f.Children[0])
			// The labels are each one's own.
			if err := w.Amend(t.Context(), f.Children[0], map[string]string{"mine": "1"}, nil, nil); err != nil {
				t.Fatal(err)
			}
			check(f.Children[1])
			w.reopen("sessions: {ttl: 2h, idle: 1h}\n" + kept)
			check(w.Get(f.Children[1].ID))
			found, owner, _ := w.ByToken(hex.EncodeToString(sum[:]))
			if found == nil || found.ID != f.Children[1].ID || owner.Name != "ada" || string(owner.Pinned) != `{"role":"x"}` {
				t.Errorf("after a restart the token leads to %v of %+v", found, owner)
			}
			if got := w.Describe(w.Get(f.Children[0].ID), false).Labels; len(got) != 1 || got["mine"] != "1" {
				t.Errorf("what was amended is %v after a restart", got)
			}
		})
	}
}

// The parent goes on while its children are made.
func TestParentGoesOnWhileChildrenAreMade(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "a", "1")
	there, letOn := w.m.block("seed own", 0)
	defer letOn()
	forked := w.forking(t.Context(), s, session.ForkOptions{Count: 2})
	testkit.Within(t, "the first child", there)
	set(t, s, "own", "a", "2")
	if snap := w.frozen(s, ""); snap.Session != s.ID {
		t.Errorf("a snapshot meanwhile is %+v", snap)
	}
	// Children that are not whole are not kept.
	if n := len(w.Sessions()); n != 1 {
		t.Errorf("%d sessions are there before they are whole", n)
	}
	if all, err := w.db.Sessions(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("%d sessions are recorded before they are whole, %v", len(all), err)
	}
	letOn()
	if err := testkit.Within(t, "the fork", forked); err != nil {
		t.Fatal(failure(err))
	}
	for _, c := range w.Sessions() {
		if c != s {
			wantDump(t, "a child", c, "own", `{"a":"1"}`)
		}
	}
}

func TestForkOfWhatIsNotThere(t *testing.T) {
	w := newWorld(t, kept)
	s := w.opened(session.OpenOptions{})
	for _, count := range []int{0, -1} {
		_, err := w.Fork(t.Context(), s, session.ForkOptions{Count: count})
		testkit.Has(t, "a fork of none", failure(err), "invalid: ", "count")
	}
	w.CloseSession(t.Context(), s)
	_, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1})
	testkit.Has(t, "a fork of what is closed", failure(err), "refused: ", s.ID, "closed")
	_, err = w.Freeze(t.Context(), s, session.SnapshotOptions{})
	testkit.Has(t, "a snapshot of what is closed", failure(err), "refused: ", "closed")
	if _, err := w.Family(context.Background(), "ses_000000000000"); !strings.Contains(failure(err), "there is no session") {
		t.Errorf("the family of an unknown session: %v", err)
	}
	wantLeft(t, w)
}
