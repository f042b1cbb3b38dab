//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

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
	paused := false
	release = sync.OnceFunc(func() {
		if paused {
			i.resume()
		}
		i.park.add(-1)
		enter()
		<-i.holding
	})
	select {
	case <-i.leaving:
		err = errParting
	default:
		_, _, err = i.order(ctx, i.request(control.OpPause))
		paused = true // also where it fails: nobody can tell how far it came
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

// resumeWait is how long a sandbox that hangs is waited for. It goes on later, too.
const resumeWait = 5 * time.Second

// resume lets the sandbox go on.
func (i *instance) resume() {
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

// part makes the instance run again where it is held or parked, for a stop or the
// next gateway, and allows no other hold.
func (i *instance) part() {
	i.parting.Do(func() { close(i.leaving) })
	i.park.wake()
	i.resume()
}
