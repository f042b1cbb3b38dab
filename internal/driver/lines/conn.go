package lines

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// Options of NewConn.
type Options struct {
	Server  string
	Limit   int        // bytes of one message that is read
	Buffers *sync.Pool // from NewBuffers
	Log     *slog.Logger
	// Torn is set where another gateway may have read the beginning of the first
	// line, and written the beginning of a line that has no end.
	Torn bool
	// Whole is set beside it where nothing but whole lines was written: some
	// servers don't survive a line that is empty.
	Whole bool
	// Mark is a file that exists while a long line is being written, so that the next
	// gateway knows after a death whether one may have no end; short lines go into a
	// pipe as a whole. Without it one always may.
	Mark string
}

// MarkName is what the Mark of an instance is called in its folder.
const MarkName = "long-line"

// wholeLine is how long a line may be that is written as a whole or not at all: it
// is what POSIX guarantees of pipes, as Linux has it.
const wholeLine = 4096

// torn reports whether the last line that was written may have no end.
func (o *Options) torn() bool {
	if !o.Torn || o.Whole || o.Mark == "" {
		return o.Torn && !o.Whole
	}
	_, err := os.Lstat(o.Mark)
	return !errors.Is(err, fs.ErrNotExist)
}

// Conn is a Pipe with messages in it.
type Conn struct {
	server string
	pipe   Pipe

	reading sync.Mutex // held while a frame is read
	frames  Frames

	writing chan struct{} // holds one token while a frame is written: a lock that can be waited for with a context
	torn    bool          // the last line has no end
	mark    string        // as in Options
	marked  bool          // it is there
	buffers *sync.Pool

	held atomic.Pointer[pause] // nil while frames may enter
	over chan struct{}         // closed when the program is gone

	mu     sync.Mutex
	link   *stream // the one that is open
	ended  bool    // the program is gone
	closed bool
}

// pause is a time in which no frame enters.
type pause struct{ over chan struct{} }

// NewConn returns a connection on a pipe, which is its own from now on.
func NewConn(p Pipe, o Options) *Conn {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	c := &Conn{
		server: o.Server, pipe: p, torn: o.torn(), mark: o.Mark, buffers: o.Buffers,
		writing: make(chan struct{}, 1), over: make(chan struct{}),
	}
	c.marked = c.torn && c.mark != ""
	c.frames = Frames{limit: o.Limit, buffers: o.Buffers, log: o.Log, torn: o.Torn, fill: p.Fill}
	return c
}

// Dial opens the link. There is one at a time.
func (c *Conn) Dial() (driver.Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, fmt.Errorf("server %q: the instance is stopped", c.server)
	case c.ended:
		return nil, fmt.Errorf("server %q: the instance has ended", c.server)
	case c.link != nil:
		return nil, fmt.Errorf("server %q: the instance has a link already", c.server)
	}
	// A link that was closed left them behind.
	if err := errors.Join(c.pipe.SetReadDeadline(time.Time{}), c.pipe.SetWriteDeadline(time.Time{})); err != nil {
		return nil, fmt.Errorf("server %q: open the link: %w", c.server, err)
	}
	c.link = &stream{c: c, quit: make(chan struct{})}
	return c.link, nil
}

// Linked reports whether a link is open.
func (c *Conn) Linked() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link != nil
}

// Writing reports whether a frame is being sent.
func (c *Conn) Writing() bool { return len(c.writing) > 0 }

// Hold lets no frame enter until release is called. The caller prevents a second Hold
// meanwhile.
func (c *Conn) Hold() (release func()) {
	p := &pause{over: make(chan struct{})}
	c.held.Store(p)
	return sync.OnceFunc(func() {
		c.held.Store(nil)
		close(p.over)
	})
}

// Whole reports whether nothing but whole lines was written, while the instance is held.
func (c *Conn) Whole() bool {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
		return !c.torn
	default: // one is on its way
		return false
	}
}

// Settle waits for a frame that is being sent.
func (c *Conn) Settle(ctx context.Context) error {
	select {
	case c.writing <- struct{}{}:
		<-c.writing
		return nil
	case <-c.over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("it does not read its input: %w", ctx.Err())
	}
}

// End is called when the program is gone: readers get what is still on the way
// and then the end.
func (c *Conn) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	close(c.over)
	c.pipe.End()
}

// HangUp ends the link and allows no other.
func (c *Conn) HangUp() {
	c.mu.Lock()
	c.closed = true
	link := c.link
	c.mu.Unlock()
	if link != nil {
		link.Close()
	}
}

// Close hangs up and closes the pipe.
func (c *Conn) Close() {
	c.HangUp()
	c.pipe.Close()
}
