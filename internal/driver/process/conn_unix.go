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

// writeSome writes what fits. When nothing does it waits, or says errWouldBlock.
func (c *conn) writeSome(b []byte, wait bool) (int, error) {
	var n int
	var err error
	outer := c.rw.Write(func(fd uintptr) bool {
		for {
			n, err = syscall.Write(int(fd), b)
			if err != syscall.EINTR {
				break
			}
		}
		return !wait || err != syscall.EAGAIN
	})
	if outer != nil {
		return 0, outer
	}
	return max(n, 0), err
}
