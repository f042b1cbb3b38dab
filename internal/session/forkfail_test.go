package session_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

// All children come, or none: wherever one of them fails, nothing of any is
// left, and the parent goes on.
func TestForkIsAllOrNothing(t *testing.T) {
	const yaml = "sessions: {max: 6, per_principal: 6, instances: 12}\n" + kept + `
  ws: {builtin: files}
`
	for _, tt := range []struct {
		point string
		after int
	}{
		{"freeze own", 0}, {"froze own", 0}, {"freeze mem", 0},
		{"seed own", 2}, {"seeded own", 2}, {"seed mem", 2}, {"seed own", 4},
		{"start own", 2}, {"started own", 2}, {"put handle", 3},
		{"put sessions", 0},
	} {
		t.Run(fmt.Sprintf("%s %d", tt.point, tt.after), func(t *testing.T) {
			w := newWorld(t, yaml)
			s := w.opened(session.OpenOptions{})
			set(t, s, "own", "a", "1")
			set(t, s, "mem", "a", "1")
			do(t.Context(), t, s, "ws", "write", "path", "f", "text", "x")
			before, layers := strings.Join(w.left(), " "), w.layersLeft()
			w.m.fail(tt.point, tt.after)
			_, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 5})
			if err == nil {
				t.Fatal("it succeeded")
			}
			testkit.Has(t, "the error", err.Error(), errFailed.Error())
			w.m.forgive()
			if got := strings.Join(w.left(), " "); got != before {
				t.Errorf("left is %s, and it was %s", got, before)
			}
			if n := len(w.Sessions()); n != 1 {
				t.Errorf("%d sessions are known", n)
			}
			if all, err := w.db.Sessions(t.Context()); err != nil || len(all) != 1 {
				t.Errorf("%d sessions are recorded, %v", len(all), err)
			}
			w.runs("mem own ws")
			if got := w.handles(); got != "own" {
				t.Errorf("handles of %s", got)
			}
			wantDump(t, "the parent", s, "own", `{"a":"1"}`)
			set(t, s, "mem", "b", "2")
			if got := do(t.Context(), t, s, "ws", "read", "path", "f"); got != `"x"` {
				t.Errorf("the parent's file has %s", got)
			}
			// Places and budget are free again: there is room for five and no more.
			children := w.fork(s, 5)
			wantDump(t, "a child", children[4], "mem", `{"a":"1","b":"2"}`)
			if _, err := w.Fork(t.Context(), s, session.ForkOptions{Count: 1}); err == nil {
				t.Error("there is room for a sixth")
			}
			for _, c := range children {
				w.CloseSession(t.Context(), c)
			}
			if got := strings.Join(w.left(), " "); got != before {
				t.Errorf("in the end %s is left, and it was %s", got, before)
			}
			if got := w.layersLeft(); got > layers+1 {
				t.Errorf("%d layers are left and there were %d", got, layers)
			}
			if tree, err := w.Family(t.Context(), s.ID); err != nil || len(tree.Children) != 5 {
				t.Errorf("the family has %d children, %v", len(tree.Children), err)
			}
		})
	}
}

// Who asked for a fork leaves while the children are made.
func TestForkIsGivenUp(t *testing.T) {
	for _, point := range []string{"freeze own", "seed own", "start own"} {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t, kept)
			s := w.opened(session.OpenOptions{})
			set(t, s, "own", "a", "1")
			before := strings.Join(w.left(), " ")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			there, _ := w.m.block(point, 0)
			forked := w.forking(ctx, s, session.ForkOptions{Count: 3})
			testkit.Within(t, point, there)
			cancel()
			if err := testkit.Within(t, "the fork", forked); err == nil {
				t.Error("it succeeded")
			}
			w.m.forgive()
			if got := strings.Join(w.left(), " "); got != before || len(w.Sessions()) != 1 {
				t.Errorf("left is %s, and it was %s; %d sessions", got, before, len(w.Sessions()))
			}
			w.runs("own")
			wantDump(t, "the parent", s, "own", `{"a":"1"}`)
			wantDump(t, "a child", w.fork(s, 1)[0], "own", `{"a":"1"}`)
		})
	}
}

// Opening from a snapshot is all or nothing too.
func TestOpenIsAllOrNothing(t *testing.T) {
	for _, point := range []string{"seed own", "start own", "put sessions"} {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t, "sessions: {max: 1}\n"+kept)
			s := w.opened(session.OpenOptions{})
			set(t, s, "own", "a", "1")
			from := w.frozen(s, "base").ID
			w.CloseSession(t.Context(), s)
			before := strings.Join(w.left(), " ")
			w.m.fail(point, 0)
			_, _, err := w.OpenSession(t.Context(), session.OpenOptions{From: from})
			if err == nil {
				t.Fatal("it succeeded")
			}
			if got := strings.Join(w.left(), " "); got != before || len(w.Sessions()) != 0 {
				t.Errorf("left is %s, and it was %s; %d sessions", got, before, len(w.Sessions()))
			}
			w.runs("")
			w.opened(session.OpenOptions{From: from})
		})
	}
}

// A session that is whole just when the gateway stops is either there after the
// next start, or nothing of it is.
func TestOpenWhileTheGatewayStops(t *testing.T) {
	for _, point := range []string{"start own", "put sessions", "put events"} {
		t.Run(point, func(t *testing.T) {
			w := newWorld(t, kept)
			there, letOn := w.m.block(point, 0)
			opened := make(chan error, 1)
			go func() {
				_, _, err := w.OpenSession(context.Background(), session.OpenOptions{Eager: true})
				opened <- err
			}()
			testkit.Within(t, point, there)
			w.Registry.Close(context.Background(), true)
			letOn()
			err := testkit.Within(t, "the opening", opened)
			w.closeStores()
			w.open(kept)
			if n := len(w.Sessions()); (n == 1) != (err == nil) {
				t.Errorf("%d sessions came back, and it ended with %v", n, err)
			}
			if err != nil {
				w.runs("")
				wantLeft(t, w)
			}
		})
	}
}

// A server that could not be started stands in the way of no fork: the child tries
// again with its first call.
func TestForkOfWhatCannotStart(t *testing.T) {
	for name, keys := range map[string]string{"lazy": "", "eager": ", eager: true"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "servers:\n  bad: {command: missing, args: ['${state.data}'], state: [data]"+keys+"}\n  own: {command: own, args: ['${state.data}'], state: [data]}\n")
			s := w.session("ada")
			testkit.Has(t, "its call", call(t, s, "bad", "x"), "not found on PATH")
			set(t, s, "own", "a", "1")
			child := w.fork(s, 1)[0]
			wantDump(t, "the child", child, "own", `{"a":"1"}`)
			testkit.Has(t, "the child's call", call(t, child, "bad", "x"), "not found on PATH")
			snap := w.frozen(s, "")
			if keys != "" {
				return // a session that is opened says so at once
			}
			wantDump(t, "what is opened from a snapshot", w.opened(session.OpenOptions{From: snap.ID}), "own", `{"a":"1"}`)
		})
	}
	t.Run("what runs is started", func(t *testing.T) {
		w := newWorld(t, kept)
		s := w.opened(session.OpenOptions{})
		set(t, s, "own", "a", "1")
		w.fork(s, 2)
		w.runs("own own own")
	})
}
