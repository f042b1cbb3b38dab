package session_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
)

// sound sees whether every folder, record, handle and instance has an owner.
func (w *world) sound() {
	w.t.Helper()
	ctx := context.Background()
	homes, states := map[string]bool{}, map[string]bool{}
	shares := map[string]bool{}
	for _, s := range w.Sessions() {
		homes["sessions/"+s.ID] = true
		// What a fork shares lies with one of its ancestors.
		for p := s.Parent; p != ""; {
			shares["sessions/"+p] = true
			rec, ok, err := w.db.Session(ctx, p)
			if err != nil || !ok {
				w.t.Fatalf("the parent %s of %s is forgotten, %v", p, s.ID, err)
			}
			p = rec.Parent
		}
	}
	for _, s := range w.Snapshots() {
		homes["snapshots/"+s.ID] = true
	}
	for _, path := range w.left() {
		parts := strings.Split(path, "/")
		home := strings.Join(parts[:2], "/")
		switch {
		case homes[home]:
		case shares[home] && (len(parts) == 2 || parts[2] == "both"):
		default:
			w.t.Errorf("%s is left and has no owner", path)
		}
		if len(parts) == 3 && parts[0] == "sessions" {
			// One state for each server, of whatever version.
			server, _, _ := strings.Cut(parts[2], ".")
			if states[home+server] {
				w.t.Errorf("there are two states of %s in %s: %q", server, home, w.left())
			}
			states[home+server] = true
		}
	}
	recs, err := w.db.Sessions(ctx)
	if err != nil || len(recs) != len(w.Sessions()) {
		w.t.Errorf("%d sessions are recorded, %d known, %v", len(recs), len(w.Sessions()), err)
	}
	snaps, err := w.db.Snapshots(ctx)
	if err != nil || len(snaps) != len(w.Snapshots()) {
		w.t.Errorf("%d snapshots are recorded, %d known, %v", len(snaps), len(w.Snapshots()), err)
	}
	hs, err := w.db.Handles(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	dirs := map[string]bool{}
	for _, h := range hs {
		dirs[h.Dir] = true
	}
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	for _, p := range w.m.procs {
		if p.kind == "process" && !p.over() {
			if !dirs[p.spec.Dir] {
				w.t.Errorf("an unknown instance of %s runs", p.spec.Server)
			}
			delete(dirs, p.spec.Dir)
		}
	}
	for dir := range dirs {
		w.t.Errorf("there is a handle of %s, which does not run", dir)
	}
}

// A scene is something during which a gateway dies.
type scene struct {
	prepare func(w *world) any
	act     func(w *world, from any) (any, error)
	// check looks at the world afterwards: result is what was answered, nil when nothing was.
	check func(w *world, from, result any)
}

type forkedFrom struct {
	parent, child *session.Session
	snap          string
}

var scenes = map[string]scene{
	"open": {
		prepare: func(*world) any { return nil },
		act: func(w *world, _ any) (any, error) {
			s, _, err := w.OpenSession(context.Background(), session.OpenOptions{Eager: true})
			return s, err
		},
		check: func(w *world, _, result any) {
			if result == nil {
				if n := len(w.Sessions()); n > 1 {
					w.t.Errorf("%d sessions", n)
				}
				return
			}
			w.remembers("what was opened", w.Get(result.(*session.Session).ID), "")
		},
	},
	"fork": {
		prepare: func(w *world) any {
			s := w.opened(session.OpenOptions{})
			w.remember(s, "then")
			return forkedFrom{parent: s}
		},
		act: func(w *world, from any) (any, error) {
			f, err := w.Fork(context.Background(), from.(forkedFrom).parent, session.ForkOptions{Count: 2})
			if err != nil {
				return nil, err
			}
			return f.Children, nil
		},
		check: func(w *world, from, result any) {
			w.remembers("the parent", w.Get(from.(forkedFrom).parent.ID), "then")
			if n := len(w.Sessions()); n != 1 && n != 3 || result != nil && n != 3 {
				w.t.Errorf("%d sessions", n)
			}
			for _, s := range w.Sessions() {
				w.remembers("a child", s, "then")
			}
		},
	},
	"snapshot": {
		prepare: func(w *world) any {
			s := w.opened(session.OpenOptions{})
			w.remember(s, "then")
			return forkedFrom{parent: s}
		},
		act: func(w *world, from any) (any, error) {
			snap, err := w.Freeze(context.Background(), from.(forkedFrom).parent, session.SnapshotOptions{Name: "n"})
			return snap.ID, err
		},
		check: func(w *world, from, result any) {
			w.remembers("the session", w.Get(from.(forkedFrom).parent.ID), "then")
			snaps := w.Snapshots()
			if result != nil && (len(snaps) != 1 || snaps[0].ID != result) {
				w.t.Errorf("the snapshots are %+v", snaps)
			}
			for _, snap := range snaps {
				s := w.opened(session.OpenOptions{From: snap.ID})
				for _, server := range []string{"own", "mem"} {
					wantDump(w.t, "from the snapshot", s, server, `{"it":"then"}`)
				}
				w.CloseSession(context.Background(), s)
			}
		},
	},
	"rewind": {
		prepare: func(w *world) any {
			s := w.opened(session.OpenOptions{Servers: []string{"own", "mem", "tree"}})
			w.remember(s, "then")
			snap := w.frozen(s, "")
			w.remember(s, "now")
			return forkedFrom{parent: s, snap: snap.ID}
		},
		act: func(w *world, from any) (any, error) {
			return true, w.Rewind(context.Background(), from.(forkedFrom).parent, from.(forkedFrom).snap, 0)
		},
		check: func(w *world, from, result any) {
			s := w.Get(from.(forkedFrom).parent.ID)
			if s == nil {
				w.t.Error("the session is gone")
				return
			}
			// One or the other, whole.
			at := "now"
			if strings.Contains(dump(w.t, s, "own"), "then") || result != nil {
				at = "then"
			}
			w.remembers("the session", s, at)
		},
	},
	"close": {
		prepare: func(w *world) any {
			s := w.opened(session.OpenOptions{})
			w.remember(s, "then")
			child := w.fork(s, 1)[0]
			w.frozen(s, "stays")
			return forkedFrom{parent: s, child: child}
		},
		act: func(w *world, from any) (any, error) {
			w.CloseSession(context.Background(), from.(forkedFrom).parent)
			return true, nil
		},
		check: func(w *world, from, result any) {
			f := from.(forkedFrom)
			w.remembers("the child", w.Get(f.child.ID), "then")
			if s := w.Get(f.parent.ID); s != nil {
				if result != nil {
					w.t.Error("what was closed is open")
				}
				w.remembers("the parent", s, "then")
			}
		},
	},
	"delete a snapshot": {
		prepare: func(w *world) any {
			s := w.opened(session.OpenOptions{})
			w.remember(s, "then")
			return forkedFrom{parent: s, snap: w.frozen(s, "").ID}
		},
		act: func(w *world, from any) (any, error) {
			return true, w.DeleteSnapshot(context.Background(), from.(forkedFrom).snap)
		},
		check: func(w *world, from, result any) {
			w.remembers("the session", w.Get(from.(forkedFrom).parent.ID), "then")
			if n := len(w.Snapshots()); result != nil && n > 0 {
				w.t.Errorf("%d snapshots", n)
			}
		},
	},
}

// The gateway dies at every step: what was answered is there, with its state,
// and nothing else is left.
func TestDeathAtEveryStep(t *testing.T) {
	for name, sc := range scenes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for n := 0; ; n++ {
				over := false
				ok := t.Run(fmt.Sprint(n), func(t *testing.T) {
					w := newWorld(t, lasting)
					from := sc.prepare(w)
					passed := len(w.m.points)
					crashed := w.dieAt(anyStep, n)
					result, err := sc.act(w, from)
					if !crashed() {
						over = true
						if err != nil {
							t.Errorf("without a death: %s", failure(err))
						}
						w.m.forgive()
						w.sound()
						return
					}
					if err != nil || name == "close" {
						result = nil
					}
					at := slices.Clone(w.m.points[passed:])
					w.rise(lasting)
					sc.check(w, from, result)
					w.sound()
					if t.Failed() {
						t.Logf("it died at %q", at)
					}
				})
				if over || !ok {
					break
				}
			}
		})
	}
}
