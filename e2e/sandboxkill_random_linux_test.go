package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/torture"
)

// TestSandboxKillAtRandom kills sandboxes, gofers and helpers of a gateway with
// sessions under load. Calls that are hit say so, and the server starts again;
// sessions that are not hit lose nothing and notice nothing, forks of them succeed
// or fail as a whole, and those that were parked all the while are as they were.
func TestSandboxKillAtRandom(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "sessions: {memory: off}\nservers:\n"+yamlBox(t, "box"))
	b := watchBoxes(t, g)
	w := newBoxCrowd(g.client(t), "box", 12)
	for i := range 12 {
		m := w.add(openSession(t, w.c, api.NewSession{}).ID)
		if err := m.put(t.Context(), w.c, w.box, fmt.Sprintf("first%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	hit, spared, still := slices.Clone(w.members[:4]), slices.Clone(w.members[4:9]), slices.Clone(w.members[9:])

	ctx := t.Context()
	var over atomic.Bool // running calls are waited for
	var load sync.WaitGroup
	kinds := &tally{n: map[string]int{}}
	for _, m := range hit {
		load.Go(func() {
			for !over.Load() {
				kinds.of(t, m.put(ctx, w.c, w.box, w.word()))
				time.Sleep(5 * time.Millisecond) // others want the processor too
			}
		})
	}
	for i, m := range spared {
		load.Go(func() {
			for !over.Load() {
				if err := m.put(ctx, w.c, w.box, w.word()); err != nil {
					t.Errorf("an untouched session: %v", err)
				}
				time.Sleep(10 * time.Millisecond) // others want the processor too
			}
		})
		if i < 2 {
			load.Go(func() {
				for !over.Load() {
					kinds.of(t, w.forkOnce(ctx, m))
				}
			})
		}
	}
	rng := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for n := range torture.Or(9, 24) {
		time.Sleep(time.Duration(100+rng.IntN(250)) * time.Millisecond) // killed at any moment
		victim, role := 0, "helper"
		if n%3 == 0 {
			for _, p := range boxProcesses(g.state()) {
				if p.role == "helper" {
					victim = p.pid
				}
			}
		} else if all := g.boxesOf(pick(rng, hit).id); len(all) > 0 {
			if victim, role = all[0].PID, "boot"; n%3 == 1 {
				victim, role = all[0].Gofer.PID, "gofer"
			}
		}
		if victim > 1 {
			_ = syscall.Kill(victim, syscall.SIGKILL)
			kinds.add("killed a " + role)
		}
	}
	over.Store(true)
	load.Wait()
	t.Log(kinds.n)
	if kinds.n[string(api.KindLost)] == 0 {
		t.Error("no call reported a loss")
	}

	// Those that were hit begin anew, and work.
	for _, m := range hit {
		var held map[string]string
		if err := eventually(func() (err error) {
			held, err = w.box.all(t.Context(), w.box.on(w.c, m.id))
			return err
		}); err != nil {
			t.Errorf("after all that: %v", err)
			continue
		}
		sure, maybe := m.known()
		for key, value := range held {
			if sure["box"][key] != value && maybe["box"][key] != value {
				t.Errorf("%s has %q = %q, which was never put there", m.id, key, value)
			}
		}
		w.box.mustPut(t, w.c, m.id, "after", "all")
		if now := maps.Clone(held); true {
			now["after"] = "all"
			w.box.mustHold(t, w.c, m.id, now)
		}
	}
	// The others have all they had, and can be forked.
	for _, m := range slices.Concat(spared, still) {
		if err := m.check(t.Context(), w.c); err != nil {
			t.Error(err)
		}
		before, _ := m.known()
		for _, s := range fork(t, w.c, m.id, 1) {
			w.box.mustHold(t, w.c, s.ID, before["box"])
		}
	}
	b.closeBoxes(t)
}

// forkOnce forks a session, looks at the child and closes it. Of a fork that failed
// there is nothing.
func (w *boxCrowd) forkOnce(ctx context.Context, m *crowdMember) error {
	before, _ := m.known()
	label := w.word()
	f, err := w.c.Fork(ctx, m.id, api.ForkRequest{Count: 2, Labels: map[string]string{"fork": label}})
	if err != nil {
		there, lerr := openSessions(ctx, w.c, client.SessionQuery{})
		for id, s := range there {
			if s.Labels["fork"] == label {
				lerr = errors.Join(lerr, fmt.Errorf("session %s is there of a fork that failed", id))
			}
		}
		if lerr != nil {
			return lerr
		}
		return err
	}
	for _, s := range f.Sessions {
		if err := m.child(s.ID, before).check(ctx, w.c); err != nil {
			return err
		}
		if err := w.c.CloseSession(ctx, s.ID); err != nil {
			return err
		}
	}
	return nil
}

// tally counts how calls ended.
type tally struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *tally) add(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n[what]++
}

// of holds that an error is that of a server which died: lost where the call may
// have happened, of the infrastructure and worth another try where it was not sent.
func (c *tally) of(t testing.TB, err error) {
	if err == nil {
		c.add("answered")
		return
	}
	e := kindOf(err)
	switch {
	case e == nil:
		t.Errorf("an error without a kind: %v", err)
	case e.Kind != api.KindLost && e.Kind != api.KindInfrastructure:
		t.Errorf("an error of the kind %q: %v", e.Kind, err)
	case e.Kind == api.KindInfrastructure && !e.Retryable:
		t.Errorf("no other try is offered: %v", err)
	case e.Server != "box" || !strings.Contains(err.Error(), "box"):
		t.Errorf("the server is not named: %v (%+v)", err, e)
	default:
		c.add(string(e.Kind))
	}
}
