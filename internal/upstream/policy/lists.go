package policy

import (
	"context"
	"strconv"
	"time"

	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A listKind is one of the lists that servers have.
type listKind uint8

const (
	listTools listKind = iota
	listPrompts
	listResources
	listTemplates
	listKinds // how many there are
)

func kindOfList(method string) (listKind, bool) {
	switch method {
	case wire.MethodListTools:
		return listTools, true
	case wire.MethodListPrompts:
		return listPrompts, true
	case wire.MethodListResources:
		return listResources, true
	case wire.MethodListTemplates:
		return listTemplates, true
	}
	return 0, false
}

// maxListTTL bounds how long a list is cached, even if its server says more.
const maxListTTL = 24 * time.Hour

// lists answers lists from a cache. A principal's answer is for that principal
// alone, unless the server says that it is public.
type lists struct {
	server *Server
	chain  uint64
	target *target // nil for a chain with its own
	kept   func()
	hints  *hints
	next   upstream.Caller

	scopes  [listKinds]scope
	flights flights[cacheKey, answer]
}

type answer struct {
	res *upstream.Result
	err error
}

func newLists(s *Server, chain uint64, t *target, kept func(), h *hints, next upstream.Caller) *lists {
	return &lists{server: s, chain: chain, target: t, kept: kept, hints: h, next: next,
		flights: flights[cacheKey, answer]{tasks: &s.tasks}}
}

// Call implements upstream.Caller.
func (l *lists) Call(ctx context.Context, req *upstream.Request) (*upstream.Result, error) {
	kind, ok := kindOfList(req.Method)
	if !ok {
		return l.next.Call(ctx, req)
	}
	most := l.server.policy.Load().Cache.Lists
	var sum signature
	if most > 0 && !req.Params.RequestState.Ok() && !req.Params.InputResponses.Ok() {
		sum, ok = sign(req)
	} else {
		ok = false
	}
	if !ok {
		return l.pass(ctx, kind, req)
	}
	private := cacheKey{chain: l.chain, age: l.server.forgets.Load(), kind: kind, who: req.Who, sign: sum}
	if res := l.find(private, most); res != nil {
		l.server.metrics.Cache("lists", true)
		return res, nil
	}
	l.server.metrics.Cache("lists", false)
	// The caller may leave before the request is done, and take with it what the
	// request points to.
	peer := &leaving{peer: req.Peer}
	fetch := detach(req, peer)
	got, ok := l.flights.do(ctx, private, func(ctx context.Context) answer {
		// It may have been cached since the lookup.
		if res := l.find(private, most); res != nil {
			return answer{res: res}
		}
		return l.fetch(ctx, kind, private, fetch)
	})
	peer.gone.Store(true)
	if !ok {
		if ctx.Err() == nil {
			return nil, l.server.closed()
		}
		return nil, l.server.gaveUp(ctx, "")
	}
	if got.res == nil {
		return nil, got.err
	}
	res := *got.res // callers may change theirs
	return &res, got.err
}

// pass asks the server without keeping anything but the hints.
func (l *lists) pass(ctx context.Context, kind listKind, req *upstream.Request) (*upstream.Result, error) {
	if kind != listTools {
		return l.next.Call(ctx, req)
	}
	at := l.hints.now()
	res, err := l.next.Call(ctx, req)
	if err == nil {
		l.hints.learn(at, res.Result)
	}
	return res, err
}

// fetch asks the server and caches the answer if allowed.
func (l *lists) fetch(ctx context.Context, kind listKind, key cacheKey, req *upstream.Request) answer {
	public, publicKey := l.public(kind, key)
	before, publicBefore := l.server.lists.now(&l.scopes[kind]), l.server.lists.now(public)
	res, err := l.pass(ctx, kind, req)
	if err != nil || res.Result == nil {
		return answer{res, err}
	}
	d := describe(res.Result)
	ttl := d.ttl
	if !d.ttlAt.Ok() {
		ttl = l.server.policy.Load().Cache.Lists
	}
	if !d.complete || l.server.policy.Load().Cache.Lists <= 0 {
		return answer{res, nil}
	}
	var kept bool
	if d.public {
		kept = l.server.lists.put(public, publicBefore, publicKey, res, d.ttlAt, ttl)
	} else {
		kept = l.server.lists.put(&l.scopes[kind], before, key, res, d.ttlAt, ttl)
	}
	if kept && l.kept != nil {
		l.kept()
	}
	return answer{res, nil}
}

// public returns where a public list is cached. Connections to one server share it;
// an instance that one session owns has its own lists.
func (l *lists) public(kind listKind, key cacheKey) (*scope, cacheKey) {
	key.public, key.who = true, ""
	if l.target == nil {
		return &l.scopes[kind], key
	}
	key.chain = l.target.id
	return &l.target.public[kind], key
}

// find returns a cached list, for this principal or for all.
func (l *lists) find(key cacheKey, most time.Duration) *upstream.Result {
	e, left := l.server.lists.get(key, most)
	if e == nil {
		_, public := l.public(key.kind, key)
		e, left = l.server.lists.get(public, most)
	}
	if e == nil {
		return nil
	}
	res := &upstream.Result{Result: e.result, Events: e.events}
	if e.ttl.Ok() {
		with := strconv.AppendInt(nil, left.Milliseconds(), 10)
		res.Result = wire.AppendSpliced(make([]byte, 0, len(e.result)), e.result, []wire.Edit{{At: e.ttl, With: with}})
	}
	return res
}

// forget drops the lists of a kind; later callers do not get a list that is being
// fetched. A change that one connection reports concerns the public list too.
func (l *lists) forget(kind listKind) {
	if l.target != nil {
		l.server.lists.drop(&l.target.public[kind])
	}
	l.forgetOwn(kind)
}

func (l *lists) forgetOwn(kind listKind) {
	l.server.lists.drop(&l.scopes[kind])
	l.flights.forget(func(k cacheKey) bool { return k.kind == kind })
}
