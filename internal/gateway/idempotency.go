package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

const (
	headerKey = "Idempotency-Key"
	maxKey    = 256
	// keyAge is how long a key is remembered.
	keyAge = 24 * time.Hour
	// keyWait is how long a request waits for another one with its key.
	keyWait = 30 * time.Second
)

// creations are the requests with a key that are under way here. What they came
// to is in the store; there is one gateway on it.
type creations struct {
	mu sync.Mutex
	m  map[creationKey]chan struct{} // closed when it is over
}

type creationKey struct{ owner, key string }

// begin takes a key, or returns what to wait for.
func (c *creations) begin(k creationKey) (end func(), wait <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if over := c.m[k]; over != nil {
		return nil, over
	}
	if c.m == nil {
		c.m = make(map[creationKey]chan struct{})
	}
	over := make(chan struct{})
	c.m[k] = over
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.m, k)
		close(over)
	}, nil
}

// keyOwner is whose a key is. What a session's token made is not the owner's to
// ask for by the same key, nor the other way round.
func keyOwner(who identity.Principal) string {
	if who.Session != "" {
		return "session:" + who.Session // a principal's name has no colon, or begins with oidc:
	}
	return who.Name
}

// readKey takes the key out of a request; empty without one.
func readKey(r *http.Request) (string, error) {
	values := r.Header.Values(headerKey)
	if len(values) == 0 {
		return "", nil
	}
	key := values[0]
	valid := len(values) == 1 && key != "" && len(key) <= maxKey
	for i := range len(key) {
		valid = valid && key[i] > ' ' && key[i] <= '~'
	}
	if !valid {
		return "", invalid("%s must be 1 to %d visible ASCII characters, once", headerKey, maxKey)
	}
	return key, nil
}

// A creation makes something, with a mark on it where there is a key, and returns
// how to undo that.
type creation[A any] func(ctx context.Context, mark string) (A, func(context.Context), error)

// once creates something. With a key the same request gives the same answer and
// creates nothing twice, also after a restart; a creation that failed is free to
// be tried again. create returns how to undo what it did, for an answer that
// can't be recorded.
//
// What is created carries the key's mark. A gateway that is killed before it has
// recorded the answer has told nobody: the next one removes what carries the mark,
// and the key is free.
//
// Answers hold tokens, and are kept like secrets.
func once[A any](g *Gateway, a *ask, request any, create creation[A]) (A, error) {
	var nothing A
	key, err := readKey(a.r)
	if err != nil {
		return nothing, err
	}
	if e := g.enter(a.who, 1); e != nil {
		return nothing, e
	}
	defer g.leave(a.who, 1)
	if key == "" {
		out, _, err := create(a.ctx(), "")
		return out, err
	}
	body, err := json.Marshal(request)
	if err != nil {
		return nothing, err
	}
	sum := sha256.Sum256(append([]byte(a.r.Method+" "+a.r.URL.Path+"\n"), body...))
	c := store.Creation{Owner: keyOwner(a.who), Key: key, Request: hex.EncodeToString(sum[:])}
	end, err := g.takeKey(a.ctx(), creationKey{c.Owner, c.Key})
	if err != nil {
		return nothing, err
	}
	defer end()
	old, found, err := g.begun(a.ctx(), c)
	switch {
	case err != nil:
		return nothing, err
	case found && old.Request != c.Request:
		return nothing, &api.Error{
			Kind: api.KindInvalid, Status: http.StatusConflict,
			Message: "the " + headerKey + " was used for another request in the last 24 hours; choose a new one",
		}
	case found:
		var out A
		if err := json.Unmarshal(old.Answer, &out); err != nil {
			return nothing, fmt.Errorf("reading what came of an earlier request with this %s: %w", headerKey, err)
		}
		return out, nil
	}
	return createdBy(a.ctx(), g, c, create)
}

// takeKey waits until no other request with a key is under way.
func (g *Gateway) takeKey(ctx context.Context, k creationKey) (end func(), err error) {
	timer := time.NewTimer(keyWait)
	defer timer.Stop()
	for {
		end, wait := g.creations.begin(k)
		if end != nil {
			return end, nil
		}
		select {
		case <-wait:
			continue
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
		case <-g.open.Done():
		}
		return nil, &api.Error{
			Kind: api.KindRefused, Status: http.StatusConflict, Retryable: true, RetryAfter: 1,
			Message: "a request with this " + headerKey + " is still under way; ask again for what comes of it",
		}
	}
}

// begun notes a key, unless it is noted with an answer already. One that is
// noted without is left from a request that could not free it: nobody else has
// the key now.
func (g *Gateway) begun(ctx context.Context, c store.Creation) (old store.Creation, found bool, err error) {
	for range 2 {
		c.At = time.Now().UTC()
		old, ok, err := g.o.Creations.BeginCreation(ctx, c, c.At.Add(-keyAge))
		if err != nil {
			return old, false, fmt.Errorf("recording the %s: %w", headerKey, err)
		}
		if ok || old.Answer != nil {
			return old, !ok, nil
		}
		if err := g.o.Creations.EndCreation(ctx, c.Owner, c.Key, nil); err != nil {
			return old, false, fmt.Errorf("freeing the %s: %w", headerKey, err)
		}
	}
	return old, false, &api.Error{
		Kind: api.KindRefused, Status: http.StatusConflict, Retryable: true, Message: "the " + headerKey + " is in use; try again",
	}
}

// createdBy runs a creation whose key is noted, and records its answer.
func createdBy[A any](ctx context.Context, g *Gateway, c store.Creation, create creation[A]) (out A, err error) {
	var nothing A
	// Whoever asked may hang up; what was done must be known all the same.
	after := context.WithoutCancel(ctx)
	recorded := false
	defer func() {
		if !recorded { // also after a panic
			if ferr := g.o.Creations.EndCreation(after, c.Owner, c.Key, nil); ferr != nil {
				g.log.Warn("an idempotency key is not free again", "err", ferr)
			}
		}
	}()
	out, undo, err := create(ctx, c.Mark())
	if err != nil {
		return nothing, err
	}
	answer, err := json.Marshal(out)
	if err == nil {
		err = g.o.Creations.EndCreation(after, c.Owner, c.Key, answer)
	}
	if err != nil {
		undo(after)
		return nothing, fmt.Errorf("recording what came of the request, which was taken back: %w", err)
	}
	recorded = true
	return out, nil
}

// dropCreations forgets keys whose time is over, and at the start those that an
// earlier gateway left under way: what came of them nobody can tell any more.
func (g *Gateway) dropCreations(ctx context.Context, start bool) error {
	return g.o.Creations.DropCreations(ctx, time.Now().Add(-keyAge), start)
}

// forgetKeys does so now and then.
func (g *Gateway) forgetKeys() {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-g.life.Done():
			return
		case <-tick.C:
		}
		if err := g.dropCreations(g.life, false); err != nil && g.life.Err() == nil {
			g.log.Warn("old idempotency keys not forgotten", "err", err)
		}
	}
}
