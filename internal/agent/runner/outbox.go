package runner

import (
	"context"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/agent/executor"
)

// Bounds of one report.
const (
	batchEvents = 256
	batchBytes  = 1 << 20
	batchTime   = 15 * time.Millisecond // how long an event waits for others
)

// outbox reports the events of a run in batches. It has one goroutine. The program is
// read no faster than its events are reported.
type outbox struct {
	send func(ctx context.Context, r Report) error
	ctx  context.Context
	stop context.CancelFunc
	over chan struct{} // closed when the goroutine has returned
	room chan struct{} // has one place: a batch was sent
	more chan struct{} // has one place: there is something to send

	mu      sync.Mutex
	running bool // is to be reported
	waiting []executor.Event
	bytes   int
	closed  bool
	err     error
}

// newOutbox makes an outbox, which the caller must close or leave. It sends nothing more
// once ctx has ended.
func newOutbox(ctx context.Context, send func(context.Context, Report) error) *outbox {
	ctx, stop := context.WithCancel(ctx)
	b := &outbox{send: send, ctx: ctx, stop: stop, over: make(chan struct{}), room: make(chan struct{}, 1), more: make(chan struct{}, 1)}
	go b.deliver()
	return b
}

// started has it reported that the executor runs.
func (b *outbox) started() {
	b.mu.Lock()
	b.running = true
	b.mu.Unlock()
	wake(b.more)
}

// add has events reported. It waits while many are not, and fails once a report has
// failed for good.
func (b *outbox) add(events []executor.Event) error {
	for _, e := range events {
		for {
			b.mu.Lock()
			if b.err != nil {
				defer b.mu.Unlock()
				return b.err
			}
			full := len(b.waiting) >= 2*batchEvents || b.bytes >= 2*batchBytes
			if !full {
				b.waiting = append(b.waiting, e)
				b.bytes += len(e.Data)
				b.mu.Unlock()
				break
			}
			b.mu.Unlock()
			select {
			case <-b.room:
			case <-b.over:
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.err == nil {
					b.err = context.Canceled
				}
				return b.err
			}
		}
		wake(b.more)
	}
	return nil
}

// batch takes the next report; whole says that it is not worth to wait for more.
func (b *outbox) batch() (r Report, whole bool) {
	n, bytes := 0, 0
	for n < len(b.waiting) && n < batchEvents && (n == 0 || bytes+len(b.waiting[n].Data) <= batchBytes) {
		bytes += len(b.waiting[n].Data)
		n++
	}
	return Report{Running: b.running, Events: b.waiting[:n:n]}, n < len(b.waiting) || n == batchEvents
}

func (b *outbox) deliver() {
	defer close(b.over)
	for {
		b.mu.Lock()
		r, whole := b.batch()
		closed := b.closed
		b.mu.Unlock()
		switch {
		case closed && !whole: // the rest goes with the end
			return
		case !r.Running && len(r.Events) == 0:
			select {
			case <-b.more:
			case <-b.ctx.Done():
				return
			}
			continue
		case !r.Running && !whole:
			if !sleep(b.ctx, batchTime) {
				return
			}
			b.mu.Lock()
			r, _ = b.batch()
			b.mu.Unlock()
		}
		err := b.send(b.ctx, r)
		b.mu.Lock()
		if err != nil {
			b.err = err
			b.mu.Unlock()
			return
		}
		for _, e := range r.Events {
			b.bytes -= len(e.Data)
		}
		b.waiting = b.waiting[len(r.Events):]
		b.running = b.running && !r.Running
		b.mu.Unlock()
		wake(b.room)
	}
}

// close sends what waits but for the last of it, which it returns as the report of the
// end: it goes with that in one transaction.
func (b *outbox) close() (Report, error) {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	wake(b.more)
	<-b.over
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.err == nil {
		b.err = b.ctx.Err()
	}
	b.stop()
	r, _ := b.batch()
	return r, b.err
}

// leave sends nothing more.
func (b *outbox) leave() {
	b.stop()
	<-b.over
}
