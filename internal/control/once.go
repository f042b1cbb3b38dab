package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

const (
	// HeaderKey is what an idempotency key is called where it can be given.
	HeaderKey = "Idempotency-Key"
	MaxKey    = 256 // bytes of one
	// keyAge is how long a key is remembered.
	keyAge = 24 * time.Hour
	// keyWait is how long a request waits for another one with its key.
	keyWait = 30 * time.Second
)

// creations are the requests with a key that run here. What they came to is in
// the store; there is one gateway on it.
type creations struct {
	store store.Creations
	log   *slog.Logger

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
// ask for by the same key, nor the other way round, and a further token has keys of
// its own.
func keyOwner(who identity.Principal) string {
	if token := who.Token(); token != "" {
		return "token:" + token
	}
	if who.Session != "" {
		return "session:" + who.Session // a principal's name has no colon, or begins with oidc:
	}
	return who.Name
}

// CheckKey refuses what is no key.
func CheckKey(key string) error {
	valid := key != "" && len(key) <= MaxKey
	for i := range len(key) {
		valid = valid && key[i] > ' ' && key[i] <= '~'
	}
	if !valid {
		return Invalid("%s must be 1 to %d visible ASCII characters, once", HeaderKey, MaxKey)
	}
	return nil
}

// A creation makes something, with a mark on it where there is a key, and returns
// how to undo that; nil where it can't be undone.
type creation[A any] func(ctx context.Context, mark string) (A, func(context.Context), error)

// once creates something. With a key the same request gives the same answer and
// creates nothing twice, also after a restart; a creation that failed is free to
// be tried again. create returns how to undo what it did, for an answer that
// can't be recorded.
//
// What is created carries the key's mark. A gateway that is killed before it has
// recorded the answer has not answered: the next one removes what carries the
// mark, and the key is free.
//
// Answers hold tokens, and are kept like secrets.
func once[A any](ctx context.Context, c *core, r Request, in any, create creation[A]) (A, error) {
	var nothing A
	if r.Key != "" {
		if err := CheckKey(r.Key); err != nil {
			return nothing, err
		}
	}
	if !r.Placed {
		leave, err := c.host.Enter(r.Who)
		if err != nil {
			return nothing, err
		}
		defer leave()
	}
	if r.Key == "" {
		out, _, err := create(ctx, "")
		return out, err
	}
	body, err := json.Marshal(in)
	if err != nil {
		return nothing, err
	}
	sum := sha256.Sum256(append([]byte(r.What+"\n"), body...))
	rec := store.Creation{Owner: keyOwner(r.Who), Key: r.Key, Request: hex.EncodeToString(sum[:])}
	end, err := c.once.take(ctx, creationKey{rec.Owner, rec.Key}, c.host.Stopping())
	if err != nil {
		return nothing, err
	}
	defer end()
	old, found, err := c.once.begun(ctx, rec)
	switch {
	case err != nil:
		return nothing, err
	case found && old.Request != rec.Request:
		return nothing, &api.Error{
			Kind: api.KindInvalid, Status: http.StatusConflict,
			Message: "the " + HeaderKey + " was used for another request in the last 24 hours; choose a new one",
		}
	case found:
		var out A
		if err := json.Unmarshal(old.Answer, &out); err != nil {
			return nothing, fmt.Errorf("reading what came of an earlier request with this %s: %w", HeaderKey, err)
		}
		return out, nil
	}
	return createdBy(ctx, &c.once, rec, create)
}

// take waits until no other request with a key runs.
func (c *creations) take(ctx context.Context, k creationKey, stopping <-chan struct{}) (end func(), err error) {
	timer := time.NewTimer(keyWait)
	defer timer.Stop()
	for {
		end, wait := c.begin(k)
		if end != nil {
			return end, nil
		}
		select {
		case <-wait:
			continue
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-timer.C:
		case <-stopping:
		}
		return nil, &api.Error{
			Kind: api.KindRefused, Status: http.StatusConflict, Retryable: true, RetryAfter: 1,
			Message: "a request with this " + HeaderKey + " is still running; ask again for its answer",
		}
	}
}

// begun notes a key, unless it is noted with an answer already. One that is
// noted without is left from a request that could not free it: no other request
// has the key now.
func (c *creations) begun(ctx context.Context, rec store.Creation) (old store.Creation, found bool, err error) {
	for range 2 {
		rec.At = time.Now().UTC()
		old, ok, err := c.store.BeginCreation(ctx, rec, rec.At.Add(-keyAge))
		if err != nil {
			return old, false, fmt.Errorf("recording the %s: %w", HeaderKey, err)
		}
		if ok || old.Answer != nil {
			return old, !ok, nil
		}
		if err := c.store.EndCreation(ctx, rec.Owner, rec.Key, nil); err != nil {
			return old, false, fmt.Errorf("freeing the %s: %w", HeaderKey, err)
		}
	}
	return old, false, &api.Error{
		Kind: api.KindRefused, Status: http.StatusConflict, Retryable: true, Message: "the " + HeaderKey + " is in use; try again",
	}
}

// createdBy runs a creation whose key is noted, and records its answer.
func createdBy[A any](ctx context.Context, c *creations, rec store.Creation, create creation[A]) (out A, err error) {
	var nothing A
	// The caller may hang up; what was done must be known all the same.
	after := context.WithoutCancel(ctx)
	recorded := false
	defer func() {
		if !recorded { // also after a panic
			if ferr := c.store.EndCreation(after, rec.Owner, rec.Key, nil); ferr != nil {
				c.log.Warn("an idempotency key is not free again", "err", ferr)
			}
		}
	}()
	out, undo, err := create(ctx, rec.Mark())
	if err != nil {
		return nothing, err
	}
	answer, err := json.Marshal(out)
	if err == nil {
		err = c.store.EndCreation(after, rec.Owner, rec.Key, answer)
	}
	if err != nil && undo == nil {
		return nothing, fmt.Errorf("what the request made is there, but not recorded as its answer: %w; with the same %s it counts once", err, HeaderKey)
	}
	if err != nil {
		undo(after)
		return nothing, fmt.Errorf("recording what came of the request, which was taken back: %w", err)
	}
	recorded = true
	return out, nil
}

// DropKeys forgets keys whose time is over, and at the start those of requests
// that an earlier gateway left unfinished: their outcome can't be known any more.
func (s *Services) DropKeys(ctx context.Context, start bool) error {
	return s.Sessions.once.store.DropCreations(ctx, time.Now().Add(-keyAge), start)
}

// ForgetKeys drops old keys now and then until ctx ends.
func (s *Services) ForgetKeys(ctx context.Context) {
	tick := time.NewTicker(time.Hour)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := s.DropKeys(ctx, false); err != nil && ctx.Err() == nil {
			s.Sessions.log.Warn("old idempotency keys not forgotten", "err", err)
		}
	}
}
