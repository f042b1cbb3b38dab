package process

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/windows"

	"github.com/tine-mcp/tine/internal/driver/lines"
)

// pipe is our end of a child's standard input and output.
type pipe struct {
	r, w  *os.File    // that take deadlines
	ended atomic.Bool // the child is gone
}

var _ lines.Pipe = (*pipe)(nil)

// SetReadDeadline implements lines.Pipe.
func (p *pipe) SetReadDeadline(t time.Time) error { return p.r.SetReadDeadline(t) }

// SetWriteDeadline implements lines.Pipe.
func (p *pipe) SetWriteDeadline(t time.Time) error { return p.w.SetWriteDeadline(t) }

// End implements lines.Pipe.
func (p *pipe) End() {
	p.ended.Store(true)
	p.r.SetReadDeadline(lines.LongAgo)
	p.w.SetWriteDeadline(lines.LongAgo)
}

// Close implements lines.Pipe.
func (p *pipe) Close() error {
	p.r.Close()
	return p.w.Close()
}

// Partial implements lines.Pipe. A write that is broken off does not say how much
// was written.
func (p *pipe) Partial() bool { return false }

// Fill implements lines.Pipe.
func (p *pipe) Fill(f *lines.Frames) (int, error) {
	n, err := p.r.Read(f.Room())
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if !p.ended.Load() {
			return 0, err
		}
		// The writer is gone: what is in the pipe comes at once.
		p.r.SetReadDeadline(time.Now().Add(time.Second))
		n, err = p.r.Read(f.Room())
		p.r.SetReadDeadline(lines.LongAgo)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = io.EOF
		}
	}
	switch {
	case n > 0:
		return n, nil
	case err == nil, errors.Is(err, windows.ERROR_BROKEN_PIPE):
		return 0, io.EOF
	}
	return 0, err
}

// WriteSome implements lines.Pipe. It always may have to wait, so the first call
// only says so.
func (p *pipe) WriteSome(b []byte, wait bool) (int, error) {
	if !wait {
		return 0, lines.ErrWouldBlock
	}
	return p.w.Write(b)
}
