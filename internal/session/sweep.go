package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/workspace"
)

// reconcile brings the store and the folders to agree, before anything relies on
// either.
func (r *Registry) reconcile(ctx context.Context) error {
	found, err := Reconcile(ctx, r.o.Shared, r.o.States, false, false)
	if err != nil {
		return err
	}
	if n := len(found.Back) + len(found.SnapshotsBack); n > 0 {
		r.o.Log.Warn("the database lacked sessions or snapshots, or had older records of them; they are back from their folders",
			"sessions", found.Back, "snapshots", found.SnapshotsBack)
	}
	if len(found.Corrected) > 0 {
		r.o.Log.Error("the database had other records of sessions or snapshots than their folders, so some of its content has changed by itself; the folders' records count, whose sums are right",
			"ids", found.Corrected)
	}
	for _, key := range found.Catalogs {
		r.catalogs.WarnOther(key)
	}
	for _, dir := range found.Unreadable {
		r.o.Log.Warn("the record in a folder can't be read; the folder stays as it is", "folder", dir)
	}
	return nil
}

// isOver reports whether the store knows that a session was closed. One that it
// does not know is not known to be.
func (r *Registry) isOver(ctx context.Context, id string) (bool, error) {
	rec, ok, err := r.o.Shared.Session(ctx, id)
	return ok && !rec.Closed.IsZero(), err
}

// restoreStates removes the states that are known to belong to no session and
// has the drivers and workspaces look through the others.
func (r *Registry) restoreStates(ctx context.Context) error {
	states, spaces, err := r.sweepHomes(ctx)
	if err != nil {
		return err
	}
	if err := r.sweepSnapshots(); err != nil {
		return err
	}
	frozen := make(map[string][]driver.Snapshot)
	var frozenSpaces []workspace.Frozen
	for _, snap := range r.snapshots {
		for _, m := range snap.Members {
			frozen[m.Snapshot.Driver] = append(frozen[m.Snapshot.Driver], m.Snapshot)
		}
		frozenSpaces = slices.AppendSeq(frozenSpaces, maps.Values(snap.spaces()))
	}
	if r.unsure {
		r.o.Log.Warn("the needs of some folders are not known, or the database was restored not long ago; nothing that seems unused is removed from layers, container engines and orchestrators")
	}
	for name, d := range r.o.Drivers {
		if k, ok := d.(driver.Keeper); ok {
			if err := k.Recover(ctx, states[name], frozen[name], !r.unsure); err != nil {
				return fmt.Errorf("driver %s: looking through the states: %w", name, err)
			}
		}
	}
	if r.o.Workspaces != nil {
		if err := r.o.Workspaces.Recover(ctx, spaces, frozenSpaces, !r.unsure); err != nil {
			return fmt.Errorf("looking through the workspaces: %w", err)
		}
	}
	if !r.unsure {
		r.sweepCatalogs(ctx)
	}
	return nil
}

// A home is what was found in the folder of a session.
type home struct {
	folderRecord
	id     string
	inside []os.DirEntry
	whole  map[string]string // the states that are whole, with their marks
}

func readHome(states, id string) (*home, error) {
	h := &home{folderRecord: recordOfSession(states, id), id: id, whole: make(map[string]string)}
	var err error
	if h.inside, err = os.ReadDir(h.dir); err != nil {
		return nil, fmt.Errorf("reading the folder of a session: %w", err)
	}
	for _, in := range h.inside {
		name, ok := strings.CutSuffix(in.Name(), wholeMark)
		if !ok {
			continue
		}
		mark, err := os.ReadFile(filepath.Join(h.dir, in.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading whose a state is: %w", err)
		}
		h.whole[name] = string(mark)
	}
	return h, nil
}

// sweepHomes removes the folders of sessions that are known to be no more, and of
// states that don't count any more, and returns the others: states by driver, and
// workspaces. What an open session has stays whatever the config says, and so
// does what all sessions share: a server that comes back finds what it knew. And
// so do folders without a record.
func (r *Registry) sweepHomes(ctx context.Context) (states map[string][]string, spaces []string, err error) {
	homes, err := os.ReadDir(r.homes())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("reading the folder of sessions: %w", err)
	}
	states = make(map[string][]string)
	removed, unknown := 0, []string{}
	for _, d := range homes {
		if !d.IsDir() {
			continue // not ours
		}
		h, err := readHome(r.o.States, d.Name())
		if err != nil {
			return nil, nil, err
		}
		over, err := r.homeIsOver(ctx, h)
		if err != nil {
			return nil, nil, err
		}
		lost := !over && r.sessions[h.id] == nil && h.id != sharedHome
		if lost {
			r.unsure = true
			unknown = append(unknown, h.id)
		}
		r.markAnew(h)
		stays := make(map[string]bool)
		for name := range h.whole {
			if !lost && !r.counts(h.id, name) {
				continue
			}
			stays[name] = true
			by := r.keeperOf(h, name)
			if dir := filepath.Join(h.dir, name); by == workspaceState {
				spaces = append(spaces, dir)
			} else {
				states[by] = append(states[by], dir)
			}
		}
		if lost || h.id == sharedHome {
			continue
		}
		for _, in := range h.inside {
			path := filepath.Join(h.dir, in.Name())
			if !over && strings.HasSuffix(in.Name(), driver.AnewSuffix) {
				continue // it waits for the next start of its server
			}
			if stays[strings.TrimSuffix(in.Name(), wholeMark)] || h.owns(in.Name()) && !strings.HasPrefix(in.Name(), h.name+partMark) {
				continue
			}
			if err := clone.Remove(path); err != nil {
				r.o.Log.Warn("a state that no session has is not removed", "folder", path, "err", err)
			}
		}
		if over && len(stays) > 0 { // its forks use them
			if err := h.markRemoved(); err != nil {
				r.o.Log.Warn("the folder of a session is not marked as one to be removed", "session", h.id, "err", err)
			}
		}
		if over && len(stays) == 0 {
			removed++
			if err := h.clear(); err != nil {
				r.o.Log.Warn("the folder of a session that is no more is not removed", "folder", h.dir, "err", err)
			}
		}
	}
	if removed > 0 {
		r.o.Log.Info("removed what an earlier gateway left", "sessions", removed)
	}
	if len(unknown) > 0 {
		r.o.Log.Warn("there are folders of unknown sessions; they stay as they are", "in", r.homes(), "sessions", unknown)
	}
	return states, spaces, nil
}

// markAnew marks the states in a home that are noted as made and whose marks are gone:
// without a mark a state would be taken for one that is not finished.
func (r *Registry) markAnew(h *home) {
	for _, name := range r.notedIn(h.id) {
		if _, marked := h.whole[name]; marked {
			continue
		}
		dir := filepath.Join(h.dir, name)
		mark, _ := r.noted(nil, dir)
		h.whole[name] = mark
		r.o.Log.Error("the mark of a state is gone, and is written anew as it was noted", "file", dir+wholeMark)
		if err := writeMark(dir, mark); err != nil {
			r.o.Log.Warn("a mark is not written anew", "file", dir+wholeMark, "err", err)
		}
	}
}

// notedIn returns the names of the states in a home that are noted as made.
func (r *Registry) notedIn(home string) []string {
	if home == sharedHome {
		names := slices.Collect(maps.Keys(r.sharedStates))
		return slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, driver.AnewSuffix) })
	}
	var names []string
	for id, s := range r.sessions {
		for key := range s.facts.Made {
			if of, name, elsewhere := strings.Cut(key, "/"); elsewhere && of == home {
				names = append(names, name)
			} else if !elsewhere && id == home {
				names = append(names, key)
			}
		}
	}
	return names
}

// homeIsOver reports whether a folder of a session is known to be one that may be
// removed, as far as no other session uses what is in it.
func (r *Registry) homeIsOver(ctx context.Context, h *home) (bool, error) {
	switch {
	case r.sessions[h.id] != nil || h.id == sharedHome:
		return false, nil
	case strings.HasPrefix(h.id, warmPrefix) || len(h.inside) == 0:
		return true, nil
	}
	if says := h.says(); says == folderNew || says == folderGone {
		return true, nil
	}
	return r.isOver(ctx, h.id)
}

// counts reports whether a session has the state of that name in a session's home.
func (r *Registry) counts(session, name string) bool {
	server := stateOf(name)
	if session == sharedHome || r.joints[jointKey(session, server)] != nil {
		return true
	}
	s := r.sessions[session]
	return s != nil && (s.facts.state(server) == name || s.facts.leftState(name))
}

// sweepSnapshots removes the folders of snapshots that are known to be no more.
func (r *Registry) sweepSnapshots() error {
	dirs, err := os.ReadDir(r.snapshotHome())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the folder of snapshots: %w", err)
	}
	var unknown []string
	for _, d := range dirs {
		if r.snapshots[d.Name()] != nil || !d.IsDir() {
			continue
		}
		f := recordOfSnapshot(r.o.States, d.Name())
		says := f.says()
		if strings.HasPrefix(d.Name(), snapshotPrefix) && says != folderNew && says != folderGone {
			// One that is empty needs nothing.
			if err := os.Remove(f.dir); err != nil {
				unknown = append(unknown, d.Name())
			}
			continue
		}
		if err := f.removeAll(); err != nil {
			r.o.Log.Warn("the folder of a snapshot that is no more is not removed", "folder", f.dir, "err", err)
		}
	}
	if len(unknown) > 0 {
		r.unsure = true // what they need of layers stands in the record alone
		r.o.Log.Warn("there are folders of unknown snapshots; they stay as they are", "in", r.snapshotHome(), "snapshots", unknown)
	}
	return nil
}

// sweepCatalogs removes the files with servers that no session and no snapshot is
// made of any more.
func (r *Registry) sweepCatalogs(ctx context.Context) {
	dir := filepath.Dir(catalog.File(r.o.States, "x"))
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	for _, f := range files {
		key := strings.TrimSuffix(f.Name(), ".json")
		_, used, lookErr := r.o.Shared.Catalog(ctx, key)
		if lookErr == nil && !used {
			lookErr = os.Remove(filepath.Join(dir, f.Name()))
		}
		err = errors.Join(err, lookErr)
	}
	if err != nil {
		r.o.Log.Warn("servers that no session is made of any more are not forgotten", "folder", dir, "err", err)
	}
}
