package session

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
)

// A gate lets calls into a session and, for a moment, none: a freeze waits
// until the calls inside have left, while calls that come wait outside.
//
//	open --freeze--> closing --last call leaves--> frozen --thaw--> open
//	                     \--deadline, or a call that waits for a person--> open
//
// A call made on behalf of one inside rides on its entry: it would wait for a
// freeze that waits for it. The zero gate is open.
type gate struct {
	mu     sync.Mutex
	inside map[*entry]struct{}
	thawed chan struct{} // closed by thaw; nil while the gate is open
	empty  chan struct{} // closed when the last call inside leaves; nil unless a freeze waits
	shut   error         // why no call comes in any more
}

// An entry is one call inside.
type entry struct {
	id     string
	what   string // server and tool
	since  time.Time
	asking int // how many of its questions wait for a person
}

// ridesOn is the key under which a context carries the entry of the call it
// belongs to.
type ridesOn struct{ g *gate }

// saysCall is the key under which a context carries the id of the call that its
// request says it is part of.
type saysCall struct{}

// FromCall returns a context for a request that says it is part of a call, as
// CallID names it.
func FromCall(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, saysCall{}, id)
}

// enter lets a call in, waiting while the gate is frozen. The returned context
// is for what the call does; leave must be called once it is over.
func (g *gate) enter(ctx context.Context, what string) (_ context.Context, leave func(), err error) {
	if ctx.Value(ridesOn{g}) != nil {
		return ctx, func() {}, nil
	}
	for {
		g.mu.Lock()
		if g.shut != nil {
			g.mu.Unlock()
			return nil, nil, g.shut
		}
		wait := g.thawed
		if wait == nil {
			e := &entry{id: fmt.Sprintf("call_%016x", rand.Uint64()), what: what, since: time.Now()}
			if g.inside == nil {
				g.inside = make(map[*entry]struct{})
			}
			g.inside[e] = struct{}{}
			g.mu.Unlock()
			return context.WithValue(ctx, ridesOn{g}, e), func() { g.leave(e) }, nil
		}
		g.mu.Unlock()
		select {
		case <-wait:
		case <-ctx.Done():
			return nil, nil, &api.Error{Kind: api.KindRefused, Retryable: true, Message: "the call was given up while the session was being forked"}
		}
	}
}

func (g *gate) leave(e *entry) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.inside, e)
	if len(g.inside) == 0 && g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
}

// park says whether the call of a context waits for a person, who may take
// forever.
func (g *gate) park(ctx context.Context, parked bool) {
	e, _ := ctx.Value(ridesOn{g}).(*entry)
	if e == nil {
		return
	}
	g.mu.Lock()
	if parked {
		e.asking++
	} else {
		e.asking--
	}
	if parked && g.empty != nil { // a freeze waits for it in vain
		close(g.empty)
		g.empty = nil
	}
	g.mu.Unlock()
}

// calls returns how many are inside.
func (g *gate) calls() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.inside)
}

// outside refuses what is asked for by a call inside, which would wait for its
// own end.
func (g *gate) outside(ctx context.Context) error {
	e, _ := ctx.Value(ridesOn{g}).(*entry)
	if id, _ := ctx.Value(saysCall{}).(string); e == nil && id != "" {
		e = g.find(id)
	}
	if e != nil {
		return &api.Error{Kind: api.KindRefused, Message: fmt.Sprintf("call %s can't freeze the session that it runs in; ask from outside of it", e.what)}
	}
	return nil
}

// find returns the call inside that has an id; nil where there is none.
func (g *gate) find(id string) *entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	for e := range g.inside {
		if e.id == id {
			return e
		}
	}
	return nil
}

// freeze waits until no call is inside, as long as wait and ctx last, and keeps
// it so until thaw is called. A call that waits for a person refuses it at once.
// One freeze waits for the other.
func (g *gate) freeze(ctx context.Context, wait time.Duration) (thaw func(), err error) {
	if err := g.outside(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	if thaw, err = g.shutDoor(ctx); err != nil {
		return nil, err
	}
	for {
		g.mu.Lock()
		if g.shut != nil {
			g.mu.Unlock()
			thaw()
			return nil, g.shut
		}
		if len(g.inside) == 0 {
			g.mu.Unlock()
			return thaw, nil
		}
		for e := range g.inside {
			if e.asking > 0 {
				g.mu.Unlock()
				thaw()
				return nil, &api.Error{Kind: api.KindRefused, Retryable: true, Message: fmt.Sprintf("call %s waits for an answer from its client, which no copy of it would get; answer or cancel it first", e.what)}
			}
		}
		if g.empty == nil {
			g.empty = make(chan struct{})
		}
		empty := g.empty
		g.mu.Unlock()
		select {
		case <-empty:
		case <-ctx.Done():
			what := g.oldest()
			thaw()
			return nil, &api.Error{Kind: api.KindTimeout, Retryable: true, Message: fmt.Sprintf("%s did not end within %s; forks, snapshots and rewinds wait for running calls, for as long as the request's wait or sessions.fork_wait says", what, wait.Round(time.Millisecond))}
		}
	}
}

// shutDoor keeps calls that come outside until thaw is called. One waits for the other.
func (g *gate) shutDoor(ctx context.Context) (thaw func(), err error) {
	for {
		g.mu.Lock()
		if g.shut != nil {
			g.mu.Unlock()
			return nil, g.shut
		}
		other := g.thawed
		if other == nil {
			g.thawed = make(chan struct{})
			g.mu.Unlock()
			return g.thaw(), nil
		}
		g.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, &api.Error{Kind: api.KindTimeout, Retryable: true, Message: "another fork, snapshot, rewind or change of the servers of the session is still running"}
		}
	}
}

// stop keeps calls that come, freezes and other stops out until thaw is called, and
// waits for no call that is inside. It waits for a running freeze, as long as wait and
// ctx last.
func (g *gate) stop(ctx context.Context, wait time.Duration) (thaw func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return g.shutDoor(ctx)
}

// freezeNow is freeze that makes no call wait for it: it fails where a call is
// inside or another freeze runs.
func (g *gate) freezeNow() (thaw func(), ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil || g.thawed != nil || len(g.inside) > 0 {
		return nil, false
	}
	g.thawed = make(chan struct{})
	return g.thaw(), true
}

// thaw lets calls in again, once.
func (g *gate) thaw() func() {
	return sync.OnceFunc(func() {
		g.mu.Lock()
		close(g.thawed)
		g.thawed = nil
		g.mu.Unlock()
	})
}

// oldest names the call that has been inside for the longest.
func (g *gate) oldest() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var first *entry
	for e := range g.inside {
		if first == nil || e.since.Before(first.since) {
			first = e
		}
	}
	if first == nil {
		return "a call"
	}
	s := fmt.Sprintf("call %s, running for %s,", first.what, time.Since(first.since).Round(time.Millisecond))
	if n := len(g.inside) - 1; n > 0 {
		s = fmt.Sprintf("call %s, running for %s, and %d more", first.what, time.Since(first.since).Round(time.Millisecond), n)
	}
	return s
}

// close keeps all calls out from now on, with why. It waits for a running
// freeze, which ends at once where it still waits for calls.
func (g *gate) close(why error) {
	g.mu.Lock()
	if g.shut == nil {
		g.shut = why
	}
	if g.empty != nil {
		close(g.empty)
		g.empty = nil
	}
	frozen := g.thawed
	g.mu.Unlock()
	if frozen != nil {
		<-frozen
	}
}
