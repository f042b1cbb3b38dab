//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// begins is a model that says so, calls a tool, and then goes on.
func begins(then func() modeltest.Reply) func(modeltest.Asked) modeltest.Reply {
	return func(a modeltest.Asked) modeltest.Reply {
		if len(a.Results) == 0 {
			r := calling(0, "mcp__mem__read_graph", map[string]any{})
			r.Text = "I begin."
			return r
		}
		return then()
	}
}

// answers is a model that says no more than that.
func answers(r modeltest.Reply) func(modeltest.Asked) modeltest.Reply {
	return func(modeltest.Asked) modeltest.Reply { return r }
}

// Tools that the model of an agent is offered, by the servers of its blueprint.
var (
	memTools = []string{"mcp__mem__add_observations", "mcp__mem__create_entities", "mcp__mem__create_relations", "mcp__mem__delete_entities",
		"mcp__mem__delete_observations", "mcp__mem__delete_relations", "mcp__mem__open_nodes", "mcp__mem__read_graph", "mcp__mem__search_nodes"}
	orchestratorTools = []string{"mcp__orchestrator__delete_all_agent_sessions", "mcp__orchestrator__get_agent_session_result",
		"mcp__orchestrator__get_agent_session_status", "mcp__orchestrator__list_agent_blueprints", "mcp__orchestrator__list_agent_sessions",
		"mcp__orchestrator__resume_agent_session", "mcp__orchestrator__resume_session", "mcp__orchestrator__start_agent_session", "mcp__orchestrator__start_session"}
	// leadTools has the tool of Claude Code by which a model gives a result that fits a schema.
	leadTools = slices.Concat([]string{"StructuredOutput"}, memTools, orchestratorTools, []string{"mcp__probe__get-env"})
)

// TestAgentClaude has Claude Code do runs: one that starts another agent and is called back,
// and such as do not come to their end by themselves, all at one gateway, which is killed
// in the end.
func TestAgentClaude(t *testing.T) {
	t.Parallel()
	paths := need(t, node, npmEverything)
	p := newTrap(t)
	edited, released := make(chan struct{}), make(chan struct{})
	releaseEdited, release := sync.OnceFunc(func() { close(edited) }), sync.OnceFunc(func() { close(released) })
	const quick = `env: {CLAUDE_CODE_MAX_RETRIES: "0"}` + "\n"
	w := newClaudeWorld(t, yamlServer("probe", paths[0], []string{paths[1]}, "tools: {allow: [get-env]}"), map[string]string{
		// Its program looks for settings where the trap is.
		"lead": "env: {CLAUDE_CONFIG_DIR: " + filepath.Join(p.home, ".claude") + ", HOME: " + p.home + `}
mcp_servers: {mem: {}, probe: {}, orchestrator: {}}
agents: [helper]
result: {type: object, required: [done], properties: {done: {type: boolean}, product: {type: integer}}}
`,
		"helper":  "mcp_servers: {mem: {}}\n",
		"refused": quick, "broken": quick, "overloaded": quick,
		"stopped": "mcp_servers: {mem: {}}\n",
		"killed":  "mcp_servers: {mem: {}}\n",
		"patient": "mcp_servers: {mem: {}}\n",
	}, map[string]func(modeltest.Asked) modeltest.Reply{
		"lead": func(a modeltest.Asked) modeltest.Reply {
			if strings.Contains(a.Said[len(a.Said)-1], "<agent-callback") {
				return calling(9, "StructuredOutput", map[string]any{"done": true, "product": 42})
			}
			return []modeltest.Reply{
				calling(0, "mcp__mem__create_entities", map[string]any{"entities": []any{map[string]any{"name": "task", "entityType": "note", "observations": []any{}}}}),
				calling(1, "mcp__probe__get-env", map[string]any{}),
				calling(2, "mcp__orchestrator__start_agent_session", map[string]any{"agent_name": "helper", "mode": "async_callback", "parameters": map[string]any{"prompt": "six times seven"}}),
				calling(3, "StructuredOutput", map[string]any{"done": false}),
			}[min(len(a.Results), 3)]
		},
		"helper": func(a modeltest.Asked) modeltest.Reply {
			<-edited
			return modeltest.Reply{Text: "It is 42."}
		},
		"refused":    answers(modeltest.Reply{Status: 401, Type: "authentication_error", Message: "invalid x-api-key"}),
		"broken":     answers(modeltest.Reply{Status: 500, Type: "api_error", Message: "something broke"}),
		"overloaded": answers(modeltest.Reply{Status: 529, Type: "overloaded_error", Message: "Overloaded"}),
		"stopped":    begins(func() modeltest.Reply { return modeltest.Reply{Hang: true} }),
		"killed":     begins(func() modeltest.Reply { return modeltest.Reply{Hang: true} }),
		"patient": func(a modeltest.Asked) modeltest.Reply {
			return begins(func() modeltest.Reply {
				<-released
				if len(a.Results) == 1 {
					return calling(1, "mcp__mem__search_nodes", map[string]any{"query": "x"})
				}
				return modeltest.Reply{Text: "I end."}
			})(a)
		},
	})
	t.Cleanup(func() { releaseEdited(); release() }) // the model ends after it
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	t.Run("works", func(t *testing.T) {
		t.Run("callback", func(t *testing.T) { t.Parallel(); w.calledBack(t, p, releaseEdited) })
		for agent, want := range map[string][]string{
			"refused":    {"Invalid API key", "(status 401); set ANTHROPIC_API_KEY in the environment of the gateway"},
			"broken":     {"500 something broke", `; the conversation is kept; go on with it later: tine runs send run_`},
			"overloaded": {"529 Overloaded", `; the conversation is kept; go on with it later: tine runs send run_`},
		} {
			t.Run(agent, func(t *testing.T) {
				t.Parallel()
				c := w.client(t)
				r := ended(t, c, startRun(t, c, api.NewRun{Agent: agent, Prompt: "Go."}).ID, api.RunFailed)
				testkit.Has(t, "the error", r.Error.Message, want...)
				if r.Error.Kind != api.KindInfrastructure || r.Error.Retryable != (agent != "refused") {
					t.Errorf("the error is %+v", r.Error)
				}
			})
		}
		t.Run("stopped", func(t *testing.T) { t.Parallel(); w.stopped(t) })
		t.Run("killed", func(t *testing.T) { t.Parallel(); w.killed(t) })
	})
	w.adopted(t, release)
	closeAgents(t, w.gateway)
}

// calledBack runs an agent that calls tools and starts another one, whose result it is
// resumed with.
func (w *claudeWorld) calledBack(t *testing.T, p *trap, helperMayEnd func()) {
	c := w.client(t)
	first := startRun(t, c, api.NewRun{Agent: "lead", Prompt: "Have it multiplied.", ProjectDir: p.project})
	r := ended(t, c, first.ID, api.RunCompleted)
	if data := string(r.Result.Data); data != `{"done":false}` || r.Result.Text != "" {
		t.Errorf("its result is %q and %s", r.Result.Text, data)
	}
	before, err := c.AgentSession(t.Context(), first.Session)
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.tine(t.Context(), "calls", "--run", first.ID, "--json")
	if err != nil {
		t.Fatal(err)
	}
	var calls api.CallList
	if err := json.Unmarshal([]byte(out), &calls); err != nil {
		t.Fatal(err)
	}
	var made []string
	for _, call := range calls.Calls {
		made = append(made, call.Server+" "+call.Name)
		if call.Run != first.ID || call.Session != first.Session || call.Outcome != "ok" {
			t.Errorf("a call is %+v", call)
		}
	}
	if want := []string{"orchestrator start_agent_session", "probe get-env", "mem create_entities"}; !slices.Equal(made, want) {
		t.Errorf("its calls are %q, want %q", made, want)
	}

	// What the blueprint says now is what it is resumed with.
	w.writeAgents(t, map[string]string{"lead": strings.Replace(w.blueprint(t, "lead"), "edition one", "edition two", 1)})
	helperMayEnd()
	var again *api.Run
	if err := eventually(func() error {
		list, err := c.Runs(t.Context(), client.RunQuery{Session: first.Session})
		if err != nil {
			return final{err}
		}
		if len(list.Runs) < 2 {
			return errors.New("it is not called back")
		}
		again = &list.Runs[0]
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r = ended(t, c, again.ID, api.RunCompleted)
	if got := resultOf[struct {
		Done    bool
		Product int
	}](t, r); !got.Done || got.Product != 42 || !r.Resume {
		t.Errorf("called back, it is %+v with the result %+v", r, got)
	}
	if after, err := c.AgentSession(t.Context(), first.Session); err != nil || after.ExecutorSession != before.ExecutorSession || before.ExecutorSession == "" {
		t.Errorf("the conversation was %q and is %+v, %v", before.ExecutorSession, after, err)
	}

	all := w.asked("lead")
	if len(all) != 5 {
		t.Fatalf("its model was asked %d times", len(all))
	}
	for n, request := range all {
		edition := "one"
		if n == 4 {
			edition = "two"
		}
		w.holds(t, request, leadTools, edition)
		testkit.Lacks(t, "a request", string(request.Body), trapWords...)
	}
	last := all[4].Asked()
	testkit.Has(t, "what it was told", strings.Join(last.Said, "\n"), "Have it multiplied.", `status="completed">`, "It is 42.")
	testkit.Has(t, "what get-env told", last.Results[1], `"PATH"`)
	testkit.Lacks(t, "what get-env told", last.Results[1], "ANTHROPIC", claudeKey)
	for _, request := range w.asked("helper") {
		w.holds(t, request, memTools, "one")
	}
	if text := p.sprung(t); text != "" {
		t.Errorf("programs of the user's or the project's ran: %s", text)
	}
}

// holds holds that the model is offered these tools and no others, and has the system
// prompt and the key.
func (w *claudeWorld) holds(t *testing.T, r modeltest.Request, tools []string, edition string) {
	t.Helper()
	a := r.Asked()
	if !slices.Equal(a.Tools, tools) {
		t.Errorf("the model is offered %q, want %q", a.Tools, tools)
	}
	if want := fmt.Sprintf("You are the agent %s, edition %s.", agentOf(a), edition); !strings.HasSuffix(a.System, want) || strings.Count(a.System, "You are the agent") != 1 {
		t.Errorf("the system prompt is %q, want %q at its end", a.System, want)
	}
	if r.Key() != claudeKey {
		t.Errorf("the request has the key %q", r.Key())
	}
}

// works starts a run, and returns it when its model is at work, with the process of Claude
// Code.
func (w *claudeWorld) works(t *testing.T, agent string) (*api.Run, int) {
	t.Helper()
	c := w.client(t)
	run := startRun(t, c, api.NewRun{Agent: agent, Prompt: "Go."})
	if err := eventually(func() error {
		if n := len(w.asked(agent)); n < 2 {
			return fmt.Errorf("its model was asked %d times", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	claude, others := w.processes(run.ID)
	if len(claude) != 1 || len(others) != 1 {
		t.Fatalf("the processes of %s are %v and %v, want Claude Code and its shell", run.ID, claude, others)
	}
	return run, claude[0]
}

// stopped stops a run while its model is at work.
func (w *claudeWorld) stopped(t *testing.T) {
	c := w.client(t)
	run, pid := w.works(t, "stopped")
	if out, err := w.tine(t.Context(), "runs", "stop", "--wait", run.ID); err != nil || out != run.ID+": stopped\n" {
		t.Errorf("it printed %q, %v", out, err)
	}
	endedOnce(t, c, run.ID, api.RunPending, api.RunClaimed, api.RunRunning, api.RunStopping, api.RunStopped)
	if w.gone(t, run.ID); lives(pid) {
		t.Errorf("process %d is left", pid)
	}
}

// killed kills Claude Code while its model is at work. The session goes on with another
// run.
func (w *claudeWorld) killed(t *testing.T) {
	c := w.client(t)
	run, pid := w.works(t, "killed")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if r := ended(t, c, run.ID, api.RunFailed); r.Error.Kind != api.KindTool || !strings.Contains(r.Error.Message, "killed by SIGKILL") {
		t.Errorf("it failed with %+v", r.Error)
	}
	endedOnce(t, c, run.ID, api.RunPending, api.RunClaimed, api.RunRunning, api.RunFailed)
	again := startRun(t, c, api.NewRun{Session: run.Session, Prompt: "Once more."})
	if err := eventually(func() error {
		// The program may not have written the conversation yet.
		all := w.asked("killed")
		said := strings.Join(all[len(all)-1].Asked().Said, "\n")
		if knows := strings.Contains(said, "Go.") || strings.Contains(said, "What was said in this session before is lost."); !knows || !strings.Contains(said, "Once more.") {
			return fmt.Errorf("the model was told %q", said)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	if _, err := c.StopRun(t.Context(), again.ID); err != nil {
		t.Error(err)
	}
	ended(t, c, again.ID, api.RunStopped)
}

// adopted kills the gateway while Claude Code works. The next one has its program, which
// calls a tool there, and it ends once.
func (w *claudeWorld) adopted(t *testing.T, release func()) {
	run, pid := w.works(t, "patient")
	w.kill()
	if !lives(pid) {
		t.Fatal("Claude Code did not outlive the gateway")
	}
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	release()
	c := w.client(t)
	if r := ended(t, c, run.ID, api.RunCompleted); r.Result.Text != "I end." {
		t.Errorf("its result is %+v", r.Result)
	}
	// The claim of the next gateway is told with the state that the run has.
	if got, want := runEvents(t, c, run.ID), []string{"pending", "claimed", "running", "bound", "text", "tool", "tool", "running", "tool", "tool", "text", "usage", "completed"}; !slices.Equal(got, want) {
		t.Errorf("its events are %v, want %v", got, want)
	}
	if calls := w.journal(t, client.CallQuery{Run: run.ID}); len(calls) != 2 {
		t.Errorf("its calls are %+v", calls)
	}
	w.gone(t, run.ID)
}
