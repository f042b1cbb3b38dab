package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"
)

// Of many sandboxes.
const (
	manyBoxes  = 100
	parkedLook = 3 * time.Second // for which they are watched while they are parked
	liveLook   = 2 * time.Second // and while they are not: after five seconds they are
	crowdCalls = 300             // in a round of each case
	crowdPause = 5 * time.Millisecond
)

// boxCrowd is many sandboxes of one server, and what was seen of them.
type boxCrowd struct {
	*boxes
	sessions []string
	marks    string
	calls    atomic.Uint64

	parked, live, gateway []float64 // shares of a core, round by round
	alone, wake, all      *series
}

func (c *boxCrowd) call(ctx context.Context, id uint64) error {
	return c.asked(ctx, c.sessions[id%uint64(len(c.sessions))], kindGo, c.kinds[0], c.marks)
}

func (c *boxCrowd) close() {}

// firstOf is a caller that stays with the first session.
type firstOf struct{ *boxCrowd }

func (f firstOf) call(ctx context.Context, _ uint64) error {
	return f.asked(ctx, f.sessions[0], kindGo, f.kinds[0], f.marks)
}

// watch makes the crowd and looks at it, once for both of its rows.
func (t *trials) watch(ctx context.Context) (_ *boxCrowd, err error) {
	if t.watched != nil {
		return t.watched, nil
	}
	b, err := t.boxWorld(ctx, "sandbox-crowd", nil, kindGo)
	if err != nil {
		return nil, err
	}
	defer b.end(&err)
	n := min(manyBoxes, t.s.Sessions)
	c := &boxCrowd{
		boxes: b,
		alone: &series{name: fmt.Sprintf("1 live, %d parked", n-1)},
		all:   &series{name: fmt.Sprintf("%d live, in turn", n)},
		wake:  &series{name: fmt.Sprintf("%d parked, the first call of each", n-1)},
	}
	parent, mark, err := b.parent(ctx, b.kinds[0])
	if err != nil {
		return nil, err
	}
	children, err := b.fork(ctx, parent, n-1)
	if err != nil {
		return nil, err
	}
	c.sessions, c.marks = append([]string{parent}, children...), mark
	if err := c.wakeAll(ctx); err != nil {
		return nil, err
	}
	for range min(t.s.Rounds, fewRounds) {
		if err := c.round(ctx); err != nil {
			return nil, err
		}
	}
	t.watched = c
	return c, nil
}

func (c *boxCrowd) wakeAll(ctx context.Context) error {
	return each(ctx, len(c.sessions), func(ctx context.Context, i int) error { return c.call(ctx, uint64(i)) })
}

// round waits until all are parked, wakes one, and then the others.
func (c *boxCrowd) round(ctx context.Context) error {
	if err := c.until(ctx, gaugeParked, kindGo, len(c.sessions)); err != nil {
		return err
	}
	boxes, gateway, err := c.share(ctx, parkedLook)
	if err != nil {
		return err
	}
	c.parked, c.gateway = append(c.parked, boxes), append(c.gateway, gateway)
	if err := c.paced(ctx, firstOf{c}, c.alone); err != nil {
		return err
	}
	for i := range c.sessions[1:] {
		began := time.Now()
		if err := c.call(ctx, uint64(i+1)); err != nil {
			return err
		}
		c.wake.add(time.Since(began))
	}
	c.wake.endRound()
	// The first of them may be about to be parked again.
	if err := c.wakeAll(ctx); err != nil {
		return err
	}
	if boxes, _, err = c.share(ctx, liveLook); err != nil {
		return err
	}
	c.live = append(c.live, boxes)
	if err := c.wakeAll(ctx); err != nil {
		return err
	}
	return c.paced(ctx, c, c.all)
}

// paced makes calls at a pace that leaves the machine room.
func (c *boxCrowd) paced(ctx context.Context, who caller, s *series) error {
	l := pace(ctx, []caller{who}, crowdPause, boxTimeout, crowdCalls, &c.calls)
	if l.first != nil {
		return c.gate.explain(l.first)
	}
	s.now = l.latencies
	s.endRound()
	return ctx.Err()
}

// share is how much of a core the sandboxes use for some time, and the gateway
// with its helper.
func (c *boxCrowd) share(ctx context.Context, d time.Duration) (boxes, gateway float64, err error) {
	found, err := boxRecords(filepath.Join(c.state, "instances"), kindGo+"-")
	if err != nil {
		return 0, 0, err
	}
	if len(found) != len(c.sessions) {
		return 0, 0, fmt.Errorf("%d sandboxes are there, and should be %d", len(found), len(c.sessions))
	}
	trees, err := descendants()
	if err != nil {
		return 0, 0, err
	}
	var inside []int
	for _, r := range found {
		inside = append(inside, r.processes(trees)...)
	}
	outside := slices.DeleteFunc(trees.below(c.gate.pid()), func(pid int) bool { return slices.Contains(inside, pid) })
	used := func(pids []int) (sum time.Duration) {
		for _, pid := range pids {
			sum += usageOf(pid).cpu
		}
		return sum
	}
	began, before, beside := time.Now(), used(inside), used(outside)
	select {
	case <-time.After(d):
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	after, besides, took := used(inside), used(outside), time.Since(began)
	return float64(after-before) / float64(took), float64(besides-beside) / float64(took), nil
}

// boxParked tells what sandboxes cost that nobody calls.
func (t *trials) boxParked(ctx context.Context) ([]reading, error) {
	c, err := t.watch(ctx)
	if err != nil {
		return nil, err
	}
	n := len(c.sessions)
	live, parked := median(c.live), median(c.parked)
	out := []reading{
		{Case: fmt.Sprintf("%d live, idle", n), Server: kindGo, CPU: live},
		{Case: fmt.Sprintf("%d parked", n), Server: kindGo, CPU: parked, Parked: true},
		{Case: "the gateway and its helper meanwhile", CPU: median(c.gateway)},
	}
	if live > 0 {
		out[1].Ratio.P50 = parked / live
	}
	for i := range out {
		out[i].shows = showsShare
	}
	return out, nil
}

// boxLatency tells how quickly they answer.
func (t *trials) boxLatency(ctx context.Context) ([]reading, error) {
	c, err := t.watch(ctx)
	if err != nil {
		return nil, err
	}
	out := compared([]*series{c.alone, c.all, c.wake})
	for i := range out {
		out[i].Server, out[i].shows = kindGo, showsTail
	}
	return out, nil
}
