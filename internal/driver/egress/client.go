package egress

import (
	"io"
	"net"
	"sync"
	"time"
)

// A client is a connection of the sandboxed server, with its first byte back in place.
// A write that it does not read ends it.
type client struct {
	net.Conn
	p      *Proxy
	first  [1]byte
	peeked bool // first is still to be read; only its one reader touches it
	once   sync.Once
	gone   chan struct{} // closed with it
}

// Read implements net.Conn.
func (c *client) Read(b []byte) (int, error) {
	if c.peeked && len(b) > 0 {
		b[0], c.peeked = c.first[0], false
		return 1, nil
	}
	return c.Conn.Read(b)
}

// Write implements net.Conn.
func (c *client) Write(b []byte) (int, error) {
	_ = c.Conn.SetWriteDeadline(time.Now().Add(c.p.o.Idle))
	return c.Conn.Write(b)
}

// CloseWrite tells the client that nothing more comes; where its connection
// can't say that, it is closed.
func (c *client) CloseWrite() error { return closeWrite(c.Conn, c) }

// Close implements net.Conn.
func (c *client) Close() error {
	err := error(nil)
	c.once.Do(func() {
		err = c.Conn.Close()
		c.p.mu.Lock()
		delete(c.p.clients, c)
		c.p.mu.Unlock()
		close(c.gone)
	})
	return err
}

func closeWrite(conn net.Conn, whole io.Closer) error {
	if half, ok := conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return whole.Close()
}

// single is a listener that has one connection to give.
type single struct {
	mu   sync.Mutex
	conn net.Conn
}

// Accept implements net.Listener.
func (s *single) Accept() (net.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.conn
	if s.conn = nil; c == nil {
		return nil, io.EOF
	}
	return c, nil
}

// Close implements net.Listener.
func (s *single) Close() error { return nil }

// Addr implements net.Listener.
func (s *single) Addr() net.Addr { return &net.TCPAddr{} }
