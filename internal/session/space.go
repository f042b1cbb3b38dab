package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/workspace"
)

// A session has one workspace, which its members see. Where it has several
// instances of a server that sees it, the second of each see another one, and so
// on: they would not be worlds of their own otherwise.

// spaces are the workspaces of a session, by ordinal.
type spaces struct {
	mu  sync.Mutex
	all map[int]*space
}

type space struct {
	making sync.Mutex // held while it is made
	open   atomic.Pointer[workspace.Workspace]
}

func (s *spaces) at(ordinal int) *space {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = make(map[int]*space)
	}
	if s.all[ordinal] == nil {
		s.all[ordinal] = &space{}
	}
	return s.all[ordinal]
}

// take returns the open workspaces, which are not the session's any more.
func (s *spaces) take() []*workspace.Workspace {
	s.mu.Lock()
	defer s.mu.Unlock()
	var open []*workspace.Workspace
	for _, one := range s.all {
		if w := one.open.Swap(nil); w != nil {
			open = append(open, w)
		}
	}
	return open
}

// spaceName is what a workspace is called among the states of a session.
func spaceName(ordinal int) string {
	if ordinal == 0 {
		return workspaceState
	}
	return workspaceState + "~" + strconv.Itoa(ordinal)
}

// spaceOrdinals are those of the workspaces that the session's members see.
func (s *Session) spaceOrdinals() []int {
	seen := map[int]bool{0: true}
	for _, e := range s.members() {
		if e.Workspace {
			seen[e.Ordinal] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// openWorkspace returns a directory of the session, made at its first use.
func (s *Session) openWorkspace(ctx context.Context, ordinal int) (*workspace.Workspace, error) {
	one := s.spaces.at(ordinal)
	if w := one.open.Load(); w != nil {
		return w, nil
	}
	s.seeding.RLock()
	defer s.seeding.RUnlock()
	one.making.Lock()
	defer one.making.Unlock()
	if w := one.open.Load(); w != nil {
		return w, nil
	}
	r := s.r
	if r.o.Workspaces == nil {
		return nil, &api.Error{Kind: api.KindInvalid, Message: "this gateway keeps no workspaces"}
	}
	dir := s.stateDir(spaceName(ordinal))
	if mark, made := r.marked(s, dir); !made {
		if _, err := s.seedWorkspace(ctx, dir, s.newSpace(ordinal)); err != nil {
			return nil, err
		}
	} else if err := vanished(driver.Whose{Session: s.ID}, dir, mark); err != nil {
		s.noteDamage("", err)
		return nil, fmt.Errorf("opening the workspace: %w", err)
	}
	w, err := r.o.Workspaces.Open(dir)
	if workspace.IsCut(err) {
		// It is written down before the workspace goes on with what is left.
		s.noteCut(err)
		w, err = r.o.Workspaces.Open(dir)
	}
	if err != nil {
		err = driver.DamagedState(driver.Whose{Session: s.ID}, err)
		s.noteDamage("", err)
		return nil, fmt.Errorf("opening the workspace: %w", err)
	}
	if err := r.noteFound(ctx, s, dir, workspaceState); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	one.open.Store(w)
	return w, nil
}

// newSpace is what a workspace begins as that was not carried.
func (s *Session) newSpace(ordinal int) workspace.Seed {
	seed := workspace.Seed{Folder: s.needsFolder(ordinal), Template: s.r.Catalog().Config.Workspace.Template}
	for _, e := range s.members() {
		if e.Ordinal == ordinal && e.SpaceTemplate != "" {
			seed.Template = e.SpaceTemplate
		}
	}
	return seed
}

// seedWorkspace makes a workspace in a folder, marks it, and returns the mark.
func (s *Session) seedWorkspace(ctx context.Context, dir string, seed workspace.Seed) (mark string, err error) {
	r := s.r
	if err := r.makeHome(filepath.Dir(dir)); err != nil {
		return "", err
	}
	if _, err := os.Lstat(dir); err == nil {
		if err := r.o.Workspaces.Erase(ctx, dir); err != nil {
			return "", fmt.Errorf("clearing a workspace that is not whole: %w", err)
		}
	}
	template := "" // the snapshot that it is, if it is one
	if seed.From == nil && seed.Template != "" {
		from, id, giveBack, err := r.templateWorkspace(seed.Template)
		if err != nil {
			return "", err
		}
		if from != nil {
			defer giveBack()
			s.beginsWith(seed.Template, "", nil)
			seed.From, seed.Template, template = from, "", id
		}
	}
	seed.Progress = r.progress("making a workspace")
	err = r.snapshotLost(template, r.o.Workspaces.Seed(ctx, dir, seed))
	if err := driver.Damaged(driver.Whose{Session: s.ID}, err); err != nil {
		return "", memberError("", "making the workspace", err)
	}
	mark = markOf(dir, workspaceState)
	return mark, writeMark(dir, mark)
}

// closeWorkspaces lets go of directories of the session.
func (s *Session) closeWorkspaces(all []*workspace.Workspace) {
	for _, w := range all {
		if err := w.Close(); err != nil {
			s.r.o.Log.Warn("workspace not closed", "session", s.ID, "err", err)
		}
	}
}

// eraseWorkspace removes a workspace of the session, which must not be open, if there is one.
func (s *Session) eraseWorkspace(ctx context.Context, dir string) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) && !isMarked(dir) {
		return
	}
	if err := os.Remove(dir + wholeMark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.r.o.Log.Warn("workspace not unmarked", "session", s.ID, "err", err)
	}
	if err := s.r.o.Workspaces.Erase(ctx, dir); err != nil {
		s.r.o.Log.Warn("workspace not removed", "session", s.ID, "folder", dir, "err", err)
	}
}

// spacePath is where a member sees its workspace. Programs outside of walls may
// not be able to have it where the others do; what is inside of Tine shows the
// path that they have.
func (s *Session) spacePath(e *catalog.Entry, ws *workspace.Workspace) string {
	wanted := e.Spec().WorkspacePath
	if _, ok := e.Runner.(driver.Placer); !ok && !e.Runner.Info().Light || ws.Dir() == "" {
		return wanted
	}
	for _, other := range s.members() {
		if p, ok := other.Runner.(driver.Placer); ok && other.Workspace && other.Ordinal == e.Ordinal {
			at, why := p.Place(wanted)
			if why != "" {
				s.r.displaced.Do(func() {
					s.r.o.Log.Warn("programs don't see the workspace at its path", "path", wanted, "at", cmp.Or(at, "the session's own folder, which differs in each fork"), "because", why)
				})
			}
			return cmp.Or(at, ws.Dir())
		}
	}
	return wanted
}

// shownPath is where the members of a session see its workspace, that of programs
// outside of walls where they differ.
func (s *Session) shownPath(ws *workspace.Workspace) string {
	path := ""
	for _, e := range s.members() {
		if !e.Workspace || e.Ordinal != 0 || e.Runner == nil {
			continue
		}
		if _, ok := e.Runner.(driver.Placer); ok || path == "" {
			path = s.spacePath(e, ws)
		}
	}
	return path
}

// needsFolder reports whether a program sees the workspace, which then can't be
// a tree inside the process.
func (s *Session) needsFolder(ordinal int) bool {
	for _, e := range s.members() {
		if e.Ordinal == ordinal && e.Workspace && e.Runner != nil && !e.Runner.Info().Light {
			return true
		}
	}
	return false
}
