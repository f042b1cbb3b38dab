// Package lines is what drivers of programs that speak stdio share: messages are
// lines, a link is the right to read and write them, and the end of standard
// error is kept.
//
// A driver brings a Pipe, which moves bytes. A Conn on it lives as long as the
// driver has hold of the instance: what was read and not yet asked for, and a
// line that is half written, outlive the link that caused them.
package lines

import (
	"errors"
	"sync"
	"time"
)

// A Pipe is our end of a program's standard input and output. One goroutine
// reads while one writes; deadlines may be set at any time, and End and Close be
// called.
type Pipe interface {
	// Fill waits for input, reads it into what f.Room returns, and says how much.
	// It gives the room back with f.NoRoom when there was nothing to read after
	// all. It fails with io.EOF when no more will come.
	Fill(f *Frames) (int, error)
	// WriteSome writes what fits. When nothing does it waits, or says
	// ErrWouldBlock where it must not.
	WriteSome(b []byte, wait bool) (int, error)
	// Partial reports whether a write that was broken off has reported how much it
	// wrote.
	Partial() bool
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
	// End is called when the program is gone: reads get what is still on the way
	// and then io.EOF, also where something keeps the other end open. Writes fail.
	End()
	Close() error
}

// ErrWouldBlock is what a write that must not wait says when it would have to.
var ErrWouldBlock = errors.New("would block")

// BufferSize is what a pipe holds, so that one read empties it.
const BufferSize = 64 << 10

// LongAgo is the deadline of what shall end at once.
var LongAgo = time.Unix(1, 0)

// NewBuffers returns a pool of buffers for connections.
func NewBuffers() *sync.Pool {
	return &sync.Pool{New: func() any {
		b := make([]byte, BufferSize)
		return &b
	}}
}
