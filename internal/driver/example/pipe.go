//go:build linux || darwin

package example

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/internal/driver/lines"
)

// pipe moves bytes to and from a program. All else about messages is in lines: what a
// message is, how large it may be, lines that are torn, links that come and go. This is
// what a driver brings whose programs are reached in another way, say over a socket.
//
// The program's input ends when the gateway does, however that ends. It is how MCP asks
// a server on stdio to stop, so nothing that follows the protocol is left over.
type pipe struct {
	r, w  *os.File    // our ends; they take deadlines
	ended atomic.Bool // the program is gone
}

var _ lines.Pipe = (*pipe)(nil)

// newPipe makes our ends and the program's.
func newPipe() (p *pipe, in, out *os.File, err error) {
	p = &pipe{}
	if in, p.w, err = os.Pipe(); err != nil {
		return nil, nil, nil, err
	}
	if p.r, out, err = os.Pipe(); err != nil {
		in.Close()
		p.w.Close()
		return nil, nil, nil, err
	}
	return p, in, out, nil
}

// Fill implements lines.Pipe.
func (p *pipe) Fill(f *lines.Frames) (int, error) {
	n, err := p.r.Read(f.Room())
	if errors.Is(err, os.ErrDeadlineExceeded) && p.ended.Load() {
		// What the program said before its end is in the pipe, and comes at once. The
		// wait is for a process that left the group and has the other end open.
		p.r.SetReadDeadline(time.Now().Add(time.Second))
		if n, err = p.r.Read(f.Room()); errors.Is(err, os.ErrDeadlineExceeded) {
			err = io.EOF
		}
	}
	if n == 0 {
		f.NoRoom() // buffers are for those who have something in them
	}
	return n, err
}

// WriteSome implements lines.Pipe. A write may always have to wait, so the first call
// only says so: then the context of the caller is watched.
func (p *pipe) WriteSome(b []byte, wait bool) (int, error) {
	if !wait {
		return 0, lines.ErrWouldBlock
	}
	return p.w.Write(b)
}

// Partial implements lines.Pipe. A write that a deadline breaks off says how much it
// wrote; where that is not known, lines takes the line for torn.
func (p *pipe) Partial() bool { return true }

// SetReadDeadline implements lines.Pipe.
func (p *pipe) SetReadDeadline(t time.Time) error { return p.r.SetReadDeadline(t) }

// SetWriteDeadline implements lines.Pipe.
func (p *pipe) SetWriteDeadline(t time.Time) error { return p.w.SetWriteDeadline(t) }

// End implements lines.Pipe.
func (p *pipe) End() {
	p.ended.Store(true)
	p.r.SetReadDeadline(lines.LongAgo) // wakes a reader, which then takes what is left
	p.w.SetWriteDeadline(lines.LongAgo)
}

// Close implements lines.Pipe.
func (p *pipe) Close() error { return errors.Join(p.w.Close(), p.r.Close()) }
