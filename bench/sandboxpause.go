package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// pauseSizes are how many MB a server that is forked has in memory.
var pauseSizes = []int{30, 200, 1000}

// pauseRoom is how much memory must be free for each MB: the parent's, the
// child's, the image in the page cache, and as much again to spare.
const pauseRoom = 4e6

// paused is a session whose server has so much in memory.
type paused struct {
	megabytes int
	session   string
	bare      *series // a native server, until it has as much
	still     *series // what the gateway says that the session stood still
	waited    *series // the longest call meanwhile
}

// boxPause times how long a parent stands still while it is forked, with more and
// more in its memory.
func (t *trials) boxPause(ctx context.Context) (_ []reading, err error) {
	b, err := t.boxWorld(ctx, "sandbox-pause", nil, kindGo)
	if err != nil {
		return nil, err
	}
	defer b.end(&err)
	var cases []*paused
	for _, n := range pauseSizes {
		name := sizeName(int64(n) * 1e6)
		if free := memoryFree(); free < int64(n)*pauseRoom {
			t.notes = append(t.notes, fmt.Sprintf("without forks of %s in memory: %s are free", name, sizeName(free)))
			continue
		}
		if n/10 > t.s.Sessions {
			continue // a run that is to be small
		}
		p := &paused{megabytes: n,
			bare:   &series{name: "native cold start and " + name, server: kindGo},
			still:  &series{name: "pause, " + name, server: kindGo},
			waited: &series{name: "longest call meanwhile, " + name, server: kindGo},
		}
		if p.session, err = b.eager(ctx, kindGo); err != nil {
			return nil, err
		}
		if err := b.grow(ctx, p.session, kindGo, n); err != nil {
			return nil, err
		}
		cases = append(cases, p)
	}
	for round := range min(t.s.Rounds, fewRounds) {
		for _, p := range cases {
			turns := []func() error{
				func() error { return b.grownNative(ctx, p) },
				func() error { return b.pause(ctx, p) },
			}
			for i := range turns {
				if err := turns[(i+round)%len(turns)](); err != nil {
					return nil, err
				}
			}
			for _, s := range []*series{p.bare, p.still, p.waited} {
				s.endRound()
			}
		}
	}
	var out [][]*series
	for _, p := range cases {
		out = append(out, []*series{p.bare, p.still, p.waited})
	}
	return compared(out...), nil
}

// grow has a server put so much into its memory.
func (b *boxes) grow(ctx context.Context, session, server string, megabytes int) error {
	got, err := b.call(ctx, session, server+"__grow", map[string]any{"megabytes": megabytes})
	return knows(got, fmt.Sprintf("%d MB", megabytes), err)
}

func (b *boxes) grownNative(ctx context.Context, p *paused) error {
	server := "native-" + kindGo
	began := time.Now()
	id, err := b.eager(ctx, server)
	if err != nil {
		return err
	}
	if err := b.grow(ctx, id, server, p.megabytes); err != nil {
		return err
	}
	p.bare.add(time.Since(began))
	return b.close(ctx, id)
}

// pause forks once while somebody calls the parent all the time.
func (b *boxes) pause(ctx context.Context, p *paused) error {
	k := b.kinds[0]
	mark, err := b.told(ctx, p.session, k)
	if err != nil {
		return err
	}
	if err := b.prepared(ctx, k); err != nil {
		return err
	}
	var wg sync.WaitGroup
	var longest time.Duration
	var failed error
	over := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			began := time.Now()
			if failed = b.asked(ctx, p.session, k.name, k, mark); failed != nil {
				return
			}
			longest = max(longest, time.Since(began))
		}
	})
	ids, still, err := b.forkPaused(ctx, p.session, 1)
	close(over)
	wg.Wait()
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	p.still.add(still)
	p.waited.add(longest)
	if err := b.asked(ctx, ids[0], k.name, k, mark); err != nil {
		return err
	}
	return b.close(ctx, ids...)
}
