package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// What the members of a session remember lies in the session's home:
//
//	sessions/ses_x/memory        the state of the server memory
//	sessions/ses_x/memory~whole  says that it is all there, and which driver's it is
//	sessions/ses_x/memory~1      that of its second instance
//	sessions/ses_x/memory~0a1b2c3d4e5f    the state after a rewind
//	sessions/ses_x/~workspace    the workspace, which no server is called like
//	sessions/shared/notes        of a server that all sessions share
//
// A state is made when its server first starts, or with the session when that
// begins from a snapshot. One without its mark, and of which nothing is noted
// elsewhere (made.go), is a rest of a making that did not end, and is made again.

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

// stateOf is the member whose state a folder of a session is called after. What
// follows it is the version of a rewind, which is longer than an ordinal.
func stateOf(name string) string {
	hidden := strings.HasPrefix(name, "~")
	name = strings.TrimPrefix(name, "~")
	server, rest, _ := strings.Cut(name, "~")
	ordinal, _, _ := strings.Cut(rest, "~")
	if member := server + "~" + ordinal; ordinal != "" {
		if _, n := catalog.SplitMember(member); n > 0 {
			server = member
		}
	}
	if hidden {
		return "~" + server
	}
	return server
}

// seed makes the state of a server in a folder, marks it, and returns the mark.
func (r *Registry) seed(ctx context.Context, e *catalog.Entry, session, dir string, src driver.Source) (mark string, err error) {
	if err := r.makeHome(filepath.Dir(dir)); err != nil {
		return "", err
	}
	spec := e.Spec()
	spec.Session, spec.State, spec.Carry = session, dir, e.Carry()
	if _, err := os.Lstat(dir); err == nil { // the rest of a making that was cut off
		if err := e.Keeper().Erase(ctx, spec); err != nil {
			return "", fmt.Errorf("server %q: clearing a state that is not whole: %w", e.ID, err)
		}
	}
	template := "" // the snapshot that it is, if it is one
	if src.From == nil && e.Template != "" {
		from, id, giveBack, err := r.templateSnapshot(e.Template, e)
		if err != nil {
			return "", err
		}
		if from != nil {
			defer giveBack()
			src.From, spec.Template, template = from, "", id
		}
	}
	if src.Progress == nil {
		src.Progress = r.progress("making the state of server " + e.ID)
	}
	if err := r.snapshotLost(template, e.Keeper().Seed(ctx, spec, src)); err != nil {
		return "", memberError(e.ID, "making its state", err)
	}
	mark = markOf(dir, e.Driver)
	return mark, writeMark(dir, mark)
}

// makeHome makes the folder of a session, with the session's record in it. A
// session that is being opened has that already, and others than sessions have
// none.
func (r *Registry) makeHome(home string) error {
	if err := os.MkdirAll(home, 0o700); err != nil {
		return fmt.Errorf("making the session's folder: %w", err)
	}
	s := r.Get(filepath.Base(home))
	if s == nil || recordOfSession(r.o.States, s.ID).says() != folderSilent {
		return nil
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	rec, err := s.record(s.known())
	if err != nil || s.isClosed() {
		return err
	}
	return recordOfSession(r.o.States, s.ID).write(keptOf(rec))
}

// erase removes the state of a server in a folder, if there is one.
func (r *Registry) erase(ctx context.Context, e *catalog.Entry, dir string) {
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) && !isMarked(dir) {
		return
	}
	spec := e.Spec()
	spec.State = dir
	err := os.Remove(dir + wholeMark)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.o.Log.Warn("state not unmarked", "server", e.ID, "err", err)
	}
	if err := e.Keeper().Erase(ctx, spec); err != nil {
		r.o.Log.Warn("state not removed", "server", e.ID, "folder", dir, "err", err)
	}
}

// prepare completes the spec of a member before it starts: the state it works
// on is made where it is not there yet, and the workspace opened.
func (r *Registry) prepare(e *catalog.Entry, by owned) func(context.Context, *driver.Spec) error {
	return func(ctx context.Context, spec *driver.Spec) error {
		s := by.s
		if s != nil && e.Workspace {
			ws, err := s.openWorkspace(ctx, e.Ordinal)
			if err != nil {
				return err
			}
			spec.Workspace = ws
			spec.WorkspacePath = s.spacePath(e, ws)
		}
		if e.Keeper() == nil {
			return nil
		}
		if err := r.waitEnded(ctx, e, s); err != nil {
			return err
		}
		if s == nil || by.origin != "" {
			spec.State = filepath.Join(r.home(by.origin), e.ID)
			r.sharedSeeding.Lock()
			defer r.sharedSeeding.Unlock()
			spec.OnDamage = func(err error) {
				for _, user := range r.usersOf(e, by) {
					user.noteDamage(e.ID, err)
				}
			}
		} else {
			s.seeding.RLock()
			defer s.seeding.RUnlock()
			done, err := s.making(ctx, e.ID)
			if err != nil {
				return err
			}
			defer done()
			spec.State = s.stateDir(e.ID) // which a rewind may just have changed
			spec.OnDamage = func(err error) { s.noteDamage(e.ID, err) }
		}
		anew := spec.Shared && r.takeAnew(ctx, e, by, spec.State)
		if mark, made := r.marked(s, spec.State); made && !anew {
			err := vanished(spec.Whose(), spec.State, mark)
			if err != nil && spec.OnDamage != nil {
				spec.OnDamage(err)
			}
			if err != nil {
				return err
			}
			return r.noteFound(ctx, s, spec.State, e.Driver)
		}
		if s != nil && by.origin == "" {
			s.beginsWith(e.Template, e.Base(), e)
		}
		mark := ""
		if s == nil || !s.particular() {
			var err error
			if mark, err = r.stock.seed(ctx, e, spec.Session, spec.State); err != nil {
				return err
			}
		}
		if mark == "" {
			var err error
			if mark, err = r.seed(ctx, e, spec.Session, spec.State, driver.Source{}); err != nil {
				return err
			}
		}
		return r.noteState(ctx, s, spec.State, mark)
	}
}

// making waits until no other start makes the state of a member, and keeps others
// out until done: a server that remembers nothing may be started while the instance
// that it replaces still runs.
func (s *Session) making(ctx context.Context, member string) (done func(), err error) {
	v, _ := s.makes.LoadOrStore(member, make(chan struct{}, 1))
	turn := v.(chan struct{})
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// progressEvery is how often the progress of a long step is logged.
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

// members returns the servers of which the session has parts of its own.
func (s *Session) members() []*catalog.Entry {
	var own []*catalog.Entry
	for _, e := range s.Catalog().Entries {
		if e.Own() {
			own = append(own, e)
		}
	}
	return own
}

// memberError says whose state could not be dealt with.
func memberError(server, doing string, err error) error {
	var ours *api.Error
	if errors.As(err, &ours) {
		return err
	}
	e := &api.Error{Kind: api.KindInfrastructure, Server: server, Retryable: true, Message: err.Error()}
	if who := fmt.Sprintf("server %q: ", server); server == "" {
		e.Message = fmt.Sprintf("%s: %v", doing, err)
	} else if !strings.HasPrefix(e.Message, who) { // a driver that names the server says what it did, too
		e.Message = fmt.Sprintf("%s%s: %v", who, doing, err)
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		e.Kind = api.KindTimeout
	case errors.Is(err, context.Canceled):
		e.Kind = api.KindRefused
	case errors.Is(err, driver.ErrUnfit):
		e.Kind, e.Status, e.Retryable = api.KindRefused, http.StatusConflict, false
	case errors.Is(err, driver.ErrFinal):
		e.Retryable, e.Final = false, true
	}
	return e
}

// some is how long what must be done goes on after its caller has left.
const some = 5 * time.Minute

// afterwards is a context for what must be done even if the caller leaves.
func afterwards(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), some)
}
