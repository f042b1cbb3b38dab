//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// sendBatch sends a batch and returns its lines by item.
func sendBatch(ctx context.Context, c *client.Client, in api.Batch, options ...client.CreateOption) (map[int]api.BatchLine, int, error) {
	all := map[int]api.BatchLine{}
	failed, err := c.Batch(ctx, in, func(l api.BatchLine) error {
		all[*l.Item] = l
		return nil
	}, options...)
	return all, failed, err
}

func mustBatch(t testing.TB, c *client.Client, in api.Batch, options ...client.CreateOption) map[int]api.BatchLine {
	t.Helper()
	all, failed, err := sendBatch(t.Context(), c, in, options...)
	if err != nil || failed != 0 || len(all) != len(in.Items) {
		for _, l := range all {
			if l.Error != nil {
				t.Logf("item %d: %v", *l.Item, l.Error)
			}
		}
		t.Fatalf("of a batch of %d, %d are answered and %d failed: %v", len(in.Items), len(all), failed, err)
	}
	return all
}

// TestBatch is the life of 300 worlds in three batches: forked, called once, closed.
func TestBatch(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBuiltins)
	c := g.client(t)
	parents := mustBatch(t, c, api.Batch{Atomic: true, Items: []api.BatchItem{{Open: &api.NewSession{}}, {Open: &api.NewSession{}}, {Open: &api.NewSession{}}}})
	var forks api.Batch
	for i := range 3 {
		memoryShelf("mem").mustPut(t, c, parents[i].Opened.ID, "k", fmt.Sprint(i))
		forks.Items = append(forks.Items, api.BatchItem{Fork: &api.BatchFork{Session: parents[i].Opened.ID, ForkRequest: api.ForkRequest{Count: 100}}})
	}
	var calls, closes api.Batch
	var parent []int
	for i, l := range mustBatch(t, c, forks) {
		for _, s := range l.Forks.Sessions {
			calls.Items = append(calls.Items, api.BatchItem{Call: &api.CallRequest{Tool: "mem__read_graph", Session: s.ID, Arguments: json.RawMessage(`{}`)}})
			closes.Items = append(closes.Items, api.BatchItem{Close: &api.BatchClose{Session: s.ID}})
			parent = append(parent, i)
		}
	}
	for i, l := range mustBatch(t, c, calls) {
		var r toolResult
		var graph struct{ Entities []entity }
		err := decodeInto(l.Result, &r)
		if err == nil {
			err = decodeInto([]byte(r.text()), &graph)
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(graph.Entities) != 1 || graph.Entities[0].Observations[0] != fmt.Sprint(parent[i]) || l.Call == "" {
			t.Errorf("world %d of parent %d has %+v, by call %q", i, parent[i], graph, l.Call)
		}
	}
	for i, l := range mustBatch(t, c, closes) {
		if !l.Closed {
			t.Errorf("world %d: %+v", i, l)
		}
	}
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}

// TestBatchKilled kills the gateway in the middle of batches that open and fork. An
// atomic one that was not answered has made nothing; one with a key gives the same
// sessions when it is repeated, and nothing is made twice.
func TestBatchKilled(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBuiltins)
	for round := range 6 {
		c := g.client(t)
		parent := openSession(t, c, api.NewSession{})
		memoryShelf("mem").mustPut(t, c, parent.ID, "k", "v")
		label := map[string]string{"round": fmt.Sprint(round)}
		in := api.Batch{Atomic: round%3 != 2}
		for i := range 40 {
			if i%4 == 0 {
				in.Items = append(in.Items, api.BatchItem{Fork: &api.BatchFork{Session: parent.ID, ForkRequest: api.ForkRequest{Count: 2, Labels: label}}})
			} else {
				in.Items = append(in.Items, api.BatchItem{Open: &api.NewSession{Labels: label}})
			}
		}
		var options []client.CreateOption
		if round%3 != 0 {
			options = append(options, client.Once(fmt.Sprintf("batch-%d", round)))
		}
		type answer struct {
			all map[int]api.BatchLine
			err error
		}
		answered := make(chan answer, 1)
		go func() {
			all, _, err := sendBatch(t.Context(), c, in, options...)
			answered <- answer{all, err}
		}()
		time.Sleep(time.Duration(20+rand.IntN(150)) * time.Millisecond) // killed at any moment
		g.kill()
		first := <-answered
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		c = g.client(t)
		made, err := openSessions(t.Context(), c, client.SessionQuery{Labels: label})
		if err != nil {
			t.Fatal(err)
		}
		const whole = 10*2 + 30
		if in.Atomic && len(made) != 0 && len(made) != whole {
			t.Errorf("round %d: %d of %d sessions are there after the kill", round, len(made), whole)
		}
		if in.Atomic && first.err == nil && len(made) != whole {
			t.Errorf("round %d: the batch was answered, and %d of %d sessions are there", round, len(made), whole)
		}
		t.Logf("round %d, atomic %v: %d items answered before the kill (%v), %d sessions after it", round, in.Atomic, len(first.all), first.err, len(made))
		if options != nil {
			again := mustBatch(t, c, in, options...)
			for i, l := range first.all {
				if l.Opened != nil && again[i].Opened.Token != l.Opened.Token || l.Forks != nil && again[i].Forks.Sessions[1].Token != l.Forks.Sessions[1].Token {
					t.Errorf("round %d: item %d is another one when it is repeated", round, i)
				}
			}
			if made, err = openSessions(t.Context(), c, client.SessionQuery{Labels: label}); err != nil || len(made) != whole {
				t.Errorf("round %d: %d sessions are there after the batch was repeated, want %d: %v", round, len(made), whole, err)
			}
		}
		if err := closeAll(t.Context(), c); err != nil {
			t.Error(err)
		}
	}
	nothingLeft(t, g)
}
