// Package conns bounds how many client connections are open at once, and decides
// which one is closed to make room for another.
//
// A connection is held while a request of a client that was admitted is in
// flight on it, up to the last byte of the answer. Every other connection is
// spare: it is idle between two requests, has not sent a whole header yet, or
// brought a request whose sender was not admitted.
//
// When the pool is full, a spare connection is closed for a new one: of the peer that has
// the most spare connections, the one that was quiet the longest, and of those that were
// never held before any that was: its client may be about to send the next request on it.
// So idle connections keep no client out, and a peer that opens many closes its own. A held
// connection is never closed. How many of those one principal may have is bounded by what
// is free (see Conn.Hold), so that the next principal gets in.
//
// Each step takes constant time, whatever the number of connections and peers.
package conns

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// A Pool is a listener whose connections are bounded in number. It must know
// what a server does with them: see Attach.
type Pool struct {
	net.Listener
	most int
	log  *slog.Logger

	mu      sync.Mutex
	freed   sync.Cond // Accept waits for a connection to end or to become spare
	closed  bool
	open    int
	held    int
	holders map[string]*holder
	peers   peers

	// For the log.
	made   int // connections closed to make room since it was last logged
	logged time.Time
}

// A holder is a principal that holds connections.
type holder struct {
	name string
	held int
}

// New makes a pool of at most so many connections.
func New(l net.Listener, most int, log *slog.Logger) *Pool {
	p := &Pool{Listener: l, most: most, log: log, holders: make(map[string]*holder)}
	p.freed.L = &p.mu
	p.peers.init()
	return p
}

// Attach lets the pool hear of what a server does with its connections, and the
// server's handlers find theirs with From.
func (p *Pool) Attach(s *http.Server) {
	s.ConnContext = func(ctx context.Context, nc net.Conn) context.Context {
		if c := connOf(nc); c != nil {
			ctx = context.WithValue(ctx, connKey{}, c)
		}
		return ctx
	}
	s.ConnState = func(nc net.Conn, state http.ConnState) {
		c := connOf(nc)
		if c == nil {
			return
		}
		switch state {
		case http.StateActive:
			c.active.Store(true)
		case http.StateIdle:
			c.rest()
		}
	}
}

type connKey struct{}

// From returns the connection that a request came on; nil where there is no pool.
func From(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

func connOf(nc net.Conn) *Conn {
	for {
		around, ok := nc.(interface{ NetConn() net.Conn }) // TLS, or what has read its beginning
		if !ok {
			c, _ := nc.(*Conn)
			return c
		}
		nc = around.NetConn()
	}
}

// Accept implements net.Listener. It waits only while every connection is held.
func (p *Pool) Accept() (net.Conn, error) {
	nc, err := p.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: nc, pool: p}
	p.mu.Lock()
	var out *Conn
	for !p.closed && p.open >= p.most {
		if out = p.peers.quietest(); out != nil {
			p.drop(out)
			p.logFull()
			break
		}
		p.freed.Wait()
	}
	closed := p.closed
	if !closed {
		p.open++
		p.peers.add(c, peerOf(nc.RemoteAddr()))
	}
	p.mu.Unlock()
	if out != nil {
		_ = out.Conn.Close()
	}
	if closed {
		_ = nc.Close()
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close implements net.Listener.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	p.freed.Broadcast()
	p.mu.Unlock()
	return p.Listener.Close()
}

// drop takes a connection out of the pool. p.mu is held.
func (p *Pool) drop(c *Conn) {
	if c.gone {
		return
	}
	c.gone = true
	c.release()
	p.peers.remove(c)
	p.open--
	p.freed.Signal()
}

// logEvery is how often a full pool is logged at most.
const logEvery = time.Minute

// logFull logs that the pool is full. p.mu is held.
func (p *Pool) logFull() {
	p.made++
	if time.Since(p.logged) < logEvery {
		return
	}
	p.log.Warn("as many clients are connected as limits.connections allows; connections without a request are closed to make room for new ones",
		"connections", p.most, "busy", p.held, "closed", p.made)
	p.made, p.logged = 0, time.Now()
}

// A Conn is a connection of a pool.
type Conn struct {
	net.Conn
	pool   *Pool
	active atomic.Bool // a request's header has been read, and its answer is not written
	input  atomic.Int32

	// With the pool's lock.
	gone   bool
	known  bool    // whether it was ever held
	holder *holder // nil for a spare connection
	peer   *peer
	place  node[*Conn] // among the spare connections of its peer
}

// The input of a spare connection since it became one. One that begins a
// request is passed over once, so that a request which has just arrived is not
// cut off because the connection was quiet before it.
const (
	noInput = iota
	someInput
	passedOver
)

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.input.Load() == noInput {
		c.input.CompareAndSwap(noInput, someInput)
	}
	return n, err
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.pool.mu.Lock()
	c.pool.drop(c)
	c.pool.mu.Unlock()
	return c.Conn.Close()
}

// perFree is how many connections a principal may hold for each free one. With 4,
// one principal alone gets four fifths of the pool, two get four ninths each, and
// so on: however many there are, some room is left for the next.
const perFree = 4

// Errors of Hold.
var (
	// ErrShare is for a principal that holds its share of the pool.
	ErrShare = errors.New("the principal holds its share of the connections")
	// ErrClosed is for a connection that was closed to make room.
	ErrClosed = errors.New("the connection was closed to make room for another")
)

// Hold keeps the connection open until the answer to its request is written: the
// request's sender was admitted, and is this principal. With an error the
// connection stays as it is, and the request must not be carried out.
//
// Several requests may be in flight on a connection of HTTP/2. It is held in the
// name of the first one's principal.
func (c *Conn) Hold(principal string) error {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.gone {
		return ErrClosed
	}
	// A request of HTTP/2 may be cancelled before its handler comes to this.
	if c.holder != nil || !c.active.Load() {
		return nil
	}
	h := p.holders[principal]
	if h == nil {
		h = &holder{name: principal}
	}
	free := p.most - p.held - 1 // after this one
	if h.held > 0 && h.held+1 > perFree*free {
		return ErrShare
	}
	p.holders[principal] = h
	h.held++
	p.held++
	c.holder, c.known = h, true
	p.peers.unspare(c)
	return nil
}

// rest makes the connection spare: nothing is in flight on it.
func (c *Conn) rest() {
	p := c.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	c.active.Store(false)
	c.input.Store(noInput)
	if c.gone {
		return
	}
	c.release()
	p.peers.spare(c)
	p.freed.Signal()
}

// release ends a hold. The pool's lock is held.
func (c *Conn) release() {
	h := c.holder
	if h == nil {
		return
	}
	c.holder = nil
	c.pool.held--
	if h.held--; h.held == 0 {
		delete(c.pool.holders, h.name)
	}
}
