//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// rows are the steps of a trajectory.
func rows(t testing.TB, c *client.Client, session string) (all []api.Step) {
	t.Helper()
	for step, err := range c.Trajectory(t.Context(), session) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, step)
	}
	return all
}

// TestAnnotations kills the gateway while rewards are noted with keys. Each is repeated
// until it is answered, and is in the trajectory once, of its call.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBuiltins)
	c := g.client(t)
	s := openSession(t, c, api.NewSession{})
	const calls = 40
	var ids []string
	for i := range calls {
		out, err := c.CallTool(t.Context(), api.CallRequest{
			Tool: "mem__create_entities", Session: s.ID, Meta: json.RawMessage(fmt.Sprintf(`{"turn":%d}`, i)),
			Arguments: json.RawMessage(fmt.Sprintf(`{"entities":[{"name":"e%d","entityType":"t","observations":[]}]}`, i)),
		}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, out.Call)
	}
	for round := range 3 {
		note := func(ctx context.Context, c *client.Client, i int) error {
			reward := float64(round*calls + i)
			_, err := c.Annotate(ctx, s.ID, api.NewAnnotation{Call: ids[i], Reward: &reward, TokenIDs: []int64{int64(i)}}, client.Once(fmt.Sprintf("note-%d-%d", round, i)))
			return err
		}
		var wg sync.WaitGroup
		for i := range calls {
			wg.Go(func() {
				if err := note(t.Context(), c, i); err != nil && kindOf(err) != nil {
					t.Errorf("round %d, annotation %d: %v", round, i, err)
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond) // killed at any moment
		g.kill()
		wg.Wait()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		c = g.client(t)
		for i := range calls {
			if err := note(t.Context(), c, i); err != nil {
				t.Fatalf("round %d, annotation %d repeated: %v", round, i, err)
			}
		}
	}
	seen, turns := map[string][]float64{}, 0
	for _, step := range rows(t, c, s.ID) {
		switch step.Type {
		case "annotation":
			seen[step.Call] = append(seen[step.Call], *step.Reward)
		case "call":
			if want := fmt.Sprintf(`{"turn":%d}`, turns); string(step.Meta) != want {
				t.Errorf("call %d has meta %s, want %s", turns, step.Meta, want)
			}
			turns++
		}
	}
	for i, id := range ids {
		got := map[float64]int{}
		for _, r := range seen[id] {
			got[r]++
		}
		for round := range 3 {
			if n := got[float64(round*calls+i)]; n != 1 {
				t.Errorf("the reward of call %d in round %d is there %d times, in %v", i, round, n, seen[id])
			}
		}
	}
	if turns != calls {
		t.Errorf("%d calls are told, want %d", turns, calls)
	}
	// The agent's own token, and the command line.
	agent := g.clientAs(t, s.Token)
	reward := 100.0
	if _, err := agent.Annotate(t.Context(), s.ID, api.NewAnnotation{Reward: &reward}); kindOf(err) == nil || kindOf(err).Status != 403 {
		t.Errorf("the session's token scores itself: %v", err)
	}
	if out := g.mustTine(t, "session", "annotate", s.ID, "--reward", "0.5", "--data", `{"a":1}`); !strings.HasPrefix(out, "call_") {
		t.Errorf("tine session annotate prints %q", out)
	}
	all := rows(t, c, s.ID)
	if last := all[len(all)-1]; last.Type != "annotation" || *last.Reward != 0.5 || string(last.Data) != `{"a":1}` || last.Call != "" {
		t.Errorf("the last step is %+v", last)
	}
}

// TestExportOfMany exports the sessions of a run after a kill of the gateway, by label
// and as one stream.
func TestExportOfMany(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBuiltins)
	c := g.client(t)
	want := map[string]int{} // calls of each session
	for i := range 20 {
		s := openSession(t, c, api.NewSession{Labels: map[string]string{"run": fmt.Sprint(i % 2)}})
		for n := range i {
			memoryShelf("mem").mustPut(t, c, s.ID, fmt.Sprint(n), "v")
		}
		if i%2 == 1 {
			want[s.ID] = i
			if i%4 == 1 {
				if err := c.CloseSession(t.Context(), s.ID); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	g.kill()
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	out := g.mustTine(t, "session", "export", "--label", "run=1", "--closed")
	got, last := map[string]int{}, api.Step{}
	for line := range strings.Lines(out) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "{") {
			continue
		}
		last = api.Step{}
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if last.Type == "call" {
			got[last.Of]++
		}
	}
	if !maps.Equal(got, want) || last.Type != "end" || *last.Sessions != len(want) {
		t.Errorf("the calls are %v, want %v; the last line is %+v", got, want, last)
	}
	n := 0
	for step, err := range g.client(t).Trajectories(t.Context(), client.SessionQuery{Labels: map[string]string{"run": "1"}}) {
		if err != nil {
			t.Fatal(err)
		}
		if step.Type == "end" {
			n = *step.Sessions
		}
	}
	if n != 5 {
		t.Errorf("%d open sessions are told, want 5", n)
	}
}
