package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"
)

// fewSessions is what many are compared with.
const fewSessions = 10

// crowd is a gateway with sessions that were each used once.
type crowd struct {
	*world
	before   int64 // anonymous memory without them
	sessions []string
	marks    []string // of each
	calls    atomic.Uint64
}

// gather opens sessions and uses each once.
func (t *trials) gather(ctx context.Context, n int) (*crowd, error) {
	w, err := t.g.newWorld(ctx, fmt.Sprintf("crowd-%d", n), statefulServers(""))
	if err != nil {
		return nil, err
	}
	c := &crowd{world: w, sessions: make([]string, n), marks: make([]string, n)}
	// One that comes and goes: what the first session of all brings along for
	// good is not a session's.
	id, err := w.open(ctx)
	if err == nil {
		_, err = w.use(ctx, id)
	}
	if err == nil {
		err = w.close(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	if c.before, err = w.settled(ctx); err != nil {
		return nil, err
	}
	return c, each(ctx, n, func(ctx context.Context, i int) (err error) {
		if c.sessions[i], err = w.open(ctx); err == nil {
			c.marks[i], err = w.use(ctx, c.sessions[i])
		}
		return err
	})
}

// many makes the crowd of as many sessions as are asked for, once.
func (t *trials) many(ctx context.Context) (*crowd, error) {
	if t.crowded == nil {
		c, err := t.gather(ctx, t.s.Sessions)
		if err != nil {
			return nil, err
		}
		t.crowded = c
	}
	return t.crowded, nil
}

// memory looks at the gateway with many sessions that were used and now are
// idle, and with as many forks that were never used.
func (t *trials) memory(ctx context.Context) ([]reading, error) {
	c, err := t.many(ctx)
	if err != nil {
		return nil, err
	}
	used, err := c.settled(ctx)
	if err != nil {
		return nil, err
	}
	few, err := t.gather(ctx, 1)
	if err != nil {
		return nil, err
	}
	before, err := few.settled(ctx)
	if err != nil {
		return nil, err
	}
	children, err := few.fork(ctx, few.sessions[0], t.s.Sessions)
	if err != nil {
		return nil, err
	}
	unused, err := few.settled(ctx)
	if err != nil {
		return nil, err
	}
	last := children[len(children)-1]
	if err := few.remembers(ctx, last, few.marks[0]); err != nil {
		return nil, err
	}
	few.gate.stop()
	n := len(c.sessions)
	return []reading{
		{Case: fmt.Sprintf("%d sessions, each used once", n), Anon: used, Sessions: n, shows: showsAnon, Each: (used - c.before) / int64(n)},
		{Case: fmt.Sprintf("%d forks of one, never used", n), Anon: unused, Sessions: n, shows: showsAnon, Each: (unused - before) / int64(n)},
	}, nil
}

// forkMany times many children in one request, and in turn a child alone.
func (t *trials) forkMany(ctx context.Context) ([]reading, error) {
	const repeats = 3
	c, err := t.gather(ctx, 1)
	if err != nil {
		return nil, err
	}
	defer c.gate.stop()
	parent := c.sessions[0]
	alone := &series{name: "a child alone"}
	one := &series{name: fmt.Sprintf("one of %d", t.s.Sessions)}
	for range min(t.s.Rounds, repeats) {
		for range samples {
			if c.marks[0], err = c.use(ctx, parent); err != nil {
				return nil, err
			}
			began := time.Now()
			ids, err := c.fork(ctx, parent, 1)
			if err != nil {
				return nil, err
			}
			alone.add(time.Since(began))
			if err := c.close(ctx, ids...); err != nil {
				return nil, err
			}
		}
		if c.marks[0], err = c.use(ctx, parent); err != nil {
			return nil, err
		}
		began := time.Now()
		ids, err := c.fork(ctx, parent, t.s.Sessions)
		if err != nil {
			return nil, err
		}
		one.add(time.Since(began) / time.Duration(len(ids)))
		if err := c.remembers(ctx, ids[len(ids)/2], c.marks[0]); err != nil {
			return nil, err
		}
		if err := c.close(ctx, ids...); err != nil {
			return nil, err
		}
		alone.endRound()
		one.endRound()
	}
	return compared([]*series{alone, one}), nil
}
