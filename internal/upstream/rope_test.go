package upstream_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// A rope is a driver.Stream whose other end is held by a test.
type rope struct {
	t    testing.TB
	out  chan []byte // to the server
	in   chan frame  // from the server
	hung chan struct{}
	shut chan struct{}
	deaf chan struct{} // closed when the server reads no more

	hanging, shutting sync.Once
}

type frame struct {
	b   []byte
	err error
}

func newRope(t testing.TB) *rope {
	return &rope{t: t, out: make(chan []byte, 4096), in: make(chan frame, 4096), hung: make(chan struct{}), shut: make(chan struct{}), deaf: make(chan struct{})}
}

func (r *rope) ReadFrame() ([]byte, error) {
	select {
	case f := <-r.in:
		return f.b, f.err
	default:
	}
	select {
	case f := <-r.in:
		return f.b, f.err
	case <-r.hung:
		return nil, io.EOF
	case <-r.shut:
		return nil, fmt.Errorf("reading: %w", os.ErrClosed)
	}
}

func (r *rope) WriteFrame(ctx context.Context, b []byte) error {
	if bytes.ContainsAny(b, "\r\n") || !json.Valid(b) {
		r.t.Errorf("a frame that no server can read: %q", b)
	}
	select {
	case <-r.hung:
		return io.ErrClosedPipe
	case <-r.deaf:
		return io.ErrClosedPipe
	case <-r.shut:
		return os.ErrClosed
	default:
	}
	select {
	case r.out <- bytes.Clone(b):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.hung:
		return io.ErrClosedPipe
	case <-r.shut:
		return os.ErrClosed
	}
}

func (r *rope) Close() error {
	r.shutting.Do(func() { close(r.shut) })
	return nil
}

// A message is one that a scripted server got.
type message struct {
	id, method, params, result, err string
	raw                             string
}

// say sends a line to the gateway.
func (r *rope) say(format string, args ...any) {
	r.in <- frame{b: fmt.Appendf(nil, format, args...)}
}

// answer sends a result.
func (r *rope) answer(m message, format string, args ...any) {
	r.say(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.id, fmt.Sprintf(format, args...))
}

// refuse sends an error.
func (r *rope) refuse(m message, code int, text string) {
	r.say(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, m.id, code, wire.Quote(text))
}

// huge is a message over the stream's limit.
func (r *rope) huge(limit int) { r.in <- frame{err: &driver.FrameTooLarge{Limit: limit}} }

// hang ends the server's side.
func (r *rope) hang() { r.hanging.Do(func() { close(r.hung) }) }

// next waits for what the gateway sends; false when it will send no more.
func (r *rope) next() (message, bool) {
	select {
	case b := <-r.out:
		return r.parse(b), true
	default:
	}
	select {
	case b := <-r.out:
		return r.parse(b), true
	case <-r.hung:
	case <-r.shut:
		select {
		case b := <-r.out:
			return r.parse(b), true
		default:
		}
	}
	return message{}, false
}

// want waits for a message with the method; anything else fails the test.
func (r *rope) want(method string) message {
	r.t.Helper()
	m, ok := r.next()
	if !ok || m.method != method {
		r.t.Errorf("the server got %q, want %s", m.raw, method)
	}
	return m
}

// quiet reports what has been sent and not been read; "" for nothing. It is
// only right after synctest.Wait.
func (r *rope) quiet() string {
	select {
	case b := <-r.out:
		return string(b)
	default:
		return ""
	}
}

func (r *rope) parse(b []byte) message {
	m, err := wire.Scan(b)
	if err != nil {
		r.t.Errorf("the server got %q: %v", b, err)
	}
	return message{string(m.ID), m.Method, string(m.Params), string(m.Result), string(m.Error), string(b)}
}

const (
	legacyHello = `{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true}},"serverInfo":{"name":"old","version":"1"}}`
	modernHello = `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}},` +
		`"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"new","version":"2"}}}`
)

// legacy shakes hands as a server of 2025-11-25 does.
func (r *rope) legacy() {
	for {
		m, ok := r.next()
		switch {
		case !ok:
			return
		case m.method == wire.MethodInitialize:
			r.answer(m, legacyHello)
			r.want(wire.NoteInitialized)
			return
		case m.method == wire.NoteCancelled:
		default:
			r.refuse(m, wire.CodeMethodNotFound, "Method not found")
		}
	}
}

// modern shakes hands as a server of 2026-07-28 does.
func (r *rope) modern() { r.answer(r.want(wire.MethodDiscover), modernHello) }

// serve handles what comes until the connection ends.
func (r *rope) serve(handle func(m message)) {
	for {
		m, ok := r.next()
		if !ok {
			return
		}
		handle(m)
	}
}

// echo answers tools/call with its params and everything else with {}.
func (r *rope) echo() {
	r.serve(func(m message) {
		switch {
		case m.id == "" || m.method == "":
		case m.method == wire.MethodCallTool:
			r.answer(m, `{"content":[],"structuredContent":%s}`, m.params)
		default:
			r.answer(m, `{}`)
		}
	})
}
