//go:build linux

package e2e

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/torture"
)

// TestSessionKill keeps sessions of mixed drivers under load, kills the
// gateway again and again in the middle, and holds that the next one has every
// session with all that was answered, and in the end nothing without an
// owner.
func TestSessionKill(t *testing.T) {
	t.Parallel()
	sessions, rounds, callers := torture.Or(40, 200), torture.Or(4, 20), torture.Or(6, 12)
	g := startGateway(t, "sessions: {memory: off}\nservers:\n"+yamlBuiltins+yamlState(t, "prog")+yamlMemory(t, "graph"))
	builtins := []*shelf{memoryShelf("mem"), filesShelf("files"), sqliteShelf("db")}
	program := append(slices.Clone(builtins), programShelf("prog"))
	reference := memoryShelf("graph")
	reference.serial = true // it reads its file, changes it and writes it, with nothing to keep others out
	graph := []*shelf{memoryShelf("mem"), reference}
	w := &crowd{c: g.client(t), frozen: map[string]bool{}, counts: map[string]int{}}
	for i := range sessions {
		shelves := builtins
		switch {
		case i%(sessions/4) == 0:
			shelves = graph
		case i%3 == 0:
			shelves = program
		}
		s, err := w.c.OpenSession(t.Context(), api.NewSession{Servers: serversOf(shelves)})
		if err != nil {
			t.Fatal(err)
		}
		w.add(newCrowdMember(s.ID, shelves))
	}
	seed := rand.Uint64()
	began := time.Now()
	for round := range rounds {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(seed, uint64(round*callers+i)))
				for ctx.Err() == nil {
					if err := w.act(ctx, rng, sessions); err != nil && ctx.Err() == nil {
						t.Errorf("round %d: %v", round, err)
						return
					}
				}
			})
		}
		time.Sleep(time.Duration(200+rand.IntN(600)) * time.Millisecond) // killed at any moment
		g.kill()
		cancel()
		all.Wait()
		if round%3 == 0 {
			g.stumble(t, time.Duration(rand.IntN(150))*time.Millisecond)
		}
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		w.c = g.client(t)
		if err := w.check(t.Context()); err != nil {
			t.Fatalf("round %d, seed %d: %v", round, seed, err)
		}
	}
	t.Logf("%d rounds in %s: %v", rounds, time.Since(began).Round(time.Second), w.counts)
	if err := closeAll(t.Context(), w.c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}

// stumble starts the gateway and kills it while it looks through what the one
// before it left.
func (g *gateway) stumble(t testing.TB, after time.Duration) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), cmp.Or(g.program, tineBinary), append([]string{"serve", "--listen", "127.0.0.1:0", "--state", g.state()}, g.args...)...)
	cmd.Dir = g.dir
	cmd.Env = append(os.Environ(), g.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: g.as}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after) // killed at any moment
	cmd.Process.Kill()
	cmd.Wait()
}
