package process

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// conn is our end of a child's standard input and output. It lives as long as
// the instance: what was read and not yet asked for, and a line that is half
// written, outlive the link that caused them.
type conn struct {
	server string
	r, w   *os.File // non-blocking
	rr, rw syscall.RawConn

	reading sync.Mutex // held while a frame is read
	frames  frames

	writing chan struct{} // holds one token while a frame is written: a lock that can be waited for with a context
	torn    bool          // the last line has no end
	out     outgoing
	buffers *sync.Pool

	held atomic.Pointer[pause] // nil while frames may enter
	over chan struct{}         // closed when the child is gone

	mu     sync.Mutex
	link   *stream // the one that is open
	ended  bool    // the child is gone
	closed bool
}

// pause is a time in which no frame enters.
type pause struct{ over chan struct{} }

var longAgo = time.Unix(1, 0)

func newConn(r, w *os.File, limit int, buffers *sync.Pool) (*conn, error) {
	rr, err := r.SyscallConn()
	if err != nil {
		return nil, err
	}
	rw, err := w.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &conn{r: r, w: w, rr: rr, rw: rw, writing: make(chan struct{}, 1), over: make(chan struct{}), buffers: buffers}
	c.out.init()
	c.frames = frames{limit: limit, buffers: buffers, fill: c.filler()}
	return c, nil
}

// dial opens the link.
func (c *conn) dial() (*stream, error) {
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
	if err := errors.Join(c.r.SetReadDeadline(time.Time{}), c.w.SetWriteDeadline(time.Time{})); err != nil {
		return nil, fmt.Errorf("server %q: open the link: %w", c.server, err)
	}
	c.link = &stream{c: c, quit: make(chan struct{})}
	return c.link, nil
}

// end is called when the child is gone: readers get what is still in the pipe
// and then the end, even where some process keeps it open.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	close(c.over)
	c.r.SetReadDeadline(longAgo)
	c.w.SetWriteDeadline(longAgo)
}

// hangUp ends the link and allows no other.
func (c *conn) hangUp() {
	c.mu.Lock()
	c.closed = true
	link := c.link
	c.mu.Unlock()
	if link != nil {
		link.Close()
	}
}

// close hangs up and closes our ends.
func (c *conn) close() {
	c.hangUp()
	c.r.Close()
	c.w.Close()
}
