package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// roleCommand is the first argument that makes this binary one of the processes
// under measurement instead of the one that measures.
const roleCommand = "role"

// hello is what a role says on its lifeline when it is ready.
type hello struct {
	Tag  string `json:"tag"`
	PID  int    `json:"pid"`
	Addr string `json:"addr,omitempty"` // where it listens, if it does
}

// roleMain runs one role until its lifeline breaks. The lifeline is a TCP
// connection to the harness: it breaks however the harness ends, and it also
// reaches a stdio server that Tine started, which would outlive Tine by design.
func roleMain(args []string) int {
	fs := flag.NewFlagSet(roleCommand, flag.ContinueOnError)
	kind := fs.String("kind", "", "what to be")
	tag := fs.String("tag", "", "name to report under")
	line := fs.String("lifeline", "", "address of the harness")
	upstream := fs.String("upstream", "", "base URL to relay to")
	listen := fs.String("listen", "127.0.0.1:0", "address to listen on")
	state := fs.String("state", "", "directory of what it remembers")
	if err := fs.Parse(args); err != nil {
		return 2
	}
	if err := runRole(*kind, *tag, *line, *upstream, *listen, *state); err != nil {
		fmt.Fprintf(os.Stderr, "bench role %s: %v\n", *kind, err)
		return 1
	}
	return 0
}

func runRole(kind, tag, line, upstream, listen, state string) error {
	conn, err := net.Dial("tcp", line)
	if err != nil {
		return fmt.Errorf("reach the harness: %w", err)
	}
	h := hello{Tag: tag, PID: os.Getpid()}
	if kind == guardRole {
		return guard(conn, h, state)
	}
	go func() {
		// Nothing is ever sent this way; a return means the harness is gone.
		_, _ = io.Copy(io.Discard, conn)
		os.Exit(0)
	}()

	if kind == "echo-stdio" || kind == "state-stdio" {
		if err := json.NewEncoder(conn).Encode(h); err != nil {
			return err
		}
		if kind == "state-stdio" {
			return serveState(context.Background(), state)
		}
		return serveEchoStdio(context.Background())
	}

	var handler http.Handler
	switch kind {
	case "echo-stateful":
		handler = echoHandler(false)
	case "echo-stateless":
		handler = echoHandler(true)
	case "proxy":
		handler, err = reverseProxy(upstream)
	case "relay":
		handler, err = bareRelay(upstream)
	case "collector":
		handler = swallow()
	default:
		err = fmt.Errorf("there is no such role")
	}
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	h.Addr = ln.Addr().String()
	if err := json.NewEncoder(conn).Encode(h); err != nil {
		return err
	}
	return countConnections(handler).Serve(ln)
}

// connectionsPath is where a role says how many connections it was ever opened.
const connectionsPath = "/connections"

// countConnections lets the harness see whether those in front keep their
// connections or dial for every call.
func countConnections(handler http.Handler) *http.Server {
	var opened atomic.Int64
	return &http.Server{
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				opened.Add(1)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == connectionsPath {
				fmt.Fprint(w, opened.Load())
				return
			}
			handler.ServeHTTP(w, r)
		}),
	}
}

// lifelines is the harness's end: it holds the connections of all roles and
// knows the newest hello of each tag.
type lifelines struct {
	ln net.Listener
	wg sync.WaitGroup

	mu      sync.Mutex
	hellos  map[string]hello
	conns   []net.Conn
	closed  bool
	changed chan struct{} // closed and replaced with every hello
}

func listenLifelines() (*lifelines, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the processes under measurement: %w", err)
	}
	l := &lifelines{ln: ln, hellos: map[string]hello{}, changed: make(chan struct{})}
	l.wg.Go(l.accept)
	return l, nil
}

func (l *lifelines) addr() string { return l.ln.Addr().String() }

func (l *lifelines) accept() {
	for {
		conn, err := l.ln.Accept()
		if err != nil {
			return
		}
		l.mu.Lock()
		if l.closed {
			l.mu.Unlock()
			conn.Close()
			return
		}
		l.conns = append(l.conns, conn)
		l.mu.Unlock()
		l.wg.Go(func() { l.greet(conn) })
	}
}

func (l *lifelines) greet(conn net.Conn) {
	defer conn.Close()
	var h hello
	if err := json.NewDecoder(io.LimitReader(conn, 4096)).Decode(&h); err != nil {
		return
	}
	l.mu.Lock()
	l.hellos[h.Tag] = h
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	// The role's end of the line closes when its process is gone.
	_, _ = io.Copy(io.Discard, conn)
}

// find returns the newest hello of a tag, if there was one.
func (l *lifelines) find(tag string) (hello, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h, ok := l.hellos[tag]
	return h, ok
}

// wait returns the hello of a tag as soon as there is one.
func (l *lifelines) wait(ctx context.Context, tag string) (hello, error) {
	for {
		l.mu.Lock()
		h, ok := l.hellos[tag]
		changed := l.changed
		l.mu.Unlock()
		if ok {
			return h, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return hello{}, fmt.Errorf("process %q did not report: %w", tag, context.Cause(ctx))
		}
	}
}

// close breaks every lifeline, which ends the roles, and waits until they are
// gone.
func (l *lifelines) close() {
	l.mu.Lock()
	l.closed = true
	for _, c := range l.conns {
		_ = c.SetReadDeadline(time.Now().Add(stopGrace))
		_ = c.(*net.TCPConn).CloseWrite()
	}
	l.mu.Unlock()
	l.ln.Close()
	l.wg.Wait()
}
