package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/torture"
)

// TestSandboxKillGateway keeps sessions with a sandbox each under load and kills
// the gateway again and again in the middle: some have running calls, some
// are parked, some are being opened, forked or restored, and now and then all of
// them are being laid to rest. The next gateway has every session with all that
// was answered, forks are whole or not there, and in the end nothing is left.
func TestSandboxKillGateway(t *testing.T) {
	g := startGateway(t, "sessions: {memory: off}\nservers:\n"+yamlBox(t, "box"))
	killGateway(t, g, torture.Or(12, 50), torture.Or(5, 20), 6)
}

// killGateway does that to a gateway whose server "box" is the state server.
func killGateway(t *testing.T, g *gateway, sessions, rounds, callers int) {
	b := watchBoxes(t, g)
	w := newBoxCrowd(g.client(t), "box", sessions)
	first := openSession(t, w.c, api.NewSession{})
	root := w.add(first.ID)
	if err := root.put(t.Context(), w.c, w.box, "root"); err != nil {
		t.Fatal(err)
	}
	before, _ := root.known()
	for len(w.members) < sessions {
		for _, s := range fork(t, w.c, first.ID, min(7, sessions-len(w.members))) {
			w.join(root.child(s.ID, before))
		}
	}
	seed := rand.Uint64()
	began := time.Now()
	stood := 0 // parked, in all
	for round := range rounds {
		if round%7 == 3 { // they are idle for a while
			if err := eventually(func() error {
				parked, _ := parkedNow(g.state())
				if parked < sessions/2 {
					return fmt.Errorf("%d sandboxes are parked", parked)
				}
				stood += parked
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(round*callers+i)))
				for ctx.Err() == nil {
					if err := w.act(ctx, rng); err != nil && ctx.Err() == nil {
						t.Errorf("round %d: %v", round, err)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(300+rand.IntN(1700)) * time.Millisecond) // killed at any moment
		parked, live := parkedNow(g.state())
		stood += parked
		if round%5 == 4 { // it is asked to stop, and killed while it lays them to rest
			cancel()
			all.Wait()
			_ = g.cmd.Process.Signal(syscall.SIGTERM)
			time.Sleep(time.Duration(rand.IntN(1500)) * time.Millisecond) // and then at any moment
		}
		g.kill()
		cancel()
		all.Wait()
		if round%3 == 0 {
			g.stumble(t, time.Duration(rand.IntN(300))*time.Millisecond)
		}
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		w.c = g.client(t)
		if err := w.check(t.Context(), 0.3); err != nil {
			t.Fatalf("round %d, seed %d: %v", round, seed, err)
		}
		t.Logf("round %d: of the sandboxes %d were parked, %d not", round, parked, live)
	}
	if err := w.check(t.Context(), 1); err != nil {
		t.Fatalf("in the end, seed %d: %v", seed, err)
	}
	if stood == 0 {
		t.Error("no sandbox was ever parked")
	}
	t.Logf("%d rounds in %s: %v", rounds, time.Since(began).Round(time.Second), w.counts)
	b.closeBoxes(t)
}
