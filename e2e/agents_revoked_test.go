//go:build unix

package e2e

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// TestAgentRevoked revokes tokens whose owners have agents at work: at a gateway that runs, and
// at one that was killed.
func TestAgentRevoked(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("testdata/agents")
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, "servers:\n  orchestrator: {builtin: orchestrator}\n"+
		fmt.Sprintf("agents:\n  executors:\n    actor: {type: command, command: python3, args: [-B, %q]}\n", dir+"/actor.py"))
	g.writeAgents(t, map[string]string{"actor": flowAgents["actor"], "step": flowAgents["step"]})
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{"ada": g.newToken(t, "ada"), "bob": g.newToken(t, "bob")}
	for _, name := range []string{"ada", "bob"} {
		c := g.clientAs(t, tokens[name])
		boss := ended(t, c, startRun(t, c, api.NewRun{Agent: "actor", Parameters: map[string]any{
			"calls": []any{starting("step", api.ModeAsyncCallback, map[string]any{"mark": "never", "end": "well"})},
		}}).ID, api.RunCompleted)
		below, err := c.Runs(t.Context(), client.RunQuery{Parent: boss.Session, Limit: 10})
		if err != nil || len(below.Runs) != 1 {
			t.Fatalf("the runs below: %+v, %v", below, err)
		}
		if name == "bob" {
			g.kill()
		}
		if _, err := g.tine(t.Context(), "token", "revoke", name); err != nil {
			t.Fatal(err)
		}
		if name == "bob" {
			if err := g.start(); err != nil {
				t.Fatal(err)
			}
		}
		operator := g.client(t)
		if r := ended(t, operator, below.Runs[0].ID, api.RunStopped); r.StoppedBy != "the end of its owner's access" {
			t.Errorf("%s: stopped by %q", name, r.StoppedBy)
		}
		if all, err := operator.Runs(t.Context(), client.RunQuery{Session: boss.Session, Limit: 10}); err != nil || len(all.Runs) != 1 {
			t.Errorf("%s: runs of the agent that was to be told: %+v, %v", name, all, err)
		}
		if _, err := operator.StartRun(t.Context(), api.NewRun{Session: boss.Session, Prompt: "go on"}); kindOf(err) == nil || kindOf(err).Kind != api.KindRefused {
			t.Errorf("%s: an operator resumes it: %v", name, err)
		}
	}
	closeAgents(t, g)
}
