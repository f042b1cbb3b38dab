//go:build unix

package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// TestSessionOnce kills the gateway under requests that carry a key. Each is
// repeated until it is answered, and has made one session, fork or snapshot:
// nothing twice, and what was answered before is answered the same.
func TestSessionOnce(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBuiltins)
	var c *client.Client
	type request struct {
		label  map[string]string
		send   func(context.Context) (string, error)
		answer string
	}
	for round := range 8 {
		c = g.client(t)
		parent := openSession(t, c, api.NewSession{})
		memoryShelf("mem").mustPut(t, c, parent.ID, "k", "v")
		var requests []*request
		for i := range 60 {
			r := &request{label: map[string]string{"request": fmt.Sprintf("%d-%d", round, i)}}
			key := client.Once(fmt.Sprintf("key-%d-%d-%d", round, i, rand.Uint64()))
			switch i % 3 {
			case 0:
				r.send = func(ctx context.Context) (string, error) {
					s, err := c.OpenSession(ctx, api.NewSession{Labels: r.label}, key)
					if err != nil {
						return "", err
					}
					return s.ID + " " + s.Token, nil
				}
			case 1:
				r.send = func(ctx context.Context) (string, error) {
					f, err := c.Fork(ctx, parent.ID, api.ForkRequest{Labels: r.label}, key)
					if err != nil {
						return "", err
					}
					return f.Sessions[0].ID + " " + f.Sessions[0].Token, nil
				}
			default:
				r.send = func(ctx context.Context) (string, error) {
					s, err := c.MakeSnapshot(ctx, parent.ID, api.SnapshotRequest{Name: fmt.Sprintf("name-%d-%d", round, i), Labels: r.label}, key)
					if err != nil {
						return "", err
					}
					return s.ID, nil
				}
			}
			requests = append(requests, r)
		}
		var wg sync.WaitGroup
		for _, r := range requests {
			wg.Go(func() {
				var err error
				if r.answer, err = r.send(t.Context()); err != nil && kindOf(err) != nil {
					t.Errorf("round %d, request %v: %v", round, r.label, err)
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(60)) * time.Millisecond) // killed at any moment
		g.kill()
		wg.Wait()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		c = g.client(t)
		answered := 0
		for _, r := range requests {
			again, err := r.send(t.Context())
			if err != nil {
				t.Errorf("round %d, request %v repeated: %v", round, r.label, err)
				continue
			}
			if r.answer != "" {
				answered++
				if again != r.answer {
					t.Errorf("round %d, request %v: answered %q, and repeated %q", round, r.label, r.answer, again)
				}
			}
			made, err := openSessions(t.Context(), c, client.SessionQuery{Labels: r.label})
			if err != nil {
				t.Fatal(err)
			}
			all := slices.Collect(maps.Keys(made))
			for s, err := range c.AllSnapshots(t.Context(), client.SnapshotQuery{Labels: r.label}) {
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, s.ID)
			}
			if len(all) != 1 {
				t.Errorf("round %d, request %v made %v, want one", round, r.label, all)
			}
		}
		t.Logf("round %d: %d of %d were answered before the kill", round, answered, len(requests))
	}
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}
