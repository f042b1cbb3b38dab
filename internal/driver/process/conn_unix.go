//go:build linux || darwin

package process

import (
	"errors"
	"io"
	"os"
	"syscall"
)

const errWouldBlock = syscall.EAGAIN

// A write that is broken off has said how much it wrote.
const partialUnknown = false

// filler returns the fill of the conn's frames. The closures are made once.
func (c *conn) filler() func(*frames) (int, error) {
	var n int
	var readErr error
	try := func(fd uintptr) bool {
		n, readErr = readFD(int(fd), c.frames.room())
		if readErr == syscall.EAGAIN {
			c.frames.noRoom()
			return false
		}
		return true
	}
	once := func(fd uintptr) { try(fd) }
	return func(*frames) (int, error) {
		err := c.rr.Read(try)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.mu.Lock()
			ended := c.ended
			c.mu.Unlock()
			if !ended {
				return 0, err
			}
			// What the child wrote before it died is still there. When there is
			// no more the rest of the pipe is nobody's.
			err = c.rr.Control(once)
			if readErr == syscall.EAGAIN {
				return 0, io.EOF
			}
		}
		switch {
		case err != nil:
			return 0, err
		case readErr != nil:
			return 0, readErr
		case n == 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func readFD(fd int, b []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, b)
		if err != syscall.EINTR {
			return max(n, 0), err
		}
	}
}

// outgoing is a write to the pipe. Who writes holds the conn's token.
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

// writeSome writes what fits. When nothing does it waits, or says errWouldBlock.
func (c *conn) writeSome(b []byte, wait bool) (int, error) {
	o := &c.out
	o.b, o.wait = b, wait
	outer := c.rw.Write(o.try)
	o.b = nil
	if outer != nil {
		return 0, outer
	}
	return max(o.n, 0), o.err
}
