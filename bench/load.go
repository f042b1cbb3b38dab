package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// giveUp is how many failed calls end a caller's part of a cell: what fails so
// often is not worth the time left.
const giveUp = 5

// load is what one stretch of calling came to.
type load struct {
	latencies []time.Duration // of right answers, sorted
	elapsed   time.Duration
	errors    int
	first     error // the first failure
}

// drive lets all callers call, one call at a time each, until the time or the
// number of calls is used up.
func drive(ctx context.Context, callers []caller, d time.Duration, maxCalls int, ids *atomic.Uint64) load {
	return pace(ctx, callers, 0, d, maxCalls, ids)
}

// pace is drive with so much time from the beginning of one call of a caller to
// that of its next; one that took longer is followed by the next at once.
func pace(ctx context.Context, callers []caller, every, d time.Duration, maxCalls int, ids *atomic.Uint64) load {
	var (
		wg     sync.WaitGroup
		budget atomic.Int64
		mu     sync.Mutex
		total  load
	)
	budget.Store(int64(maxCalls))
	start := time.Now()
	for i, c := range callers {
		wg.Go(func() {
			// They don't all begin at once.
			due := start.Add(every * time.Duration(i) / time.Duration(len(callers)))
			var latencies []time.Duration
			var failed []error
			for now := start; now.Sub(start) < d && ctx.Err() == nil && len(failed) < giveUp && budget.Add(-1) >= 0; {
				if every > 0 {
					time.Sleep(time.Until(due))
					due = due.Add(every)
				}
				began := time.Now()
				err := c.call(ctx, ids.Add(1))
				now = time.Now()
				if err != nil {
					failed = append(failed, err)
					continue
				}
				latencies = append(latencies, now.Sub(began))
			}
			mu.Lock()
			defer mu.Unlock()
			total.latencies = append(total.latencies, latencies...)
			total.errors += len(failed)
			if len(failed) > 0 {
				total.first = cmp.Or(total.first, failed[0])
			}
		})
	}
	wg.Wait()
	total.elapsed = time.Since(start)
	slices.Sort(total.latencies)
	return total
}

// sample is one cell of one round.
type sample struct {
	Calls    int           `json:"calls"`
	Errors   int           `json:"errors"`
	P50      time.Duration `json:"p50_ns"`
	P99      time.Duration `json:"p99_ns"`
	Rate     float64       `json:"calls_per_s"`
	CPU      time.Duration `json:"cpu_ns"`          // of the middle, over all calls; 0 where unknown
	Upstream time.Duration `json:"upstream_cpu_ns"` // of the echo server
	Anon     int64         `json:"anon_bytes"`      // of the middle, at the end of the cell
	Dials    int           `json:"dials"`           // connections opened to the echo server
	First    error         `json:"-"`
}

// measure visits one cell: connect, warm up, then call and watch the processes.
func measure(ctx context.Context, r *row, n int, s settings, ids *atomic.Uint64) (sample, error) {
	callers, err := r.open(ctx, n)
	if err != nil {
		return sample{}, err
	}
	defer func() {
		for _, c := range callers {
			c.close()
		}
	}()
	warm := drive(ctx, callers, s.Duration/5, s.MaxCalls, ids)
	before, err := r.connections(ctx)
	if err != nil {
		return sample{}, err
	}
	middle, upstream := usageOf(r.middle()), usageOf(r.upstream())
	l := drive(ctx, callers, s.Duration, s.MaxCalls, ids)
	middle, upstream = usageOf(r.middle()).since(middle), usageOf(r.upstream()).since(upstream)
	after, err := r.connections(ctx)
	if err != nil {
		return sample{}, err
	}
	out := sample{
		Calls:    len(l.latencies),
		Errors:   warm.errors + l.errors,
		First:    cmp.Or(warm.first, l.first),
		Rate:     float64(len(l.latencies)) / l.elapsed.Seconds(),
		P50:      percentile(l.latencies, 50),
		P99:      percentile(l.latencies, 99),
		CPU:      middle.cpu,
		Upstream: upstream.cpu,
		Anon:     middle.anon,
		Dials:    after - before,
	}
	if out.Calls == 0 {
		return out, fmt.Errorf("no call was answered: %w", cmp.Or(out.First, errors.New("the time was too short")))
	}
	return out, nil
}
