package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
)

const (
	// maxAsked is how often a lost answer is asked for: one that can't be read
	// does not get better, and an API that ignores keys makes more each time.
	maxAsked = 3
	// giveUp is how long what an orchestrator does not remove is tried again.
	giveUp = 7 * 24 * time.Hour
	// removing is how many are removed at once.
	removing = 16
)

// errKeyless reports a request that can't be repeated to learn what came of it.
var errKeyless = errors.New("the orchestrator takes no idempotency key")

// discard removes what an entry names, now. Where that fails it goes on in the
// background, and in the next gateway.
func (d *Driver) discard(ctx context.Context, e *entry) error {
	err := d.settled(ctx, e)
	if err == nil {
		err = d.clear(ctx, e)
	}
	if err == nil {
		return nil
	}
	d.dispose(e)
	return fmt.Errorf("server %q: the orchestrator did not remove the %s %s, which is tried again: %w", e.Access.Server, e.Kind, e.ID, err)
}

// A removal goes on in the background.
type removal struct {
	tried chan struct{} // closed when it was tried once
	over  chan struct{} // closed when there is nothing left to do
}

// settled waits until it is known what came of the requests that make something of what
// an entry names. Once that is gone, the orchestrator may not know any more.
func (d *Driver) settled(ctx context.Context, e *entry) error {
	d.mu.Lock()
	asking := slices.Clone(d.asking[e.ID])
	d.mu.Unlock()
	for _, r := range asking {
		select {
		case <-r.over:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// dispose removes what an entry names in the background.
func (d *Driver) dispose(e *entry) *removal {
	d.mu.Lock()
	rem := d.reaping[e.Key]
	busy := rem != nil
	if !busy {
		rem = &removal{make(chan struct{}), make(chan struct{})}
		d.reaping[e.Key] = rem
		if e.ID == "" && e.Of != "" {
			d.asking[e.Of] = append(d.asking[e.Of], rem)
		}
	}
	d.mu.Unlock()
	if busy {
		return rem
	}
	left := *e
	if left.Left.IsZero() {
		left.Left = time.Now().UTC()
		if err := d.ledger.put(&left); err != nil {
			d.log.Warn("remote: what is to be removed is not written down", "server", e.Access.Server, "err", err)
		}
	}
	work := func() {
		if d.settled(d.life, &left) == nil {
			d.reap(&left, rem.tried)
		} else {
			close(rem.tried)
		}
		d.mu.Lock()
		delete(d.reaping, left.Key)
		if d.asking[e.Of] = slices.DeleteFunc(d.asking[e.Of], func(r *removal) bool { return r == rem }); len(d.asking[e.Of]) == 0 {
			delete(d.asking, e.Of)
		}
		d.mu.Unlock()
		close(rem.over)
	}
	if !d.spawn(work) { // the next gateway finds it in the ledger
		close(rem.tried)
		close(rem.over)
	}
	return rem
}

// reap tries to remove until it is removed.
func (d *Driver) reap(e *entry, tried chan<- struct{}) {
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = d.pause, 5*time.Minute
	for first := true; ; first = false {
		d.places <- struct{}{}
		err := d.clear(d.life, e)
		<-d.places
		if first {
			close(tried)
		}
		if err == nil || d.life.Err() != nil {
			return
		}
		if e.Asked >= maxAsked && e.ID == "" && len(e.More) == 0 || time.Since(e.Left) > giveUp {
			d.log.Error("remote: something may be left at an orchestrator, and is not looked after any more",
				"server", e.Access.Server, "url", shown(e.Access.base), "kind", e.Kind, "id", e.ID, "idempotency_key", e.Key, "err", err)
			if err := d.ledger.drop(e.Key); err != nil {
				d.log.Warn("remote: a request is not struck out", "server", e.Access.Server, "err", err)
			}
			return
		}
		if first {
			d.log.Warn("remote: what an orchestrator made is not removed yet, and is tried again",
				"server", e.Access.Server, "kind", e.Kind, "id", e.ID, "err", err)
		}
		wait := time.NewTimer(pause.NextBackOff())
		select {
		case <-wait.C:
		case <-d.life.Done():
			wait.Stop()
			return
		}
	}
}

// clear removes what an entry names and strikes it out. A request whose answer
// was lost is sent once more to learn the name.
func (d *Driver) clear(ctx context.Context, e *entry) error {
	o, release, err := d.open(&e.Access)
	if err != nil {
		return err
	}
	defer release()
	if e.ID == "" && len(e.More) == 0 {
		there, err := d.ask(ctx, o, e)
		if err != nil {
			return err
		}
		if !there {
			return d.ledger.drop(e.Key)
		}
	}
	if err := o.remove(ctx, e); err != nil {
		return err
	}
	return d.ledger.drop(e.Key)
}

// ask learns the name of what a request made, and reports whether it made
// anything.
func (d *Driver) ask(ctx context.Context, o orchestrator, e *entry) (bool, error) {
	e.Asked++
	if err := d.ledger.put(e); err != nil {
		return false, err
	}
	got, doubt, err := o.make(ctx, e, newMaking(0))
	if errors.Is(err, errKeyless) {
		d.log.Warn("remote: something may be left at an orchestrator that takes no idempotency key",
			"server", e.Access.Server, "url", shown(e.Access.base), "session", e.Session)
		return false, nil
	}
	if !got.none() {
		*e = *e.with(got)
		return true, d.ledger.put(e)
	}
	var f *fault
	if err == nil || errors.As(err, &f) && !doubt && !f.unsent && !f.passing() && !f.locked() {
		return false, nil
	}
	if errors.As(err, &f) && (f.status < 200 || f.status > 299) {
		e.Asked-- // it was no answer to the question
	}
	return false, err
}
