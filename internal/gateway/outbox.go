package gateway

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// An outbox holds messages on their way to a client. Whoever adds never waits
// for the client: what a client does not read in time is dropped once it is
// too much, unless it must arrive, and then the outbox breaks.
//
// Events are numbered, and a resumable outbox keeps what was delivered, within
// its limit, so that a client that lost its connection can come back for it.
type outbox struct {
	mu        sync.Mutex
	events    []event
	size      int // bytes in events
	next      int // number of the next event
	taken     int // number of the first event not yet delivered
	closed    bool
	resumable bool
	wake      chan struct{} // closed and replaced when something happens
	pumps     int           // counts up; only the newest pump goes on
	open      atomic.Int32  // pumps that run
}

type event struct {
	num   int
	frame []byte
	// key makes a newer event replace an older one of the same key that nobody
	// has read yet.
	key string
}

const (
	// outboxLimit bounds the bytes an outbox holds.
	outboxLimit = 8 << 20
	// keepLimit bounds an event that is kept after it was delivered: a client
	// has many streams that it may come back to.
	keepLimit = 1 << 20
)

func newOutbox(resumable bool) *outbox {
	return &outbox{wake: make(chan struct{}), resumable: resumable}
}

func (o *outbox) signal() {
	close(o.wake)
	o.wake = make(chan struct{})
}

// add puts a message in. It reports false when the message was dropped.
func (o *outbox) add(frame []byte, key string, must bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return false
	}
	if key != "" {
		for i := len(o.events) - 1; i >= 0 && o.events[i].num >= o.taken; i-- {
			if o.events[i].key == key {
				return true // one is waiting already
			}
		}
	}
	o.trim(len(frame))
	if o.size+len(frame) > outboxLimit && !must {
		return false
	}
	o.events = append(o.events, event{num: o.next, frame: frame, key: key})
	o.size += len(frame)
	o.next++
	o.signal()
	return true
}

// trim makes room by forgetting what was delivered, oldest first.
func (o *outbox) trim(need int) {
	n := 0
	for n < len(o.events) && o.events[n].num < o.taken && (!o.resumable || o.size+need > outboxLimit || len(o.events)-n > 1024) {
		o.size -= len(o.events[n].frame)
		n++
	}
	large := func(e event) bool { return e.num < o.taken && len(e.frame) > keepLimit }
	if n == 0 && !slices.ContainsFunc(o.events, large) {
		return
	}
	rest := make([]event, 0, len(o.events)-n)
	for _, e := range o.events[n:] {
		if large(e) {
			o.size -= len(e.frame)
		} else {
			rest = append(rest, e)
		}
	}
	o.events = rest
}

// close lets pumps end when they have delivered everything.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.closed = true
		o.signal()
	}
}

// A sink is where a pump delivers to.
type sink interface {
	write(num int, frame []byte) error
	flush() error // called when there is nothing more to write for now
	ping() error  // called now and then, so that nobody takes silence for death
}

// pingEvery is how long a stream may be silent.
const pingEvery = 25 * time.Second

// pump delivers events from number on (-1: those not yet delivered) until the
// outbox is closed and empty, ctx ends, or the sink fails. A newer pump takes
// over from an older one.
func (o *outbox) pump(ctx context.Context, from int, to sink) error {
	o.open.Add(1)
	defer o.open.Add(-1)
	alive := time.NewTimer(pingEvery)
	defer alive.Stop()
	o.mu.Lock()
	o.pumps++
	mine := o.pumps
	at := from
	if at < 0 {
		at = o.taken
	}
	o.signal()
	for {
		if o.pumps != mine {
			o.mu.Unlock()
			return nil
		}
		var ev event
		found := false
		for _, e := range o.events {
			if e.num >= at {
				ev, found = e, true
				break
			}
		}
		if !found {
			closed, wake := o.closed, o.wake
			o.mu.Unlock()
			if closed {
				return to.flush()
			}
			if err := to.flush(); err != nil {
				return err
			}
			select {
			case <-wake:
			case <-alive.C:
				if err := to.ping(); err != nil {
					return err
				}
				alive.Reset(pingEvery)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			o.mu.Lock()
			continue
		}
		o.mu.Unlock()
		if err := to.write(ev.num, ev.frame); err != nil {
			return err
		}
		o.mu.Lock()
		at = ev.num + 1
		o.taken = max(o.taken, at)
		o.trim(0)
	}
}
