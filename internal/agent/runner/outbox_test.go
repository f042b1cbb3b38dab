package runner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/tine-mcp/tine/internal/agent/executor"
)

func numbered(n, size int) executor.Event {
	return executor.Event{Type: fmt.Sprint(n), Data: make(json.RawMessage, size)}
}

// Every event is reported once, in its order, in batches that are neither long nor large.
func TestOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		next, reports, running := 0, 0, 0
		check := func(r Report) {
			bytes := 0
			for _, e := range r.Events {
				if e.Type != fmt.Sprint(next) {
					t.Fatalf("event %s is told, want %d", e.Type, next)
				}
				next++
				bytes += len(e.Data)
			}
			if len(r.Events) > batchEvents || bytes > batchBytes && len(r.Events) > 1 {
				t.Errorf("a report has %d events with %d bytes", len(r.Events), bytes)
			}
		}
		b := newOutbox(t.Context(), func(_ context.Context, r Report) error {
			check(r)
			reports++
			if r.Running {
				running++
			}
			return nil
		})
		b.started()
		for n := range 2000 {
			size := 10
			if n%100 == 0 {
				size = 900 << 10
			}
			if err := b.add([]executor.Event{numbered(n, size)}); err != nil {
				t.Fatal(err)
			}
		}
		rest, err := b.close()
		if check(rest); err != nil || next != 2000 || running != 1 {
			t.Errorf("%d events in %d reports, %d of them that it runs; %v", next, reports, running, err)
		}
		if reports > 100 {
			t.Errorf("there were %d reports", reports)
		}
	})
}

func TestOutboxFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newOutbox(t.Context(), func(context.Context, Report) error { return ErrStale })
		var err error
		for n := 0; err == nil && n < 10*batchEvents; n++ {
			err = b.add([]executor.Event{numbered(n, 1)})
		}
		if !errors.Is(err, ErrStale) {
			t.Errorf("add: %v", err)
		}
		if _, err := b.close(); !errors.Is(err, ErrStale) {
			t.Errorf("close: %v", err)
		}
		// What is left while the queue hangs is not told as whole.
		b = newOutbox(t.Context(), func(ctx context.Context, _ Report) error { <-ctx.Done(); return ctx.Err() })
		b.started()
		synctest.Wait()
		b.leave()
		if _, err := b.close(); err == nil {
			t.Error("an outbox that was left is closed without an error")
		}
	})
}
