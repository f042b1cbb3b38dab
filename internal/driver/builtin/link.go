package builtin

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// queued is how many messages may wait in each direction before the sender
// waits. A few are enough to keep both sides busy; more would only hide a
// reader that is too slow.
const queued = 16

// errLinkClosed is what a link reports that was closed.
var errLinkClosed = fmt.Errorf("link to a built-in server: %w", os.ErrClosed)

// link joins a gateway, which speaks frames, to a server, which speaks messages. Each
// side translates on its own goroutine, so that none sits in between: the gateway's
// writers decode, the server's handlers encode.
//
// It is the server's transport and connection at once; stream is its other end.
// It says nothing about protocol versions, which the SDK takes as all of them:
// both eras run over it.
type link struct {
	in  chan jsonrpc.Message // gateway to server
	out chan []byte          // server to gateway

	once   sync.Once
	closed chan struct{}
	left   atomic.Bool // it was the gateway that closed it

	ended bool // ReadFrame has reported the end; its one reader's own
}

var (
	_ mcp.Transport  = (*link)(nil)
	_ mcp.Connection = (*link)(nil)
	_ driver.Stream  = (*stream)(nil)
)

func newLink() *link {
	return &link{
		in:     make(chan jsonrpc.Message, queued),
		out:    make(chan []byte, queued),
		closed: make(chan struct{}),
	}
}

func (l *link) close() { l.once.Do(func() { close(l.closed) }) }

func (l *link) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// Connect implements [mcp.Transport].
func (l *link) Connect(context.Context) (mcp.Connection, error) { return l, nil }

// SessionID implements [mcp.Connection]. There is one session a link, so it
// needs no name.
func (l *link) SessionID() string { return "" }

// Close implements [mcp.Connection].
func (l *link) Close() error {
	l.close()
	return nil
}

// Read implements [mcp.Connection].
func (l *link) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case m := <-l.in:
		return m, nil
	case <-l.closed:
		return nil, io.EOF
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Write implements [mcp.Connection]. It waits while the gateway does not read.
func (l *link) Write(ctx context.Context, m jsonrpc.Message) error {
	frame, err := jsonrpc.EncodeMessage(m)
	if err != nil {
		return err
	}
	// Raw JSON of a tool's author may hold line ends, which a frame must not.
	if bytes.IndexByte(frame, '\n') >= 0 {
		var b bytes.Buffer
		if err := json.Compact(&b, frame); err != nil {
			return fmt.Errorf("compact a message: %w", err)
		}
		frame = b.Bytes()
	}
	return send(ctx, l, l.out, frame)
}

func send[T any](ctx context.Context, l *link, to chan<- T, v T) error {
	// Of several ways that are open select takes any.
	if l.isClosed() {
		return errLinkClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case to <- v:
		return nil
	case <-l.closed:
		return errLinkClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stream is the gateway's end of a link.
type stream link

// ReadFrame implements [driver.Stream].
func (s *stream) ReadFrame() ([]byte, error) {
	switch {
	case s.left.Load():
		return nil, errLinkClosed
	case s.ended:
		return nil, io.EOF
	}
	select {
	case f := <-s.out:
		return f, nil
	case <-s.closed:
	}
	if s.left.Load() {
		return nil, errLinkClosed
	}
	// What the server wrote before it ended still counts.
	select {
	case f := <-s.out:
		return f, nil
	default:
		s.ended = true
		return nil, io.EOF
	}
}

// WriteFrame implements [driver.Stream]. A frame that is no JSON-RPC message is
// refused here and does not reach the server, whose session would end over it.
func (s *stream) WriteFrame(ctx context.Context, frame []byte) error {
	m, err := decode(frame)
	if err != nil {
		return fmt.Errorf("frame is not a JSON-RPC message: %w", err)
	}
	return send(ctx, (*link)(s), s.in, m)
}

// decode reads a message. Requests with the ids that upstream gives, which are
// nearly all, don't go through the SDK's decoder: it makes a large buffer for
// each.
func decode(frame []byte) (jsonrpc.Message, error) {
	m, err := wire.Scan(frame)
	if err != nil || !m.IsRequest() || len(m.ID) < 2 || m.ID[0] != '"' || bytes.IndexByte(m.ID, '\\') >= 0 {
		return jsonrpc.DecodeMessage(frame)
	}
	id, err := jsonrpc.MakeID(string(m.ID[1 : len(m.ID)-1]))
	if err != nil {
		return nil, err
	}
	return &jsonrpc.Request{ID: id, Method: m.Method, Params: bytes.Clone(m.Params)}, nil
}

// Close implements [driver.Stream]. Calls that still run are cancelled.
func (s *stream) Close() error {
	s.left.Store(true)
	(*link)(s).close()
	return nil
}
