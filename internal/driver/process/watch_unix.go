//go:build linux || darwin

package process

import (
	"sync"
	"time"
)

// A watcher sees the exit of one process. It does not reap it.
type watcher interface {
	// wait returns when the process has exited, after d, or, with ok false,
	// after close.
	wait(d time.Duration) (exited, ok bool)
	close()
}

// poller is the watcher that works everywhere: it looks.
type poller struct {
	pid   int
	start uint64
	quit  chan struct{}
	once  sync.Once
}

const pollEvery = 50 * time.Millisecond

func newPoller(pid int, start uint64) *poller {
	return &poller{pid: pid, start: start, quit: make(chan struct{})}
}

func (p *poller) wait(d time.Duration) (exited, ok bool) {
	over := time.Now().Add(d)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		if !lives(p.pid, p.start) {
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

func (p *poller) close() { p.once.Do(func() { close(p.quit) }) }

// lives reports whether the process with that pid and start time still runs.
func lives(pid int, start uint64) bool {
	id, err := identify(pid)
	return err == nil && id.start == start && !id.dead
}
