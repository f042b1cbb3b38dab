package gateway

import (
	"net"
	"sync/atomic"
	"time"
)

// WriteDeadlines bounds how long the connections of a listener wait for a peer
// that does not read: what is written while its handler runs and what net/http
// writes after that. Deadlines that a handler or net/http sets stand until they
// are taken back.
func WriteDeadlines(l net.Listener) net.Listener { return &unreadListener{l, time.Now()} }

type unreadListener struct {
	net.Listener
	began time.Time
}

func (l *unreadListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &unreadConn{Conn: c, began: l.began}, nil
}

// unreadConn renews its deadline only when it is near: setting one costs more
// than to look at the clock, and most writes end at once.
type unreadConn struct {
	net.Conn
	began time.Time
	until atomic.Int64 // of the deadline, counted from began; theirs when a handler or net/http set it
}

const theirs = -1

func (c *unreadConn) Write(b []byte) (int, error) {
	if until := c.until.Load(); until != theirs {
		if at := time.Since(c.began); time.Duration(until)-at < writeWait {
			next := at + writeWait*3/2
			if c.until.CompareAndSwap(until, int64(next)) {
				if err := c.Conn.SetWriteDeadline(c.began.Add(next)); err != nil {
					return 0, err
				}
			}
		}
	}
	return c.Conn.Write(b)
}

// SetWriteDeadline implements net.Conn. To have none is to have ours.
func (c *unreadConn) SetWriteDeadline(t time.Time) error {
	if t.IsZero() {
		c.until.CompareAndSwap(theirs, 0)
		return nil
	}
	c.until.Store(theirs)
	return c.Conn.SetWriteDeadline(t)
}

// SetDeadline implements net.Conn.
func (c *unreadConn) SetDeadline(t time.Time) error {
	if err := c.SetReadDeadline(t); err != nil {
		return err
	}
	return c.SetWriteDeadline(t)
}
