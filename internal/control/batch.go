package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/telemetry"
)

// A Made is what an item of an atomic batch made.
type Made struct {
	Opened *api.OpenedSession `json:"opened,omitempty"`
	Forks  *api.Forks         `json:"forks,omitempty"`
}

// A Making makes the sessions of one item of an atomic batch.
type Making creation[Made]

// Opening checks a request to open a session.
func (c *Sessions) Opening(who identity.Principal, in api.NewSession) (Making, error) {
	create, err := c.opening(who, in)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, mark string) (Made, func(context.Context), error) {
		out, undo, err := create(ctx, mark)
		return Made{Opened: &out}, undo, err
	}, nil
}

// Forking checks a request to fork a session.
func (c *Sessions) Forking(who identity.Principal, id string, in api.ForkRequest) (Making, error) {
	create, err := c.forking(who, id, in)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, mark string) (Made, func(context.Context), error) {
		out, undo, err := create(ctx, mark)
		return Made{Forks: &out}, undo, err
	}, nil
}

// TakenBack is the error of an atomic batch that failed: all that it made is gone.
type TakenBack struct {
	Errs []error // of each item; nil for one that did not fail itself
}

func (e *TakenBack) Error() string {
	i, err := e.First()
	return fmt.Sprintf("item %d: %v", i, err)
}

// First is an item that failed itself.
func (e *TakenBack) First() (int, error) {
	for i, err := range e.Errs {
		if err != nil {
			return i, err
		}
	}
	return 0, errors.New("unknown")
}

// MakeAll makes the sessions of all items or none, so many at once. What has begun when
// the gateway is killed is removed by the next one, also without a key of the caller.
func (c *Sessions) MakeAll(ctx context.Context, r Request, in any, makings []Making, atOnce int) ([]Made, error) {
	create := func(ctx context.Context, mark string) ([]Made, func(context.Context), error) {
		return c.makeAll(ctx, r.Who, mark, makings, atOnce)
	}
	r.Placed = true // each item has one
	if r.Key != "" {
		return once(ctx, c.core, r, in, create)
	}
	// No caller's key has a space in it.
	rec := store.Creation{Owner: keyOwner(r.Who), Key: "batch " + rand.Text(), Request: "batch", At: time.Now().UTC()}
	if _, _, err := c.once.store.BeginCreation(ctx, rec, rec.At); err != nil {
		return nil, fmt.Errorf("recording the batch: %w", err)
	}
	after := context.WithoutCancel(ctx)
	ended := false
	end := func() error {
		ended = true
		return c.once.store.EndCreation(after, rec.Owner, rec.Key, nil)
	}
	defer func() {
		if !ended { // it failed, or there was a panic
			if err := end(); err != nil {
				c.log.Warn("a batch that was taken back is still recorded", "err", err)
			}
		}
	}()
	out, undo, err := create(ctx, rec.Mark())
	if err != nil {
		return nil, err
	}
	if err := end(); err != nil {
		undo(after)
		return nil, fmt.Errorf("recording what came of the batch, which was taken back: %w", err)
	}
	return out, nil
}

func (c *Sessions) makeAll(ctx context.Context, who identity.Principal, mark string, makings []Making, atOnce int) ([]Made, func(context.Context), error) {
	out, undos := make([]Made, len(makings)), make([]func(context.Context), len(makings))
	failed := &TakenBack{Errs: make([]error, len(makings))}
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	undo := func(ctx context.Context) {
		var wg sync.WaitGroup
		places := make(chan struct{}, api.DefaultAtOnce)
		for _, undo := range undos {
			if undo == nil {
				continue
			}
			places <- struct{}{}
			wg.Go(func() {
				defer func() { <-places }()
				undo(ctx)
			})
		}
		wg.Wait()
	}
	var mu sync.Mutex
	broken := false
	c.Each(within, who, len(makings), atOnce, func(i int, _ identity.Principal, err error) {
		var made Made
		var undo func(context.Context)
		if err == nil {
			made, undo, err = c.contained(makings[i], within, mark)
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			out[i], undos[i] = made, undo
		case !broken || within.Err() == nil: // it did not fail because another one had
			broken, failed.Errs[i] = true, err
			cancel()
		}
	})
	if ctx.Err() != nil && !broken { // the caller left
		broken, failed.Errs[0] = true, context.Cause(ctx)
	}
	if broken {
		undo(context.WithoutCancel(ctx))
		return nil, nil, failed
	}
	return out, undo, nil
}

// contained makes an item; a panic is its error.
func (c *Sessions) contained(m Making, ctx context.Context, mark string) (made Made, undo func(context.Context), err error) {
	defer telemetry.Contain(c.log, telemetry.InEdge, "batch", func(panicked error) { err = panicked })
	return m(ctx, mark)
}

// Claim takes a key for a batch whose items are done each by itself, under keys of their
// own. The key of another batch is refused.
func (c *Sessions) Claim(ctx context.Context, r Request, in api.Batch) error {
	_, err := once(ctx, c.core, r, in, func(context.Context, string) (struct{}, func(context.Context), error) {
		return struct{}{}, func(context.Context) {}, nil
	})
	return err
}

// Each calls do for the items 0 to n-1 of a batch, in this order and so many at once,
// and returns when all of them have ended. Each has a place among the running requests
// and the principal as it is by then; refused is why an item has none. Where the
// principal has its share of places, an item waits for one that another item of the
// batch has. After ctx has ended no item begins.
func (c *Sessions) Each(ctx context.Context, who identity.Principal, n, atOnce int, do func(i int, who identity.Principal, refused error)) {
	var (
		mu      sync.Mutex
		next    int
		running int
		freed   = make(chan struct{}) // closed when an item has ended
	)
	place := func() (leave func(), err error) {
		for {
			leave, err := c.host.Enter(who)
			mu.Lock()
			if err == nil {
				running++
				mu.Unlock()
				return leave, nil
			}
			wait, others := freed, running
			mu.Unlock()
			if others == 0 {
				return nil, err
			}
			select {
			case <-wait:
			case <-c.host.Stopping():
				return nil, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	one := func(i int) {
		now, ok := c.host.Again(who)
		if !ok {
			do(i, who, &api.Error{Kind: api.KindRefused, Status: http.StatusUnauthorized, Message: "the token of this batch is no longer valid"})
			return
		}
		leave, err := place()
		if err != nil {
			if ctx.Err() == nil {
				do(i, now, err)
			}
			return
		}
		defer func() {
			leave()
			mu.Lock()
			defer mu.Unlock()
			running--
			close(freed)
			freed = make(chan struct{})
		}()
		do(i, now, nil)
	}
	var wg sync.WaitGroup
	for range min(n, atOnce) {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= n || ctx.Err() != nil {
					return
				}
				one(i)
			}
		})
	}
	wg.Wait()
}
