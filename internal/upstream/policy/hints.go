package policy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A hint is what a server says of one of its tools. A tool that nothing is
// known of has none, and is treated as one that changes things.
type hint uint8

const (
	readOnly   hint = 1 << iota // changes nothing
	idempotent                  // changes nothing more when it is called again
)

// Bounds of asking for hints.
const (
	hintTries = 3
	hintPages = 100
	hintTime  = 5 * time.Second
	maxHints  = 20_000
	maxAskers = 4096
	// How long a list is not read again after it had no more hints, or failed.
	hintsKnown  = 5 * time.Minute
	hintsFailed = 10 * time.Second
)

// hints are what is known of a server's tools. They are learned from lists that
// pass, and asked for where a decision needs them.
type hints struct {
	server *Server
	// forgets is the server's count of Forgets when all below was learned.
	forgets atomic.Uint64

	mu    sync.RWMutex
	tools map[string]hint
	epoch uint64
	// asked is until when not to ask again for a principal whose list lacked some
	// tool. Each may see other tools.
	asked   map[string]time.Time
	flights flights[string, struct{}]
}

func newHints(s *Server) *hints {
	h := &hints{
		server: s, tools: make(map[string]hint), asked: make(map[string]time.Time),
		flights: flights[string, struct{}]{tasks: &s.tasks},
	}
	h.forgets.Store(s.forgets.Load())
	return h
}

// renew forgets what was known before the server's last Forget. It is called before
// every lookup and before learning, so that the server need not track its hints.
func (h *hints) renew() {
	if now := h.server.forgets.Load(); h.forgets.Load() != now {
		h.forget()
		h.forgets.Store(now)
	}
}

// now returns a moment to learn with: answers to requests from before the last
// forget are ignored.
func (h *hints) now() uint64 {
	h.renew()
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.epoch
}

// forget drops all, when the server's tools changed.
func (h *hints) forget() {
	h.mu.Lock()
	h.epoch++
	clear(h.tools)
	clear(h.asked)
	h.mu.Unlock()
	h.flights.forget(func(string) bool { return true })
}

// learn takes the hints out of one page of a tool list. It returns where the
// next page begins, raw; nil after the last one.
func (h *hints) learn(at uint64, result []byte) (cursor []byte) {
	span, err := wire.Find(result, "tools")
	if err != nil || !span.Ok() {
		return nil
	}
	list := span.Of(result)
	items, err := wire.Items(list)
	if err != nil {
		return nil
	}
	learned := make(map[string]hint, len(items))
	for _, it := range items {
		tool := it.Of(list)
		if name := wire.FindString(tool, "name"); name != "" {
			learned[name] = hintOf(tool)
		}
	}
	h.renew()
	h.mu.Lock()
	if h.epoch == at {
		if len(h.tools)+len(learned) > maxHints {
			clear(h.tools)
		}
		for name, hint := range learned {
			h.tools[name] = hint
		}
	}
	h.mu.Unlock()
	next, _ := wire.Find(result, "nextCursor")
	if c := next.Of(result); len(c) > 2 && c[0] == '"' {
		return c
	}
	return nil
}

func hintOf(tool []byte) hint {
	var h hint
	says := func(key string) bool {
		at, err := wire.Find(tool, "annotations", key)
		return err == nil && string(at.Of(tool)) == "true"
	}
	if says("readOnlyHint") {
		h |= readOnly
	}
	if says("idempotentHint") {
		h |= idempotent
	}
	return h
}

// of returns a tool's hints. If they are not known it asks the server, as the
// caller of the tool; without an answer the tool has none.
func (h *hints) of(ctx context.Context, req *upstream.Request, ask upstream.Caller) hint {
	// A list that is read while the tools change is ignored and read again, for
	// example when the request started the server.
	for tries := 0; ; tries++ {
		h.renew()
		h.mu.RLock()
		hint, known := h.tools[req.Name]
		wait, asked := h.asked[req.Who]
		h.mu.RUnlock()
		if known || asked && time.Now().Before(wait) || tries == hintTries {
			return hint
		}
		r := &upstream.Request{Method: wire.MethodListTools, Who: req.Who, Session: req.Session, Client: &upstream.Client{}}
		if c := req.Client; c != nil {
			// Not modern, so that the connection adds what a modern server wants.
			r.Client = &upstream.Client{Key: c.Key, Info: c.Info, Caps: c.Caps}
		}
		if _, ok := h.flights.do(ctx, req.Who, func(ctx context.Context) struct{} {
			h.read(ctx, r, ask)
			return struct{}{}
		}); !ok {
			return 0
		}
	}
}

// read reads the whole list of tools.
func (h *hints) read(ctx context.Context, req *upstream.Request, ask upstream.Caller) {
	ctx, cancel := context.WithTimeout(ctx, hintTime)
	defer cancel()
	at := h.now()
	for page := 0; ; page++ {
		res, err := ask.Call(ctx, req)
		if err != nil || res.Result == nil || page == hintPages {
			h.remember(at, req.Who, hintsFailed)
			return
		}
		cursor := h.learn(at, res.Result)
		if cursor == nil {
			h.remember(at, req.Who, hintsKnown)
			return
		}
		raw := append(append([]byte(`{"cursor":`), cursor...), '}')
		next := *req
		if next.Params, err = wire.ScanParams(req.Method, raw); err != nil {
			h.remember(at, req.Who, hintsFailed)
			return
		}
		req = &next
	}
}

func (h *hints) remember(at uint64, who string, wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.epoch != at {
		return
	}
	if len(h.asked) >= maxAskers {
		clear(h.asked)
	}
	h.asked[who] = time.Now().Add(wait)
}
