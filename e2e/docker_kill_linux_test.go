package e2e

import (
	"context"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/torture"
)

// TestDockerEngineKilled kills the engine under a gateway with sessions. Calls
// fail meanwhile and say whose fault that is; when the engine is back, the
// sessions have what they had declared as state, and forks go on.
func TestDockerEngineKilled(t *testing.T) {
	t.Parallel()
	e := startPrivateEngine(t)
	g := startGateway(t, "servers:\n"+
		e.yaml("pipe", imageStatic, `command: [stateserver, -dir, /data], state: [/data]`)+
		e.yaml("whole", imageStatic, `command: [stateserver, -dir, /data], state: [root]`)+
		"  mem: {builtin: memory}\n")
	c := g.client(t)
	id := gatewayID(t, g)
	shelves := []*shelf{programShelf("pipe"), programShelf("whole"), memoryShelf("mem")}
	s := openSession(t, c, api.NewSession{})
	for _, sh := range shelves {
		sh.mustPut(t, c, s.ID, "a", "before")
	}
	child := fork(t, c, s.ID, 1)[0]

	e.kill()
	// What is not in the engine goes on.
	shelves[2].mustPut(t, c, s.ID, "b", "meanwhile")
	if _, err := c.Fork(t.Context(), s.ID, api.ForkRequest{}); err == nil {
		t.Error("a session was forked without its engine")
	} else if k := kindOf(err); k == nil || k.Kind == api.KindTool {
		t.Errorf("a fork without the engine: %v, want an error of ours", err)
	}
	if err := e.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, sh := range shelves[:2] {
		for _, session := range []string{s.ID, child.ID} {
			// The first calls may hear of the container that died.
			if err := eventually(func() error {
				_, err := sh.all(t.Context(), sh.on(c, session))
				return err
			}); err != nil {
				t.Fatalf("after the engine is back: %v", err)
			}
			sh.mustHold(t, c, session, map[string]string{"a": "before"})
		}
	}
	shelves[2].mustHold(t, c, s.ID, map[string]string{"a": "before", "b": "meanwhile"})
	for _, sh := range shelves[:2] {
		sh.mustPut(t, c, s.ID, "c", "after")
	}
	later := fork(t, c, s.ID, 1)[0]
	for _, sh := range shelves[:2] {
		sh.mustHold(t, c, later.ID, map[string]string{"a": "before", "c": "after"})
		sh.mustHold(t, c, child.ID, map[string]string{"a": "before"})
	}
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
	if _, err := g.stop(); err != nil {
		t.Fatal(err)
	}
	e.nothingOf(t, id)
}

// TestDockerBothKilled kills gateway and engine while sessions are opened and
// forked. The parts of an unfinished fork are gone when both are back and the sessions
// are closed.
func TestDockerBothKilled(t *testing.T) {
	t.Parallel()
	e := startPrivateEngine(t)
	g := startGateway(t, "servers:\n"+
		e.yaml("pipe", imageStatic, `command: [stateserver, -dir, /data], state: [/data]`)+
		e.yaml("whole", imageStatic, `command: [stateserver, -dir, /data], state: [root]`))
	id := gatewayID(t, g)
	shelves := []*shelf{programShelf("pipe"), programShelf("whole")}
	c := g.client(t)
	s := openSession(t, c, api.NewSession{})
	for _, sh := range shelves {
		sh.mustPut(t, c, s.ID, "a", "before")
	}
	for round := range torture.Or(1, 3) {
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		begun := make(chan struct{}, 100)
		for range 2 {
			all.Go(func() {
				for ctx.Err() == nil {
					select {
					case begun <- struct{}{}:
					default:
					}
					// Killed in the middle, it fails as it likes.
					_, _ = c.Fork(ctx, s.ID, api.ForkRequest{Count: 2, Wait: "5s"})
				}
			})
		}
		for range 2 + round {
			<-begun
		}
		g.kill()
		e.kill()
		cancel()
		all.Wait()
		if err := e.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		c = g.client(t)
		for _, sh := range shelves {
			if err := eventually(func() error {
				_, err := sh.all(t.Context(), sh.on(c, s.ID))
				return err
			}); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			sh.mustHold(t, c, s.ID, map[string]string{"a": "before"})
		}
	}
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
	if _, err := g.stop(); err != nil {
		t.Fatal(err)
	}
	e.nothingOf(t, id)
}
