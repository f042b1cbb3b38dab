package process

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/windows"

	"github.com/tine-mcp/tine/internal/driver/lines"
)

// Partial implements lines.Pipe. A write that is broken off does not say how much
// was written.
func (p *pipe) Partial() bool { return false }

type incoming struct{}

func (*incoming) init() {}

// Fill implements lines.Pipe.
func (p *pipe) Fill(f *lines.Frames) (int, error) {
	n, err := p.r.Read(f.Room())
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if !p.ended.Load() {
			return 0, err
		}
		// Nobody writes any more: what is in the pipe comes at once.
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

type outgoing struct{}

func (*outgoing) init() {}

// WriteSome implements lines.Pipe. It always may have to wait, so the first call
// only says so.
func (p *pipe) WriteSome(b []byte, wait bool) (int, error) {
	if !wait {
		return 0, lines.ErrWouldBlock
	}
	return p.w.Write(b)
}
