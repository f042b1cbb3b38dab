package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
)

// counting is a sink that counts events and checks their order.
type counting struct {
	t    testing.TB
	next int
}

func (c *counting) write(num int, _ []byte) error {
	if num != c.next {
		c.t.Fatalf("event %d came in the place of %d", num, c.next)
	}
	c.next++
	return nil
}
func (c *counting) flush() error { return nil }
func (c *counting) ping() error  { return nil }

// fill adds notes that no client reads yet and then delivers them all.
func fill(t testing.TB, resumable bool, n int, frame []byte) {
	box := newOutbox(resumable, slog.New(slog.DiscardHandler))
	for i := range n {
		if !box.add(frame, "", kindNote) {
			t.Fatalf("note %d was dropped", i)
		}
	}
	box.close()
	to := &counting{t: t}
	if err := box.pump(context.Background(), -1, to); err != nil || to.next != n {
		t.Fatalf("delivered %d of %d, %v", to.next, n, err)
	}
}

// What an outbox allocates grows with its messages, not with their square: each
// note costs its place in the ring, which doubles.
func TestOutboxIsLinear(t *testing.T) {
	const n = 20_000
	frame := make([]byte, 200)
	for _, resumable := range []bool{false, true} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fill(t, resumable, n, frame)
		runtime.ReadMemStats(&after)
		if bytes := (after.TotalAlloc - before.TotalAlloc) / n; bytes > 500 {
			t.Errorf("resumable=%v: %d bytes allocated for each of %d notes", resumable, bytes, n)
		}
		if objects := after.Mallocs - before.Mallocs; objects > n/10 {
			t.Errorf("resumable=%v: %d objects allocated for %d notes", resumable, objects, n)
		}
	}
}

func BenchmarkOutbox(b *testing.B) {
	frame := make([]byte, 200)
	for _, n := range []int{1000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				fill(b, true, n, frame)
			}
		})
	}
}

// What waits unread is bounded: notes are dropped, questions refused, and an
// answer that finds no room ends the stream.
func TestOutboxIsBounded(t *testing.T) {
	var log bytes.Buffer
	box := newOutbox(false, slog.New(slog.NewTextHandler(&log, nil)))
	frame := make([]byte, 1<<20)
	notes := 0
	for box.add(frame, "", kindNote) {
		notes++
	}
	box.add(frame, "", kindNote)
	if n := strings.Count(log.String(), "notifications for it are dropped"); n != 1 {
		t.Errorf("dropped notes are logged %d times: %s", n, &log)
	}
	if most := outboxLimit / len(frame); notes == 0 || notes > most {
		t.Errorf("%d notes of 1 MiB found room, want up to %d", notes, most)
	}
	for range 2 {
		if !box.add(frame, "changed", kindNote) {
			t.Error("a note of a key was dropped")
		}
	}
	if got := box.next; got != notes+1 {
		t.Errorf("%d events wait, want %d: two notes of a key are one", got, notes+1)
	}
	for box.add(frame, "", kindQuestion) {
		if box.unread > unreadLimit+2*len(frame) {
			t.Fatalf("%d bytes wait", box.unread)
		}
	}
	if box.isBroken() {
		t.Fatal("a question broke the outbox")
	}
	if box.add(frame, "", kindAnswer) || !box.isBroken() {
		t.Error("an answer was dropped, and the outbox is whole")
	}
	if err := box.pump(t.Context(), -1, &counting{t: t}); !errors.Is(err, errUnread) {
		t.Errorf("the stream of a broken outbox ends with %v", err)
	}
	if box.size != 0 || len(box.ring) != 0 || box.add(frame, "", kindNote) {
		t.Error("a broken outbox still holds something")
	}
}

// One answer is let in however large it is.
func TestOutboxTakesOneLargeAnswer(t *testing.T) {
	box := newOutbox(false, slog.New(slog.DiscardHandler))
	if !box.add(make([]byte, unreadLimit+1), "", kindAnswer) {
		t.Fatal("a large answer was not taken")
	}
	box.close()
	to := &counting{t: t}
	if err := box.pump(t.Context(), -1, to); err != nil || to.next != 1 {
		t.Errorf("delivered %d, %v", to.next, err)
	}
}
