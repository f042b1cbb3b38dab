package session_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
)

// story is the trajectory of a session, a line a step: calls by what they set,
// ~ before those that were undone, the others by their kind.
func (w *world) story(id string) string {
	w.t.Helper()
	var out []string
	last := int64(0)
	err := w.Trajectory(w.t.Context(), id, func(s api.Step) error {
		line := s.Type
		switch s.Type {
		case "call":
			var a map[string]string
			if err := json.Unmarshal(s.Arguments, &a); err != nil {
				w.t.Errorf("the arguments of %+v: %v", s, err)
			}
			line = a["v"]
			if s.Undone {
				line = "~" + line
			}
			if s.Step != last+1 || s.Server == "" || s.Method != "tools/call" || s.ID == "" || string(s.Result) != `"ok"` || s.Outcome != "ok" || s.At.IsZero() {
				w.t.Errorf("after step %d comes %+v with result %s", last, s, s.Result)
			}
			last = s.Step
		default:
			if s.Step != last {
				w.t.Errorf("after step %d comes %+v", last, s)
			}
		}
		out = append(out, line)
		return nil
	})
	if err != nil {
		w.t.Fatal(failure(err))
	}
	return strings.Join(out, " ")
}

func wantStory(t *testing.T, w *world, what, id, want string) {
	t.Helper()
	if got := w.story(id); got != want {
		t.Errorf("%s is told as\n\t%s, want\n\t%s", what, got, want)
	}
}

func recording(t *testing.T, yaml string) *world {
	t.Helper()
	return makeWorld(t, yaml, func(w *world) { w.records = true })
}

func TestTrajectory(t *testing.T) {
	w := recording(t, kept)
	ctx := t.Context()
	root := w.opened(session.OpenOptions{Labels: map[string]string{"a": "1"}})
	set(t, root, "own", "it", "r1")
	set(t, root, "mem", "it", "r2")
	child := w.fork(root, 2)[0]
	set(t, root, "own", "it", "r3")
	set(t, child, "own", "it", "c1")
	snap := w.frozen(child, "")
	set(t, child, "own", "it", "c2")
	set(t, child, "mem", "it", "c3")
	w.rewound(child, snap.ID)
	set(t, child, "own", "it", "c4")
	grand := w.fork(child, 1)[0]
	set(t, child, "own", "it", "c5")
	w.rewound(child, snap.ID) // nothing to the grandchild
	set(t, grand, "own", "it", "g1")
	w.CloseSession(ctx, root)
	w.CloseSession(ctx, child)
	check := func() {
		t.Helper()
		wantStory(t, w, "the root", root.ID, "session r1 r2 fork r3 close")
		wantStory(t, w, "the child", child.ID, "session r1 r2 fork session c1 snapshot ~c2 ~c3 rewind ~c4 fork ~c5 rewind close")
		wantStory(t, w, "the grandchild", grand.ID, "session r1 r2 fork session c1 snapshot ~c2 ~c3 rewind c4 fork session g1")
	}
	check()
	w.reopen(kept)
	check()
	// What each line says.
	var steps []api.Step
	if err := w.Trajectory(ctx, grand.ID, func(s api.Step) error { steps = append(steps, s); return nil }); err != nil {
		t.Fatal(err)
	}
	if s := steps[0]; s.Session != root.ID || s.Labels["a"] != "1" || s.Parent != "" {
		t.Errorf("the first line is %+v", s)
	}
	if s := steps[1]; string(s.Arguments) != `{"k":"it","v":"r1"}` || s.Name != "set" || s.Server != "own" {
		t.Errorf("the first call is %+v with %s", s, s.Arguments)
	}
	if s := steps[3]; len(s.Children) != 2 || !slices.Contains(s.Children, child.ID) {
		t.Errorf("the fork is %+v", s)
	}
	if s := steps[4]; s.Session != child.ID || s.Parent != root.ID || s.Step != 2 {
		t.Errorf("the second session is %+v", s)
	}
	if s := steps[6]; s.Snapshot != snap.ID {
		t.Errorf("the snapshot is %+v", s)
	}
	if s := steps[9]; s.Type != "rewind" || s.Snapshot != snap.ID {
		t.Errorf("the rewind is %+v", s)
	}
	if err := w.Trajectory(ctx, "ses_000000000000", func(api.Step) error { return nil }); !strings.Contains(failure(err), "there is no session") {
		t.Errorf("the story of an unknown session: %v", err)
	}
	if err := w.Trajectory(ctx, grand.ID, func(api.Step) error { return errFailed }); err == nil || !strings.Contains(err.Error(), errFailed.Error()) {
		t.Errorf("a listener that fails: %v", err)
	}
}

// A search goes back and forth between snapshots: what the state has counts, and no more.
func TestTrajectoryOfASearch(t *testing.T) {
	w := recording(t, kept)
	s := w.opened(session.OpenOptions{})
	set(t, s, "own", "it", "a")
	first := w.frozen(s, "")
	set(t, s, "own", "it", "b")
	second := w.frozen(s, "")
	set(t, s, "own", "it", "c")
	w.rewound(s, first.ID)
	set(t, s, "own", "it", "d")
	third := w.frozen(s, "")
	wantStory(t, w, "the way back", s.ID, "session a snapshot ~b snapshot ~c rewind d snapshot")
	w.rewound(s, second.ID)
	set(t, s, "own", "it", "e")
	wantStory(t, w, "the way forth", s.ID, "session a snapshot b snapshot ~c rewind ~d snapshot rewind e")
	child := w.fork(s, 1)[0]
	w.rewound(s, third.ID)
	wantStory(t, w, "the other branch", s.ID, "session a snapshot ~b snapshot ~c rewind d snapshot rewind ~e fork rewind")
	wantStory(t, w, "a fork", child.ID, "session a snapshot b snapshot ~c rewind ~d snapshot rewind e fork session")
	w.rewound(s, first.ID)
	wantStory(t, w, "the beginning", s.ID, "session a snapshot ~b snapshot ~c rewind ~d snapshot rewind ~e fork rewind rewind")
}

// Of five generations each tells what is behind it, also when all others are
// closed, and nothing of its siblings.
func TestTrajectoryOfGenerations(t *testing.T) {
	w := recording(t, kept)
	s := w.opened(session.OpenOptions{})
	want, line := "", []*session.Session{s}
	for g := range 5 {
		want += " session"
		for n := range 3 {
			v := fmt.Sprintf("%d.%d", g, n)
			set(t, s, "mem", "it", v)
			want += " " + v
		}
		if g == 4 {
			break
		}
		want += " fork"
		both := w.fork(s, 2)
		set(t, s, "mem", "it", "after")
		set(t, both[0], "mem", "it", "sibling")
		s = both[1]
		line = append(line, s)
	}
	for _, old := range line[:4] {
		w.CloseSession(t.Context(), old)
	}
	wantStory(t, w, "the last", s.ID, strings.TrimSpace(want))
	w.crash(kept)
	wantStory(t, w, "the last", s.ID, strings.TrimSpace(want))
	w.CloseSession(t.Context(), w.Get(s.ID))
	wantStory(t, w, "the last", s.ID, strings.TrimSpace(want)+" close")
}

// A fork of a session that has made no call, and calls of others in between.
func TestTrajectoryWithoutCalls(t *testing.T) {
	w := recording(t, kept)
	s, other := w.opened(session.OpenOptions{}), w.opened(session.OpenOptions{})
	child := w.fork(s, 1)[0]
	set(t, other, "mem", "it", "o1")
	wantStory(t, w, "the child", child.ID, "session fork session")
	set(t, s, "mem", "it", "s1")
	set(t, child, "mem", "it", "c1")
	wantStory(t, w, "the child", child.ID, "session fork session c1")
	snap := w.frozen(s, "")
	from := w.opened(session.OpenOptions{From: snap.ID})
	set(t, from, "mem", "it", "f1")
	// One opened from a snapshot begins there; it has no parent.
	wantStory(t, w, "one from a snapshot", from.ID, "session f1")
	wantStory(t, w, "the first", s.ID, "session fork s1 snapshot")
}

// Long arguments, secrets and all: nothing is cut.
func TestTrajectoryIsWhole(t *testing.T) {
	w := recording(t, kept)
	s := w.opened(session.OpenOptions{})
	long := strings.Repeat("é\"<&>", 20_000)
	set(t, s, "mem", "password", long)
	var got map[string]string
	err := w.Trajectory(t.Context(), s.ID, func(s api.Step) error {
		if s.Type == "call" {
			return json.Unmarshal(s.Arguments, &got)
		}
		return nil
	})
	if err != nil || got["v"] != long || got["k"] != "password" {
		t.Errorf("%d of %d bytes are told, of %q, %v", len(got["v"]), len(long), got["k"], err)
	}
}
