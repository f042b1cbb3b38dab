package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"
)

// silent is a dialer that never gets an answer.
func silent(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestClose holds that Close ends every running connection, and that all of them were
// reported when it returns.
func TestClose(t *testing.T) {
	r := newRig(t, []string{"example.org"}, nil)
	r.host("example.org", 443, serve(t, echo))
	waiting := make(chan struct{}, 1)
	r.host("example.org", 80, website(t, func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == "/wait" {
			waiting <- struct{}{}
			<-req.Context().Done()
		}
	}))
	var all []net.Conn
	// A tunnel in use.
	c, in, _, _ := r.connect("example.org:443")
	fmt.Fprint(c, "hello")
	if _, err := io.ReadFull(in, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	all = append(all, c)
	// One by SOCKS.
	c = r.client()
	_, _ = c.Write(append([]byte{5, 1, 0}, ask("example.org", 443)...))
	if _, err := io.ReadFull(c, make([]byte, 12)); err != nil {
		t.Fatal(err)
	}
	all = append(all, c)
	// A request that waits for its answer, and a connection that waits for a request.
	c = r.client()
	fmt.Fprint(c, "GET http://example.org/wait HTTP/1.1\r\nHost: example.org\r\n\r\n")
	<-waiting
	all = append(all, c)
	c = r.client()
	r.raw(c, "GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n\r\n")
	all = append(all, c)
	// Clients that have sent nothing, or half of it.
	all = append(all, r.client())
	c = r.client()
	fmt.Fprint(c, "CONN")
	all = append(all, c)
	r.Close()
	for _, c := range all {
		gone(t, c)
	}
	for _, d := range r.reported(4) {
		if !d.Allowed || d.Reason != "" || d.Host != "example.org" {
			t.Errorf("reported %+v", d)
		}
	}
	// Afterwards there is nothing.
	ours, theirs := net.Pipe()
	r.ServeConn(theirs)
	gone(t, ours)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Serve(l); err != nil {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener is open: %v", err)
	}
}

// TestCloseWhileDialing holds that a connection that is being made is no reason
// to wait.
func TestCloseWhileDialing(t *testing.T) {
	for _, hello := range []string{"CONNECT example.org:443 HTTP/1.1\r\nHost: a\r\n\r\n", "GET http://example.org/ HTTP/1.1\r\nHost: a\r\n\r\n", "\x05\x01\x00" + string(ask("example.org", 443))} {
		dialing := make(chan struct{}, 1)
		r := newRig(t, []string{"example.org"}, func(o *Options) {
			o.ConnectTimeout = time.Hour
			o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialing <- struct{}{}
				return silent(ctx, network, address)
			}
		})
		r.host("example.org", 443, "")
		c := r.client()
		_, _ = io.WriteString(c, hello)
		<-dialing
		r.Close()
		gone(t, c)
	}
}

// TestPipes holds that connections without two halves work, too.
func TestPipes(t *testing.T) {
	r := newRig(t, []string{"example.org"}, nil)
	r.host("example.org", 443, serve(t, echo))
	ours, theirs := net.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		r.ServeConn(theirs)
	}()
	_ = ours.SetDeadline(time.Now().Add(20 * time.Second))
	go func() { _, _ = ours.Write(append([]byte{5, 1, 0}, append(ask("example.org", 443), "hello"...)...)) }()
	got := make([]byte, 2+10+5)
	if _, err := io.ReadFull(ours, got); err != nil || string(got[12:]) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
	_ = ours.Close()
	<-served
	if d := r.one(); d.Sent != 5 || d.Received != 5 {
		t.Errorf("reported %+v", d)
	}
}

// broken is a listener that fails once for a moment and then for good.
type broken struct {
	net.Listener
	turns int
}

type passing struct{ error }

func (passing) Temporary() bool { return true }

func (b *broken) Accept() (net.Conn, error) {
	if b.turns++; b.turns == 1 {
		return nil, passing{errors.New("too many open files")}
	}
	return nil, errors.New("the listener broke")
}

func TestBrokenListener(t *testing.T) {
	r := newRig(t, nil, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := &broken{Listener: l}
	if err := r.Serve(b); err == nil || err.Error() != "the listener broke" || b.turns != 2 {
		t.Errorf("%v after %d turns", err, b.turns)
	}
}
