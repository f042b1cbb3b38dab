package everything

//lint:file-ignore SA1019 roots, sampling and logging are deprecated and still part of the protocol.

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sessions keeps what the server remembers of each of its sessions.
type sessions struct {
	mu   sync.Mutex
	open map[*mcp.ServerSession]*session
}

// get returns what is remembered of a session. It is forgotten, and all that
// runs for it ended, when the session ends.
func (s *sessions) get(ss *mcp.ServerSession) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if se := s.open[ss]; se != nil {
		return se
	}
	if s.open == nil {
		s.open = map[*mcp.ServerSession]*session{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	se := &session{ss: ss, begin: func(f func(context.Context)) (stop func()) {
		ctx, cancel := context.WithCancel(ctx)
		go f(ctx)
		return cancel
	}}
	s.open[ss] = se
	go func() {
		ss.Wait()
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, ss)
	}()
	return se
}

// session is what one session has switched on or reported.
type session struct {
	ss *mcp.ServerSession
	// begin runs f until the session ends or stop is called.
	begin func(f func(context.Context)) (stop func())

	mu          sync.Mutex
	stopLogging func() // nil when off
	stopUpdates func()
	subscribed  map[string]int // by URI; a client may listen twice
	prompted    map[string]bool
	roots       []*mcp.Root
	rootsKnown  bool
	askRoots    chan struct{} // wakes the one that keeps roots fresh
}

// every calls f now and then again and again, until ctx ends.
func every(ctx context.Context, pace time.Duration, f func(context.Context)) {
	t := time.NewTicker(pace)
	defer t.Stop()
	for {
		f(ctx)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// subscribe runs in both eras: the SDK calls it for resources/subscribe and for
// each URI of a subscriptions/listen.
func (s *server) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	se := s.sessions.get(req.Session)
	se.mu.Lock()
	if se.subscribed == nil {
		se.subscribed = map[string]int{}
	}
	se.subscribed[req.Params.URI]++
	se.mu.Unlock()
	return req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: "Received Subscribe Resource request for URI: " + req.Params.URI})
}

func (s *server) unsubscribe(ctx context.Context, req *mcp.UnsubscribeRequest) error {
	se := s.sessions.get(req.Session)
	se.mu.Lock()
	if se.subscribed[req.Params.URI]--; se.subscribed[req.Params.URI] <= 0 {
		delete(se.subscribed, req.Params.URI)
	}
	se.mu.Unlock()
	return req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: "Received Unsubscribe Resource request: " + req.Params.URI})
}

func (se *session) subscriptions() []string {
	se.mu.Lock()
	defer se.mu.Unlock()
	return slices.Sorted(maps.Keys(se.subscribed))
}

// initialized is called in the older era only, in which the server asks for the
// client's roots by itself and again whenever they change.
func (s *server) initialized(_ context.Context, req *mcp.InitializedRequest) {
	if caps := req.ClientCapabilities(); caps == nil || caps.RootsV2 == nil {
		return
	}
	se := s.sessions.get(req.Session)
	ask := make(chan struct{}, 1)
	se.mu.Lock()
	se.askRoots = ask
	se.mu.Unlock()
	se.begin(func(ctx context.Context) {
		for {
			se.updateRoots(ctx)
			select {
			case <-ctx.Done():
				return
			case <-ask:
			}
		}
	})
}

func (s *server) rootsChanged(_ context.Context, req *mcp.RootsListChangedRequest) {
	se := s.sessions.get(req.Session)
	se.mu.Lock()
	defer se.mu.Unlock()
	se.rootsKnown = false
	if se.askRoots == nil {
		return
	}
	select {
	case se.askRoots <- struct{}{}:
	default: // it will ask soon anyway
	}
}

// updateRoots asks for the roots and logs that they came. A client that fails to
// give them is asked again by the tool that wants them.
func (se *session) updateRoots(ctx context.Context) {
	res, err := se.ss.ListRoots(ctx, nil)
	if err != nil {
		return
	}
	se.setRoots(res.Roots)
	se.ss.Log(ctx, &mcp.LoggingMessageParams{
		Level: "info", Logger: "everything-server",
		Data: fmt.Sprintf("Roots updated: %d root(s) received from client", len(res.Roots)),
	})
}

func (se *session) setRoots(roots []*mcp.Root) {
	se.mu.Lock()
	defer se.mu.Unlock()
	se.roots, se.rootsKnown = roots, true
}

func (se *session) knownRoots() ([]*mcp.Root, bool) {
	se.mu.Lock()
	defer se.mu.Unlock()
	return se.roots, se.rootsKnown
}
