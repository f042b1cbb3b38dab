package runner

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// How soon the queue is asked again after it has failed.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 2 * time.Second
)

// lease is a claim that is renewed until it is ended. It has two goroutines of its own.
type lease struct {
	queue  Queue
	run    string
	number int64
	log    *slog.Logger
	span   time.Duration // how long a renewal lasts

	stop chan struct{} // closed when the run is to be stopped
	lost chan struct{} // closed when the claim is this runner's no more

	held   context.Context // ends when it is lost
	drop   context.CancelFunc
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu    sync.Mutex
	until time.Time
	over  bool // the run's end is being reported, with which the claim ends
}

// newLease keeps a claim. The caller must end it.
func newLease(queue Queue, c Claim, log *slog.Logger) *lease {
	ctx, cancel := context.WithCancel(context.Background())
	l := &lease{
		queue: queue, run: c.Run, number: c.Number, log: log, span: max(time.Until(c.Until), 10*time.Millisecond), until: c.Until,
		stop: make(chan struct{}), lost: make(chan struct{}), cancel: cancel,
	}
	l.held, l.drop = context.WithCancel(context.Background())
	l.work.Go(func() { l.renew(ctx) })
	l.work.Go(func() { l.watch(ctx) })
	return l
}

func (l *lease) end() {
	l.cancel()
	l.work.Wait()
	l.drop()
}

// renew renews at a third of the lease. One that can't be renewed is lost when it is over.
func (l *lease) renew(ctx context.Context) {
	timer := time.NewTimer(l.span / 3)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-l.lost:
			return
		case <-ctx.Done():
			return
		}
		l.mu.Lock()
		until := l.until
		l.mu.Unlock()
		if left := time.Until(until) - l.span*2/3; left > 0 { // a report has renewed it
			timer.Reset(left)
			continue
		}
		asking, cancel := context.WithDeadline(ctx, until)
		a, err := l.queue.Renew(asking, l.run, l.number)
		cancel()
		switch {
		case err == nil:
			l.heard(a)
			timer.Reset(l.span / 3)
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrStale):
			l.lose("another runner has it, or it has ended")
			return
		case !time.Now().Before(until):
			l.lose("the coordinator was not reached in time: " + err.Error())
			return
		default:
			timer.Reset(min(l.span/20, longestPause))
		}
	}
}

// watch waits for the wish to stop the run.
func (l *lease) watch(ctx context.Context) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err := l.queue.Stopping(ctx, l.run, l.number)
		switch {
		case err == nil:
			l.heard(Answer{Stop: true})
			return
		case errors.Is(err, ErrStale):
			l.lose("another runner has it, or it has ended")
			return
		case !sleep(ctx, pause):
			return
		}
	}
}

// heard notes an answer.
func (l *lease) heard(a Answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.Until.After(l.until) {
		l.until = a.Until
	}
	if a.Stop && !done(l.stop) {
		close(l.stop)
	}
}

func (l *lease) lose(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !done(l.lost) {
		close(l.lost)
		l.drop()
		if !l.over {
			l.log.Warn("a run is not this runner's any more", "why", why)
		}
	}
}

// ask renews the claim, and fails where the run is not to be begun.
func (l *lease) ask(ctx context.Context) error {
	a, err := l.queue.Renew(ctx, l.run, l.number)
	switch {
	case err == nil:
		l.heard(a)
		if a.Stop {
			return errStopped
		}
	case errors.Is(err, ErrStale):
		l.lose("another runner has it, or it has ended")
		return err
	}
	return nil // the renewal goes on trying
}

// report reports, again and again while the queue is away. It fails when the claim is
// lost, and when ctx ends.
func (l *lease) report(ctx context.Context, r Report) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.held, cancel)()
	warned := false
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if done(l.lost) {
			return ErrStale
		}
		l.ending(r.Ended)
		a, err := l.queue.Report(ctx, l.run, l.number, r)
		if err != nil {
			l.ending(false)
		}
		switch {
		case err == nil:
			l.heard(a)
			return nil
		case errors.Is(err, ErrStale):
			l.lose("another runner has it, or it has ended")
			return ErrStale
		case done(l.lost):
			return ErrStale
		case ctx.Err() != nil:
			return fmt.Errorf("report run %s: %w", l.run, err)
		case !warned:
			warned = true
			l.log.Warn("a report of a run failed and is tried again", "err", err)
		}
		select {
		case <-l.lost:
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (l *lease) ending(over bool) {
	l.mu.Lock()
	l.over = over
	l.mu.Unlock()
}

// sleep waits, and reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
