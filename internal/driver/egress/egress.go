// Package egress is the door through which a sandboxed server reaches the few
// names that it may reach: a proxy that speaks HTTP (CONNECT, and requests for
// http:// URLs) and SOCKS5 on one listener, told apart by the first byte, since
// many programs know only one of them.
//
// # What is let through
//
// A name must be in the list, with its port. Only then is it looked up, here and
// once, and the connection is made to an address that was judged: a name that
// resolves to something else a moment later gains nothing. Addresses that are
// not public, and those of this machine, are refused whatever name they have,
// unless the list has the address itself; so are addresses that are asked for
// directly.
//
// TLS is not opened. A tunnel that begins with a ClientHello must name the host
// that the tunnel was asked for, so that an allowed name is not used as a front
// for another one at the same address; one without a name passes, and so does a
// tunnel that is not TLS, also on port 443: a list is about the hosts that a server
// talks to, not about how. The record says which it was. What a client says inside of
// TLS, or hides in an encrypted ClientHello, is not seen. A request for an
// http:// URL is sent with the Host of that URL, whatever Host the client wrote.
//
// # What is written down
//
// Every connection is reported once, when it has ended or was refused, with the bytes
// that went to the other side and came from it. Requests for http:// URLs may share a
// connection; it ends when it was unused for some seconds.
package egress

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/internal/config/domains"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// Options are the settings of a Proxy. Zero fields have the values that their
// comments name.
type Options struct {
	Server string        // whose servers.NAME.sandbox.network errors name; empty for sandbox.network
	Allow  *domains.List // nothing with nil

	// Resolve looks up the addresses of a name; by the system's resolver. Dial
	// connects to an address that was judged; directly. Own are the addresses of
	// this machine; those of its interfaces.
	Resolve func(ctx context.Context, name string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)
	Own     func() ([]netip.Addr, error)

	// Done hears of every connection, once. It may be called at once and must not
	// block.
	Done func(Connection)

	MaxConns       int           // clients at once; 256
	HeaderLimit    int           // bytes of a request's or an answer's header; 64 KiB
	HeaderTimeout  time.Duration // until a client has sent its request; 15 s
	ConnectTimeout time.Duration // lookup and connection; 15 s
	FirstByte      time.Duration // until something moves through a tunnel; 30 s
	Idle           time.Duration // without anything moving; 5 min
	KeepAlive      time.Duration // between two requests of a client; 1 min
	MaxBytes       int64         // of one connection, both ways together; no limit

	Log *slog.Logger // nil for none
}

// Connection is what happened to one connection of a server, or to the wish for
// one.
type Connection struct {
	Host     string // as it was asked for, in ASCII: a name or an address
	Port     int
	Address  string // what was connected to; empty where nothing was
	Protocol string // ProtocolHTTP, ProtocolTLS or ProtocolTCP; empty where it did not come to that
	Allowed  bool
	Reason   string // why it was refused or failed; empty where it did neither
	Sent     int64  // bytes to the other side
	Received int64  // bytes from it
	Began    time.Time
	Took     time.Duration
}

// What moved through a connection.
const (
	ProtocolHTTP = "http" // requests for http:// URLs
	ProtocolTLS  = "tls"  // a tunnel that began with a ClientHello
	ProtocolTCP  = "tcp"  // a tunnel of anything else
)

// A Proxy serves the connections of one instance. Its methods may run at once.
type Proxy struct {
	o         Options
	log       *slog.Logger
	web       *http.Server
	transport *http.Transport
	ctx       context.Context // ends with Close
	cancel    context.CancelFunc
	full      atomic.Int64 // when it was last logged that there are too many clients

	mu        sync.Mutex
	closed    bool
	listeners map[net.Listener]struct{}
	clients   map[*client]struct{}
	links     map[*link]struct{}
	running   sync.WaitGroup // clients, links and handlers
}

// New makes a Proxy. The caller must Close it.
func New(o Options) *Proxy {
	def(&o.MaxConns, 256)
	def(&o.HeaderLimit, 64<<10)
	def(&o.HeaderTimeout, 15*time.Second)
	def(&o.ConnectTimeout, 15*time.Second)
	def(&o.FirstByte, 30*time.Second)
	def(&o.Idle, 5*time.Minute)
	def(&o.KeepAlive, time.Minute)
	if o.Resolve == nil {
		o.Resolve = resolve
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Own == nil {
		o.Own = interfaces
	}
	if o.Done == nil {
		o.Done = func(Connection) {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{
		o: o, log: o.Log,
		listeners: make(map[net.Listener]struct{}), clients: make(map[*client]struct{}), links: make(map[*link]struct{}),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.serveHTTP()
	return p
}

func def[T int | time.Duration](v *T, value T) {
	if *v <= 0 {
		*v = value
	}
}

// Serve takes connections from a listener until Close, which closes the
// listener. It returns nil then, and else why it ended.
func (p *Proxy) Serve(l net.Listener) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		_ = l.Close()
		return nil
	}
	p.listeners[l] = struct{}{}
	p.mu.Unlock()
	defer func() {
		_ = l.Close()
		p.mu.Lock()
		delete(p.listeners, l)
		p.mu.Unlock()
	}()
	wait := time.Duration(0)
	for {
		c, err := l.Accept()
		if err == nil {
			wait = 0
			go p.ServeConn(c)
			continue
		}
		if p.ctx.Err() != nil {
			return nil
		}
		// Too few descriptors are no reason to end; there may be more in a moment.
		var passing interface{ Temporary() bool }
		if !errors.As(err, &passing) || !passing.Temporary() {
			return err
		}
		wait = min(max(2*wait, 5*time.Millisecond), time.Second)
		p.log.Warn("a connection of a sandbox was not taken", "err", err)
		select {
		case <-time.After(wait):
		case <-p.ctx.Done():
			return nil
		}
	}
}

// ServeConn serves one client and returns when it has gone. The connection is
// closed then.
func (p *Proxy) ServeConn(conn net.Conn) {
	c := &client{Conn: conn, p: p, gone: make(chan struct{})}
	if !p.admit(c) {
		_ = conn.Close()
		return
	}
	defer p.running.Done()
	defer c.Close()
	defer telemetry.Contain(p.log, telemetry.InEgress, p.o.Server, nil)
	_ = conn.SetReadDeadline(time.Now().Add(p.o.HeaderTimeout))
	if _, err := conn.Read(c.first[:]); err != nil {
		return
	}
	c.peeked = true
	if c.first[0] == socksVersion {
		p.serveSOCKS(c)
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	// It returns when it has taken the one connection, which goes on by itself.
	_ = p.web.Serve(&single{conn: c})
	if p.ctx.Err() == nil {
		<-c.gone
	}
}

// admit counts a client, unless there are too many.
func (p *Proxy) admit(c *client) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	if len(p.clients) >= p.o.MaxConns {
		now := time.Now().UnixNano()
		if last := p.full.Load(); now-last > int64(time.Minute) && p.full.CompareAndSwap(last, now) {
			p.log.Warn("a sandbox has too many connections at once; more are closed at once", "server", p.o.Server, "limit", p.o.MaxConns)
		}
		return false
	}
	p.clients[c] = struct{}{}
	p.running.Add(1)
	return true
}

// enter lets something begin that Close waits for; p.running.Done ends it.
func (p *Proxy) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Add(1)
	return true
}

// Close ends all connections and returns when the last was reported. Calling it twice is
// fine.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.cancel()
	for l := range p.listeners {
		_ = l.Close()
	}
	var clients []*client
	for c := range p.clients {
		clients = append(clients, c)
	}
	var links []*link
	for l := range p.links {
		links = append(links, l)
	}
	p.mu.Unlock()
	for _, c := range clients {
		_ = c.Close()
	}
	for _, l := range links {
		_ = l.Close()
	}
	_ = p.web.Close()
	p.running.Wait()
	p.transport.CloseIdleConnections()
}
