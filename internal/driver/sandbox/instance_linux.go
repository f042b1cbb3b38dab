//go:build linux && (amd64 || arm64)

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/egress"
	"github.com/tine-mcp/tine/internal/driver/fifo"
	"github.com/tine-mcp/tine/internal/driver/life"
	"github.com/tine-mcp/tine/internal/driver/lines"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// instance is one sandbox that runs.
type instance struct {
	*life.Life
	d      *Driver
	h      driver.Handle
	rec    record
	help   *helper
	log    *slog.Logger
	pipe   *fifo.Pipe // which is below conn
	conn   *lines.Conn
	stderr *lines.Log
	park   parking
	root   *rootRef      // which it follows; nil where it was adopted
	spec   driver.Spec   // that the root is planned from
	plan   *plan         // that it was started with
	web    *web          // of a server that speaks HTTP
	door   *egress.Proxy // of a server that may reach some domains

	hello  json.RawMessage // where it goes on from a memory
	forked bool
	fresh  bool // the memory is still in the state, too; with mu

	followed followed
	commands int // that run; with mu

	usage Usage        // for the watch alone, as is this
	blind int          // looks that saw nothing
	over  atomic.Int64 // bytes that the watch ended it for

	box, gofer procid.Watcher
	watched    sync.WaitGroup

	mu  sync.Mutex
	how error // why it ended, without what is lost with it
}

var (
	_ driver.Instance  = (*instance)(nil)
	_ driver.Suspender = (*instance)(nil)
	_ driver.Parker    = (*instance)(nil)
)

func (d *Driver) newInstance(h driver.Handle, rec record, help *helper, pipe *fifo.Pipe, torn, whole bool, stderr *lines.Log, log *slog.Logger) *instance {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	i := &instance{
		Life: life.New(h.Server), d: d, h: h, rec: rec, help: help, log: log, pipe: pipe, stderr: stderr,
	}
	i.park.init(i)
	if rec.Port > 0 {
		i.web = newWeb(i)
	}
	i.conn = lines.NewConn(waking{pipe, &i.park}, lines.Options{Server: h.Server, Limit: d.opts.MaxFrame, Buffers: d.buffers, Log: log, Torn: torn, Whole: whole, Mark: filepath.Join(h.Dir, lines.MarkName)})
	return i
}

// watchBoth watches the processes of the sandbox.
func (i *instance) watchBoth() (err error) {
	if i.box, err = procid.Watch(i.rec.ID); err != nil {
		if errors.Is(err, os.ErrProcessDone) {
			return i.stderr.Told(i.log, errors.New("did not start: its sandbox ended at once"))
		}
		return err
	}
	if i.gofer, err = procid.Watch(i.rec.Gofer); err != nil && !errors.Is(err, os.ErrProcessDone) {
		i.box.Close()
		return err
	}
	i.watched.Go(i.watch)
	if i.gofer != nil {
		i.watched.Go(i.watchGofer)
	}
	i.d.live.Store(i, nil)
	i.d.watch.begin(i)
	i.park.begin()
	return nil
}

// watch sees the end of the sandbox, and keeps the log short meanwhile.
func (i *instance) watch() {
	if !i.stderr.Tend(i.log, i.box.Wait) {
		return
	}
	i.Exit()
	i.d.live.Delete(i)
	i.root.release()
	i.park.end()
	how := i.ending() + i.tooMuch()
	// What opens files for it is of no use any more.
	_ = i.rec.Gofer.Signal(killed)
	i.conn.End()
	if i.web != nil {
		i.web.end()
	}
	i.shut()
	i.End(func() error {
		err := i.stderr.Ending(i.log, i.h.Server, how)
		i.mu.Lock()
		i.how = err
		i.mu.Unlock()
		if i.rec.loses() {
			err = fmt.Errorf("%w; what it had in memory is lost with it: %w", err, driver.ErrLost)
		}
		return err
	})
}

// watchGofer ends the sandbox when its gofer, which opens files for it, has died: it
// would go on without being able to open any.
func (i *instance) watchGofer() {
	for {
		exited, ok := i.gofer.Wait(time.Hour)
		if !ok {
			return
		}
		if exited {
			break
		}
	}
	// A sandbox that is ending by itself has a status to report.
	select {
	case <-i.Exited():
	case <-time.After(goferGrace):
		_ = i.rec.ID.Signal(killed)
	}
}

// goferGrace is how long a sandbox may live without its gofer.
const goferGrace = time.Second

// endingWait is how long it may take until it is known how a sandbox ended.
const endingWait = 5 * time.Second

// ending says how the sandbox ended, as far as that is known.
func (i *instance) ending() string {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	// Only the helper that started it knows.
	if run := i.d.helpers.live(i.rec.Runsc); run != nil {
		if rep, _, err := run.call(ctx, i.request(control.OpWait)); err == nil && rep.Status != "" {
			return rep.Status
		}
	}
	return "has ended (how is not known, because the helper that started it is gone)"
}

func (i *instance) request(op string) control.Request {
	return control.Request{Op: op, Sandbox: i.rec.Sandbox, Flags: i.rec.Flags}
}

// order asks the helper for something, or the one after it where it has ended.
func (i *instance) order(ctx context.Context, req control.Request, files ...*os.File) (control.Reply, []*os.File, error) {
	return i.d.helpers.call(ctx, i.rec.Runsc, req, files...)
}

var _ driver.Identified = (*instance)(nil)

// Process implements driver.Identified. The process is the sandbox's.
func (i *instance) Process() api.Process {
	return api.Process{PID: i.rec.PID, Started: i.rec.Began()}
}

// Handle implements driver.Instance.
func (i *instance) Handle() driver.Handle { return i.h }

// Greeted implements driver.Suspender.
func (i *instance) Greeted() (json.RawMessage, bool) { return i.hello, i.forked }

// Dial implements driver.Instance. A caller that dials has the handle, so that the memory
// that the instance began with is not needed any more.
func (i *instance) Dial(ctx context.Context) (driver.Link, error) {
	if err := i.MayDial(ctx); err != nil {
		return driver.Link{}, err
	}
	i.mu.Lock()
	fresh := i.fresh
	i.fresh = false
	i.mu.Unlock()
	if fresh {
		// The next instance would go on from it, and forget what is done from here on.
		if err := i.d.took(i.rec.State); err != nil {
			return driver.Link{}, fmt.Errorf("server %q: %w", i.h.Server, err)
		}
	}
	if i.web != nil {
		return driver.Link{HTTP: i.web.endpoint()}, nil
	}
	s, err := i.conn.Dial()
	if err != nil {
		return driver.Link{}, err
	}
	return driver.Link{Stream: s}, nil
}

// Logs implements driver.Instance. After Stop there are none.
func (i *instance) Logs(max int64) (io.ReadCloser, error) { return i.stderr.Logs(i.h.Server, max) }
