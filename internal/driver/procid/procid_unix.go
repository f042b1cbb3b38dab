//go:build linux || darwin

package procid

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
)

// State is what the system says of a process.
type State struct {
	ID
	Group int
	Dead  bool // it has exited and was not waited for
	Young bool // it is about to run a program, whose environment is not set yet; Linux only
}

// Look looks at the process that has a pid now. There is none where the error is
// os.ErrProcessDone.
func Look(pid int) (State, error) {
	s, err := look(pid)
	switch {
	case gone(err):
		return State{}, os.ErrProcessDone
	case err != nil:
		return State{}, fmt.Errorf("look at process %d: %w", pid, err)
	}
	s.PID, s.Boot = pid, boot()
	return s, nil
}

// gone reports whether an error says that a process, or a thread, is not there.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

var boot = sync.OnceValue(bootID)

// Lives reports whether the process still runs. A zombie does not. Nor does the first of
// all processes, which is never one that we or a program of ours started.
func (id ID) Lives() bool { return id.check() == nil }

// check is nil where the process runs, os.ErrProcessDone where it does not, and another
// error where that is unknown.
func (id ID) check() error {
	if id.PID <= 1 {
		return os.ErrProcessDone
	}
	if now := boot(); id.Boot != "" && now != "" && id.Boot != now {
		return os.ErrProcessDone
	}
	s, err := Look(id.PID)
	if err == nil && (s.Start != id.Start || s.Dead) {
		return os.ErrProcessDone
	}
	return err
}

// Stands reports whether the process runs nothing: each of its threads is stopped,
// or it is gone.
func (id ID) Stands() bool { return stands(id.PID) || id.check() == os.ErrProcessDone }
