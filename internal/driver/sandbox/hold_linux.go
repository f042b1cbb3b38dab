//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/driver/gate"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

var errParting = errors.New("it is being stopped or left")

// Hold implements driver.Instance. No frame enters, and nothing in the sandbox
// runs: what it keeps does not change.
func (i *instance) Hold(ctx context.Context) (release func(), err error) {
	select {
	case i.holding <- struct{}{}:
	case <-i.done:
		return func() {}, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("server %q can't be held: another one holds it: %w", i.h.Server, ctx.Err())
	}
	var enter func()
	if i.web != nil {
		if enter, err = i.web.hold(ctx); err != nil {
			<-i.holding
			return nil, fmt.Errorf("server %q can't be held: %w", i.h.Server, err)
		}
	} else {
		enter = i.conn.Hold()
	}
	i.park.add(1)
	var pausing chan struct{} // nil where it is not paused
	release = sync.OnceFunc(func() {
		gate.Within(resumeWait, func() {
			if pausing != nil {
				<-pausing // or it would be paused after it went on
				i.resume()
			}
			i.park.add(-1)
			enter()
			<-i.holding
		})
	})
	select {
	case <-i.leaving:
		err = errParting
	default:
		pausing = make(chan struct{})
		var failed error
		go func() {
			defer close(pausing)
			within, cancel := i.alive()
			defer cancel()
			_, _, failed = i.order(within, i.request(control.OpPause))
		}()
		select {
		case <-pausing:
			err = failed
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		release()
		select {
		case <-i.done: // what has ended is still
			return func() {}, nil
		default:
			return nil, fmt.Errorf("server %q can't be held: %w", i.h.Server, err)
		}
	}
	return release, nil
}

// resumeWait is how long a sandbox that hangs, or a helper that has to be started,
// is waited for. What was held goes on later, too, and is held until then.
const resumeWait = 5 * time.Second

// resumePause is between two tries to let a sandbox go on.
const resumePause = 100 * time.Millisecond

// resume lets the sandbox go on, however long that takes: nobody else would.
func (i *instance) resume() {
	ctx, cancel := i.alive()
	defer cancel()
	for told := false; ; told = true {
		_, _, err := i.order(ctx, i.request(control.OpResume))
		if err == nil || ctx.Err() != nil || errors.Is(err, errStopping) {
			return
		}
		if !told {
			i.log.Warn("a sandbox that was held does not go on yet", "server", i.h.Server, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(resumePause):
		}
	}
}

// alive is a context for as long as the sandbox lives and is ours.
func (i *instance) alive() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		select {
		case <-i.exited:
		case <-i.leaving:
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// part makes the instance run again where it is held or parked, for a stop or the
// next gateway, and allows no other hold.
func (i *instance) part() {
	i.parting.Do(func() { close(i.leaving) })
	i.park.wake()
	ctx, cancel := context.WithTimeout(context.Background(), resumeWait)
	defer cancel()
	if _, _, err := i.order(ctx, i.request(control.OpResume)); err != nil {
		select {
		case <-i.exited:
		default:
			i.log.Warn("a sandbox that was held does not go on", "server", i.h.Server, "error", err)
		}
	}
}
