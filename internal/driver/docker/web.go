package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
)

// web is the way to a server that speaks HTTP. Its connections end with the
// instance.
type web struct {
	addr string
	path string
	tr   *http.Transport

	mu    sync.Mutex
	over  bool
	conns map[net.Conn]bool
	held  chan struct{} // closed when the hold is over; nil where there is none
	quit  chan struct{} // closed at the end
}

// reach finds the way to a container that runs.
func (e *engine) reach(ctx context.Context, rec record) (*web, error) {
	addr, err := e.address(ctx, rec)
	if err != nil {
		return nil, err
	}
	w := &web{addr: addr, path: rec.Path, conns: make(map[net.Conn]bool), quit: make(chan struct{})}
	w.tr = &http.Transport{
		DialContext: w.dial, DisableCompression: true,
		MaxIdleConnsPerHost: 16, IdleConnTimeout: 90 * time.Second, ResponseHeaderTimeout: 0,
	}
	return w, nil
}

func (w *web) endpoint() *driver.Endpoint {
	return &driver.Endpoint{
		URL: "http://" + w.addr + w.path, Transport: "auto",
		Client: &http.Client{Transport: w, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
}

var errOver = errors.New("the instance has ended")

// RoundTrip sends a request, when the instance is not held.
func (w *web) RoundTrip(r *http.Request) (*http.Response, error) {
	for {
		w.mu.Lock()
		held := w.held
		w.mu.Unlock()
		if held == nil {
			return w.tr.RoundTrip(r)
		}
		select {
		case <-held:
		case <-w.quit:
			return nil, errOver
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// hold lets no request enter until release is called.
func (w *web) hold() (release func()) {
	held := make(chan struct{})
	w.mu.Lock()
	w.held = held
	w.mu.Unlock()
	return func() {
		w.mu.Lock()
		w.held = nil
		w.mu.Unlock()
		close(held)
	}
}

func (w *web) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, w.addr)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		c.Close()
		return nil, errOver
	}
	t := &tracked{Conn: c, w: w}
	w.conns[t] = true
	return t, nil
}

// tracked is a connection that ends with the instance.
type tracked struct {
	net.Conn
	w *web
}

func (t *tracked) Close() error {
	t.w.mu.Lock()
	delete(t.w.conns, t)
	t.w.mu.Unlock()
	return t.Conn.Close()
}

// end closes every connection. Twice is fine.
func (w *web) end() {
	w.mu.Lock()
	if w.over {
		w.mu.Unlock()
		return
	}
	w.over = true
	close(w.quit)
	conns := w.conns
	w.conns = make(map[net.Conn]bool)
	w.mu.Unlock()
	for c := range conns {
		c.Close()
	}
	w.tr.CloseIdleConnections()
}

// listens waits until the server takes connections.
func (i *instance) listens(ctx context.Context, w *web) error {
	ctx, cancel := context.WithTimeoutCause(ctx, i.d.opts.ListenWait, fmt.Errorf("it did not listen within %s", i.d.opts.ListenWait))
	defer cancel()
	wait := 5 * time.Millisecond
	for {
		err := knock(ctx, w.addr, i.rec.silence())
		if err == nil {
			// The address of an ended container may be another container's by now.
			if s, stateErr := i.e.state(ctx, i.rec.ref()); stateErr == nil && s != nil && alive(s) {
				return nil
			}
			err = errors.New("the container has ended")
		}
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-i.Done():
			t.Stop()
			return fmt.Errorf("it ended before it listened: %w", i.Err())
		case <-ctx.Done():
			t.Stop()
			return i.stderr.Told(i.log, fmt.Errorf("nothing listens at port %d of the container, as %s: %w (%w); mend docker.port, or set docker.reach to port or address", i.rec.Port, w.addr, context.Cause(ctx), err))
		}
		wait = min(2*wait, 200*time.Millisecond)
	}
}

// silence is how long a connection must last that leads to a server. What an engine puts
// before a published port takes connections too, and closes them when it has found no
// listener behind it, which takes a while on a busy machine.
func (r *record) silence() time.Duration {
	if r.Reach == ReachPort {
		return 300 * time.Millisecond
	}
	return 30 * time.Millisecond
}

// knock checks that a server takes connections at an address, and keeps them.
func knock(ctx context.Context, addr string, silence time.Duration) error {
	d := net.Dialer{Timeout: 500 * time.Millisecond}
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetReadDeadline(time.Now().Add(silence))
	if _, err := c.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		if errors.Is(err, io.EOF) {
			err = errors.New("the connection was closed at once")
		}
		return err
	}
	return nil
}
