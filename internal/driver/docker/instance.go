package docker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/life"
	"github.com/tine-mcp/tine/internal/driver/lines"
)

// instance is one container that runs. A container that is a state is not removed by
// Stop, but when the state is erased.
type instance struct {
	*life.Life
	d      *Driver
	e      *engine
	h      driver.Handle
	rec    record
	log    *slog.Logger
	stderr *lines.Log

	ctx     context.Context // of the watch
	cancel  context.CancelFunc
	watched chan struct{} // watch has returned
	hear    *listener     // what watch begins with
	entered bool          // it counts as a user of its network

	mu    sync.Mutex
	conn  *lines.Conn // of stdio
	pipe  *pipe       // which is below conn
	web   *web        // of http
	enter func()      // lets frames in again, where it is held

	commands int // that run; with mu

	pausing  sync.Mutex
	paused   bool      // by us; the holder of the instance changes it, with pausing
	pausedAt time.Time // when it was last, likewise
}

var _ driver.Instance = (*instance)(nil)

// killWait is how long the engine may take to end what it killed.
const killWait = 30 * time.Second

func (d *Driver) newInstance(e *engine, h driver.Handle, rec record, stderr *lines.Log, log *slog.Logger) *instance {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	i := &instance{
		Life: life.New(h.Server), d: d, e: e, h: h, rec: rec, log: log, stderr: stderr, watched: make(chan struct{}),
	}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	return i
}

// connect attaches to the container, which need not run yet.
func (i *instance) connect(ctx context.Context, torn bool) error {
	var err error
	if i.hear, err = i.e.listen(ctx, i.rec.ref(), i.rec.HTTP); err != nil {
		return err
	}
	if i.rec.HTTP {
		return nil
	}
	if err := i.attach(ctx, torn); err != nil {
		i.hear.close()
		return err
	}
	return nil
}

// attach makes the connection that messages go through.
func (i *instance) attach(ctx context.Context, torn bool) error {
	p, err := i.e.attach(ctx, i.rec.ref())
	if err != nil {
		return err
	}
	p.why = i.whyClosed
	i.pipe = p
	i.conn = lines.NewConn(p, lines.Options{Server: i.h.Server, Limit: i.d.opts.MaxFrame, Buffers: i.d.buffers, Log: i.log, Torn: torn, Mark: filepath.Join(i.h.Dir, lines.MarkName)})
	return nil
}

// disconnect undoes connect, where nothing watches yet.
func (i *instance) disconnect() {
	i.cancel()
	if i.hear != nil {
		i.hear.close()
	}
	if i.conn != nil {
		i.conn.Close()
	}
	if i.web != nil {
		i.web.end()
	}
}

// begin watches a container that runs.
func (i *instance) begin() { go i.watch(i.hear) }

var _ driver.Identified = (*instance)(nil)

// Process implements driver.Identified.
func (i *instance) Process() api.Process {
	return api.Process{Container: i.rec.ref(), Image: i.rec.Image, Started: i.rec.Started}
}

// Handle implements driver.Instance.
func (i *instance) Handle() driver.Handle { return i.h }

// Dial implements driver.Instance.
func (i *instance) Dial(ctx context.Context) (driver.Link, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.MayDial(ctx); err != nil {
		return driver.Link{}, err
	}
	if i.web != nil {
		return driver.Link{HTTP: i.web.endpoint()}, nil
	}
	if i.pipe.lost.Load() && !i.conn.Linked() {
		if err := i.again(ctx); err != nil {
			return driver.Link{}, fmt.Errorf("server %q: %w", i.h.Server, err)
		}
	}
	s, err := i.conn.Dial()
	if err != nil {
		return driver.Link{}, err
	}
	return driver.Link{Stream: s}, nil
}

// again attaches once more after the connection was lost. The caller holds mu.
func (i *instance) again(ctx context.Context) error {
	old := i.conn
	if err := i.attach(ctx, true); err != nil {
		return err
	}
	old.Close()
	if i.enter != nil { // it is held
		i.enter = i.conn.Hold()
	}
	return nil
}

// Logs implements driver.Instance. After Stop there are none.
func (i *instance) Logs(max int64) (io.ReadCloser, error) { return i.stderr.Logs(i.h.Server, max) }

// hangUp ends the link and the connection below it, and allows no other.
func (i *instance) hangUp() {
	i.mu.Lock()
	conn, web := i.conn, i.web
	i.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
	if web != nil {
		web.end()
	}
}
