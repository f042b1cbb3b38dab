package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A link is one session with the server, over one connection.
type link struct {
	session   *mcp.ClientSession
	transport mcp.Transport
	relay     *relay
	cancel    context.CancelCauseFunc
	program   *process
	eager     bool                  // is replaced without a call
	blind     bool                  // captures see nothing
	idle      func()                // closes idle connections, of a client that is ours
	status    atomic.Int32          // of the last HTTP response
	lost      atomic.Bool           // calls can't be made any more
	lines     atomic.Pointer[meter] // of a stream with all messages
	deaf      func()                // is called when list changes are no longer announced

	mu      sync.Mutex
	conn    mcp.Connection
	calls   int
	retired bool
}

func (l *link) connection() mcp.Connection {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// begin counts a call in, unless the link is retired.
func (l *link) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.retired {
		return false
	}
	l.calls++
	return true
}

func (l *link) end() {
	l.mu.Lock()
	l.calls--
	last := l.retired && l.calls == 0
	l.mu.Unlock()
	if last {
		l.close()
	}
}

// retire closes the link after its last call, at once if it is lost.
func (l *link) retire() {
	l.mu.Lock()
	l.retired = true
	idle := l.calls == 0
	l.mu.Unlock()
	if idle || l.lost.Load() {
		l.close()
	}
}

// close ends the session. Calls that are waiting fail. It may be called twice.
func (l *link) close() error {
	l.lost.Store(true)
	var err error
	if conn := l.connection(); conn != nil {
		err = conn.Close()
	}
	if l.session != nil {
		// What it returns is the end of the connection that was just closed.
		_ = l.session.Close()
	}
	l.cancel(errClosed)
	if l.idle != nil {
		l.idle()
	}
	return err
}

// hurry has a program that is closed after a failed set-up end without waiting for it.
func (l *link) hurry() {
	if l.program != nil {
		l.program.hurried.Store(true)
	}
}

// transport is the SDK's way to a link's connection.
type transport struct {
	inner mcp.Transport
	link  *link
}

func (t transport) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := tapped(ctx, t.inner, t.link)
	if err != nil {
		return nil, err
	}
	t.link.mu.Lock()
	t.link.conn = conn
	t.link.mu.Unlock()
	return conn, ctx.Err()
}

var errSetup = fmt.Errorf("no answer in time: %w", context.DeadlineExceeded)

// open makes a link and reads the list of tools. A server of the handshake era may
// not answer the first question of the stateless one; then it is asked for the
// handshake.
func (s *Server) open(ctx context.Context) (*link, []listed, error) {
	total := s.opts.SetupTimeout
	if s.opts.ProtocolVersion != "" {
		return s.attempt(ctx, s.opts.ProtocolVersion, total)
	}
	l, tools, err := s.attempt(ctx, "", total/2)
	if errors.Is(err, errSetup) && ctx.Err() == nil && s.ctx.Err() == nil {
		l, tools, err = s.attempt(ctx, lastHandshake, total-total/2)
	}
	return l, tools, err
}

const lastHandshake = "2025-11-25"

func (s *Server) attempt(ctx context.Context, version string, limit time.Duration) (_ *link, _ []listed, err error) {
	t, err := s.dial()
	if err != nil {
		return nil, nil, err
	}
	if t == nil {
		return nil, nil, errors.New("there is no transport")
	}
	s.name.Store(place(t))
	// The connection lives on with this context, so that it has no deadline.
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	l := &link{cancel: cancel, transport: t, relay: &s.relay}
	l.deaf = func() { s.wake(l) }
	timer := time.AfterFunc(limit, func() { cancel(errSetup) })
	stopCaller := context.AfterFunc(ctx, func() { cancel(ended(ctx)) })
	stopClose := context.AfterFunc(s.ctx, func() { cancel(errClosed) })
	var closing sync.WaitGroup
	closing.Add(1)
	connected := make(chan struct{})
	defer func() {
		timer.Stop()
		stopCaller()
		stopClose()
		if err == nil && own.Err() != nil {
			err = own.Err()
		}
		if err == nil {
			close(connected)
		}
		if err != nil {
			if cause := context.Cause(own); cause != nil {
				err = cause
			}
			cancel(errClosed)
		}
		closing.Wait()
		if err != nil {
			l.hurry()
			l.close()
			err = l.explain(withoutURL(err))
		}
	}()
	// The SDK waits without a limit for the headers of some responses.
	go func() {
		defer closing.Done()
		select {
		case <-own.Done():
			if conn := l.connection(); conn != nil {
				l.hurry()
				conn.Close()
			}
		case <-connected:
		}
	}()

	l.session, err = s.client().Connect(own, transport{t, l}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, nil, err
	}
	tools, err := l.list(own)
	if err != nil {
		return nil, nil, err
	}
	return l, tools, nil
}

func (s *Server) client() *mcp.Client {
	var opts mcp.ClientOptions
	if s.opts.Client != nil {
		opts = *s.opts.Client
	}
	theirs := opts.ToolListChangedHandler
	opts.ToolListChangedHandler = func(ctx context.Context, req *mcp.ToolListChangedRequest) {
		select {
		case s.changed <- struct{}{}:
		default: // a change is already waiting to be looked at
		}
		if theirs != nil {
			theirs(ctx, req)
		}
	}
	opts.ProgressNotificationHandler = s.relay.handler(opts.ProgressNotificationHandler)
	return mcp.NewClient(s.opts.Implementation, &opts)
}

// explain adds to an error of a set-up what else is known.
func (l *link) explain(err error) error {
	if l.program != nil {
		return l.program.explain(err)
	}
	return l.denied(err, int(l.status.Load()))
}

// denied adds to an error what to do about the status of its response.
func (l *link) denied(err error, status int) error {
	if status != http.StatusUnauthorized && status != http.StatusForbidden {
		return err
	}
	hint := "set MCP_TOKEN, or send the server's credentials with an HTTP client of your own"
	var own *http.Client
	switch t := l.transport.(type) {
	case *mcp.StreamableClientTransport:
		own = t.HTTPClient
	case *mcp.SSEClientTransport:
		own = t.HTTPClient
	}
	if own != nil {
		if b, ok := own.Transport.(*bearer); ok && os.Getenv("MCP_TOKEN") != "" {
			hint = "check MCP_TOKEN"
			if !private(b.endpoint) {
				hint = "MCP_TOKEN is not sent over plain http; use https"
			}
		}
	}
	return fmt.Errorf("%w (status %d): %s", err, status, hint)
}

// A listed tool has its JSON as the server sent it.
type listed struct {
	tool *mcp.Tool
	raw  json.RawMessage
}

// Limits to what a server may list.
const (
	maxPages = 1000
	maxTools = 20000
)

func (l *link) list(ctx context.Context) ([]listed, error) {
	session := l.session
	var all []listed
	seen := map[string]bool{}
	cursor := ""
	for range maxPages {
		asking, c := withCapture(ctx)
		page, err := session.ListTools(asking, &mcp.ListToolsParams{Cursor: cursor})
		_, _, _, raw := c.done()
		if err != nil {
			var wire *jsonrpc.Error
			if res := session.InitializeResult(); errors.As(err, &wire) && wire.Code == jsonrpc.CodeMethodNotFound &&
				(res == nil || res.Capabilities == nil || res.Capabilities.Tools == nil) {
				return nil, nil // a server without tools
			}
			return nil, fmt.Errorf("listing tools: %w", c.reason(err, l))
		}
		raws := rawTools(raw)
		for _, t := range page.Tools {
			if t.Name == "" || seen[t.Name] {
				continue
			}
			seen[t.Name] = true
			if all = append(all, listed{t, raws[t.Name]}); len(all) > maxTools {
				return nil, fmt.Errorf("listing tools: more than %d", maxTools)
			}
		}
		if cursor = page.NextCursor; cursor == "" {
			return all, nil
		}
	}
	return nil, fmt.Errorf("listing tools: more than %d pages", maxPages)
}

// rawTools are the tools of a page by name. The SDK may have left some out.
func rawTools(page json.RawMessage) map[string]json.RawMessage {
	var p struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if json.Unmarshal(page, &p) != nil {
		return nil
	}
	byName := make(map[string]json.RawMessage, len(p.Tools))
	for _, raw := range p.Tools {
		var t struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &t) == nil && byName[t.Name] == nil {
			byName[t.Name] = raw
		}
	}
	return byName
}
