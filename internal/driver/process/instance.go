package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/life"
	"github.com/tine-mcp/tine/internal/driver/lines"
)

// instance is one child. watch is its only goroutine: it sees the exit, ends what
// is left of the child's family, and keeps the log short meanwhile. Stop and Leave
// wait for it.
type instance struct {
	*life.Life
	d      *Driver
	h      driver.Handle
	rec    record
	grace  time.Duration
	log    *slog.Logger
	child  *child
	conn   *lines.Conn
	stderr *lines.Log

	watched chan struct{} // closed when watch has returned

	mu     sync.Mutex
	until  time.Time // where it was asked to end: when asking is over
	endErr error     // what could not be ended
}

var _ driver.Instance = (*instance)(nil)

func (i *instance) watch() {
	defer close(i.watched)
	if !i.stderr.Tend(i.log, i.child.wait) {
		return
	}
	i.Exit()
	how, endErr := i.child.end(i.askUntil)
	i.conn.End()
	if len(i.rec.Dirs) > 0 { // what it has removed itself is not missing
		if err := dirs.Note(i.rec.State, i.rec.State, i.rec.Dirs); err != nil {
			i.log.Debug("directories of a state not noted", "server", i.h.Server, "err", err)
		}
	}

	i.mu.Lock()
	i.endErr = endErr
	i.mu.Unlock()
	i.End(func() error { return i.stderr.Ending(i.log, i.h.Server, how) })
}

// askUntil is when to stop asking and kill: at once unless it was asked to end.
func (i *instance) askUntil() time.Time {
	if !i.Asked() {
		return time.Time{}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.until
}

func (i *instance) setUntil(t time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.until = t
}

var _ driver.Identified = (*instance)(nil)

// Process implements driver.Identified.
func (i *instance) Process() api.Process {
	return api.Process{PID: i.child.id.PID, Started: i.child.id.Began()}
}

// Handle implements driver.Instance.
func (i *instance) Handle() driver.Handle { return i.h }

// Dial implements driver.Instance.
func (i *instance) Dial(ctx context.Context) (driver.Link, error) {
	if err := i.MayDial(ctx); err != nil {
		return driver.Link{}, err
	}
	s, err := i.conn.Dial()
	if err != nil {
		return driver.Link{}, err
	}
	return driver.Link{Stream: s}, nil
}

// Logs implements driver.Instance. After Stop there are none.
func (i *instance) Logs(max int64) (io.ReadCloser, error) { return i.stderr.Logs(i.h.Server, max) }

// Stop implements driver.Instance.
func (i *instance) Stop(ctx context.Context) error {
	return i.StopWith(func() error { return i.stop(ctx) })
}

func (i *instance) stop(ctx context.Context) error {
	i.setUntil(time.Now().Add(i.grace))
	i.Ask()
	i.ask(ctx)
	insist := time.NewTimer(2 * family.KillWait)
	defer insist.Stop()
	select {
	case <-i.Done():
	case <-insist.C:
		return fmt.Errorf("server %q: process %d was killed and does not end; its folder %s stays", i.h.Server, i.child.id.PID, i.h.Dir)
	}
	<-i.watched
	i.conn.Close()
	i.child.close()
	i.stderr.Close()
	i.mu.Lock()
	err := i.endErr
	i.mu.Unlock()
	if err != nil {
		return fmt.Errorf("server %q: %w; the folder %s stays", i.h.Server, err, i.h.Dir)
	}
	if err := folder.Remove(i.h.Dir, recordName); err != nil {
		return fmt.Errorf("server %q: remove the instance's folder: %w", i.h.Server, err)
	}
	return nil
}

// ask asks the child to end, until it and its family have, or the grace or ctx
// is over, and kills it then.
func (i *instance) ask(ctx context.Context) {
	select {
	case <-i.Done():
		return
	default:
	}
	i.part()
	i.conn.HangUp()
	i.child.terminate()
	grace := time.NewTimer(i.grace)
	defer grace.Stop()
	select {
	case <-i.Done():
		return
	case <-grace.C:
	case <-ctx.Done():
	}
	i.setUntil(time.Time{})
	i.child.kill()
}

// Leave implements driver.Instance.
func (i *instance) Leave() error {
	if !adopts {
		return i.Stop(context.Background())
	}
	return i.LeaveWith(func() {
		i.part()
		i.child.close()
		<-i.watched
		i.conn.Close()
		i.stderr.Close()
	})
}
