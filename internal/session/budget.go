package session

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
)

// need is what the members of sessions may use together.
type need struct {
	memory    int64
	instances int
}

func (n need) times(count int) need {
	return need{n.memory * int64(count), n.instances * count}
}

// A budget is what all opened sessions share. Who does not fit waits in line,
// so that a large one is not overtaken for ever by small ones.
type budget struct {
	mu    sync.Mutex
	most  need // zero fields for no bound
	used  need
	queue []*waiting
}

type waiting struct {
	need  need
	ready chan struct{}
}

func (b *budget) set(most need) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.most = most
	b.admit()
}

// fits reports whether so much more is within the bounds. b.mu is held.
func (b *budget) fits(n need) bool {
	return (b.most.memory <= 0 || b.used.memory+n.memory <= b.most.memory) &&
		(b.most.instances <= 0 || b.used.instances+n.instances <= b.most.instances)
}

// take takes so much if it fits at once and nobody waits for it.
func (b *budget) take(n need) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) > 0 || !b.fits(n) {
		return false
	}
	b.used.memory += n.memory
	b.used.instances += n.instances
	return true
}

// force takes what is in use already, whatever the bounds.
func (b *budget) force(n need) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used.memory += n.memory
	b.used.instances += n.instances
}

func (b *budget) release(n need) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used.memory -= n.memory
	b.used.instances -= n.instances
	b.admit()
}

// admit lets those in who fit, in their order. b.mu is held.
func (b *budget) admit() {
	for len(b.queue) > 0 && b.fits(b.queue[0].need) {
		w := b.queue[0]
		b.queue = b.queue[1:]
		b.used.memory += w.need.memory
		b.used.instances += w.need.instances
		close(w.ready)
	}
}

// maxWaiting bounds those in line.
const maxWaiting = 10_000

// reserve takes what count sessions of one kind need, waiting for it.
func (b *budget) reserve(ctx context.Context, each need, count int, wait time.Duration) error {
	n := each.times(count)
	b.mu.Lock()
	if len(b.queue) == 0 && b.fits(n) {
		b.used.memory += n.memory
		b.used.instances += n.instances
		b.mu.Unlock()
		return nil
	}
	// What does not fit into an empty house never will.
	never := b.most.memory > 0 && n.memory > b.most.memory || b.most.instances > 0 && n.instances > b.most.instances
	if never || wait <= 0 || len(b.queue) >= maxWaiting {
		err := b.refusal(each, count, !never)
		b.mu.Unlock()
		return err
	}
	w := &waiting{need: n, ready: make(chan struct{})}
	b.queue = append(b.queue, w)
	b.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-w.ready:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, other := range b.queue {
		if other == w {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			err := b.refusal(each, count, true)
			b.admit() // it may have stood in the way of others
			return err
		}
	}
	return nil // let in at the last moment
}

// refusal says what would fit. b.mu is held.
func (b *budget) refusal(each need, count int, later bool) error {
	fit := math.MaxInt
	if b.most.memory > 0 && each.memory > 0 {
		fit = min(fit, int(max(0, b.most.memory-b.used.memory)/each.memory))
	}
	if b.most.instances > 0 && each.instances > 0 {
		fit = min(fit, max(0, b.most.instances-b.used.instances)/each.instances)
	}
	what := "the session needs"
	if count > 1 {
		what = fmt.Sprintf("%d sessions need", count)
	}
	n := each.times(count)
	e := &api.Error{
		Kind: api.KindRefused, Status: 503, Retryable: later,
		Message: fmt.Sprintf("%s %s and %d instances; %s of %s and %d of %d instances are in use, so %d of this kind would fit now; close some, or raise sessions.memory and sessions.instances",
			what, bytesText(n.memory), n.instances, bytesText(b.used.memory), bytesText(b.most.memory), b.used.instances, b.most.instances, fit),
	}
	if later {
		e.RetryAfter = 5
	}
	return e
}

func bytesText(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20 || n == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
