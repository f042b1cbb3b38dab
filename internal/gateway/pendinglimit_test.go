package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func newPending(who string, n int) *pendingInput {
	p := &pendingInput{state: fmt.Sprint(statePrefix, who, n), who: who, done: make(chan struct{}), asked: map[string]*question{}}
	_, p.cancel = context.WithCancelCause(context.Background())
	return p
}

// TestPendingInputsAreShared fills the room for pending input: one principal has only a part of it.
func TestPendingInputsAreShared(t *testing.T) {
	t.Parallel()
	g := &pendingInputs{calls: make(map[string]*pendingInput)}
	all := 0
	for _, who := range []string{"a", "b", "c", "d", "e"} {
		mine := 0
		for n := range 2 * maxPendingEach {
			if g.keep(newPending(who, n)) {
				mine++
			}
		}
		if mine > maxPendingEach {
			t.Errorf("%s has %d calls with pending input", who, mine)
		}
		if all += mine; who == "b" && all != 2*maxPendingEach {
			t.Errorf("two have %d calls with pending input", all)
		}
	}
	if all != maxPending {
		t.Errorf("%d calls have pending input, want %d", all, maxPending)
	}
	for _, p := range g.calls {
		g.forget(p)
	}
}

// TestEndedCallsAreNotPending keeps a call that has ended and was forgotten, as
// happens to a client that comes back with answers that can't be read.
func TestEndedCallsAreNotPending(t *testing.T) {
	t.Parallel()
	g := &pendingInputs{calls: make(map[string]*pendingInput)}
	p := newPending("a", 1)
	close(p.done)
	g.forget(p)
	if g.keep(p) || len(g.calls) != 0 {
		t.Errorf("%d calls have pending input", len(g.calls))
	}
}

// TestPendingCallsExpire holds that a place is free again after a while, even
// when the call does not end.
func TestPendingCallsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &pendingInputs{calls: make(map[string]*pendingInput)}
		p := newPending("a", 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		p.cancel = cancel
		if !g.keep(p) {
			t.Fatal("not kept")
		}
		time.Sleep(inputWait)
		synctest.Wait()
		if len(g.calls) != 0 || ctx.Err() == nil {
			t.Errorf("%d calls have pending input, and the call's context says %v", len(g.calls), ctx.Err())
		}
	})
}

// TestLargeEventsAreNotKept holds that what was delivered is kept for a client
// that comes back only while it is small.
func TestLargeEventsAreNotKept(t *testing.T) {
	t.Parallel()
	box := newOutbox(true, slog.New(slog.DiscardHandler))
	sizes := []int{10, keepLimit + 1, 20, keepLimit + 1}
	for _, n := range sizes {
		box.add(make([]byte, n), "", kindAnswer)
	}
	box.close()
	var got kept
	if err := box.pump(t.Context(), -1, &got); err != nil || len(got) != len(sizes) {
		t.Fatalf("delivered %v, %v", got, err)
	}
	if box.size != 30+2*eventCost {
		t.Errorf("events of %d bytes are kept", box.size)
	}
	var again kept
	if err := box.pump(t.Context(), 0, &again); err != nil || fmt.Sprint(again) != "[0 2]" {
		t.Errorf("to a client that comes back: %v, %v", again, err)
	}
	if box.resumes(0) || box.resumes(3) || !box.resumes(4) {
		t.Error("a client may come back to a stream whose answers are no longer kept, or not to one that it has seen whole")
	}
}

// kept is a sink that notes the numbers of events.
type kept []int

func (k *kept) write(num int, _ []byte) error { *k = append(*k, num); return nil }
func (k *kept) flush() error                  { return nil }
func (k *kept) ping() error                   { return nil }
