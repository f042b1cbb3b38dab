//go:build linux || darwin

package procid

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"
)

// A Watcher sees the exit of one process. It does not wait for it as a parent
// must.
type Watcher interface {
	// Wait returns when the process has exited, after d, or, with ok false, after
	// Close. One at a time may wait.
	Wait(d time.Duration) (exited, ok bool)
	// Close ends a Wait, and may be called twice. The process goes on.
	Close()
}

// Watch watches a process. It fails with os.ErrProcessDone where that does not
// run any more.
func Watch(id ID) (Watcher, error) {
	fd := openProcess(id.PID)
	// Looked at afterwards: the descriptor might be of a successor.
	if err := id.check(); err != nil {
		closeFD(fd)
		return nil, err
	}
	return newWatcher(id, fd), nil
}

// Start starts a process and watches it. Where it fails nothing runs, except what
// the process started itself where the pid is set all the same.
func Start(path string, argv []string, attr *syscall.ProcAttr) (ID, Watcher, error) {
	pid, fd, err := forkExec(path, argv, attr)
	if err != nil {
		return ID{}, nil, err
	}
	s, err := Look(pid) // it can't be gone: it was not waited for
	if err != nil {
		if sys := attr.Sys; sys != nil && (sys.Setsid || sys.Setpgid) {
			syscall.Kill(-pid, syscall.SIGKILL)
		}
		syscall.Kill(pid, syscall.SIGKILL)
		reap(pid)
		closeFD(fd)
		return ID{PID: pid}, nil, fmt.Errorf("note the new process: %w", err)
	}
	return s.ID, newWatcher(s.ID, fd), nil
}

func reap(pid int) {
	for {
		if _, err := syscall.Wait4(pid, nil, 0, nil); err != syscall.EINTR {
			return
		}
	}
}

// poller is the watcher that works everywhere: it looks.
type poller struct {
	id   ID
	quit chan struct{}
	once sync.Once
}

const pollEvery = 50 * time.Millisecond

func newPoller(id ID) *poller { return &poller{id: id, quit: make(chan struct{})} }

func (p *poller) Wait(d time.Duration) (exited, ok bool) {
	over := time.Now().Add(d)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.quit:
			return false, false
		default:
		}
		if p.id.check() == os.ErrProcessDone {
			return true, true
		}
		select {
		case <-p.quit:
			return false, false
		case now := <-tick.C:
			if now.After(over) {
				return false, true
			}
		}
	}
}

func (p *poller) Close() { p.once.Do(func() { close(p.quit) }) }
