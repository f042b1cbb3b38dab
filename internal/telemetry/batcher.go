package telemetry

import (
	"context"
	"sync"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// spanWait is how long an ended span may wait for others to go with.
const spanWait = 2 * time.Second

// A batcher hands ended spans to the exporter, many at once. The SDK's own wakes
// a goroutine for each span, which costs the call more than the span itself;
// this one wakes it when a batch is full, or when it is time.
type batcher struct {
	out sdktrace.SpanExporter

	mu     sync.Mutex
	spans  []sdktrace.ReadOnlySpan
	closed bool

	full chan struct{} // holds one
	quit chan struct{}
	done chan struct{} // closed when the last batch was handed on
	over chan struct{} // closed when the exporter has ended, too
	once sync.Once
}

var _ sdktrace.SpanProcessor = (*batcher)(nil)

func newBatcher(out sdktrace.SpanExporter) *batcher {
	b := &batcher{
		out: out, full: make(chan struct{}, 1),
		quit: make(chan struct{}), done: make(chan struct{}), over: make(chan struct{}),
	}
	go b.run()
	return b
}

// OnStart implements sdktrace.SpanProcessor.
func (b *batcher) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor. Spans beyond the queue are dropped.
func (b *batcher) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	b.mu.Lock()
	if b.closed || len(b.spans) >= spanQueue {
		b.mu.Unlock()
		return
	}
	b.spans = append(b.spans, s)
	wake := len(b.spans) == spanBatch
	b.mu.Unlock()
	if wake {
		select {
		case b.full <- struct{}{}:
		default:
		}
	}
}

func (b *batcher) run() {
	defer close(b.done)
	tick := time.NewTicker(spanWait)
	defer tick.Stop()
	for ending := false; !ending; {
		select {
		case <-b.full:
		case <-tick.C:
		case <-b.quit:
			ending = true
		}
		for b.send(context.Background()) {
		}
	}
}

// send hands one batch on. It reports whether there may be more.
func (b *batcher) send(ctx context.Context) bool {
	b.mu.Lock()
	n := min(len(b.spans), spanBatch)
	batch := b.spans[:n:n]
	b.spans = b.spans[n:]
	if len(b.spans) == 0 {
		b.spans = nil // the batch belongs to the exporter
	}
	b.mu.Unlock()
	if n == 0 {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, exportTimeout)
	defer cancel()
	_ = b.out.ExportSpans(ctx, batch) // the outlet logs errors
	return true
}

// ForceFlush implements sdktrace.SpanProcessor.
func (b *batcher) ForceFlush(ctx context.Context) error {
	for ctx.Err() == nil && b.send(ctx) {
	}
	return ctx.Err()
}

// Shutdown implements sdktrace.SpanProcessor: queued spans are handed on, and then
// the exporter ends, even if ctx ends first. It may be called twice.
func (b *batcher) Shutdown(ctx context.Context) error {
	b.once.Do(func() {
		b.mu.Lock()
		b.closed = true
		b.mu.Unlock()
		close(b.quit)
		go func() {
			defer close(b.over)
			<-b.done
			_ = b.out.Shutdown(ctx)
		}()
	})
	select {
	case <-b.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
