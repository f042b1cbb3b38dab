package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Limits to clients.
const (
	maxSessions = 10000
	idleSession = time.Hour
)

// Handler serves nodes over HTTP: at /mcp and /streamable-http as streamable HTTP,
// in both eras of the protocol at the same URL, and at /sse with the transport of
// 2024-11-05. It panics if two nodes have one name; see [Expose].
//
// Requests from web pages of other origins are refused, and so are requests to the
// machine itself under a foreign host name. Who may call is up to the program:
// wrap the handler, for instance with the SDK's package auth.
func Handler(sources ...Source) http.Handler {
	h, _, err := newHandler(sources)
	if err != nil {
		panic("node.Handler: " + err.Error())
	}
	return h
}

func newServer(sources []Source) (*mcp.Server, func(), error) {
	server := mcp.NewServer(implementation(), &mcp.ServerOptions{
		Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: true}},
	})
	stop, err := expose(server, sources)
	if err != nil {
		return nil, nil, err
	}
	return server, func() {
		stop()
		for session := range server.Sessions() {
			_ = session.Close()
		}
	}, nil
}

func newHandler(sources []Source) (http.Handler, func(), error) {
	server, stop, err := newServer(sources)
	if err != nil {
		return nil, nil, err
	}
	get := func(*http.Request) *mcp.Server { return server }
	streamable := &eras{
		server: server,
		handshake: mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			SessionTimeout:      idleSession,
			MaxRequestBodyBytes: maxMessage,
		}),
		stateless: mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{
			Stateless:                    true,
			MaxRequestBodyBytes:          maxMessage,
			PropagateRequestCancellation: true,
		}),
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", plain(streamable))
	mux.Handle("/streamable-http", plain(streamable))
	sse := mcp.NewSSEHandler(get, &mcp.SSEOptions{MaxRequestBodyBytes: maxMessage})
	mux.Handle("/sse", limited(server, http.MethodGet, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sse.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), carrierKey{}, r.Context())))
	})))
	return http.NewCrossOriginProtection().Handler(mux), stop, nil
}

// carrierKey is for the context of the stream that carries a session: when it ends the
// session's calls do, too. The SDK would wait for them.
type carrierKey struct{}

// eras sends a request to the handler of its era. The SDK has one handler that keeps
// sessions and does not speak the stateless era, and one that does the opposite.
type eras struct {
	server               *mcp.Server
	handshake, stateless http.Handler
}

const firstStateless = "2026-07-28"

func (e *eras) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Mcp-Protocol-Version") >= firstStateless:
		e.stateless.ServeHTTP(w, r)
	case r.Header.Get("Mcp-Session-Id") == "":
		limited(e.server, http.MethodPost, e.handshake).ServeHTTP(w, r)
	default:
		e.handshake.ServeHTTP(w, r)
	}
}

// limited refuses requests with a method that makes a session if there are too many.
func limited(server *mcp.Server, method string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == method {
			n := 0
			for range server.Sessions() {
				n++
			}
			if n >= maxSessions {
				w.Header().Set("Retry-After", "60")
				http.Error(w, "too many sessions", http.StatusServiceUnavailable)
				return
			}
		}
		h.ServeHTTP(w, r)
	})
}

// Serve serves [Handler] at a TCP address until the context ends. Then it returns
// nil, within seconds.
func Serve(ctx context.Context, addr string, sources ...Source) error {
	h, stop, err := newHandler(sources)
	if err != nil {
		return err
	}
	defer stop()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	if server.Shutdown(ending) != nil {
		server.Close() // streams stay open as long as their clients do
	}
	<-served
	return nil
}

// ServeStdio serves nodes over standard input and output, to the program that
// started this one. It returns nil when the input or the context ends. Nothing
// else may write to standard output.
func ServeStdio(ctx context.Context, sources ...Source) error {
	server, stop, err := newServer(sources)
	if err != nil {
		return err
	}
	defer stop()
	err = server.Run(ctx, &mcp.StdioTransport{MaxLineLength: maxMessage})
	if err != nil && !errors.Is(err, context.Cause(ctx)) {
		return fmt.Errorf("standard input: %w", err)
	}
	return nil
}
