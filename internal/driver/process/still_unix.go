//go:build linux || darwin

package process

import (
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/procid"
)

// still is whether the processes of an instance are stopped.
//
// The leader is stopped first and goes on last: where it runs, none of the
// others is stopped because of us. So the next gateway can tell by it whether
// the one before died while it held the instance.
type still struct {
	mu     sync.Mutex // held while they are being stopped
	frozen bool
	away   []family.Member // those outside of the group that we stopped
}

const (
	// A process that starts another waits inside the kernel until that one runs its
	// program, which it can't when it is stopped just before. Letting both go on
	// for a moment mends it.
	stopRound = 100 * time.Millisecond
	stopWait  = 10 * time.Second
)

// freeze stops the group of the child, and what has left the group as far as the
// census finds it. It fails with the error of over as soon as that has one.
func (c *child) freeze(over func() error) error {
	c.still.mu.Lock()
	defer c.still.mu.Unlock()
	if err := over(); err != nil {
		return err
	}
	c.still.frozen = true
	giveUp := time.Now().Add(stopWait)
	for {
		running, err := c.stopAll(over)
		if err == nil && running == 0 {
			return nil
		}
		c.goOn()
		switch {
		case err != nil:
			return err
		case time.Now().After(giveUp):
			return fmt.Errorf("process %d was sent SIGSTOP and does not stop", running)
		}
		time.Sleep(time.Millisecond)
		c.still.frozen = true
	}
}

// stopAll stops everything once. It returns a process that has not stopped when
// the round was over.
func (c *child) stopAll(over func() error) (running int, err error) {
	late := time.Now().Add(stopRound)
	c.signal(syscall.SIGSTOP)
	if ok, err := standing(c.stands, late, over); err != nil || !ok {
		return c.id.PID, err
	}
	for {
		var fresh []family.Member
		for _, p := range c.census.Members(c.family) {
			if p.Stands() {
				continue
			}
			if s, err := procid.Look(p.PID); err == nil && s.Group != c.id.PID {
				fresh = append(fresh, p)
				c.still.away = append(c.still.away, p)
				p.Signal(syscall.SIGSTOP)
			}
			if ok, err := standing(p.Stands, late, over); err != nil || !ok {
				return p.PID, err
			}
		}
		// What runs by itself may have started others before it was stopped.
		if len(fresh) == 0 {
			return 0, nil
		}
	}
}

// stands reports whether the child is stopped, or gone.
func (c *child) stands() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reaped || c.id.Stands()
}

// standing waits until a process is stopped.
func standing(stands func() bool, late time.Time, over func() error) (bool, error) {
	for wait := 20 * time.Microsecond; !stands(); wait = min(2*wait, 2*time.Millisecond) {
		if err := over(); err != nil {
			return false, err
		}
		if time.Now().After(late) {
			return false, nil
		}
		time.Sleep(wait)
	}
	return true, over()
}

// thaw lets everything go on that freeze stopped.
func (c *child) thaw() {
	c.still.mu.Lock()
	defer c.still.mu.Unlock()
	c.goOn()
}

// goOn is thaw for a caller that has the lock.
func (c *child) goOn() {
	if !c.still.frozen {
		return
	}
	for _, p := range slices.Backward(c.still.away) {
		p.Signal(syscall.SIGCONT)
	}
	c.still.away = nil
	c.still.frozen = false
	c.signal(syscall.SIGCONT)
}

// wake lets everything go on that an earlier gateway may have stopped.
func (c *child) wake() {
	if c.stands() {
		for _, p := range c.census.Members(c.family) {
			p.Signal(syscall.SIGCONT)
		}
	}
	c.signal(syscall.SIGCONT)
}

// settles is whether a hold waits for a frame that is half sent: a stopped program does
// not read the rest.
const settles = false
