package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

func newParked(who string, n int) *parked {
	p := &parked{state: fmt.Sprint(statePrefix, who, n), who: who, done: make(chan struct{}), asked: map[string]*question{}}
	_, p.cancel = context.WithCancelCause(context.Background())
	return p
}

// TestParkingIsShared fills the parking: one principal has only a part of it.
func TestParkingIsShared(t *testing.T) {
	t.Parallel()
	g := &parking{calls: make(map[string]*parked)}
	all := 0
	for _, who := range []string{"a", "b", "c", "d", "e"} {
		mine := 0
		for n := range 2 * maxParkedEach {
			if g.keep(newParked(who, n)) {
				mine++
			}
		}
		if mine > maxParkedEach {
			t.Errorf("%s has %d parked calls", who, mine)
		}
		if all += mine; who == "b" && all != 2*maxParkedEach {
			t.Errorf("two have %d parked calls", all)
		}
	}
	if all != maxParked {
		t.Errorf("%d calls are parked, want %d", all, maxParked)
	}
	for _, p := range g.calls {
		g.forget(p)
	}
}

// TestEndedCallsAreNotParked keeps a call that has ended and was forgotten, as
// happens to a client that comes back with answers that can't be read.
func TestEndedCallsAreNotParked(t *testing.T) {
	t.Parallel()
	g := &parking{calls: make(map[string]*parked)}
	p := newParked("a", 1)
	close(p.done)
	g.forget(p)
	if g.keep(p) || len(g.calls) != 0 {
		t.Errorf("%d calls are parked", len(g.calls))
	}
}

// TestParkedCallsExpire holds that a place is free again after a while, even
// when the call does not end.
func TestParkedCallsExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &parking{calls: make(map[string]*parked)}
		p := newParked("a", 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		p.cancel = cancel
		if !g.keep(p) {
			t.Fatal("not kept")
		}
		time.Sleep(parkedFor)
		synctest.Wait()
		if len(g.calls) != 0 || ctx.Err() == nil {
			t.Errorf("%d calls are parked, and the call's context says %v", len(g.calls), ctx.Err())
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
