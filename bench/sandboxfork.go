package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// forkCounts are how many children are made in one request.
var forkCounts = []int{1, 8, 32}

// forkRounds is in how many rounds: many children take long.
func (t *trials) forkRounds(count int) int {
	switch {
	case count == 1:
		return t.s.Rounds
	case count > 8 && !t.s.Full:
		return 1
	}
	return min(t.s.Rounds, fewRounds)
}

// fewRounds is how many rounds have what takes long.
const fewRounds = 3

// boxCase is one server in some trial: its native cold start, and what is
// compared with that.
type boxCase struct {
	*boxKind
	bare    *series
	other   []*series
	session string // that is forked
}

// newCases makes a case of each server.
func (b *boxes) newCases(names ...string) []*boxCase {
	var cases []*boxCase
	for _, k := range b.kinds {
		c := &boxCase{boxKind: k, bare: &series{name: k.name + ", native cold start", server: k.name}}
		for _, name := range names {
			c.other = append(c.other, &series{name: k.name + ", " + name, server: k.name})
		}
		cases = append(cases, c)
	}
	return cases
}

func casesCompared(cases []*boxCase) []reading {
	var all [][]*series
	for _, c := range cases {
		all = append(all, append([]*series{c.bare}, c.other...))
	}
	return compared(all...)
}

// round does things one after another, another first in each round, and ends the
// round of every series that has got something.
func (c *boxCase) round(round int, turns ...func() error) error {
	for i := range turns {
		if err := turns[(i+round)%len(turns)](); err != nil {
			return err
		}
	}
	for _, s := range append([]*series{c.bare}, c.other...) {
		if len(s.now) > 0 {
			s.endRound()
		}
	}
	return nil
}

// cold times a session from nothing to the first answer of its server.
func (b *boxes) cold(ctx context.Context, k *boxKind, server string, s *series) error {
	began := time.Now()
	id, err := b.eager(ctx, server)
	if err != nil {
		return err
	}
	if err := b.asked(ctx, id, server, k, k.says); err != nil {
		return err
	}
	s.add(time.Since(began))
	return b.close(ctx, id)
}

func (b *boxes) coldNative(ctx context.Context, c *boxCase) func() error {
	return func() error { return b.cold(ctx, c.boxKind, c.native(), c.bare) }
}

// boxStart times cold starts in a sandbox, and in turn without.
func (t *trials) boxStart(ctx context.Context) (_ []reading, err error) {
	b, err := t.boxWorld(ctx, "sandbox-start", nil, kindNode, kindPython, kindGo, kindPyPI)
	if err != nil {
		return nil, err
	}
	defer b.end(&err)
	cases := b.newCases("cold start in a sandbox")
	for _, c := range cases { // what the first of all makes for those after it
		if err := b.cold(ctx, c.boxKind, c.name, &series{}); err != nil {
			return nil, err
		}
	}
	for round := range t.s.Rounds {
		for _, c := range cases {
			if err := b.prepared(ctx, c.boxKind); err != nil {
				return nil, err
			}
			if err := c.round(round, b.coldNative(ctx, c), func() error {
				return b.cold(ctx, c.boxKind, c.name, c.other[0])
			}); err != nil {
				return nil, err
			}
		}
	}
	return casesCompared(cases), nil
}

// boxFork times forks of one session into one and many.
func (t *trials) boxFork(ctx context.Context) (_ []reading, err error) {
	b, err := t.boxWorld(ctx, "sandbox-fork", nil, kindNode, kindPython, kindGo, kindPyPI)
	if err != nil {
		return nil, err
	}
	defer b.end(&err)
	var counts []int
	var names []string
	for _, n := range forkCounts {
		if n <= t.s.Sessions {
			counts, names = append(counts, n), append(names, fmt.Sprintf("fork into %d, one of them", n))
		}
	}
	cases := b.newCases(names...)
	for _, c := range cases {
		if c.session, _, err = b.parent(ctx, c.boxKind); err != nil {
			return nil, err
		}
	}
	for round := range t.s.Rounds {
		for _, c := range cases {
			turns := []func() error{b.coldNative(ctx, c)}
			for i, n := range counts {
				if round < t.forkRounds(n) {
					turns = append(turns, func() error { return b.forked(ctx, c, n, c.other[i]) })
				}
			}
			if err := c.round(round, turns...); err != nil {
				return nil, err
			}
		}
	}
	return casesCompared(cases), nil
}

// forked has the parent write something down and times a fork until every child
// has said what that was.
func (b *boxes) forked(ctx context.Context, c *boxCase, n int, s *series) error {
	mark, err := b.told(ctx, c.session, c.boxKind)
	if err != nil {
		return err
	}
	if err := b.prepared(ctx, c.boxKind); err != nil {
		return err
	}
	began := time.Now()
	ids, err := b.fork(ctx, c.session, n)
	if err != nil {
		return err
	}
	if err := allAtOnce(n, func(i int) error { return b.asked(ctx, ids[i], c.name, c.boxKind, mark) }); err != nil {
		return err
	}
	s.add(time.Since(began) / time.Duration(n))
	return b.close(ctx, ids...)
}

// handOvers makes cases of what is timed without and with the first call.
func (b *boxes) handOvers(name string) []*boxCase {
	cases := b.newCases(name, name+" and first call")
	for _, c := range cases {
		c.other[1].use = true
	}
	return cases
}

// boxWarm times opens of sessions whose server stands ready.
func (t *trials) boxWarm(ctx context.Context) (_ []reading, err error) {
	const ready = 2
	b, err := t.boxWorld(ctx, "sandbox-warm", map[string]any{"warm": ready}, kindNode, kindPython, kindGo)
	if err != nil {
		return nil, err
	}
	defer b.end(&err)
	cases := b.handOvers("warm open")
	for round := range t.s.Rounds {
		for _, c := range cases {
			if err := c.round(round, b.coldNative(ctx, c), func() error {
				if err := errors.Join(b.until(ctx, gaugeReady, c.name, ready), b.prepared(ctx, c.boxKind)); err != nil {
					return err
				}
				return b.handed(ctx, c, c.says, func() (string, error) { return b.eager(ctx, c.name) })
			}); err != nil {
				return nil, err
			}
		}
	}
	return casesCompared(cases), nil
}

// boxSpare times forks of sessions that were copied ahead.
func (t *trials) boxSpare(ctx context.Context) (_ []reading, err error) {
	b, err := t.boxWorld(ctx, "sandbox-spare", map[string]any{"fork_ahead": true}, kindNode, kindPython, kindGo)
	if err != nil {
		return nil, err
	}
	defer b.end(&err)
	cases := b.handOvers("hand-over")
	for _, c := range cases {
		if c.session, _, err = b.parent(ctx, c.boxKind); err != nil {
			return nil, err
		}
	}
	for round := range t.s.Rounds {
		for _, c := range cases {
			if err := c.round(round, b.coldNative(ctx, c), func() error { return b.spared(ctx, c) }); err != nil {
				return nil, err
			}
		}
	}
	return casesCompared(cases), nil
}

// spared times one fork of what was copied since it was told something. The copy
// of before goes, and then there is the one of now.
func (b *boxes) spared(ctx context.Context, c *boxCase) error {
	// Nor is there one any more of a child that was closed.
	if err := b.steady(ctx, gaugeReady, c.name, 1, 1, 300*time.Millisecond); err != nil {
		return err
	}
	mark, err := b.told(ctx, c.session, c.boxKind)
	if err != nil {
		return err
	}
	for _, ready := range []int{0, 1} {
		if err := b.until(ctx, gaugeReady, c.name, ready); err != nil {
			return err
		}
	}
	if err := b.prepared(ctx, c.boxKind); err != nil { // the copy was made in a slot
		return err
	}
	return b.handed(ctx, c, mark, func() (string, error) {
		ids, err := b.fork(ctx, c.session, 1)
		if err != nil {
			return "", err
		}
		return ids[0], nil
	})
}

// handed times how a session comes into being, and its first call.
func (b *boxes) handed(ctx context.Context, c *boxCase, mark string, make func() (string, error)) error {
	began := time.Now()
	id, err := make()
	if err != nil {
		return err
	}
	c.other[0].add(time.Since(began))
	if err := b.asked(ctx, id, c.name, c.boxKind, mark); err != nil {
		return err
	}
	c.other[1].add(time.Since(began))
	return b.close(ctx, id)
}
