package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Options of [Connect]. The zero value is good for most servers.
type Options struct {
	// Client has the handlers of the SDK's client: progress, elicitation, sampling,
	// logging.
	Client *mcp.ClientOptions

	// Implementation is how the client introduces itself; by default with the name
	// and version of the program's main module.
	Implementation *mcp.Implementation

	// ProtocolVersion asks for one version of the protocol, of those that the SDK
	// supports; a server may answer with another one. By default the newest that both
	// sides know is used.
	ProtocolVersion string

	// SetupTimeout bounds how long it takes to connect, to agree on a version and
	// to list the tools. The default is 30 seconds. A program that does not end by
	// itself takes up to two seconds more.
	SetupTimeout time.Duration

	// CallTimeout bounds a call, besides its context. The default is 30 seconds; a
	// negative one is no bound.
	CallTimeout time.Duration
}

// A Server is a connected MCP server, a [Source] of its tools. It may be used by
// several goroutines at once.
type Server struct {
	dial func() (mcp.Transport, error)
	opts Options
	name atomic.Value // string: the command or URL

	ctx     context.Context
	cancel  context.CancelCauseFunc
	work    sync.WaitGroup
	changed chan struct{}
	gone    chan *link
	opening chan struct{} // held by who opens a link
	current atomic.Pointer[link]
	relay   relay

	mu       sync.Mutex
	nodes    []*Node
	watchers map[*watcher]struct{}
}

// Connect connects to the server that dial reaches: [HTTP], [SSE], [Command], or a
// function of your own that returns a transport of the SDK. Dial is called for
// every connection, also later, when one was lost. The context bounds the set-up
// only.
//
// The caller closes the server. [Server.Close] may be called on what a failed
// Connect returned, too.
func Connect(ctx context.Context, dial func() (mcp.Transport, error), opts *Options) (*Server, error) {
	if dial == nil {
		return nil, errors.New("connecting: dial is nil; pass HTTP, SSE, Command or a function that returns a transport")
	}
	s := &Server{
		dial:     dial,
		changed:  make(chan struct{}, 1),
		gone:     make(chan *link, 1),
		opening:  make(chan struct{}, 1),
		watchers: map[*watcher]struct{}{},
	}
	s.name.Store("the server")
	if opts != nil {
		s.opts = *opts
	}
	if v := s.opts.ProtocolVersion; v != "" && !slices.Contains(mcp.SupportedProtocolVersions(), v) {
		return nil, fmt.Errorf("connecting: ProtocolVersion %q is unknown; use one of %s", v, strings.Join(mcp.SupportedProtocolVersions(), ", "))
	}
	if s.opts.SetupTimeout <= 0 {
		s.opts.SetupTimeout = 30 * time.Second
	}
	if s.opts.CallTimeout == 0 {
		s.opts.CallTimeout = 30 * time.Second
	}
	if s.opts.Implementation == nil {
		s.opts.Implementation = implementation()
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	if _, err := s.connected(ctx); err != nil {
		s.Close()
		return nil, err
	}
	s.work.Go(s.watch)
	return s, nil
}

// implementation is the main module of this program.
func implementation() *mcp.Implementation {
	impl := &mcp.Implementation{Name: "node", Version: "unknown"}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Path != "" {
		impl.Name = info.Main.Path[strings.LastIndexByte(info.Main.Path, '/')+1:]
		if info.Main.Version != "" {
			impl.Version = info.Main.Version
		}
	}
	return impl
}

// Close ends the connection, and the program if there is one. Calls that wait for
// an answer fail. It returns when the program has ended: one that does not end by
// itself is terminated after the TerminateDuration of its transport, two seconds with
// [Command], and killed after another. It may be called twice, and on nil.
func (s *Server) Close() error {
	if s == nil {
		return nil
	}
	s.cancel(errClosed)
	// A link that is being opened sees the end of s.ctx, and no other is opened
	// then.
	s.opening <- struct{}{}
	defer func() { <-s.opening }()
	var err error
	if l := s.current.Load(); l != nil {
		err = l.close()
	}
	s.work.Wait()
	return err
}

// Nodes are the server's tools, in its order, as it last listed them: when it was
// connected, and after each notice of a change.
func (s *Server) Nodes() []*Node {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Node(nil), s.nodes...)
}

// Node is the tool of that name.
func (s *Server) Node(name string) (*Node, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, n := range s.nodes {
		if n.tool.Name == name {
			return n, nil
		}
		names = append(names, n.tool.Name)
	}
	if len(names) > 20 {
		names = append(names[:20], "...")
	}
	return nil, &missingError{s.place(), name, names}
}

// Session is the SDK's session with the server, for all that is not a tool. It is
// replaced when it is lost, so it should not be kept.
func (s *Server) Session(ctx context.Context) (*mcp.ClientSession, error) {
	l, err := s.connected(ctx)
	if err != nil {
		return nil, err
	}
	return l.session, nil
}

// place names the server.
func (s *Server) place() string { return s.name.Load().(string) }

// connected is the link, a new one if the last was lost.
func (s *Server) connected(ctx context.Context) (*link, error) {
	if l := s.current.Load(); l != nil && !l.lost.Load() {
		return l, nil
	}
	return s.replace(ctx, nil)
}

// replace opens a link in the place of old, unless that has happened. An old of nil
// is any that is lost.
func (s *Server) replace(ctx context.Context, old *link) (*link, error) {
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, &setupError{s.place(), ended(ctx)}
	}
	l := s.current.Load()
	if l != nil && !l.lost.Load() && l != old {
		return l, nil
	}
	if s.ctx.Err() != nil {
		return nil, errClosed
	}
	fresh, tools, err := s.open(ctx)
	if err != nil {
		return nil, &setupError{s.place(), err}
	}
	s.current.Store(fresh)
	s.update(tools)
	s.work.Go(func() {
		_ = fresh.session.Wait()
		fresh.lost.Store(true)
		fresh.close()
		s.wake(fresh)
	})
	if l != nil {
		l.retire()
	}
	return fresh, nil
}

// wake has the watch look at a link that is lost, or no longer hears of changes.
func (s *Server) wake(l *link) {
	if s.ctx.Err() != nil || s.current.Load() != l || !l.eager {
		return // a program starts again when it is needed
	}
	select {
	case s.gone <- l:
	default:
	}
}

// watch reads the list again when it changed, and replaces lost links until the
// server is closed, in growing intervals while that fails.
func (s *Server) watch() {
	const least, most = time.Second, time.Minute
	var (
		lost  *link
		retry <-chan time.Time
		wait  = least
		last  time.Time
	)
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.changed:
			s.refresh(s.ctx)
		case l := <-s.gone:
			if time.Since(last) > 2*most {
				wait = least
			}
			lost, retry = l, time.After(wait)
			wait = min(2*wait, most)
		case <-retry:
			retry, last = nil, time.Now()
			if s.current.Load() != lost {
				continue // a call has replaced it
			}
			if _, err := s.replace(s.ctx, lost); err != nil {
				s.wake(lost)
			}
		}
	}
}

// refresh reads the list of tools. If that fails the last one stays: the server is
// then lost, which the next call says.
func (s *Server) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.SetupTimeout)
	defer cancel()
	l := s.current.Load()
	if l.lost.Load() || !l.begin() {
		return
	}
	tools, err := l.list(ctx)
	l.end()
	if err == nil && s.current.Load() == l {
		s.update(tools)
	}
}

// update takes over a list. Nodes of tools that did not change stay the same.
func (s *Server) update(tools []listed) {
	s.mu.Lock()
	before := map[string]*Node{}
	for _, n := range s.nodes {
		before[n.tool.Name] = n
	}
	nodes := make([]*Node, 0, len(tools))
	same := len(tools) == len(s.nodes)
	for i, t := range tools {
		n := before[t.tool.Name]
		if n == nil || t.raw == nil || string(n.raw) != string(t.raw) {
			n = s.node(t)
		}
		nodes = append(nodes, n)
		same = same && s.nodes[i] == n
	}
	s.nodes = nodes
	s.mu.Unlock()
	if !same {
		s.notify()
	}
}

func (s *Server) node(t listed) *Node {
	name := t.tool.Name
	n := &Node{tool: *t.tool, raw: t.raw, sent: true, from: s}
	n.call = func(ctx context.Context, args json.RawMessage) (*Result, error) { return s.call(ctx, name, args) }
	return n
}
