//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// Hold implements driver.Instance. No frame enters, and nothing in the sandbox
// runs: what it keeps does not change.
func (i *instance) Hold(ctx context.Context) (release func(), err error) {
	return i.HoldWith(ctx, func() (func(), error) {
		enter, err := i.enterLater(ctx)
		if err != nil {
			return func() {}, err
		}
		i.park.add(1)
		goOn := func() {
			i.park.add(-1)
			enter()
		}
		if err := i.MayHold(); err != nil {
			return goOn, err
		}
		paused, failed := make(chan struct{}), error(nil)
		go func() {
			defer close(paused)
			within, cancel := i.alive()
			defer cancel()
			_, _, failed = i.order(within, i.request(control.OpPause))
		}()
		resume := func() {
			<-paused // or it would be paused after it went on
			i.resume()
			goOn()
		}
		select {
		case <-paused:
			return resume, failed
		case <-ctx.Done():
			return resume, ctx.Err()
		}
	})
}

// enterLater keeps messages back until enter is called.
func (i *instance) enterLater(ctx context.Context) (enter func(), err error) {
	if i.web != nil {
		return i.web.hold(ctx)
	}
	return i.conn.Hold(), nil
}

// resumeWait is how long a sandbox that hangs, or a helper that has to be started,
// is waited for.
const resumeWait = 5 * time.Second

// resumePause is between two tries to let a sandbox go on.
const resumePause = 100 * time.Millisecond

// resume lets the sandbox go on, however long that takes: nothing else would.
func (i *instance) resume() {
	ctx, cancel := i.alive()
	defer cancel()
	for logged := false; ; logged = true {
		_, _, err := i.order(ctx, i.request(control.OpResume))
		if err == nil || ctx.Err() != nil || errors.Is(err, errStopping) {
			return
		}
		if !logged {
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
		case <-i.Exited():
		case <-i.Parted():
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// part makes the instance run again where it is held or parked, for a stop or the
// next gateway, and allows no other hold.
func (i *instance) part() {
	i.Part()
	i.park.wake()
	ctx, cancel := context.WithTimeout(context.Background(), resumeWait)
	defer cancel()
	if _, _, err := i.order(ctx, i.request(control.OpResume)); err != nil {
		select {
		case <-i.Exited():
		default:
			i.log.Warn("a sandbox that was held does not go on", "server", i.h.Server, "error", err)
		}
	}
}
