//go:build unix

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/torture"
)

// TestSessionProperty makes random calls, forks, snapshots, rewinds, closes and
// kills of the gateway, and holds all sessions against plain maps. A seed that
// failed is tried again with TINE_TEST_SEED; kills come at other moments then.
func TestSessionProperty(t *testing.T) {
	t.Parallel()
	seeds := make([]uint64, torture.Or(1, 4))
	for i := range seeds {
		seeds[i] = rand.Uint64()
	}
	if s := os.Getenv("TINE_TEST_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = []uint64{seed}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			property(t, seed, torture.Or(120, 300))
		})
	}
}

func property(t *testing.T, seed uint64, steps int) {
	g := startGateway(t, "servers:\n"+yamlBuiltins+yamlState(t, "prog"))
	m := &model{
		c:       g.client(t),
		rng:     rand.New(rand.NewPCG(seed, 4)),
		shelves: []*shelf{memoryShelf("mem"), filesShelf("files"), sqliteShelf("db"), programShelf("prog")},
	}
	var history []string
	fail := func(err error) {
		t.Helper()
		t.Fatalf("seed %d, step %d: %v\nwhat was done:\n  %s", seed, len(history), err, strings.Join(history, "\n  "))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	restart := func() {
		t.Helper()
		if err := g.start(); err != nil {
			fail(err)
		}
		m.c = g.client(t)
	}
	kills, unknown := 0, 0
	for step := range steps {
		a := m.propose()
		if a.do == nil {
			continue
		}
		if m.rng.IntN(12) > 0 {
			history = append(history, a.text)
			if err := a.do(ctx); err != nil {
				fail(fmt.Errorf("%s: %w", a.text, err))
			}
			a.done()
		} else {
			kills++
			history = append(history, a.text+", and a kill meanwhile")
			delay := time.Duration(m.rng.ExpFloat64() * float64(3*time.Millisecond))
			answer := make(chan error, 1)
			go func() { answer <- a.do(ctx) }()
			time.Sleep(delay) // before, during or after what is asked for
			g.kill()
			err := <-answer
			restart()
			switch e := kindOf(err); {
			case err == nil:
				a.done()
			case e != nil:
				fail(fmt.Errorf("%s was refused: %w", a.text, err))
			case errors.As(err, new(*wrongAnswer)):
				fail(err)
			default:
				unknown++
				if err := a.settle(ctx); err != nil {
					fail(fmt.Errorf("%s, during which the gateway was killed: %w", a.text, err))
				}
			}
		}
		if step%8 == 7 || step == steps-1 {
			if err := m.compareAll(ctx); err != nil {
				fail(err)
			}
		}
	}
	t.Logf("seed %d: %d changes, %d kills, %d of them with an unknown outcome; %d sessions and %d snapshots at the end",
		seed, len(history), kills, unknown, len(m.live), len(m.frozen))
	if err := closeAll(ctx, m.c); err != nil {
		fail(err)
	}
	nothingLeft(t, g)
}
