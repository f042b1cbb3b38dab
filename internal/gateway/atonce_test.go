package gateway

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
)

// A refusal that must not wait is answered before the rest of its request is there, and
// so is one whose client waits for it.
func TestARefusalDoesNotWaitForTheBody(t *testing.T) {
	for name, tt := range map[string]struct {
		headers string
		body    string
		atOnce  bool
		wait    time.Duration
	}{
		"usually":            {headers: "Content-Length: 9\r\n", body: "abc", wait: restWait},
		"at once":            {headers: "Content-Length: 9\r\n", body: "abc", atOnce: true},
		"at once, chunked":   {headers: "Transfer-Encoding: chunked\r\n", body: "3\r\nabc\r\n", atOnce: true},
		"a client that asks": {headers: "Content-Length: 9\r\nExpect: 100-continue\r\n"},
		"and at once":        {headers: "Content-Length: 9\r\nExpect: 100-continue\r\n", atOnce: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				far, near := net.Pipe()
				l := &oneConn{conns: make(chan net.Conn, 1), done: make(chan struct{})}
				l.conns <- near
				s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					aw := newAnswerWriter(w, r)
					aw.atOnce = tt.atOnce
					refuseError(aw, &api.Error{Kind: api.KindRefused, Status: http.StatusTooManyRequests})
				})}
				ended := make(chan error, 1)
				go func() { ended <- s.Serve(l) }()
				begin := time.Now()
				if _, err := fmt.Fprintf(far, "POST / HTTP/1.1\r\nHost: x\r\n%s\r\n%s", tt.headers, tt.body); err != nil {
					t.Fatal(err)
				}
				resp, err := http.ReadResponse(bufio.NewReader(far), nil)
				if err != nil || resp.StatusCode != http.StatusTooManyRequests || !resp.Close {
					t.Errorf("got %+v, %v", resp, err)
				}
				if got := time.Since(begin); got != tt.wait {
					t.Errorf("it took %s, want %s", got, tt.wait)
				}
				_ = far.Close()
				_ = s.Close()
				<-ended
			})
		})
	}
}

// oneConn is a listener of the connections of a test.
type oneConn struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}
func (l *oneConn) Close() error   { close(l.done); return nil }
func (l *oneConn) Addr() net.Addr { return &net.TCPAddr{} }
