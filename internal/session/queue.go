package session

import (
	"context"
	"slices"
	"time"
)

// Requests that don't fit into the budget wait in one line for each principal.
// When room is given back, the principal that holds least is served first, and
// within its line the request that waits longest. Whatever fits passes what
// does not, with two bounds, so that a large request is not passed for ever:
//
//   - Within a line, the first request may be passed by `overtaking` times what
//     it asks for. Then the rest of its line waits behind it.
//   - By other principals it may be passed by as much. Then its line has a turn:
//     for `turnTime` at most no other is let in before it. If it has not fitted by
//     then, it is passed by as much again before the next turn.
//
// A principal that has its part of the whole waits until it gives some back, and
// holds up no other.
//
// So a principal that asks for too much holds up others for a turn at most, and
// between two turns they get at least `overtaking` times what it asks for.

const (
	overtaking = 2
	turnTime   = 10 * time.Second
	// maxWaiting bounds the requests in one line.
	maxWaiting = 10_000
)

// A line is the waiting requests of one principal, the oldest first.
type line struct {
	owner   string
	waiting []*waiting
	// passed is the share of the whole that other principals were given since the
	// first request waits, or had a turn, and passedOwn what the rest of the line
	// was.
	passed, passedOwn float64
}

type waiting struct {
	need   need
	number uint64 // in the order of their coming
	ready  chan struct{}
	in     bool
}

// reserve takes room for a request, waiting for it.
func (b *budget) reserve(ctx context.Context, q *request, wait time.Duration) error {
	n := q.total()
	if n == (need{}) {
		return nil
	}
	b.mu.Lock()
	w := b.join(q.owner, n)
	b.admit()
	if w.in {
		b.mu.Unlock()
		return nil
	}
	// What does not fit into an empty house never will.
	possible := b.fits(n, need{}) && b.allowed(q.owner, n, need{})
	if !possible || wait <= 0 || len(b.lines[q.owner].waiting) > maxWaiting {
		err := b.refusal(q, possible)
		b.quit(q.owner, w)
		b.mu.Unlock()
		return err
	}
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
	if w.in { // at the last moment
		return nil
	}
	err := b.refusal(q, true)
	b.quit(q.owner, w)
	return err
}

// join puts a request at the end of its principal's line. b.mu is held.
func (b *budget) join(owner string, n need) *waiting {
	if b.lines == nil {
		b.lines = make(map[string]*line)
	}
	l := b.lines[owner]
	if l == nil {
		l = &line{owner: owner}
		b.lines[owner] = l
	}
	b.last++
	w := &waiting{need: n, number: b.last, ready: make(chan struct{})}
	l.waiting = append(l.waiting, w)
	return w
}

// leave takes a request out of its line. b.mu is held.
func (b *budget) leave(l *line, w *waiting) {
	at := slices.Index(l.waiting, w)
	l.waiting = slices.Delete(l.waiting, at, at+1)
	if at == 0 {
		l.passed, l.passedOwn = 0, 0
		if b.turn == l {
			b.turn = nil
		}
	}
	if len(l.waiting) == 0 {
		delete(b.lines, l.owner)
	}
}

// quit takes a request out that is given up, which may have stood in the way of
// others. b.mu is held.
func (b *budget) quit(owner string, w *waiting) {
	b.leave(b.lines[owner], w)
	b.admit()
}

// admit lets in who fits. b.mu is held.
func (b *budget) admit() {
	for {
		b.beginTurn()
		l, w := b.next(b.used)
		if w == nil {
			break
		}
		b.leave(l, w)
		b.pass(l, w)
		b.give(l.owner, w.need)
		w.in = true
		close(w.ready)
	}
	if b.ahead == (need{}) {
		return
	}
	if _, w := b.next(b.used.minus(b.ahead)); w != nil {
		select {
		case b.short <- w.need:
		default: // a shortage is noted already
		}
	}
}

// next is the request to let in where so much is used; nil for none that fits.
// b.mu is held.
func (b *budget) next(used need) (of *line, w *waiting) {
	if b.turn != nil {
		if first := b.turn.waiting[0]; b.fits(first.need, used) {
			return b.turn, first
		}
		return nil, nil
	}
	least := 0.0
	for _, l := range b.lines {
		one := b.nextOf(l, used)
		if one == nil {
			continue
		}
		holds := b.share(b.held[l.owner])
		if w == nil || holds < least || holds == least && one.number < w.number {
			of, w, least = l, one, holds
		}
	}
	return of, w
}

// nextOf is the request of a line to let in; nil for none that fits. b.mu is
// held.
func (b *budget) nextOf(l *line, used need) *waiting {
	candidates := l.waiting
	if l.passedOwn >= overtaking*b.share(candidates[0].need) && l.passedOwn > 0 {
		candidates = candidates[:1]
	}
	for _, w := range candidates {
		if b.fits(w.need, used) && b.allowed(l.owner, w.need, b.held[l.owner]) {
			return w
		}
	}
	return nil
}

// pass notes that a request of a line is let in, for those that were there
// before it and don't fit. One that fits is not passed: its principal holds more.
// b.mu is held.
func (b *budget) pass(by *line, w *waiting) {
	part := b.share(w.need)
	for _, l := range b.lines {
		switch {
		case l.waiting[0].number > w.number || b.fits(l.waiting[0].need, b.used):
		case l == by:
			l.passedOwn += part
		case b.allowed(l.owner, l.waiting[0].need, b.held[l.owner]):
			l.passed += part
		}
	}
}

// beginTurn gives a turn to the request that waits longest of those that were
// passed by enough. b.mu is held.
func (b *budget) beginTurn() {
	if b.turn != nil {
		return
	}
	for _, l := range b.lines {
		due := l.passed > 0 && b.allowed(l.owner, l.waiting[0].need, b.held[l.owner]) && l.passed >= overtaking*b.share(l.waiting[0].need)
		if due && (b.turn == nil || l.waiting[0].number < b.turn.waiting[0].number) {
			b.turn = l
		}
	}
	if b.turn == nil {
		return
	}
	l, first := b.turn, b.turn.waiting[0]
	time.AfterFunc(turnTime, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.turn == l && l.waiting[0] == first {
			b.turn, l.passed = nil, 0
			b.admit()
		}
	})
}
