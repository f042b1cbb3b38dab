package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/gate"
)

// removeWait is how long Stop waits for an orchestrator before the rest is done
// in the background.
const removeWait = 10 * time.Second

// handleData is the driver's part of a handle.
type handleData struct {
	Key string `json:"key"`
}

// instance is an instance that an orchestrator runs.
//
//	running --Leave--> left            the next gateway goes on with it
//	   |----- Stop --> ended           removed there, unless it is a state
//	   \--forgotten--> ended with ErrLost --Stop--> struck out
type instance struct {
	d       *Driver
	e       *entry
	handle  driver.Handle
	o       orchestrator
	release func()
	direct  *direct // nil where calls go through the orchestrator
	grace   time.Duration
	gate    gate.Gate

	life context.Context // of requests
	cut  context.CancelFunc
	work sync.WaitGroup // requests of streams

	mu       sync.Mutex
	stream   *stream // the newest one, open or not
	left     bool
	why      error
	stopping chan struct{} // closed when an ending is over; nil before the first
	stopErr  error

	ended sync.Once
	done  chan struct{}
	freed sync.Once
}

var _ driver.Instance = (*instance)(nil)

func (d *Driver) instance(e *entry, h driver.Handle, grace time.Duration, spoke bool) (*instance, error) {
	data, err := json.Marshal(handleData{e.Key})
	if err != nil {
		return nil, fmt.Errorf("server %q: write the handle: %w", h.Server, err)
	}
	h.Data = data
	if grace <= 0 {
		grace = 5 * time.Second
	}
	i := &instance{d: d, e: e, handle: h, grace: grace, done: make(chan struct{})}
	if i.o, i.release, err = d.open(&e.Access); err != nil {
		return nil, err
	}
	i.life, i.cut = context.WithCancel(context.Background())
	if e.Access.Remote.Type == TypeHTTP && e.Access.Remote.Call == "" {
		if i.direct, err = d.newDirect(i, spoke); err != nil {
			i.free()
			return nil, err
		}
	}
	return i, nil
}

// Handle implements driver.Instance.
func (i *instance) Handle() driver.Handle { return i.handle }

// Dial implements driver.Instance.
func (i *instance) Dial(ctx context.Context) (driver.Link, error) {
	if err := ctx.Err(); err != nil {
		return driver.Link{}, fmt.Errorf("server %q: connect: %w", i.handle.Server, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.left || i.why != nil || i.stopping != nil {
		return driver.Link{}, fmt.Errorf("server %q: connect: %w", i.handle.Server, driver.ErrGone)
	}
	if i.direct != nil {
		return driver.Link{HTTP: i.direct.endpoint()}, nil
	}
	if i.stream != nil && !i.stream.isClosed() {
		return driver.Link{}, fmt.Errorf("server %q: it has a link already; close that first", i.handle.Server)
	}
	i.stream = newStream(i)
	return driver.Link{Stream: i.stream}, nil
}

// Hold implements driver.Instance: no request is running when it returns, and new ones
// wait.
func (i *instance) Hold(ctx context.Context) (func(), error) {
	release, err := i.gate.Hold(ctx)
	if err != nil {
		return nil, fmt.Errorf("server %q can't be held: %w", i.handle.Server, err)
	}
	return release, nil
}

// Done implements driver.Instance.
func (i *instance) Done() <-chan struct{} { return i.done }

// Err implements driver.Instance.
func (i *instance) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.why
}

// Logs implements driver.Instance: the orchestrator has them.
func (i *instance) Logs(int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), nil
}

// fail ends an instance that the orchestrator does not have any more.
func (i *instance) fail(why error) {
	i.mu.Lock()
	first := i.why == nil && !i.left && i.stopping == nil
	if first {
		i.why = why
	}
	s := i.stream
	i.mu.Unlock()
	if !first {
		return
	}
	i.gate.Close()
	if s != nil {
		s.close()
	}
	i.ended.Do(func() { close(i.done) })
}

// close ends the links and their running calls.
func (i *instance) close() {
	i.mu.Lock()
	s := i.stream
	i.mu.Unlock()
	i.gate.Close()
	if s != nil {
		s.close()
	}
	i.cut()
}

// free lets go of the connections.
func (i *instance) free() {
	i.freed.Do(func() {
		i.cut()
		if i.direct != nil {
			i.direct.release()
		}
		i.release()
	})
}

// Stop implements driver.Instance. What the orchestrator does not remove is tried
// again in the background, and Stop says so.
func (i *instance) Stop(ctx context.Context) error {
	i.mu.Lock()
	if i.left {
		i.mu.Unlock()
		return nil
	}
	over := i.stopping
	if over == nil || isOver(over) && i.stopErr != nil {
		over = make(chan struct{})
		i.stopping = over
		go func() {
			err := i.finish()
			i.mu.Lock()
			i.stopErr = err
			i.mu.Unlock()
			i.ended.Do(func() { close(i.done) })
			close(over)
		}()
	}
	i.mu.Unlock()
	select {
	case <-over:
	case <-ctx.Done():
		grace := time.NewTimer(i.grace)
		defer grace.Stop()
		select {
		case <-over:
		case <-grace.C:
			return fmt.Errorf("server %q: stop: the orchestrator takes longer than %s, and is waited for in the background: %w", i.handle.Server, i.grace, ctx.Err())
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.stopErr
}

func isOver(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// finish ends the instance here and, where it is no state, there.
func (i *instance) finish() error {
	i.close()
	i.work.Wait()
	i.free()
	var errs []error
	lost := errors.Is(i.Err(), driver.ErrLost)
	if lost && i.e.State != "" {
		if key, err := readState(i.e.State); err == nil && key == i.e.Key {
			errs = append(errs, writeState(i.e.State, ""))
		}
	}
	if lost || i.e.State == "" {
		errs = append(errs, i.remove())
	}
	if i.handle.Dir != "" {
		errs = append(errs, os.RemoveAll(i.handle.Dir))
	}
	return errors.Join(errs...)
}

// remove has the orchestrator remove the instance, unless that was done.
func (i *instance) remove() error {
	e, err := i.d.ledger.get(i.e.Key)
	if err != nil || e == nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), removeWait, &slow{removeWait})
	defer cancel()
	e.Access = i.e.Access
	return i.d.discard(ctx, e)
}

// Leave implements driver.Instance.
func (i *instance) Leave() error {
	i.mu.Lock()
	if i.stopping == nil {
		i.left = true
	}
	i.mu.Unlock()
	i.close()
	i.work.Wait()
	i.free()
	return nil
}
