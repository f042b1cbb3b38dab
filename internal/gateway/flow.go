package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/tine-mcp/tine/internal/telemetry"
)

// flow is an answer of one JSON value a line, each sent as soon as it is there. Values
// may be emitted by several goroutines at once. Emit waits until the value is sent, and
// fails when the caller has gone; ctx ends then too. A flow says itself in its last line
// that it is complete.
type flow[T any] struct {
	g   *Gateway
	run func(ctx context.Context, emit func(T) error)
}

func (flow[T]) contents() []content { return []content{{media: mediaLines, of: reflect.TypeFor[T]()}} }

func (f flow[T]) write(a *ask) error {
	ctx, cancel := context.WithCancel(a.ctx())
	defer cancel()
	h := a.w.Header()
	h.Set("Content-Type", mediaLines)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	h.Set("X-Content-Type-Options", "nosniff")
	a.w.WriteHeader(http.StatusOK)
	ctl := http.NewResponseController(a.w)
	lines := make(chan []byte) // what waits to be sent is held by its item
	var panicked error
	go func() {
		defer close(lines)
		defer telemetry.Contain(f.g.log, telemetry.InEdge, "stream of lines", func(err error) { panicked = err })
		f.run(ctx, func(v T) error {
			var b bytes.Buffer
			enc := json.NewEncoder(&b)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(v); err != nil {
				return err
			}
			select {
			case lines <- b.Bytes():
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	broken := ctl.Flush() != nil
	for line := range lines {
		if broken {
			continue // what runs is waited for
		}
		// What has come meanwhile goes with it.
		err := sendPieces(a.w, ctl, line)
		for more := err == nil; more; {
			select {
			case line, ok := <-lines:
				if more = ok; ok {
					err = sendPieces(a.w, ctl, line)
					more = err == nil
				}
			default:
				more = false
			}
		}
		if err != nil || ctl.Flush() != nil {
			broken = true
			cancel()
		}
	}
	if broken || panicked != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
