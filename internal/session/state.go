package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/workspace"
)

// What the members of a session remember lies in the session's home:
//
//	sessions/ses_x/memory        the state of the server memory
//	sessions/ses_x/memory~whole  says that it is all there, and which driver's it is
//	sessions/ses_x/~workspace    the workspace, which no server is called like
//	sessions/shared/notes        of a server that all sessions share
//
// A state is made when its server first starts, or with the session when that
// begins from a snapshot. One without its mark is a rest of a making that did
// not end, and is made again.

const (
	workspaceState = "~workspace"
	sharedHome     = "shared"
	wholeMark      = "~whole"
)

func (r *Registry) homes() string { return filepath.Join(r.o.States, "sessions") }

func (r *Registry) home(session string) string {
	if session == "" {
		session = sharedHome
	}
	return filepath.Join(r.homes(), session)
}

// stateDir is where the state of a member lies.
func (s *Session) stateDir(server string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return filepath.Join(s.r.home(s.ID), s.facts.state(server))
}

func (f *facts) state(server string) string {
	if name, ok := f.States[server]; ok {
		return name
	}
	return server
}

// whole reports whether the state in a folder is all there. A mark that is empty
// was being made when the gateway was killed.
func whole(dir string) bool {
	info, err := os.Lstat(dir + wholeMark)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist) // where it can't be told, nothing is removed
	}
	return info.Size() > 0
}

// mark notes that the state in a folder is all there, and which driver's it is.
func mark(dir, driver string) error {
	if err := os.WriteFile(dir+wholeMark, []byte(driver), 0o600); err != nil {
		return fmt.Errorf("marking a state as whole: %w", err)
	}
	return nil
}

// stateOf is the server whose state a folder of a session is called after.
func stateOf(name string) string {
	if rest, ok := strings.CutPrefix(name, "~"); ok {
		server, _, _ := strings.Cut(rest, "~")
		return "~" + server
	}
	server, _, _ := strings.Cut(name, "~")
	return server
}

// seed makes the state of a server in a folder, and marks it.
func (r *Registry) seed(ctx context.Context, e *Entry, dir string, src driver.Source) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("making the session's folder: %w", err)
	}
	spec := e.spec()
	spec.State = dir
	if _, err := os.Lstat(dir); err == nil { // the rest of a making that was cut off
		if err := e.keeper().Erase(ctx, spec); err != nil {
			return fmt.Errorf("server %q: clearing a state that is not whole: %w", e.ID, err)
		}
	}
	if src.From == nil && e.Template != "" {
		from, giveBack, err := r.templateSnapshot(e.Template, e.ID)
		if err != nil {
			return err
		}
		if from != nil {
			defer giveBack()
			src.From, spec.Template = from, ""
		}
	}
	if src.Progress == nil {
		src.Progress = r.progress("making the state of server " + e.ID)
	}
	if err := e.keeper().Seed(ctx, spec, src); err != nil {
		return memberError(e.ID, "making its state", err)
	}
	return mark(dir, e.Driver)
}

// erase removes the state of a server in a folder, if there is one.
func (r *Registry) erase(ctx context.Context, e *Entry, dir string) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) && !whole(dir) {
		return
	}
	spec := e.spec()
	spec.State = dir
	err := os.Remove(dir + wholeMark)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.o.Log.Warn("state not unmarked", "server", e.ID, "err", err)
	}
	if err := e.keeper().Erase(ctx, spec); err != nil {
		r.o.Log.Warn("state not removed", "server", e.ID, "folder", dir, "err", err)
	}
}

// prepare completes the spec of a member before it starts: the state it works
// on is made where it is not there yet, and the workspace opened.
func (r *Registry) prepare(e *Entry, by owned) func(context.Context, *driver.Spec) error {
	return func(ctx context.Context, spec *driver.Spec) error {
		s := by.s
		if s != nil && e.Workspace {
			ws, err := s.openWorkspace(ctx)
			if err != nil {
				return err
			}
			spec.Workspace = ws
		}
		if e.keeper() == nil {
			return nil
		}
		if err := r.waitEnded(ctx, e, s); err != nil {
			return err
		}
		if s == nil || by.origin != "" {
			spec.State = filepath.Join(r.home(by.origin), e.ID)
			r.sharedSeeding.Lock()
			defer r.sharedSeeding.Unlock()
		} else {
			s.seeding.Lock()
			defer s.seeding.Unlock()
			spec.State = s.stateDir(e.ID) // which a rewind may just have changed
		}
		if whole(spec.State) {
			return nil
		}
		return r.seed(ctx, e, spec.State, driver.Source{})
	}
}

// openWorkspace returns the session's directory, made at its first use.
func (s *Session) openWorkspace(ctx context.Context) (*workspace.Workspace, error) {
	if w := s.ws.Load(); w != nil {
		return w, nil
	}
	s.seeding.Lock()
	defer s.seeding.Unlock()
	if w := s.ws.Load(); w != nil {
		return w, nil
	}
	r := s.r
	if r.o.Workspaces == nil {
		return nil, &api.Error{Kind: api.KindInvalid, Message: "this gateway keeps no workspaces"}
	}
	dir := s.stateDir(workspaceState)
	if !whole(dir) {
		seed := workspace.Seed{Folder: s.needsFolder(), Template: r.Catalog().Config.Workspace.Template}
		if err := r.seedWorkspace(ctx, dir, seed); err != nil {
			return nil, err
		}
	}
	w, err := r.o.Workspaces.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("opening the workspace: %w", err)
	}
	s.ws.Store(w)
	return w, nil
}

func (r *Registry) seedWorkspace(ctx context.Context, dir string, seed workspace.Seed) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("making the session's folder: %w", err)
	}
	if _, err := os.Lstat(dir); err == nil {
		if err := r.o.Workspaces.Erase(ctx, dir); err != nil {
			return fmt.Errorf("clearing a workspace that is not whole: %w", err)
		}
	}
	if seed.From == nil && seed.Template != "" {
		from, giveBack, err := r.templateWorkspace(seed.Template)
		if err != nil {
			return err
		}
		if from != nil {
			defer giveBack()
			seed.From, seed.Template = from, ""
		}
	}
	seed.Progress = r.progress("making a workspace")
	if err := r.o.Workspaces.Seed(ctx, dir, seed); err != nil {
		return memberError("", "making the workspace", err)
	}
	return mark(dir, workspaceState)
}

// closeWorkspace lets go of a directory of the session.
func (s *Session) closeWorkspace(w *workspace.Workspace) {
	if w == nil {
		return
	}
	if err := w.Close(); err != nil {
		s.r.o.Log.Warn("workspace not closed", "session", s.ID, "err", err)
	}
}

// progressEvery is how often somebody hears of what takes long.
const progressEvery = 2 * time.Second

// progress logs how far something is that takes long.
func (r *Registry) progress(what string) func(done, total int64) {
	var mu sync.Mutex
	last := time.Now()
	return func(done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if time.Since(last) < progressEvery {
			return
		}
		last = time.Now()
		r.o.Log.Info(what, "done", bytesText(done), "of", bytesText(total))
	}
}

// eraseWorkspace removes a workspace of the session, which nobody has open, if
// there is one.
func (s *Session) eraseWorkspace(ctx context.Context, dir string) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) && !whole(dir) {
		return
	}
	if err := os.Remove(dir + wholeMark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.r.o.Log.Warn("workspace not unmarked", "session", s.ID, "err", err)
	}
	if err := s.r.o.Workspaces.Erase(ctx, dir); err != nil {
		s.r.o.Log.Warn("workspace not removed", "session", s.ID, "folder", dir, "err", err)
	}
}

// needsFolder reports whether a program sees the workspace, which then can't be
// a tree inside the process.
func (s *Session) needsFolder() bool {
	for _, e := range s.Catalog().Entries {
		if e.own() && e.Workspace && e.driver != nil && !e.driver.Info().Light {
			return true
		}
	}
	return false
}

// members returns the servers of which the session has parts of its own.
func (s *Session) members() []*Entry {
	var own []*Entry
	for _, e := range s.Catalog().Entries {
		if e.own() {
			own = append(own, e)
		}
	}
	return own
}

// needs is what a session with these servers may use.
func needs(c *Catalog) need {
	var n need
	for _, e := range c.Entries {
		if on, _ := e.On(); !on || !e.own() {
			continue
		}
		n.memory += e.Budget.Memory
		if !e.driver.Info().Light {
			n.instances++
		}
	}
	return n
}

// bounds are those of a config.
func bounds(c *config.Config) need {
	return need{memory: c.Sessions.Memory, instances: c.Sessions.Instances}
}

// memberError says whose state could not be dealt with.
func memberError(server, doing string, err error) error {
	var ours *api.Error
	if errors.As(err, &ours) {
		return err
	}
	e := &api.Error{Kind: api.KindInfrastructure, Server: server, Retryable: true, Message: fmt.Sprintf("%s: %v", doing, err)}
	if server != "" {
		e.Message = fmt.Sprintf("server %q: %s", server, e.Message)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Kind = api.KindTimeout
	case errors.Is(err, context.Canceled):
		e.Kind = api.KindRefused
	}
	return e
}

// some is how long what must be done goes on after its caller has left.
const some = 5 * time.Minute

// afterwards is a context for what must be done even if the caller leaves.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), some)
}
