package conns

import (
	"context"
	"crypto/tls"
	"net"
	"time"
)

// beginWait is how long a client on this machine may be silent before it begins.
const beginWait = 10 * time.Second

// Secured is the listener with TLS. A client on this machine may leave TLS out: programs of
// runs reach the gateway at an address that its certificate does not name, and may not trust
// who signed it; and what stays on the machine can be read by none that TLS would keep out.
func (p *Pool) Secured(config *tls.Config) net.Listener {
	s := &secured{Pool: p, config: config, out: make(chan net.Conn)}
	s.ctx, s.end = context.WithCancelCause(context.Background())
	go s.accept()
	return s
}

type secured struct {
	*Pool
	config *tls.Config
	out    chan net.Conn
	ctx    context.Context // ends with the listener
	end    context.CancelCauseFunc
}

func (s *secured) accept() {
	for {
		c, err := s.Pool.Accept()
		if err != nil {
			s.end(err)
			return
		}
		if isLocal(c) {
			go s.begin(c)
			continue
		}
		s.give(tls.Server(c, s.config))
	}
}

// Accept implements net.Listener.
func (s *secured) Accept() (net.Conn, error) {
	select {
	case c := <-s.out:
		return c, nil
	case <-s.ctx.Done():
		return nil, context.Cause(s.ctx)
	}
}

// Close implements net.Listener.
func (s *secured) Close() error {
	s.end(net.ErrClosed)
	return s.Pool.Close()
}

func (s *secured) give(c net.Conn) {
	select {
	case s.out <- c:
	case <-s.ctx.Done():
		_ = c.Close()
	}
}

// handshake is the first byte of a client that speaks TLS. No method of HTTP begins with it.
const handshake = 0x16

// begin waits for the first byte of a connection.
func (s *secured) begin(c net.Conn) {
	forget := context.AfterFunc(s.ctx, func() { _ = c.Close() })
	first := make([]byte, 1)
	_ = c.SetReadDeadline(time.Now().Add(beginWait))
	_, err := c.Read(first)
	if !forget() || err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	begun := &begun{Conn: c, first: first}
	if first[0] == handshake {
		s.give(tls.Server(begun, s.config))
		return
	}
	s.give(begun)
}

// begun is a connection whose first byte was read. One goroutine reads it at a time.
type begun struct {
	net.Conn
	first []byte
}

// NetConn returns the connection of the pool.
func (b *begun) NetConn() net.Conn { return b.Conn }

// Read implements net.Conn.
func (b *begun) Read(p []byte) (int, error) {
	if len(b.first) == 0 || len(p) == 0 {
		return b.Conn.Read(p)
	}
	n := copy(p, b.first)
	b.first = b.first[n:]
	return n, nil
}

// isLocal reports whether both ends of a connection are this machine.
func isLocal(c net.Conn) bool {
	from, ok := c.RemoteAddr().(*net.TCPAddr)
	to, is := c.LocalAddr().(*net.TCPAddr)
	return ok && is && (from.IP.IsLoopback() && to.IP.IsLoopback() || from.IP.Equal(to.IP))
}
