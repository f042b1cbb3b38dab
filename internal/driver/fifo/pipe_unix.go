//go:build linux || darwin

package fifo

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tine-mcp/tine/internal/driver/lines"
)

// Pipe is our ends of a program's standard input and output. Open makes it.
type Pipe struct {
	r, w   *os.File // non-blocking
	rr, rw syscall.RawConn
	ended  atomic.Bool // the program is gone
	in     incoming
	out    outgoing
}

var _ lines.Pipe = (*Pipe)(nil)

func newPipe(r, w *os.File) (*Pipe, error) {
	rr, err := r.SyscallConn()
	if err != nil {
		return nil, err
	}
	rw, err := w.SyscallConn()
	if err != nil {
		return nil, err
	}
	p := &Pipe{r: r, w: w, rr: rr, rw: rw}
	p.in.init()
	p.out.init()
	return p, nil
}

// SetReadDeadline implements lines.Pipe.
func (p *Pipe) SetReadDeadline(t time.Time) error { return p.r.SetReadDeadline(t) }

// SetWriteDeadline implements lines.Pipe.
func (p *Pipe) SetWriteDeadline(t time.Time) error { return p.w.SetWriteDeadline(t) }

// End implements lines.Pipe.
func (p *Pipe) End() {
	p.ended.Store(true)
	p.r.SetReadDeadline(lines.LongAgo)
	p.w.SetWriteDeadline(lines.LongAgo)
}

// Close implements lines.Pipe. The program does not notice.
func (p *Pipe) Close() error {
	p.r.Close()
	return p.w.Close()
}

// Partial implements lines.Pipe.
func (p *Pipe) Partial() bool { return true }

// incoming is a read from the pipe. Its closures are made once.
type incoming struct {
	f    *lines.Frames
	n    int
	err  error
	try  func(fd uintptr) bool
	once func(fd uintptr)
}

func (in *incoming) init() {
	in.try = func(fd uintptr) bool {
		in.n, in.err = readFD(int(fd), in.f.Room())
		if in.err == syscall.EAGAIN {
			in.f.NoRoom()
			return false
		}
		return true
	}
	in.once = func(fd uintptr) { in.try(fd) }
}

// Fill implements lines.Pipe.
func (p *Pipe) Fill(f *lines.Frames) (int, error) {
	in := &p.in
	in.f = f
	err := p.rr.Read(in.try)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if !p.ended.Load() {
			return 0, err
		}
		// What the program wrote before it died is still there. When there is no more,
		// the pipe is at its end.
		err = p.rr.Control(in.once)
		if in.err == syscall.EAGAIN {
			return 0, io.EOF
		}
	}
	switch {
	case err != nil:
		return 0, err
	case in.err != nil:
		return 0, in.err
	case in.n == 0:
		return 0, io.EOF
	}
	return in.n, nil
}

func readFD(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// outgoing is a write to the pipe.
type outgoing struct {
	b    []byte
	wait bool
	n    int
	err  error
	try  func(fd uintptr) bool
}

func (o *outgoing) init() {
	o.try = func(fd uintptr) bool {
		for {
			o.n, o.err = syscall.Write(int(fd), o.b)
			if o.err != syscall.EINTR {
				break
			}
		}
		return !o.wait || o.err != syscall.EAGAIN
	}
}

// WriteSome implements lines.Pipe.
func (p *Pipe) WriteSome(b []byte, wait bool) (int, error) {
	o := &p.out
	o.b, o.wait = b, wait
	outer := p.rw.Write(o.try)
	o.b = nil
	switch {
	case outer != nil:
		return 0, outer
	case o.err == syscall.EAGAIN:
		return max(o.n, 0), lines.ErrWouldBlock
	}
	return max(o.n, 0), o.err
}
