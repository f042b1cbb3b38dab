package runner

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ticks is a queue with one run, whose lease is as long as span.
type ticks struct {
	Queue
	span   time.Duration
	renews atomic.Int32
	fail   atomic.Pointer[error]
	hang   atomic.Bool
	stop   chan struct{}
}

func (q *ticks) answer(ctx context.Context) (Answer, error) {
	if q.hang.Load() {
		<-ctx.Done()
		return Answer{}, ctx.Err()
	}
	if err := q.fail.Load(); err != nil {
		return Answer{}, *err
	}
	return Answer{Until: time.Now().Add(q.span)}, nil
}

func (q *ticks) Renew(ctx context.Context, _ string, _ int64) (Answer, error) {
	q.renews.Add(1)
	return q.answer(ctx)
}

func (q *ticks) Report(ctx context.Context, _ string, _ int64, _ Report) (Answer, error) {
	return q.answer(ctx)
}

func (q *ticks) Stopping(ctx context.Context, _ string, _ int64) error {
	select {
	case <-q.stop:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestLease(t *testing.T) {
	away := errors.New("away")
	run := func(name string, test func(t *testing.T, q *ticks, l *lease)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &ticks{span: 30 * time.Second, stop: make(chan struct{})}
				l := newLease(q, Claim{Run: "run_1", Number: 1, Until: time.Now().Add(q.span)}, slog.New(slog.DiscardHandler))
				defer l.end()
				test(t, q, l)
			})
		})
	}
	run("it is renewed at a third", func(t *testing.T, q *ticks, l *lease) {
		time.Sleep(10*time.Minute + time.Second) // the bubble's time
		if n := q.renews.Load(); n != 60 || done(l.lost) {
			t.Errorf("after ten minutes it was renewed %d times, lost: %v", n, done(l.lost))
		}
	})
	run("reports renew it", func(t *testing.T, q *ticks, l *lease) {
		for range 100 {
			time.Sleep(5 * time.Second) // the bubble's time
			if err := l.report(t.Context(), Report{}); err != nil {
				t.Fatal(err)
			}
		}
		if n := q.renews.Load(); n != 0 {
			t.Errorf("it was renewed %d times", n)
		}
	})
	run("the queue is away for a while", func(t *testing.T, q *ticks, l *lease) {
		q.fail.Store(&away)
		time.Sleep(25 * time.Second) // the bubble's time
		q.fail.Store(nil)
		time.Sleep(time.Minute) // the bubble's time
		if done(l.lost) {
			t.Error("it is lost")
		}
	})
	run("the queue is away for too long", func(t *testing.T, q *ticks, l *lease) {
		q.fail.Store(&away)
		if err := l.report(t.Context(), Report{}); !errors.Is(err, ErrStale) || !done(l.lost) {
			t.Errorf("a report ended with %v, lost: %v", err, done(l.lost))
		}
	})
	run("the queue hangs", func(t *testing.T, q *ticks, l *lease) {
		q.hang.Store(true)
		if err := l.report(t.Context(), Report{}); !errors.Is(err, ErrStale) || !done(l.lost) {
			t.Errorf("a report ended with %v, lost: %v", err, done(l.lost))
		}
	})
	run("another has it", func(t *testing.T, q *ticks, l *lease) {
		q.fail.Store(&ErrStale)
		if err := l.ask(t.Context()); !errors.Is(err, ErrStale) || !done(l.lost) {
			t.Errorf("it ended with %v, lost: %v", err, done(l.lost))
		}
	})
	run("it is to be stopped", func(t *testing.T, q *ticks, l *lease) {
		close(q.stop)
		synctest.Wait()
		if !done(l.stop) || done(l.lost) {
			t.Errorf("stop: %v, lost: %v", done(l.stop), done(l.lost))
		}
	})
	run("the runner gives up", func(t *testing.T, q *ticks, l *lease) {
		q.fail.Store(&away)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.report(ctx, Report{}); err == nil || errors.Is(err, ErrStale) || done(l.lost) {
			t.Errorf("it ended with %v, lost: %v", err, done(l.lost))
		}
	})
}
