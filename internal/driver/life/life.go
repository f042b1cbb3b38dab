// Package life is the life of an instance, whatever driver runs it:
//
//	running --exit--> exited --all it started is gone--> ended --Stop--> removed
//	   |  \--Stop: ask, insist; Suspend: freeze, kill----^
//	   \--Leave--> left
//
// While it runs it may be held, by one caller at a time. A Stop or a Leave ends a hold
// first: the instance goes on then, and can't be held again.
package life

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/gate"
)

// goOnWait is how long a release waits until an instance goes on, where an engine is
// away or a sandbox hangs. It goes on later, too, and is held until then.
const goOnWait = 5 * time.Second

var errParted = errors.New("it is being stopped or left")

// A Life is that of one instance. Its methods may run at once.
type Life struct {
	server  string
	exited  chan struct{}
	done    chan struct{}
	parted  chan struct{}
	holding chan struct{} // has a token while the instance is held
	exit    sync.Once
	part    sync.Once

	mu    sync.Mutex
	asked bool  // its end is no accident
	err   error // why it ended

	closing sync.Mutex // held by StopWith and LeaveWith
	removed bool
	left    bool
}

// New returns the life of an instance of a server, which runs.
func New(server string) *Life {
	return &Life{
		server: server, exited: make(chan struct{}), done: make(chan struct{}),
		parted: make(chan struct{}), holding: make(chan struct{}, 1),
	}
}

// Exited is closed when the program itself has ended.
func (l *Life) Exited() <-chan struct{} { return l.exited }

// Done is closed when all that it started has ended as well.
func (l *Life) Done() <-chan struct{} { return l.done }

// Parted is closed when a Stop or a Leave has begun.
func (l *Life) Parted() <-chan struct{} { return l.parted }

// Over reports whether the program has ended, or is being stopped or left.
func (l *Life) Over() bool { return closed(l.exited) || closed(l.parted) }

// CutOff is the error of a command beside the program once it is over; nil before. It
// waits so long until it is known how the program ended.
func (l *Life) CutOff(wait time.Duration) error {
	switch {
	case !l.Over():
		return nil
	case !closed(l.exited):
		return errors.New("it was stopped while the command ran, and the command with it")
	}
	select {
	case <-l.done:
	case <-time.After(wait):
	}
	return fmt.Errorf("it ended while the command ran, and the command with it: %w", errors.Join(driver.ErrGone, l.Err()))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Err is why the instance ended; nil before that, and where it was stopped.
func (l *Life) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Exit notes that the program has ended.
func (l *Life) Exit() { l.exit.Do(func() { close(l.exited) }) }

// End notes that all of the instance has ended, and why, unless it was asked to.
func (l *Life) End(why func() error) {
	l.Exit()
	l.mu.Lock()
	if !l.asked {
		l.err = why()
	}
	l.mu.Unlock()
	close(l.done)
}

// Ask notes that an end of the instance is no accident from now on.
func (l *Life) Ask() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.exited: // by itself, which Err says
	default:
		l.asked = true
	}
}

// Asked reports whether the end of the instance is no accident.
func (l *Life) Asked() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

// Part allows no hold that is not there yet. The driver then lets the instance go on.
func (l *Life) Part() { l.part.Do(func() { close(l.parted) }) }

// MayHold returns why an instance must not be held any more; nil while it may.
func (l *Life) MayHold() error {
	select {
	case <-l.parted:
		return errParted
	default:
		return nil
	}
}

// MayDial returns why an instance can't be dialed any more; nil while it can.
func (l *Life) MayDial(ctx context.Context) error {
	stopped := fmt.Errorf("server %q: the instance is stopped", l.server)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		if err := l.Err(); err != nil {
			return err
		}
		return stopped
	default:
	}
	if l.MayHold() != nil {
		return stopped
	}
	return nil
}

// HoldWith holds an instance. Quiet makes it quiet, and returns what lets it go on, also
// where it fails. An instance that has ended is quiet.
func (l *Life) HoldWith(ctx context.Context, quiet func() (goOn func(), err error)) (release func(), err error) {
	select {
	case l.holding <- struct{}{}:
	case <-l.done:
		return func() {}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("server %q can't be held: another one holds it: %w", l.server, ctx.Err())
	}
	goOn, err := quiet()
	release = sync.OnceFunc(func() {
		gate.Within(goOnWait, func() {
			goOn()
			<-l.holding
		})
	})
	if err == nil {
		return release, nil
	}
	release()
	select {
	case <-l.done:
		return func() {}, nil
	default:
		return nil, fmt.Errorf("server %q can't be held: %w", l.server, err)
	}
}

// StopWith ends and removes an instance, unless that is done already. An instance that
// was left is not this gateway's to stop.
func (l *Life) StopWith(stop func() error) error {
	l.closing.Lock()
	defer l.closing.Unlock()
	switch {
	case l.removed:
		return nil
	case l.left:
		return fmt.Errorf("server %q: the instance was left to the next gateway", l.server)
	}
	if err := stop(); err != nil {
		return err
	}
	l.removed = true
	return nil
}

// LeaveWith leaves an instance to the next gateway, unless it is removed or left already.
func (l *Life) LeaveWith(leave func()) error {
	l.closing.Lock()
	defer l.closing.Unlock()
	if !l.removed && !l.left {
		l.left = true
		leave()
	}
	return nil
}
