package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/folder"
	"github.com/tine-mcp/tine/internal/driver/lines"
)

// instance is one child. Its life:
//
//	running --exit--> ending --all it started is gone--> ended --Stop--> removed
//	   |  \--Stop: ask, insist---^
//	   \--Leave--> left
//
// watch is the only goroutine. It sees the exit, ends what is left of the
// child's family, and keeps the log short meanwhile. Stop and Leave wait for it.
type instance struct {
	h      driver.Handle
	rec    record
	grace  time.Duration
	log    *slog.Logger
	child  *child
	conn   *lines.Conn
	stderr *lines.Log

	exited  chan struct{} // the child itself has ended
	done    chan struct{} // and all it had started
	watched chan struct{} // watch has returned

	mu       sync.Mutex
	stopping bool
	until    time.Time // where stopping: when asking ends
	err      error     // why it ended
	endErr   error     // what could not be ended

	holding chan struct{} // holds one token while the instance is held
	leaving chan struct{} // closed when a Stop or Leave begins
	parting sync.Once

	closing sync.Mutex // held by Stop and Leave
	removed bool
	left    bool
}

var _ driver.Instance = (*instance)(nil)

// killWait is how long what was killed may take to be gone. Only a process that
// hangs in the kernel takes that long.
const killWait = 10 * time.Second

func (i *instance) watch() {
	defer close(i.watched)
	if !i.stderr.Tend(i.log, i.child.wait) {
		return
	}
	close(i.exited)
	how, endErr := i.child.end(i.askUntil)
	i.conn.End()
	if len(i.rec.Dirs) > 0 { // what it has removed itself is not missing
		if err := dirs.Note(i.rec.State, i.rec.State, i.rec.Dirs); err != nil {
			i.log.Debug("directories of a state not noted", "server", i.h.Server, "err", err)
		}
	}

	i.mu.Lock()
	i.endErr = endErr
	if !i.stopping {
		i.err = i.stderr.Ending(i.log, i.h.Server, how)
	}
	i.mu.Unlock()
	close(i.done)
}

// askUntil is when to stop asking and kill: at once unless a Stop is under way.
func (i *instance) askUntil() time.Time {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.stopping {
		return time.Time{}
	}
	return i.until
}

// Handle implements driver.Instance.
func (i *instance) Handle() driver.Handle { return i.h }

// Done implements driver.Instance.
func (i *instance) Done() <-chan struct{} { return i.done }

// Err implements driver.Instance.
func (i *instance) Err() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.err
}

// Dial implements driver.Instance.
func (i *instance) Dial(ctx context.Context) (driver.Link, error) {
	if err := ctx.Err(); err != nil {
		return driver.Link{}, err
	}
	select {
	case <-i.done:
		if err := i.Err(); err != nil {
			return driver.Link{}, err
		}
	default:
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
	i.closing.Lock()
	defer i.closing.Unlock()
	if i.removed {
		return nil
	}
	if i.left {
		return fmt.Errorf("server %q: the instance was left to the next gateway", i.h.Server)
	}
	i.mu.Lock()
	select {
	case <-i.exited: // by itself, which Err will say
	default:
		i.stopping, i.until = true, time.Now().Add(i.grace)
	}
	i.mu.Unlock()

	i.ask(ctx)
	insist := time.NewTimer(2 * killWait)
	defer insist.Stop()
	select {
	case <-i.done:
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
	i.removed = true
	return nil
}

// ask asks the child to end, until it and its family have, or the grace or ctx
// is over, and kills it then.
func (i *instance) ask(ctx context.Context) {
	select {
	case <-i.done:
		return
	default:
	}
	i.part()
	i.conn.HangUp()
	i.child.terminate()
	grace := time.NewTimer(i.grace)
	defer grace.Stop()
	select {
	case <-i.done:
		return
	case <-grace.C:
	case <-ctx.Done():
	}
	i.mu.Lock()
	i.until = time.Time{}
	i.mu.Unlock()
	i.child.kill()
}

// Leave implements driver.Instance.
func (i *instance) Leave() error {
	if !adopts {
		return i.Stop(context.Background())
	}
	i.closing.Lock()
	defer i.closing.Unlock()
	if i.removed || i.left {
		return nil
	}
	i.left = true
	i.part()
	i.child.close()
	<-i.watched
	i.conn.Close()
	i.stderr.Close()
	return nil
}
