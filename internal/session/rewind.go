package session

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/wire"
	"github.com/tine-mcp/tine/internal/workspace"
)

// Rewind brings a session back to one of its snapshots, by its id: what was
// remembered since is gone. New states are made beside the old ones, one write
// to the store makes them count, and the old ones are removed: at every moment
// the session has one or the other. Members start anew when they are used.
func (r *Registry) Rewind(ctx context.Context, s *Session, id string, wait time.Duration) error {
	giveBack, err := r.useSnapshot(id)
	if err != nil {
		return err
	}
	defer giveBack()
	snap := r.snapshotByID(id)
	if snap == nil {
		return noSnapshot(id)
	}
	if snap.Session != s.ID {
		return &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("snapshot %s was made of session %s; open a session from it, or rewind to one of %s's own", id, snap.Session, s.ID)}
	}
	wait, explain := r.patience(wait, r.Catalog().Config.Sessions.ForkWait)
	began := time.Now()
	thaw, err := s.quiet(ctx, wait)
	if err != nil {
		return explain(err)
	}
	defer thaw()
	changed, err := s.rewinds()
	if err != nil {
		return err
	}
	// None of them starts while their states are exchanged.
	still, cancel := context.WithTimeout(ctx, max(time.Second, wait-time.Since(began)))
	defer cancel()
	_, release, err := s.holdAll(still, nil)
	if err != nil {
		return err
	}
	defer release()
	old, open, err := s.exchange(ctx, snap, changed)
	if err != nil {
		return err
	}
	s.swapParts(ctx, changed, old, open)
	s.eraseRewound(ctx, old.Left)
	r.note(ctx, r.event(s.ID, eventRewound, eventData{Snapshot: id, To: snap.Call}))
	s.Touch()
	return nil
}

// exchange makes the states of a snapshot and has them count in the place of
// those that the session has. It returns where those are, and the workspace that
// was open.
func (s *Session) exchange(ctx context.Context, snap *snapshot, changed []*catalog.Entry) (*facts, []*workspace.Workspace, error) {
	r := s.r
	// No state is made meanwhile.
	s.seeding.Lock()
	defer s.seeding.Unlock()
	next := s.known()
	old := s.known()
	next.States = maps.Clone(old.States)
	if next.States == nil {
		next.States = make(map[string]string)
	}
	version := newID()[len("ses_"):]
	home := r.home(s.ID)
	then, err := s.definedIn(ctx, snap)
	if err != nil {
		return nil, nil, err
	}
	var work, gone []func(context.Context) error
	var made sync.Map // marks, by folder
	undo := func() {
		ctx, cancel := afterwards(ctx)
		defer cancel()
		_ = atOnce(len(gone), func(i int) error { return gone[i](ctx) })
	}
	for _, e := range changed {
		next.States[e.ID] = e.ID + "~" + version
	}
	for _, m := range snap.Members {
		e := s.Catalog().Entry(m.Server)
		if e == nil || !e.Own() || e.Keeper() == nil || next.States[e.ID] == "" || !then.has(e.ID) {
			continue
		}
		dir := filepath.Join(home, next.States[e.ID])
		work = append(work, func(ctx context.Context) error {
			mark, err := r.seed(ctx, e, s.ID, dir, driver.Source{From: &m.Snapshot})
			made.Store(next.States[e.ID], mark)
			return err
		})
		gone = append(gone, func(ctx context.Context) error {
			r.erase(ctx, e, dir)
			return nil
		})
	}
	left := s.rewindLeft(old.Left, snap, then)
	for _, seed := range left.seeds {
		dir := filepath.Join(home, seed.folder)
		work = append(work, func(ctx context.Context) error {
			mark, err := r.seed(ctx, seed.e, s.ID, dir, driver.Source{From: &seed.from})
			made.Store(seed.folder, mark)
			return err
		})
		gone = append(gone, func(ctx context.Context) error {
			r.erase(ctx, seed.e, dir)
			return nil
		})
	}
	frozen := snap.spaces()
	for _, n := range s.spaceOrdinals() {
		next.States[spaceName(n)] = spaceName(n) + "~" + version
		w, ok := frozen[n]
		if !ok {
			continue
		}
		dir := filepath.Join(home, next.States[spaceName(n)])
		work = append(work, func(ctx context.Context) error {
			mark, err := s.seedWorkspace(ctx, dir, workspace.Seed{Folder: s.needsFolder(n), From: &w})
			made.Store(next.States[spaceName(n)], mark)
			return err
		})
		gone = append(gone, func(ctx context.Context) error {
			s.eraseWorkspace(ctx, dir)
			return nil
		})
	}
	if err := joined(atAll(len(work), func(i int) error { return work[i](ctx) })); err != nil {
		undo()
		return nil, nil, r.snapshotLost(snap.ID, err)
	}
	err = s.change(ctx, func(f *facts) {
		back := func(server string) bool {
			return server == "" || slices.ContainsFunc(changed, func(e *catalog.Entry) bool { return e.ID == server })
		}
		// What others use as well does not go back, and stays as damaged as it is.
		damaged := slices.DeleteFunc(slices.Clone(snap.Damaged), func(d api.Damage) bool { return !back(d.Server) || !then.has(d.Server) })
		for _, d := range f.Damaged {
			if !back(d.Server) {
				damaged = append(damaged, d)
			}
		}
		f.Made = maps.Clone(f.Made)
		for server, name := range next.States {
			if was := old.state(server); was != name {
				delete(f.Made, was)
			}
		}
		for _, l := range left.over {
			for _, name := range l.States {
				delete(f.Made, name)
			}
		}
		f.Left = left.stay
		made.Range(func(name, mark any) bool {
			if f.Made == nil {
				f.Made = make(map[string]string)
			}
			f.Made[name.(string)] = mark.(string)
			return true
		})
		f.States, f.Damaged, f.Owed, f.Called = next.States, damaged, maps.Clone(f.Owed), maps.Clone(f.Called)
		f.Unfit = maps.Clone(f.Unfit)
		maps.DeleteFunc(f.Owed, func(server string, _ pendingLoss) bool { return back(server) })
		for server, loss := range snap.Owed {
			if back(server) && then.has(server) && !f.heard(server, loss) {
				if f.Owed == nil {
					f.Owed = make(map[string]pendingLoss)
				}
				f.Owed[server] = loss
			}
		}
		maps.DeleteFunc(f.Unfit, func(server string, _ unfitMemory) bool { return back(server) })
		maps.DeleteFunc(f.Called, func(server string, _ bool) bool { return back(server) })
	})
	if err != nil {
		undo()
		return nil, nil, err
	}
	s.knownDamage.Clear() // what is damaged of the snapshot is marked when it is met
	return &old, s.spaces.take(), nil
}

// rewinds returns the members that go back with the session.
func (s *Session) rewinds() ([]*catalog.Entry, error) {
	var out []*catalog.Entry
	for _, e := range s.members() {
		if e.Runner == nil && s.hasState(e.ID) {
			return nil, &api.Error{Kind: api.KindRefused, Server: e.ID, Message: fmt.Sprintf("session %s can't be rewound: %s, so server %q can't go back", s.ID, e.Problem, e.ID)}
		}
		if mode, _ := e.ForkMode(); e.Runner != nil && mode != config.ForkShare {
			out = append(out, e)
		}
	}
	return out, nil
}

// swapParts ends the members that worked on states that no longer count, and
// removes those. No call is inside.
func (s *Session) swapParts(ctx context.Context, changed []*catalog.Entry, old *facts, open []*workspace.Workspace) {
	r := s.r
	ctx, cancel := afterwards(ctx)
	defer cancel()
	stale := make(map[string]bool, len(changed))
	for _, e := range changed {
		stale[e.ID] = true
	}
	parts := s.retire(stale)
	_ = atOnce(len(parts), func(i int) error {
		parts[i].up.Close()
		close(parts[i].ended)
		return nil
	})
	home := r.home(s.ID)
	_ = atOnce(len(changed), func(i int) error {
		if e := changed[i]; e.Keeper() != nil {
			r.erase(ctx, e, filepath.Join(home, old.state(e.ID)))
		}
		return nil
	})
	s.closeWorkspaces(open)
	spaces := s.spaceOrdinals()
	_ = atOnce(len(spaces), func(i int) error {
		s.eraseWorkspace(ctx, filepath.Join(home, old.state(spaceName(spaces[i]))))
		return nil
	})
	// Clients that listen to the session hear of the new ones too.
	s.mu.Lock()
	listening := len(s.watchers) > 0
	s.mu.Unlock()
	if listening {
		for _, e := range changed {
			s.Announce(e.ID, wire.NoteResourcesChanged)
		}
	}
}
