package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptrace"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The SDK decodes results into types, which lose unknown fields and digits, and
// says of a failed call only that it failed. So the messages are looked at on
// their way: each request carries a capture in its context.
//
// A connection is wrapped (tapConn). The SDK's connection of streamable HTTP can't
// be, as the SDK finds methods of its own on it; there the HTTP client is wrapped
// (tee, in tee.go).

// A capture has what is known of one request. The transport writes to it, also
// after the request was given up.
type capture struct {
	life  *lifetime // of a call
	trace httptrace.ClientTrace

	mu       sync.Mutex
	posting  bool // the request is on its way over HTTP; a login before it is not
	sent     bool // bytes of the request may have left
	answered bool // with a result or an error of JSON-RPC
	status   int  // of the HTTP response to the request
	raw      json.RawMessage
	message  []byte // the answer, if only the SDK has decoded it
	lines    *meter // of a body with only this answer
	forget   func()
}

type captureKey struct{}

// A captured context belongs to a request that has a capture.
type captured struct {
	context.Context
	capture
}

func (c *captured) Value(key any) any {
	if key == (captureKey{}) {
		return &c.capture
	}
	return c.Context.Value(key)
}

func withCapture(ctx context.Context) (context.Context, *capture) {
	c := &captured{Context: ctx}
	c.trace.GotConn = c.connected
	return httptrace.WithClientTrace(c, &c.trace), &c.capture
}

func captureOf(ctx context.Context) *capture {
	c, _ := ctx.Value(captureKey{}).(*capture)
	return c
}

// sending is called before the first byte of a request. A request may be sent
// several times: after a login, or with the input that a server asked for.
func (c *capture) sending() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.send()
}

// send is sending, for a caller that has the lock.
func (c *capture) send() {
	c.sent, c.answered, c.raw, c.message, c.status = true, false, nil, nil, 0
}

// post says that an HTTP request begins or has ended. Others, such as those of a login,
// have the same context and don't count.
func (c *capture) post(now bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.posting = now
}

// connected is called when an HTTP request gets its connection.
func (c *capture) connected(httptrace.GotConnInfo) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.posting {
		c.send()
	}
}

// answer is called with a result, or none, and the message with it, which the SDK is
// yet to decode; nil if it has.
func (c *capture) answer(result json.RawMessage, message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.answered {
		c.answered, c.raw, c.message = true, result, message
	}
}

func (c *capture) responded(status int, lines *meter) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.lines = status, lines
}

// reason is why there was no answer: err, or what is better known.
func (c *capture) reason(err error, l *link) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lines.tooLong() || l.lines.Load().tooLong() {
		return errTooLong
	}
	return err
}

// done ends the capture.
func (c *capture) done() (sent, answered bool, status int, raw json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.forget != nil {
		c.forget()
		c.forget = nil
	}
	return c.sent, c.answered, c.status, c.raw
}

// valid reports whether the answer is one, of a request that failed.
func (c *capture) valid() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.message == nil {
		return true
	}
	_, err := jsonrpc.DecodeMessage(c.message)
	return err == nil
}

// A tapConn sees the messages of a connection.
type tapConn struct {
	mcp.Connection
	overHTTP bool // a tee sees when a request leaves
	relay    *relay

	mu      sync.Mutex
	waiting map[jsonrpc.ID]*capture
}

func newTapConn(conn mcp.Connection, l *link, overHTTP bool) *tapConn {
	return &tapConn{Connection: conn, overHTTP: overHTTP, relay: l.relay, waiting: map[jsonrpc.ID]*capture{}}
}

func (t *tapConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := t.Connection.Read(ctx)
	if err != nil {
		return msg, err
	}
	switch m := msg.(type) {
	case *jsonrpc.Response:
		t.mu.Lock()
		c := t.waiting[m.ID]
		t.mu.Unlock()
		if c != nil {
			c.answer(m.Result, nil)
		}
	case *jsonrpc.Request:
		if m.Method == progressMethod {
			t.relay.arrived(m.Params)
		}
	}
	return msg, nil
}

// Write returns when ctx ends, also if the server does not read. What is being
// written is then written to its end, or to that of the connection.
func (t *tapConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r, ok := msg.(*jsonrpc.Request); ok && r.IsCall() {
		if c := captureOf(ctx); c != nil {
			t.expect(r.ID, c)
			if !t.overHTTP {
				c.sending()
			}
		}
	}
	written := make(chan error, 1)
	go func() { written <- t.Connection.Write(ctx, msg) }()
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *tapConn) expect(id jsonrpc.ID, c *capture) {
	c.mu.Lock()
	before := c.forget
	c.forget = func() {
		if before != nil {
			before()
		}
		t.mu.Lock()
		delete(t.waiting, id)
		t.mu.Unlock()
	}
	c.mu.Unlock()
	t.mu.Lock()
	t.waiting[id] = c
	t.mu.Unlock()
}

// maxMessage bounds a message of a server.
const maxMessage = 64 << 20

const errTooLong = localError("a message of the server is too long; the limit is 64 MiB")

// A meter measures lines. The SDK ends a connection with a line that is too long,
// mostly without saying why.
type meter struct {
	limit int // 0 or less is none
	line  atomic.Int64
	over  atomic.Bool // a whole line was too long; the SDK may read on to its end
}

func (m *meter) see(p []byte) {
	for {
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			m.line.Add(int64(len(p)))
			return
		}
		if m.line.Swap(0)+int64(i) > int64(m.limit) && m.limit > 0 {
			m.over.Store(true)
		}
		p = p[i+1:]
	}
}

// tooLong reports whether a line was too long, or the line that is being read is as
// long as the SDK reads one.
func (m *meter) tooLong() bool {
	const ahead = 8 << 10
	return m != nil && m.limit > 0 && (m.over.Load() || m.line.Load()+ahead > int64(m.limit))
}

// tapped connects a transport with taps in it. Before that, the limits that the SDK
// has are set where the caller left them open.
func tapped(ctx context.Context, t mcp.Transport, l *link) (mcp.Connection, error) {
	switch t := t.(type) {
	case *mcp.StreamableClientTransport:
		l.eager = true
		c := *t
		if c.MaxEventSize == 0 {
			c.MaxEventSize = maxMessage
		}
		c.HTTPClient = teeClient(c.HTTPClient, l, l.relay, c.MaxEventSize)
		return c.Connect(ctx)
	case *mcp.SSEClientTransport:
		l.eager = true
		c := *t
		if c.MaxEventSize == 0 {
			c.MaxEventSize = maxMessage
		}
		c.HTTPClient = teeClient(c.HTTPClient, l, nil, c.MaxEventSize)
		conn, err := c.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return newTapConn(conn, l, true), nil
	case *mcp.CommandTransport:
		p, err := startCommand(t)
		if err != nil {
			return nil, err
		}
		l.program = p
		l.lines.Store(&p.lines)
		io := &mcp.IOTransport{Reader: p, Writer: p, MaxLineLength: maxMessage}
		conn, err := io.Connect(ctx)
		if err != nil {
			return nil, err
		}
		return newTapConn(conn, l, false), nil
	}
	conn, err := t.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if fmt.Sprintf("%T", conn) == "*mcp.streamableClientConn" {
		// A transport of the caller's around streamable HTTP: its results are
		// written as JSON again, and of a failed call less is known.
		l.blind = true
		return conn, nil
	}
	return newTapConn(conn, l, false), nil
}

// place names what a transport reaches.
func place(t mcp.Transport) string {
	switch t := t.(type) {
	case *mcp.StreamableClientTransport:
		return shown(t.Endpoint)
	case *mcp.SSEClientTransport:
		return shown(t.Endpoint)
	case *mcp.CommandTransport:
		return fmt.Sprintf("command %q", t.Command.Path)
	}
	return fmt.Sprintf("a %T", t)
}
