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

	"github.com/tine-mcp/tine/internal/driver"
)

// That a state was made is said in two places: by the mark beside its folder, and by
// a note of what the mark says, in the record of the session or, of what all sessions
// share, in the store. Where either of them has a state that is not there, it is lost
// and not made anew. Nothing takes its place: it may be put back.
//
// A mark names the driver that the state is of. "folder" in its second line says that
// the state has a folder, as not all servers have something to keep in one. Further
// lines name the files in the folder that stay as long as the state does, which are
// those whose names begin with a dot.
const markFolder = "folder"

// markOf is the mark of a state that is all there.
func markOf(dir, driver string) string {
	inside, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return driver
	}
	lines := []string{driver, markFolder}
	for _, f := range inside {
		if strings.HasPrefix(f.Name(), ".") && f.Type().IsRegular() {
			lines = append(lines, f.Name())
		}
	}
	return strings.Join(lines, "\n")
}

// markedBy is the driver that a mark names.
func markedBy(mark string) string {
	name, _, _ := strings.Cut(mark, "\n")
	return name
}

// writeMark writes the mark of a state, whole or not at all.
func writeMark(dir, mark string) error {
	part := dir + wholeMark + partMark
	err := os.WriteFile(part, []byte(mark), 0o600)
	if err == nil {
		err = os.Rename(part, dir+wholeMark)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("marking a state as whole: %w", err), remove(part))
	}
	return nil
}

// isMarked reports whether a state has a mark, be it one that is empty or can't be
// looked at.
func isMarked(dir string) bool {
	_, err := os.Lstat(dir + wholeMark)
	return !errors.Is(err, fs.ErrNotExist)
}

// marked returns the mark of a state as it was noted, or else as it stands beside the
// folder; false for a state that was never made. The session is the one that uses the
// state; nil where all do.
func (r *Registry) marked(s *Session, dir string) (mark string, made bool) {
	if mark, made = r.noted(s, dir); made || !isMarked(dir) {
		return mark, made
	}
	b, _ := os.ReadFile(dir + wholeMark)
	return string(b), true
}

// hasState reports whether the state of a member was made, or a workspace.
func (s *Session) hasState(name string) bool {
	_, made := s.r.marked(s, s.stateDir(name))
	return made
}

// noted returns the mark of a state as it was noted.
func (r *Registry) noted(s *Session, dir string) (mark string, made bool) {
	home, name := filepath.Base(filepath.Dir(dir)), filepath.Base(dir)
	users := []*Session{s}
	r.mu.Lock()
	if home == sharedHome {
		defer r.mu.Unlock()
		mark, made = r.sharedStates[name]
		return mark, made
	}
	if s == nil || s.ID != home {
		users = append(users, r.sessions[home])
	}
	if l := r.joints[jointKey(home, stateOf(name))]; l != nil {
		for id := range l.users {
			users = append(users, r.sessions[id])
		}
	}
	r.mu.Unlock()
	for _, user := range users {
		if user == nil {
			continue
		}
		user.mu.Lock()
		mark, made = user.facts.Made[user.noteKey(dir)]
		user.mu.Unlock()
		if made {
			return mark, true
		}
	}
	return "", false
}

// noteKey is what a state is called among what a session has noted.
func (s *Session) noteKey(dir string) string {
	home, name := filepath.Base(filepath.Dir(dir)), filepath.Base(dir)
	if home == s.ID {
		return name
	}
	return jointKey(home, name)
}

// noteFound notes a state that was made before and is all there, and marks it where its
// mark is gone. What is noted already costs nothing.
func (r *Registry) noteFound(ctx context.Context, s *Session, dir, driver string) error {
	mark, made := r.noted(s, dir)
	if made && isMarked(dir) {
		return nil
	}
	if made {
		return writeMark(dir, mark)
	}
	was, err := os.ReadFile(dir + wholeMark)
	if err == nil && len(was) > 0 {
		driver = markedBy(string(was))
	}
	if mark = markOf(dir, driver); mark != string(was) { // an earlier version's
		if err := writeMark(dir, mark); err != nil {
			return err
		}
	}
	return r.noteState(ctx, s, dir, mark)
}

// noteState writes down the mark of a state that was just made.
func (r *Registry) noteState(ctx context.Context, s *Session, dir, mark string) error {
	home, name := filepath.Base(filepath.Dir(dir)), filepath.Base(dir)
	if home != sharedHome {
		if s == nil || s.ID != home {
			s = r.userOf(home, stateOf(name))
		}
		if s == nil { // no session uses it any more
			return nil
		}
		return s.noteMade(ctx, s.noteKey(dir), mark)
	}
	if err := r.o.Local.PutSharedState(ctx, name, mark); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sharedStates[name] = mark
	return nil
}

// userOf is a session that uses the state of a server which stays with another one.
func (r *Registry) userOf(origin, server string) *Session {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l := r.joints[jointKey(origin, server)]; l != nil {
		for id := range l.users {
			if s := r.sessions[id]; s != nil {
				return s
			}
		}
	}
	return nil
}

// noteMade writes down that a state was made. A session that is being opened is written
// down by who opens it.
func (s *Session) noteMade(ctx context.Context, key, mark string) error {
	note := func(f *facts) {
		f.Made = maps.Clone(f.Made)
		if f.Made == nil {
			f.Made = make(map[string]string)
		}
		f.Made[key] = mark
	}
	if s.r.Get(s.ID) == s {
		return s.change(ctx, note)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	note(&s.facts)
	return nil
}

// vanished is the damage of a state with that mark of which something is not there;
// nil for none.
func vanished(whose driver.Whose, dir, mark string) error {
	lines := strings.Split(mark, "\n")[1:]
	if len(lines) == 0 || lines[0] != markFolder {
		return nil // it has no folder, or is of a version whose marks don't say so
	}
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return driver.Vanished(whose, "its state "+dir)
	}
	gone := slices.IndexFunc(lines[1:], func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, filepath.Base(name)))
		return errors.Is(err, fs.ErrNotExist)
	})
	if gone >= 0 {
		return driver.Vanished(whose, "the file "+filepath.Join(dir, lines[1+gone])+" of its state")
	}
	return nil
}
