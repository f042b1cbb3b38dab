//go:build linux && (amd64 || arm64)

package sandbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/gate"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
	"github.com/tine-mcp/tine/internal/wire"
)

// web is the way to a server that speaks HTTP on a port inside. Each connection is
// a pair of sockets of which gVisor has one and connects it to the port.
//
// gVisor can't take down a memory while it has such a connection. So a hold lets
// the calls inside end, and a checkpoint cuts what is left, streams of events and
// unused connections: the server sees them end, in the parent and in the children, and
// the client of a stream opens it again.
type web struct {
	i    *instance
	tr   *http.Transport
	gate gate.Gate // counts calls, and streams until they are asked for

	dialing sync.RWMutex // held for reading while a connection is made

	mu    sync.Mutex
	over  bool
	still chan struct{} // closed when a hold is over; nil where there is none
	conns map[*forwarded]bool
	quit  chan struct{} // closed at the end
}

// idleConns is how long an unused connection is kept: less than servers do, so that none
// goes away just when it is used.
const idleConns = 2 * time.Second

func newWeb(i *instance) *web {
	w := &web{i: i, conns: make(map[*forwarded]bool), quit: make(chan struct{})}
	w.tr = &http.Transport{DialContext: w.dial, DisableCompression: true, MaxIdleConnsPerHost: 16, IdleConnTimeout: idleConns}
	return w
}

// endpoint says where the server is, as it sees itself: servers that guard
// against other sites want to be called by such a name.
func (w *web) endpoint() *driver.Endpoint {
	return &driver.Endpoint{
		URL: "http://" + net.JoinHostPort("127.0.0.1", strconv.Itoa(w.i.rec.Port)) + w.i.rec.Path, Transport: "auto",
		Client: &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

// RoundTrip sends a request, when the instance is not held, and keeps it awake until the
// response is read.
func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.ContentLength > maxRequest {
		r.Body.Close()
		return nil, fmt.Errorf("the request has %d bytes, and a server in a sandbox can be sent %d at most over HTTP; run it over standard input and output, which has no such limit", r.ContentLength, maxRequest)
	}
	if err := w.gate.Enter(r.Context()); err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	w.i.follow()
	if w.i.park.parked.Load() {
		// What its timers have to say of these comes when it wakes.
		w.tr.CloseIdleConnections()
	}
	w.i.park.add(1)
	leave, sleep := sync.OnceFunc(w.gate.Leave), sync.OnceFunc(func() { w.i.park.add(-1) })
	streams := r.Method == http.MethodGet || r.Header.Get(wire.HeaderMethod) == wire.MethodListen
	if streams {
		// It may go on for ever.
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { leave() }}))
	}
	resp, err := w.tr.RoundTrip(r)
	if err != nil || streams {
		leave()
		sleep()
		return resp, err
	}
	resp.Body = &counted{resp.Body, func() { sleep(); leave() }}
	return resp, nil
}

// counted is the body of a response to a call.
type counted struct {
	io.ReadCloser
	end func() // twice is fine
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.ReadCloser.Read(b)
	if err != nil {
		c.end()
	}
	return n, err
}

func (c *counted) Close() error {
	defer c.end()
	return c.ReadCloser.Close()
}

// hold waits for the calls inside and lets no request enter until release is
// called.
func (w *web) hold(ctx context.Context) (release func(), err error) {
	enter, err := w.gate.Hold(ctx)
	if err != nil {
		return nil, err
	}
	still := make(chan struct{})
	w.mu.Lock()
	w.still = still
	w.mu.Unlock()
	return sync.OnceFunc(func() {
		w.mu.Lock()
		w.still = nil
		w.mu.Unlock()
		close(still)
		enter()
	}), nil
}

// dial connects to the port inside. A dial while the instance is held is of a stream that
// its client opens again.
func (w *web) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	for {
		w.dialing.RLock()
		w.mu.Lock()
		still := w.still
		w.mu.Unlock()
		if still == nil {
			defer w.dialing.RUnlock()
			return w.connect(ctx)
		}
		w.dialing.RUnlock()
		select {
		case <-still:
		case <-w.quit:
			return nil, gate.ErrClosed
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (w *web) connect(ctx context.Context) (net.Conn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "port"), os.NewFile(uintptr(fds[1]), "port")
	defer ours.Close()
	defer theirs.Close()
	req := w.i.request(control.OpForward)
	req.Port = w.i.rec.Port
	if _, _, err := w.i.order(ctx, req, theirs); err != nil {
		return nil, err
	}
	c, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("use the socket: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		c.Close()
		return nil, gate.ErrClosed
	}
	f := &forwarded{Conn: c, w: w, in: bufio.NewReaderSize(c, maxPacket)}
	w.conns[f] = true
	return f, nil
}

// gVisor copies what comes in packets of maxPacket, and forgets what the other side
// does not take of one at once. A socket of packets takes one whole or not at all.
// The connection to the server inside takes a part of one when its buffer, of a
// mebibyte, is nearly full: so no request may fill it, the server being as slow as
// it likes.
const (
	maxPacket  = 16 << 10
	maxRequest = 1<<20 - 64<<10 // with room for the head
)

// forwarded is a connection that ends with the instance.
type forwarded struct {
	net.Conn
	w   *web
	in  *bufio.Reader // takes packets whole
	cut atomic.Bool   // by a checkpoint, which closes it
}

var errCut = errors.New("the connection ended because the instance was frozen")

func (f *forwarded) Read(b []byte) (int, error) {
	if f.cut.Load() {
		return 0, errCut
	}
	n, err := f.in.Read(b)
	if err != nil && f.cut.Load() {
		err = errCut
	}
	return n, err
}

func (f *forwarded) Write(b []byte) (n int, err error) {
	for p := range slices.Chunk(b, maxPacket) {
		m, err := f.Conn.Write(p)
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}

func (f *forwarded) Close() error {
	f.w.mu.Lock()
	delete(f.w.conns, f)
	f.w.mu.Unlock()
	if f.cut.Load() {
		return nil
	}
	return f.Conn.Close()
}

// cutWait is how long gVisor may take to let go of a connection.
const cutWait = 5 * time.Second

// cutAll ends every connection of an instance that is held, and returns when
// gVisor has let go of them.
func (w *web) cutAll() {
	w.dialing.Lock() // no dial is running
	w.mu.Lock()
	conns := w.conns
	w.conns = make(map[*forwarded]bool)
	w.mu.Unlock()
	w.dialing.Unlock()
	var all sync.WaitGroup
	for f := range conns {
		all.Go(f.end)
	}
	all.Wait()
	w.tr.CloseIdleConnections()
}

// end hangs up and waits until the other side has too.
func (f *forwarded) end() {
	f.cut.Store(true)
	defer f.Conn.Close()
	if half, ok := f.Conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_ = f.Conn.SetReadDeadline(time.Now().Add(cutWait))
		_, _ = io.Copy(io.Discard, f.Conn)
	}
}

// end closes every connection. Twice is fine.
func (w *web) end() {
	w.gate.Close()
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return
	}
	w.over = true
	close(w.quit)
	conns := w.conns
	w.conns = make(map[*forwarded]bool)
	w.mu.Unlock()
	for f := range conns {
		f.Conn.Close()
	}
	w.tr.CloseIdleConnections()
}

// listens waits until a server that speaks HTTP takes connections.
func (i *instance) listens(ctx context.Context) error {
	if i.web == nil {
		return nil
	}
	i.park.add(1)
	defer i.park.add(-1)
	ctx, cancel := context.WithTimeoutCause(ctx, i.d.opts.ListenWait, fmt.Errorf("it did not listen within %s", i.d.opts.ListenWait))
	defer cancel()
	wait := 2 * time.Millisecond
	for {
		c, err := i.web.dial(ctx, "", "")
		if err == nil {
			return c.Close()
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-i.Done():
			t.Stop()
			i.mu.Lock()
			defer i.mu.Unlock()
			return fmt.Errorf("it ended before it listened: %w", i.how) // and has nothing to lose yet
		case <-ctx.Done():
			t.Stop()
			return i.stderr.Told(i.log, fmt.Errorf("nothing listens at port %d of 127.0.0.1 in the sandbox: %w (%w); mend sandbox.port, or have the server listen there", i.rec.Port, context.Cause(ctx), err))
		}
		wait = min(2*wait, 100*time.Millisecond)
	}
}
