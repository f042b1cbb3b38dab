//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// agentsConfig renders the config of agents whose executors are the programs of
// testdata/agents.
func agentsConfig(t testing.TB, more string) string {
	t.Helper()
	dir, err := filepath.Abs("testdata/agents")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("servers:\n  mem: {builtin: memory}\n  orchestrator: {builtin: orchestrator}\nagents:\n" + more + "  executors:\n")
	for _, name := range []string{"worker", "failing", "boss", "lead", "stubborn", "asked", "patient"} {
		fmt.Fprintf(&b, "    %s: {type: command, command: python3, args: [-B, %q]}\n", name, filepath.Join(dir, name+".py"))
	}
	return b.String()
}

var agentBlueprints = map[string]string{
	"worker": `description: Notes a prompt and answers it
executor: worker
mcp_servers: {mem: {}}
parameters:
  type: object
  properties: {prompt: {type: string}, depth: {type: integer, default: 2}}
  required: [prompt]
  additionalProperties: false
`,
	"failing": "executor: failing\n",
	"boss": `executor: boss
mcp_servers: {orchestrator: {}}
agents: [worker]
parameters:
  type: object
  properties: {prompt: {type: string}, other: {type: string}}
`,
	"lead":     "executor: lead\nmcp_servers: {orchestrator: {}}\nagents: [patient]\n",
	"stubborn": "executor: stubborn\n",
	"asked":    "parameters: {type: object, properties: {end: {type: string}}}\nexecutor: asked\nexecutor_config: {persistent: true}\n",
	"patient": `executor: patient
mcp_servers: {mem: {}}
parameters:
  type: object
  properties: {prompt: {type: string}, after: {type: boolean}}
  required: [prompt]
`,
}

// newAgents prepares a gateway with agents.
func newAgents(t testing.TB, more string) *gateway {
	t.Helper()
	g := newGateway(t, agentsConfig(t, more))
	g.writeAgents(t, agentBlueprints)
	return g
}

// writeAgents writes blueprints beside the config, by the names of their agents.
func (g *gateway) writeAgents(t testing.TB, all map[string]string) {
	t.Helper()
	for name, text := range all {
		path := filepath.Join(g.dir, "agents", name, "agent.yaml")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func startRun(t testing.TB, c *client.Client, in api.NewRun) *api.Run {
	t.Helper()
	r, err := c.StartRun(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ended waits for a run, which must end in a state.
func ended(t testing.TB, c *client.Client, run, state string) *api.Run {
	t.Helper()
	var got *api.Run
	err := eventually(func() error {
		r, err := c.Run(t.Context(), run, 0)
		switch {
		case err != nil:
			return final{err}
		case !api.RunEnded(r.State):
			return fmt.Errorf("run %s is %s", run, r.State)
		}
		got = r
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got.State != state {
		t.Fatalf("run %s of %s is %s, want %s: %+v", run, got.Agent, got.State, state, got.Error)
	}
	return got
}

// runEvents are the types of what was told of a run so far, with its states by their
// names.
func runEvents(t testing.TB, c *client.Client, run string) (all []string) {
	t.Helper()
	for e, err := range c.Events(t.Context(), client.EventFilter{Types: []string{"run"}, Run: run, After: api.EventsFromStart, Once: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Run != run || !e.Durable {
			t.Errorf("among the events of run %s is %+v", run, e)
		}
		switch {
		case e.State != "":
			all = append(all, e.State)
		case e.Type == api.EventRunState:
			all = append(all, "bound")
		default:
			all = append(all, strings.TrimPrefix(e.Type, "run."))
		}
	}
	return all
}

// firstText waits for the first text of a run.
func firstText(t testing.TB, c *client.Client, run string) string {
	t.Helper()
	var text struct{ Text string }
	err := eventually(func() error {
		for e, err := range c.Events(t.Context(), client.EventFilter{Types: []string{api.EventRunText}, Run: run, After: api.EventsFromStart, Once: true}) {
			if err != nil {
				return final{err}
			}
			return json.Unmarshal(e.Data, &text)
		}
		return fmt.Errorf("run %s has told nothing", run)
	})
	if err != nil {
		t.Fatal(err)
	}
	return text.Text
}

// endedOnce holds that a run went through these states, and through each once.
func endedOnce(t testing.TB, c *client.Client, run string, want ...string) {
	t.Helper()
	var states []string
	for _, e := range runEvents(t, c, run) {
		if slices.Contains([]string{api.RunPending, api.RunClaimed, api.RunRunning, api.RunStopping, api.RunCompleted, api.RunFailed, api.RunStopped}, e) {
			states = append(states, e)
		}
	}
	if !slices.Equal(states, want) {
		t.Errorf("run %s went through %v, want %v", run, states, want)
	}
}

// resultOf reads the data of a run's result.
func resultOf[T any](t testing.TB, r *api.Run) (data T) {
	t.Helper()
	if r.Result == nil {
		t.Fatalf("run %s has no result", r.ID)
	}
	if err := json.Unmarshal(r.Result.Data, &data); err != nil {
		t.Fatalf("the data of run %s: %v in %s", r.ID, err, r.Result.Data)
	}
	return data
}

// closeAgents closes the sessions of all agents, after which nothing may be left.
func closeAgents(t testing.TB, g *gateway) {
	t.Helper()
	c := g.client(t)
	for q := (client.AgentSessionQuery{Limit: 100}); ; {
		list, err := c.AgentSessions(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list.Sessions {
			if err := c.CloseAgentSession(t.Context(), s.ID); err != nil {
				t.Error(err)
			}
		}
		if q.After = list.Next; q.After == "" {
			break
		}
	}
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}
