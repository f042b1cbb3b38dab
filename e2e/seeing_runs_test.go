//go:build unix

package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// TestTraceOfRuns follows one trace from a client's span through a run, the run that its
// agent starts and the calls of that one, over a kill of the gateway.
func TestTraceOfRuns(t *testing.T) {
	t.Parallel()
	collected, endpoint := collectAt(t, "")
	g := newAgents(t, "")
	g.writeConfig(t, "telemetry: {otlp: {endpoint: "+endpoint+"}}\n"+agentsConfig(t, ""))
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.client(t)
	caller, dir := newClientSpan(), t.TempDir()
	body, err := json.Marshal(api.NewRun{Agent: "lead", Prompt: "planted-prompt", ProjectDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	r, err := post(t.Context(), g.url+"/v1/runs", http.Header{"Traceparent": {caller.parent("01")}, "Tracestate": {caller.state}}, string(body))
	var lead api.Run
	if err != nil || json.Unmarshal(r.body, &lead) != nil || lead.ID == "" {
		t.Fatalf("%d %s, %v", r.status, r.body, err)
	}
	session := firstText(t, c, lead.ID)
	list, err := c.Runs(t.Context(), client.RunQuery{Session: session})
	if err != nil || len(list.Runs) != 1 {
		t.Fatalf("it has started %+v, %v", list, err)
	}
	child := list.Runs[0]
	firstText(t, c, child.ID)
	// Two spans each of the call that has started the child, and of the child's first.
	collected.of(t, caller.trace, 4)
	g.kill()
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.client(t)
	if err := os.WriteFile(filepath.Join(dir, "go-part"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	end := ended(t, c, child.ID, api.RunCompleted)
	if _, err := c.StopRun(t.Context(), lead.ID); err != nil {
		t.Fatal(err)
	}
	ended(t, c, lead.ID, api.RunStopped)

	above, below := map[string]span{}, map[string][]span{}
	for _, s := range collected.of(t, caller.trace, 8) {
		above[s.id] = s
		below[s.parent] = append(below[s.parent], s)
		if s.state != caller.state {
			t.Errorf("span %s has the state %q, want %q", s.Name, s.state, caller.state)
		}
	}
	one := func(parent, name string) span {
		t.Helper()
		all := below[parent]
		if len(all) != 1 || all[0].Name != name {
			t.Fatalf("below %s are %v, want one %s", above[parent].Name, all, name)
		}
		return all[0]
	}
	holds := func(s span, want map[string]string) {
		t.Helper()
		for key, value := range want {
			if got := s.attr(key); got != value {
				t.Errorf("%s of %s is %q, want %q", key, s.Name, got, value)
			}
		}
	}
	of := one(caller.id, "invoke_agent lead")
	holds(of, map[string]string{"tine.run": lead.ID, "tine.session": lead.Session, "tine.executor": "lead", "tine.mode": "", "tine.state": api.RunStopped, "error.type": "cancelled"})
	started := one(of.id, "tools/call start_agent_session")
	if len(below[started.id]) != 2 {
		t.Fatalf("below the call are %v", below[started.id])
	}
	made, asks := below[started.id][0], below[started.id][1]
	if made.Name != "invoke_agent patient" {
		made, asks = asks, made
	}
	holds(asks, map[string]string{"gen_ai.tool.name": "start_agent_session", "tine.server": "orchestrator"})
	holds(made, map[string]string{
		"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "patient", "tine.run": child.ID, "tine.session": session, "tine.executor": "patient",
		"tine.mode": api.ModeAsyncCallback, "tine.state": api.RunCompleted, "tine.parent_run": lead.ID, "error.type": "",
	})
	if made.StartTimeUnixNano != uint64(end.Created.UnixNano()) || made.EndTimeUnixNano != uint64(end.Ended.UnixNano()) {
		t.Errorf("the child's span is from %d to %d, and the run from %v to %v", made.StartTimeUnixNano, made.EndTimeUnixNano, end.Created, end.Ended)
	}
	if got, want := resultOf[struct{ Trace string }](t, end).Trace, "00-"+caller.trace+"-"+made.id+"-01"; got != want {
		t.Errorf("the program had the trace context %q, want %q", got, want)
	}
	if len(below[made.id]) != 2 { // before the kill and after it
		t.Fatalf("below the child are %v", below[made.id])
	}
	for _, call := range below[made.id] {
		holds(one(call.id, "tools/call create_entities"), map[string]string{"tine.server": "mem"})
		holds(call, map[string]string{"tine.session": session})
	}
	if strings.Contains(collected.all(), "planted-prompt") {
		t.Error("a prompt is in a trace")
	}
	closeAgents(t, g)
}
