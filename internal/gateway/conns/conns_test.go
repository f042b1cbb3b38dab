package conns_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/gateway/conns"
)

// A world is a server behind a pool. Its clients say who they are in the path:
// /ada is a request of the principal ada that is answered, /ada/stay one whose
// answer goes on until the world ends. A path that begins with a dot is of no
// principal.
type world struct {
	t    *testing.T
	l    *pipes
	stop chan struct{}
}

func open(t *testing.T, most int) *world {
	w := &world{t, &pipes{make(chan net.Conn), make(chan struct{}), sync.Once{}}, make(chan struct{})}
	p := conns.New(w.l, most, slog.New(slog.DiscardHandler))
	s := &http.Server{Handler: http.HandlerFunc(w.serve), ReadHeaderTimeout: time.Hour}
	p.Attach(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(p) }()
	t.Cleanup(func() {
		close(w.stop)
		_ = s.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("the server ended: %v", err)
		}
	})
	return w
}

func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	who, how, _ := strings.Cut(r.URL.Path[1:], "/")
	if !strings.HasPrefix(who, ".") {
		switch err := conns.From(r.Context()).Hold(who); {
		case errors.Is(err, conns.ErrShare):
			rw.Header().Set("Connection", "close") // it does not wait for a body
			rw.WriteHeader(http.StatusTooManyRequests)
			return
		case err != nil:
			panic(http.ErrAbortHandler)
		}
	}
	if how == "stay" {
		_, _ = io.WriteString(rw, "begun")
		_ = http.NewResponseController(rw).Flush()
		select {
		case <-w.stop:
		case <-r.Context().Done():
		}
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
}

// A client is one connection from an address.
type client struct {
	net.Conn
	r *bufio.Reader
}

// dial connects, also where the pool does not take the connection yet.
func (w *world) dial(from string) *client {
	w.t.Helper()
	far, near := net.Pipe()
	select {
	case w.l.conns <- addressed{near, from}:
	case <-w.l.done:
		w.t.Fatal("the pool is closed")
	}
	w.t.Cleanup(func() { _ = far.Close() })
	synctest.Wait()
	return &client{far, bufio.NewReader(far)}
}

func (c *client) send(format string, args ...any) {
	_ = c.SetDeadline(time.Now().Add(time.Second))
	_, _ = fmt.Fprintf(c, format, args...)
	synctest.Wait()
}

// ask sends a request and returns the status; 0 when there is no answer.
func (c *client) ask(path string) int {
	c.send("GET %s HTTP/1.1\r\nHost: x\r\n\r\n", path)
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		return 0
	}
	if resp.ContentLength >= 0 {
		_, _ = io.Copy(io.Discard, resp.Body)
	}
	synctest.Wait()
	return resp.StatusCode
}

// isOpen reports whether the gateway has the connection open.
func (c *client) isOpen() bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Second))
	_, err := c.r.Peek(1)
	return err == nil || errors.Is(err, os.ErrDeadlineExceeded)
}

func (w *world) want(what string, c *client, open bool) {
	w.t.Helper()
	if c.isOpen() != open {
		w.t.Errorf("%s: open is %v", what, !open)
	}
}

func (w *world) wantStatus(c *client, path string, want int) {
	w.t.Helper()
	if got := c.ask(path); got != want {
		w.t.Errorf("%s: status %d, want %d", path, got, want)
	}
}

// Whatever a connection without a request of an admitted client does, it makes
// room for a new one.
func TestSpareConnectionsMakeRoom(t *testing.T) {
	for name, begin := range map[string]func(*client){
		"silent":                      func(*client) {},
		"idle":                        func(c *client) { c.ask("/ada") },
		"without the end of a header": func(c *client) { c.send("GET / HTTP/1.1\r\nHost: x\r\n") },
		"without a name or a body":    func(c *client) { c.send("POST /.x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc") },
		"without a name, unread":      func(c *client) { c.send("GET /.x/stay HTTP/1.1\r\nHost: x\r\n\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, 4)
				var all []*client
				for range 4 {
					c := w.dial("10.0.0.1")
					begin(c)
					all = append(all, c)
				}
				for i := range 8 { // more often than there are places
					w.wantStatus(w.dial(fmt.Sprintf("10.0.1.%d", i)), "/bob", http.StatusOK)
				}
				for i, c := range all[:3] { // then no principal has more than one
					w.want(fmt.Sprint("connection ", i), c, false)
				}
			})
		})
	}
}

// A client that was served before keeps its connection while others of the same address
// only connect, and so does not lose the request that it sends next.
func TestStrangersMakeRoomFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, 4)
		served := w.dial("10.0.0.1")
		w.wantStatus(served, "/ada", http.StatusOK)
		for range 9 {
			w.dial("10.0.0.1")
		}
		w.wantStatus(served, "/ada", http.StatusOK)
	})
}

// The peer with the most spare connections loses its oldest.
func TestThePeerWithTheMostMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, 7)
		quiet := w.dial("10.0.0.9")
		w.wantStatus(quiet, "/quiet", http.StatusOK)
		near := w.dial("2001:db8::1") // of one network
		w.wantStatus(w.dial("2001:db8:0:1::1"), "/far", http.StatusOK)
		first := w.dial("2001:db8::2")
		w.wantStatus(first, "/x", http.StatusOK)
		second, third := w.dial("2001:db8::3"), w.dial("2001:db8::4")
		w.wantStatus(second, "/x", http.StatusOK)
		w.wantStatus(third, "/x", http.StatusOK)
		w.wantStatus(near, "/x", http.StatusOK) // it was used last
		last := w.dial("::ffff:10.0.0.9")       // the same as quiet
		w.wantStatus(last, "/y", http.StatusOK)
		for i := range 2 {
			w.wantStatus(w.dial(fmt.Sprintf("10.1.0.%d", i)), "/new", http.StatusOK)
		}
		w.want("the oldest of the network", first, false)
		w.want("its second", second, false)
		w.want("its third", third, true)
		w.want("the one that was used last", near, true)
		w.want("the oldest of all", quiet, true)
		w.want("and another of its peer", last, true)
	})
}

// All that comes from this machine is one peer.
func TestLoopbackIsOnePeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, 4)
		other := w.dial("10.0.0.1")
		a, b, c := w.dial("127.0.0.1"), w.dial("::1"), w.dial("127.3.2.1")
		w.wantStatus(w.dial("10.0.0.2"), "/x", http.StatusOK)
		w.want("another's, though it is older", other, true)
		w.want("the first", a, false)
		w.want("the second", b, true)
		w.want("the third", c, true)
	})
}

// A connection on which a request arrives is not cut off for having been quiet
// before, but a beginning does not save it for ever.
func TestABegunRequestIsPassedOverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, 2)
		old, young := w.dial("10.0.0.1"), w.dial("10.0.0.1")
		old.send("GET /ada HTTP/1.1\r\n")
		w.wantStatus(w.dial("10.0.0.1"), "/x", http.StatusOK)
		w.want("the young and silent one", young, false)
		w.want("the one that has begun", old, true)
		old.send("Host: x\r\n")
		w.dial("10.0.0.1")
		w.want("the one that has begun and did not end", old, false)
	})
}

// Connections with a request in flight stay, whatever other clients come.
func TestHeldConnectionsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, 4)
		var streams []*client
		for range 3 {
			c := w.dial("10.0.0.1")
			w.wantStatus(c, "/ada/stay", http.StatusOK)
			streams = append(streams, c)
		}
		for i := range 10 {
			w.wantStatus(w.dial(fmt.Sprintf("10.1.0.%d", i)), "/bob", http.StatusOK)
		}
		for i, c := range streams {
			w.want(fmt.Sprint("stream ", i), c, true)
		}
	})
}

// However many connections a principal opens, others get in, and it gets in again
// when it has fewer. Those with a body that does not come count too.
func TestSharesLeaveRoom(t *testing.T) {
	for name, hold := range map[string]func(*client) int{
		"streams": func(c *client) int { return c.ask("/ada/stay") },
		"unfinished bodies": func(c *client) int {
			c.send("POST /ada HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
			if _, err := c.r.Peek(1); err != nil {
				return http.StatusOK // it waits for the body
			}
			resp, err := http.ReadResponse(c.r, nil)
			if err != nil {
				return 0
			}
			return resp.StatusCode
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := open(t, 20)
				var held []*client
				for i := range 30 {
					c := w.dial("10.0.0.1")
					want := http.StatusOK
					if i >= 16 {
						want = http.StatusTooManyRequests
					}
					if got := hold(c); got != want {
						t.Errorf("request %d: status %d, want %d", i, got, want)
					}
					held = append(held, c)
				}
				for _, who := range []string{"bob", "eve"} {
					w.wantStatus(w.dial("10.0.0.1"), "/"+who+"/stay", http.StatusOK)
				}
				w.wantStatus(w.dial("10.0.0.1"), "/ada", http.StatusTooManyRequests)
				for _, c := range held[:8] {
					_ = c.Close()
				}
				synctest.Wait()
				w.wantStatus(w.dial("10.0.0.1"), "/ada/stay", http.StatusOK)
			})
		})
	}
}

// A pool of any size can be used by one principal, and one of more than one place
// not up.
func TestSmallPools(t *testing.T) {
	for most, want := range map[int]int{1: 1, 2: 1, 3: 2, 5: 4, 10: 8} {
		synctest.Test(t, func(t *testing.T) {
			w := open(t, most)
			n := 0
			for range most {
				if c := w.dial("10.0.0.1"); c.ask("/ada/stay") == http.StatusOK {
					n++
				}
			}
			if n != want {
				t.Errorf("of %d connections one principal holds %d, want %d", most, n, want)
			}
		})
	}
}

// Where every connection is held, a new one waits for one to end.
func TestAFullPoolWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := open(t, 3)
		var held []*client
		for _, who := range []string{"a", "b", "c"} {
			c := w.dial("10.0.0.1")
			w.wantStatus(c, "/"+who+"/stay", http.StatusOK)
			held = append(held, c)
		}
		waits := w.dial("10.0.0.2")
		if waits.ask("/d") != 0 {
			t.Error("a fourth connection is served")
		}
		for _, c := range held {
			w.want("a held one", c, true)
		}
		_ = held[1].Close()
		synctest.Wait()
		_ = waits.Close() // it has given up
		next := w.dial("10.0.0.2")
		w.wantStatus(next, "/d", http.StatusOK)
	})
	synctest.Test(t, func(t *testing.T) { // and the end of the pool ends the wait
		w := open(t, 1)
		w.wantStatus(w.dial("10.0.0.1"), "/a/stay", http.StatusOK)
		w.dial("10.0.0.2")
	})
}

// Over TLS and HTTP/2 a connection is held while it has streams.
func TestHTTP2(t *testing.T) {
	stop := make(chan struct{})
	ts := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if err := conns.From(r.Context()).Hold(r.URL.Path); err != nil {
			t.Error(err)
		}
		_ = http.NewResponseController(rw).Flush()
		if r.URL.Path == "/stay" {
			<-stop
		}
	}))
	ts.EnableHTTP2 = true
	p := conns.New(ts.Listener, 2, slog.New(slog.DiscardHandler))
	ts.Listener = p
	p.Attach(ts.Config)
	ts.StartTLS()
	defer ts.Close()
	get := func(tr *http.Transport, path string) *http.Response {
		t.Helper()
		resp, err := tr.RoundTrip(httptest.NewRequestWithContext(t.Context(), "GET", ts.URL+path, nil))
		if err != nil || resp.ProtoMajor != 2 {
			t.Fatalf("%s: %+v, %v", path, resp, err)
		}
		return resp
	}
	transport := func() *http.Transport {
		tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		t.Cleanup(tr.CloseIdleConnections)
		return tr
	}
	one := transport()
	stream := get(one, "/stay")
	for range 3 {
		get(one, "/quick").Body.Close()
	}
	for range 4 { // each takes the one place that is left from the one before
		get(transport(), "/quick").Body.Close()
	}
	close(stop)
	if b, err := io.ReadAll(stream.Body); err != nil {
		t.Errorf("the stream was cut off: %q, %v", b, err)
	}
}

// pipes is a listener for connections inside a test.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipes) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// addressed is a connection from an address.
type addressed struct {
	net.Conn
	ip string
}

func (f addressed) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(f.ip), Port: 2} }
