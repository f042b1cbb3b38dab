package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"unicode/utf8"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// outlet is the last step before the collector. It keeps failures from the SDK,
// which would print them, and logs once when the collector becomes unreachable and
// when it answers again.
type outlet struct {
	exporter sdktrace.SpanExporter
	idle     func() // closes connections that are not in use
	log      *slog.Logger

	life    context.Context // ends when the rest is given up
	abandon context.CancelFunc
	ended   chan struct{} // closed after the last request
	once    sync.Once

	mu   sync.Mutex
	down bool
	lost int // spans since it went down
}

var _ sdktrace.SpanExporter = (*outlet)(nil)

func newOutlet(e sdktrace.SpanExporter, idle func(), log *slog.Logger) *outlet {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	life, abandon := context.WithCancel(context.Background())
	return &outlet{exporter: e, idle: idle, log: log, life: life, abandon: abandon, ended: make(chan struct{})}
}

func (o *outlet) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := o.life.Err()
	if err == nil {
		sending, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(o.life, cancel)
		err = o.exporter.ExportSpans(sending, spans)
		stop()
		cancel()
	}
	o.note(err, len(spans))
	return nil
}

func (o *outlet) note(err error, spans int) {
	o.mu.Lock()
	wasDown := o.down
	o.down = err != nil
	if err != nil {
		o.lost += spans
	}
	lost := o.lost
	if err == nil {
		o.lost = 0
	}
	o.mu.Unlock()
	switch {
	case err != nil && !wasDown:
		o.log.Warn("traces don't reach the collector and are dropped; check telemetry.otlp.endpoint and that it runs",
			"error", clip(strings.ToValidUTF8(errText(err), "?"), 300))
	case err == nil && wasDown:
		o.log.Warn("traces reach the collector again", "dropped", lost)
	}
}

// errText names the cause; a deadline alone would not say whose it was.
func errText(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer within " + exportTimeout.String()
	}
	return err.Error()
}

// Shutdown is called once nothing is queued any more.
func (o *outlet) Shutdown(ctx context.Context) error {
	o.once.Do(func() {
		if err := o.exporter.Shutdown(ctx); err != nil && ctx.Err() == nil {
			o.log.Warn("the trace exporter did not end well", "error", err)
		}
		o.abandon()
		o.idle()
		close(o.ended)
	})
	return nil
}

// clip bounds a text, without cutting a character in two.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}
