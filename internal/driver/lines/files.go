package lines

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"
)

// Files is a Pipe of our ends of a program's standard input and output. The program's
// input ends when the gateway does, however that ends.
type Files struct {
	R, W *os.File // that take deadlines
	// Vague says that a write which is broken off does not report how much it wrote.
	Vague bool
	// Closed reports whether an error of R says that the other end is closed; nil where
	// only io.EOF does.
	Closed func(error) bool

	ended atomic.Bool // the program is gone
}

var _ Pipe = (*Files)(nil)

// NewFiles makes our ends and those of the program, which the caller closes when the
// program has its own copies of them.
func NewFiles() (f *Files, in, out *os.File, err error) {
	f = &Files{}
	if in, f.W, err = os.Pipe(); err != nil {
		return nil, nil, nil, err
	}
	if f.R, out, err = os.Pipe(); err != nil {
		in.Close()
		f.W.Close()
		return nil, nil, nil, err
	}
	return f, in, out, nil
}

// Fill implements Pipe.
func (p *Files) Fill(f *Frames) (int, error) {
	n, err := p.R.Read(f.Room())
	if errors.Is(err, os.ErrDeadlineExceeded) && p.ended.Load() {
		// What the program wrote before its end is in the pipe, and comes at once. The
		// wait is for another process that has the other end open.
		p.R.SetReadDeadline(time.Now().Add(time.Second))
		n, err = p.R.Read(f.Room())
		p.R.SetReadDeadline(LongAgo)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = io.EOF
		}
	}
	if n > 0 {
		return n, nil
	}
	f.NoRoom()
	if err == nil || p.Closed != nil && p.Closed(err) {
		err = io.EOF
	}
	return 0, err
}

// WriteSome implements Pipe. A write may always have to wait, so the first call only
// says so.
func (p *Files) WriteSome(b []byte, wait bool) (int, error) {
	if !wait {
		return 0, ErrWouldBlock
	}
	return p.W.Write(b)
}

// Partial implements Pipe.
func (p *Files) Partial() bool { return !p.Vague }

// SetReadDeadline implements Pipe.
func (p *Files) SetReadDeadline(t time.Time) error { return p.R.SetReadDeadline(t) }

// SetWriteDeadline implements Pipe.
func (p *Files) SetWriteDeadline(t time.Time) error { return p.W.SetWriteDeadline(t) }

// End implements Pipe.
func (p *Files) End() {
	p.ended.Store(true)
	p.R.SetReadDeadline(LongAgo) // wakes a reader, which then takes what is left
	p.W.SetWriteDeadline(LongAgo)
}

// Close implements Pipe.
func (p *Files) Close() error { return errors.Join(p.W.Close(), p.R.Close()) }
