package gateway

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener gives out connections without a buffer, in the test's own time.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { close(l.done); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// serve runs a handler and returns a client's end of a connection to it, on
// which a request was sent.
func serve(t *testing.T, wrap func(net.Listener) net.Listener, h http.HandlerFunc) net.Conn {
	t.Helper()
	l := &pipeListener{make(chan net.Conn), make(chan struct{})}
	s := &http.Server{Handler: h}
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(wrap(l)) }()
	far, near := net.Pipe()
	l.conns <- near
	t.Cleanup(func() {
		_ = far.Close()
		_ = s.Close()
		<-served
	})
	if _, err := io.WriteString(far, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return far
}

func plain(l net.Listener) net.Listener { return l }

// TestUnreadAnswersEnd has clients that ask and don't read. Nothing waits for
// them for ever: not the handler, whatever the size of the answer and whichever
// way it goes, and not the connection after it.
func TestUnreadAnswersEnd(t *testing.T) {
	answers := map[string]func(w http.ResponseWriter, frame []byte){
		"json": func(w http.ResponseWriter, frame []byte) {
			(&responder{w: w, ctx: context.Background(), json: true}).finish(frame, 0, false)
		},
		"event": func(w http.ResponseWriter, frame []byte) {
			(&responder{w: w, ctx: context.Background(), events: true}).finish(frame, 0, true)
		},
		"stream": func(w http.ResponseWriter, frame []byte) {
			rw := &responder{w: w, ctx: context.Background(), events: true}
			rw.outbox()
			rw.finish(frame, 0, true)
		},
		"control": func(w http.ResponseWriter, frame []byte) { writeJSON(w, http.StatusOK, string(frame)) },
	}
	for name, answer := range answers {
		for _, size := range []int{10, 3000, 20_000, 1 << 20} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					returned := make(chan struct{})
					far := serve(t, WriteDeadlines, func(w http.ResponseWriter, _ *http.Request) {
						defer close(returned)
						answer(w, bytes.Repeat([]byte("x"), size))
					})
					<-returned
					time.Sleep(2 * writeWait) // in the bubble's time
					synctest.Wait()
					if rest, _ := io.ReadAll(far); len(rest) != 0 {
						t.Errorf("the connection is open, with %d bytes", len(rest))
					}
				})
			})
		}
	}
}

// TestLargeAnswersEndWithoutHelp holds that a large answer does not rely on the
// listener, which may be another than Tine's.
func TestLargeAnswersEndWithoutHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan error, 1)
		far := serve(t, plain, func(w http.ResponseWriter, _ *http.Request) {
			failed <- send(w, make([]byte, 4*piece))
		})
		if _, err := io.CopyN(io.Discard, far, piece); err != nil { // it reads, and stops
			t.Fatal(err)
		}
		if err := <-failed; err == nil {
			t.Error("an answer that was not read was written")
		}
	})
}

// TestSlowReadersGetEverything reads slowly, but never so slowly that nothing
// goes on, and then sends another request after a long while.
func TestSlowReadersGetEverything(t *testing.T) {
	for name, wrap := range map[string]func(net.Listener) net.Listener{"plain": plain, "bounded": WriteDeadlines} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				body := bytes.Repeat([]byte("0123456789abcdef"), 8*piece/16)
				far := serve(t, wrap, func(w http.ResponseWriter, _ *http.Request) { _ = send(w, body) })
				read := func(r io.Reader) {
					t.Helper()
					resp, err := http.ReadResponse(bufio.NewReaderSize(r, piece), nil)
					if err != nil {
						t.Fatal(err)
					}
					if got, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(got, body) {
						t.Fatalf("got %d of %d bytes: %v", len(got), len(body), err)
					}
				}
				read(&slowReader{far, writeWait / 8})
				time.Sleep(10 * writeWait)
				if _, err := io.WriteString(far, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
					t.Fatal(err)
				}
				read(far)
			})
		})
	}
}

type slowReader struct {
	r    io.Reader
	wait time.Duration
}

func (s *slowReader) Read(b []byte) (int, error) {
	time.Sleep(s.wait) // in a bubble
	return io.ReadAtLeast(s.r, b[:min(len(b), piece/4)], 1)
}

// deadlineRecorder is a response that notes when it was given a deadline.
type deadlineRecorder struct {
	http.ResponseWriter
	log strings.Builder
}

func (d *deadlineRecorder) Write(b []byte) (int, error) {
	d.log.WriteString("w")
	return len(b), nil
}

func (d *deadlineRecorder) SetWriteDeadline(time.Time) error {
	d.log.WriteString("d")
	return nil
}

func TestOnlyLargeAnswersPayForADeadline(t *testing.T) {
	t.Parallel()
	for size, want := range map[int]string{0: "w", heldBack: "w", heldBack + 1: "dw", piece: "dw", piece + 1: "dwdw", 3 * piece: "dwdwdw"} {
		var d deadlineRecorder
		if err := send(&d, make([]byte, size)); err != nil || d.log.String() != want {
			t.Errorf("%d bytes: %s, want %s (%v)", size, d.log.String(), want, err)
		}
	}
}

// TestDeadlinesOfOthersStand holds that what net/http and TLS set is not
// overruled, and that ours is back when they are done.
func TestDeadlinesOfOthersStand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		far, near := net.Pipe()
		defer far.Close()
		defer near.Close()
		c := &unreadConn{Conn: near, began: time.Now()}
		blocked := func() time.Duration {
			began := time.Now()
			if _, err := c.Write([]byte("x")); err == nil {
				t.Error("written to a peer that does not read")
			}
			return time.Since(began)
		}
		_ = c.SetWriteDeadline(time.Now().Add(time.Second))
		if got := blocked(); got != time.Second {
			t.Errorf("waited %v for a deadline of a second", got)
		}
		_ = c.SetWriteDeadline(time.Time{})
		for range 3 {
			if got := blocked(); got < writeWait || got > 2*writeWait {
				t.Errorf("waited %v", got)
			}
		}
		_ = c.SetDeadline(time.Now().Add(time.Second))
		if got := blocked(); got != time.Second {
			t.Errorf("waited %v for a deadline of a second", got)
		}
	})
}

func BenchmarkSmallWrite(b *testing.B) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"plain":   func(c net.Conn) net.Conn { return c },
		"bounded": func(c net.Conn) net.Conn { return &unreadConn{Conn: c, began: time.Now()} },
	} {
		b.Run(name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			go func() {
				if c, err := l.Accept(); err == nil {
					_, _ = io.Copy(io.Discard, c)
					_ = c.Close()
				}
			}()
			raw, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer raw.Close()
			c, msg := wrap(raw), make([]byte, 500)
			for b.Loop() {
				// As net/http does after every request.
				_, _ = c.Write(msg)
				_ = c.SetWriteDeadline(time.Time{})
			}
		})
	}
}
