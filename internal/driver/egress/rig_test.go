package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/config/domains"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a proxy in front of an internet that a test makes up.
type rig struct {
	*Proxy
	t       *testing.T
	address string // of the proxy

	mu     sync.Mutex
	names  map[string][]netip.Addr
	hosts  map[string]string // real addresses by the made up ones
	lookup []string
	dialed []string
	done   []Connection
}

// site is the made up address of what the rig's names have by default.
const site = "93.184.216.34"

func newRig(t *testing.T, allow []string, set func(*Options)) *rig {
	t.Helper()
	list, err := domains.Parse(allow)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, names: map[string][]netip.Addr{}, hosts: map[string]string{}}
	o := Options{Server: "web", Allow: list, Resolve: r.resolve, Dial: r.dial, Done: r.note, Own: func() ([]netip.Addr, error) { return nil, nil }}
	if set != nil {
		set(&o)
	}
	r.Proxy = New(o)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.address = l.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.Serve(l) }()
	t.Cleanup(func() {
		r.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		r.Close()
	})
	return r
}

func (r *rig) resolve(_ context.Context, name string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lookup = append(r.lookup, name)
	if a, ok := r.names[name]; ok {
		return a, nil
	}
	return nil, &net.DNSError{Err: "no such host", Name: name, Server: "10.9.8.7:53", IsNotFound: true}
}

func (r *rig) dial(ctx context.Context, network, address string) (net.Conn, error) {
	r.mu.Lock()
	r.dialed = append(r.dialed, address)
	to, ok := r.hosts[address]
	r.mu.Unlock()
	if !ok {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	return new(net.Dialer).DialContext(ctx, network, to)
}

func (r *rig) note(c Connection) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done = append(r.done, c)
}

// host makes up a host.
func (r *rig) host(name string, port int, real string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.names[name] = []netip.Addr{netip.MustParseAddr(site)}
	r.hosts[net.JoinHostPort(site, fmt.Sprint(port))] = real
}

// reported waits for the connections that were reported.
func (r *rig) reported(n int) []Connection {
	r.t.Helper()
	var done []Connection
	testkit.Eventually(r.t, fmt.Sprintf("%d connections are reported", n), func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		done = slices.Clone(r.done)
		return len(done) >= n
	})
	if len(done) > n {
		r.t.Errorf("%d connections were reported, want %d: %+v", len(done), n, done)
	}
	return done
}

// one is the only connection that was reported.
func (r *rig) one() Connection {
	r.t.Helper()
	c := r.reported(1)[0]
	if c.Began.IsZero() || c.Took <= 0 {
		r.t.Errorf("when it was is missing: %+v", c)
	}
	return c
}

// client connects to the proxy.
func (r *rig) client() *net.TCPConn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	return c.(*net.TCPConn)
}

// connect asks for a tunnel. The body of a refusal is read.
func (r *rig) connect(hostport string) (conn *net.TCPConn, in *bufio.Reader, status int, body string) {
	r.t.Helper()
	c := r.client()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", hostport, hostport)
	in = bufio.NewReader(c)
	resp, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		r.t.Fatalf("CONNECT %s: %v", hostport, err)
	}
	if resp.StatusCode != http.StatusOK {
		b := make([]byte, max(resp.ContentLength, 0))
		if _, err := io.ReadFull(in, b); err != nil {
			r.t.Fatal(err)
		}
		body = string(b)
	}
	return c, in, resp.StatusCode, body
}

// serve runs a TCP server with one function a connection.
func serve(t *testing.T, fn func(*net.TCPConn)) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				fn(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

// echo sends back what it gets, until the end of it.
func echo(c *net.TCPConn) { _, _ = io.Copy(c, c) }

func want(t *testing.T, what, got, part string) {
	t.Helper()
	if !strings.Contains(got, part) {
		t.Errorf("%s: %q, want ...%s...", what, got, part)
	}
}
