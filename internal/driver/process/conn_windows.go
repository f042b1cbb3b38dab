package process

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

var errWouldBlock = errors.New("would block")

// A write that is broken off does not say how much was written.
const partialUnknown = true

func (c *conn) filler() func(*frames) (int, error) {
	return func(f *frames) (int, error) {
		n, err := c.r.Read(f.room())
		if errors.Is(err, os.ErrDeadlineExceeded) {
			c.mu.Lock()
			ended := c.ended
			c.mu.Unlock()
			if !ended {
				return 0, err
			}
			// Nobody writes any more: what is in the pipe comes at once.
			c.r.SetReadDeadline(time.Now().Add(time.Second))
			n, err = c.r.Read(f.room())
			c.r.SetReadDeadline(longAgo)
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
}

type outgoing struct{}

func (*outgoing) init() {}

// writeSome always may have to wait, so the first call only says so.
func (c *conn) writeSome(b []byte, wait bool) (int, error) {
	if !wait {
		return 0, errWouldBlock
	}
	return c.w.Write(b)
}
