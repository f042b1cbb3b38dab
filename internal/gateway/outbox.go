package gateway

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// An outbox holds messages on their way to a client. Adding never waits for the
// client and costs the same however many messages wait. When too many bytes wait
// unread, a note is dropped, a question is refused, so that its server can be
// told, and an answer breaks the outbox: its stream ends with errUnread, because
// a client that goes on without an answer would wait for it for ever.
//
// Events are numbered, and a resumable outbox keeps what was delivered, within
// its limit, so that a client that lost its connection can come back for it.
type outbox struct {
	mu sync.Mutex
	// ring has the events from number first to next, each at its number modulo
	// the ring's length, which is a power of two.
	ring   []event
	first  int // number of the oldest event held
	taken  int // number of the first event not yet delivered
	next   int // number of the next event
	size   int // bytes of the events held
	unread int // bytes of those not yet delivered
	// keyed has the number of the newest event of each key.
	keyed map[string]int
	// forgot is the number of the newest delivered event that is no longer held
	// and was not a note; -1 for none.
	forgot    int
	closed    bool
	resumable bool
	wake      chan struct{} // closed when something happens; nil while no pump waits
	broken    chan struct{} // closed when the outbox breaks
	pumps     int           // counts up; only the newest pump goes on
	open      atomic.Int32  // pumps that run
	dropped   bool          // a note was
	log       *slog.Logger
}

type event struct {
	frame []byte // nil for one that is no longer held
	key   string
	kind  frameKind
}

// cost is what an event counts for: its bytes, and about what holding it takes.
func (e *event) cost() int { return len(e.frame) + eventCost }

// A frameKind says what becomes of a message for which there is no room.
type frameKind int

const (
	kindNote     frameKind = iota // dropped
	kindQuestion                  // not taken, and the server that asks is told
	kindAnswer                    // breaks the outbox
)

const (
	// outboxLimit bounds the bytes an outbox holds, notes and what is kept for
	// resuming.
	outboxLimit = 8 << 20
	// unreadLimit bounds the unread bytes behind which a question or an answer
	// may still wait. One answer may be larger than that by itself.
	unreadLimit = 64 << 20
	// keepLimit bounds an event that is kept after it was delivered: a client
	// has many streams that it may come back to.
	keepLimit = 1 << 20
	// keepEvents bounds how many are kept.
	keepEvents = 1024
	eventCost  = 64
)

// errUnread ends the stream of an outbox that broke.
var errUnread = errors.New("the client does not read: too many bytes of answers wait for it")

func newOutbox(resumable bool, log *slog.Logger) *outbox {
	return &outbox{resumable: resumable, forgot: -1, broken: make(chan struct{}), log: log}
}

func (o *outbox) at(num int) *event { return &o.ring[num&(len(o.ring)-1)] }

// signal wakes the pumps that wait. o.mu is held, as in all methods below add.
func (o *outbox) signal() {
	if o.wake != nil {
		close(o.wake)
		o.wake = nil
	}
}

// add puts a message in. An event of a key that is still unread stands for newer
// ones of the same key, and always finds room: there are few keys. It reports
// false when the message was not taken.
func (o *outbox) add(frame []byte, key string, kind frameKind) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed || o.isBroken() {
		return false
	}
	if key != "" {
		if num, ok := o.keyed[key]; ok && num >= o.taken {
			return true
		}
	}
	e := event{frame: frame, key: key, kind: kind}
	o.trim(e.cost())
	switch {
	case kind == kindNote && key == "" && o.size+e.cost() > outboxLimit:
		if !o.dropped {
			o.log.Warn("a client reads too slowly, and notifications for it are dropped", "unread_bytes", o.unread)
		}
		o.dropped = true
		return false
	case kind == kindQuestion && o.unread > unreadLimit:
		return false
	case kind == kindAnswer && o.unread > unreadLimit:
		o.breakUp()
		return false
	}
	if o.next-o.first == len(o.ring) {
		o.grow()
	}
	if key != "" {
		if o.keyed == nil {
			o.keyed = make(map[string]int)
		}
		o.keyed[key] = o.next
	}
	*o.at(o.next) = e
	o.size += e.cost()
	o.unread += e.cost()
	o.next++
	o.signal()
	return true
}

func (o *outbox) grow() {
	bigger := &outbox{ring: make([]event, max(8, 2*len(o.ring)))}
	for num := o.first; num < o.next; num++ {
		*bigger.at(num) = *o.at(num)
	}
	o.ring = bigger.ring
}

// trim makes room for need bytes by forgetting what was delivered, oldest first.
// Each event is forgotten once, so that this costs no more than adding did.
func (o *outbox) trim(need int) {
	for o.first < o.taken && (!o.resumable || o.size+need > outboxLimit || o.next-o.first > keepEvents) {
		o.forget(o.first)
		o.first++
	}
	if o.first == o.next && len(o.ring) > keepEvents {
		o.ring = nil
	}
}

// forget lets go of a delivered event. Its number stays.
func (o *outbox) forget(num int) {
	e := o.at(num)
	if e.frame == nil {
		return
	}
	if o.size -= e.cost(); e.kind != kindNote {
		o.forgot = max(o.forgot, num)
	}
	*e = event{}
}

// delivered notes that everything below a number has reached the client.
func (o *outbox) delivered(num int) {
	for ; o.taken < num; o.taken++ {
		e := o.at(o.taken)
		o.unread -= e.cost()
		if len(e.frame) > keepLimit {
			o.forget(o.taken)
		}
	}
	o.trim(0)
}

// breakUp lets go of everything: the stream has no use without what it lacks.
func (o *outbox) breakUp() {
	close(o.broken)
	o.ring, o.keyed, o.first, o.taken, o.size, o.unread = nil, nil, o.next, o.next, 0, 0
	o.signal()
}

// fail breaks the outbox from outside.
func (o *outbox) fail() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isBroken() {
		o.breakUp()
	}
}

func (o *outbox) isBroken() bool {
	select {
	case <-o.broken:
		return true
	default:
		return false
	}
}

// resumes reports whether a client that has seen everything before a number can
// have all answers and questions from there on.
func (o *outbox) resumes(from int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.isBroken() && from > o.forgot
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
	ping() error  // called now and then, so that silence is not taken for death
}

// pingEvery is how long a stream may be silent.
const pingEvery = 25 * time.Second

// pump delivers events from number on (-1: those not yet delivered) until the
// outbox is closed and empty, the outbox breaks, ctx ends, or the sink fails. A
// newer pump takes over from an older one.
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
		switch {
		case o.isBroken():
			o.mu.Unlock()
			return errUnread
		case o.pumps != mine:
			o.mu.Unlock()
			return nil
		}
		at = max(at, o.first)
		for at < o.next && o.at(at).frame == nil {
			at++
		}
		if at < o.next {
			frame := o.at(at).frame
			o.mu.Unlock()
			if err := to.write(at, frame); err != nil {
				return err
			}
			at++
			o.mu.Lock()
			o.delivered(min(at, o.next))
			continue
		}
		if o.wake == nil {
			o.wake = make(chan struct{})
		}
		closed, wake := o.closed, o.wake
		o.mu.Unlock()
		if err := to.flush(); err != nil || closed {
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
	}
}
