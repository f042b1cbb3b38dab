//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// flowAgents are agents whose programs stand in their blueprints.
var flowAgents = map[string]string{
	"actor": `executor: actor
parameters: {type: object}
mcp_servers: {orchestrator: {}}
agents: [step, actor, asks, "wrong-*"]
scope: {tenant: nobody}
`,
	"step": `parameters: {type: object, required: [mark, end], properties: {mark: {type: string}, end: {type: string}}}
executor: command
executor_config: {command: sh, args: [-c, 'while [ ! -e "go-$0" ]; do sleep 0.05; done; if [ $1 = fail ]; then echo "$0 broke" >&2; exit 3; fi; echo "done $0"', "${params.mark}", "${params.end}"]}
`,
	"asks": `parameters: {type: object, additionalProperties: false, required: [prompt], properties: {prompt: {type: string}, depth: {type: integer, default: 2}}}
executor: command
executor_config: {command: cat}
`,
	"script":  "parameters: {type: object, properties: {does: {type: string}}}\nexecutor: command\nexecutor_config: {command: sh, args: [-c, \"${params.does}\"]}\n",
	"program": "parameters: {type: object, properties: {does: {type: string}}}\nexecutor: procedural\nexecutor_config: {command: sh, args: [-c, 'eval \"$1\"']}\n",
	"number":  "parameters: {type: object, properties: {does: {type: string}}}\nresult: {type: integer}\nexecutor: procedural\nexecutor_config: {command: sh, args: [-c, 'eval \"$1\"']}\n",
	"picky":   "demands: {tags: [no-such-tag]}\nexecutor: actor\n",
	// A reference to a server, or what it needs, is not there.
	"wrong-ref":    "executor: actor\nmcp_servers: {things: {ref: nowhere}}\n",
	"wrong-config": "executor: actor\nmcp_servers: {things: {url: 'http://127.0.0.1:1/', headers: {X-Key: '${env.NOT_THERE}'}}}\n",
}

// TestAgentFlows has the flows of agents as a client sees them, at one gateway.
func TestAgentFlows(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("testdata/agents")
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, "servers:\n  mem: {builtin: memory}\n  orchestrator: {builtin: orchestrator}\n"+yamlState(t, "kept")+
		"agents:\n  match: 1s\n  tags: [big, gpu]\n  env: [SECRET, NOT_THERE]\n  executors:\n"+
		fmt.Sprintf("    actor: {type: command, command: python3, args: [-B, %q]}\n", dir+"/actor.py"), "SECRET="+flowSecret)
	g.writeAgents(t, flowAgents)
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	f := &flows{g, g.client(t)}
	t.Run("at once", func(t *testing.T) {
		for name, flow := range map[string]func(*testing.T){
			"callbacks": f.callbacks, "children": f.children, "mistakes": f.mistakes, "results": f.results, "no runner": f.noRunner,
			"broken pipes": f.pipes, "hooks": f.hooks, "edits": f.edits, "secrets": f.secrets, "named secrets": f.named, "empty prompts": f.emptyPrompts,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				flow(t)
			})
		}
	})
	closeAgents(t, g)
}

const flowSecret = "of-no-form-that-is-known"

type flows struct {
	g *gateway
	c *client.Client
}

// acted is what the agent actor shows.
type acted struct {
	Job struct {
		Mode       string
		Parameters map[string]any
		Prompt     string
		ProjectDir string         `json:"project_dir"`
		Agent      string         `json:"agent_name"`
		Config     map[string]any `json:"executor_config"`
		Metadata   map[string]any
		Blueprint  struct {
			SystemPrompt string `json:"system_prompt"`
			Servers      map[string]struct {
				Headers map[string]string
			} `json:"mcp_servers"`
		} `json:"agent_blueprint"`
	}
	Answers []struct {
		IsError    bool
		Structured struct {
			Session string `json:"session_id"`
			Status  string
			Text    string          `json:"result_text"`
			Data    json.RawMessage `json:"result_data"`
		} `json:"structuredContent"`
		Content []struct{ Text string }
	}
	Leaked int
	Given  string
}

// starting is a call by which an actor starts an agent.
func starting(agent, mode string, parameters map[string]any) []any {
	return []any{"orchestrator", "start_agent_session", map[string]any{"agent_name": agent, "mode": mode, "parameters": parameters}}
}

// does runs an agent to its end.
func (f *flows) does(t *testing.T, state string, in api.NewRun) *api.Run {
	t.Helper()
	return ended(t, f.c, startRun(t, f.c, in).ID, state)
}

// acts runs an actor to its end, and returns what it shows.
func (f *flows) acts(t *testing.T, in api.NewRun) acted {
	t.Helper()
	return resultOf[acted](t, f.does(t, api.RunCompleted, in))
}

func release(t *testing.T, dir, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "go-"+name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// callbacks has five agents end while their parent is busy, and a sixth while it is told.
func (f *flows) callbacks(t *testing.T) {
	dir := t.TempDir()
	var calls []any
	for n, end := range []string{"done", "fail", "done", "done", "stop", "done"} {
		calls = append(calls, starting("step", api.ModeAsyncCallback, map[string]any{"mark": fmt.Sprint(n), "end": end}))
	}
	boss := startRun(t, f.c, api.NewRun{Agent: "actor", Parameters: api.Parameters{"calls": calls, "waits": "go-boss", "told": "go-told"}, ProjectDir: dir})
	firstText(t, f.c, boss.ID)
	list, err := f.c.Runs(t.Context(), client.RunQuery{Parent: boss.Session})
	if err != nil || len(list.Runs) != len(calls) {
		t.Fatalf("it has started %+v, %v", list, err)
	}
	children := list.Runs
	slices.Reverse(children) // as they were started
	want := `<agent-callback type="aggregated" count="5">` + "\n"
	for n, child := range children[:5] {
		status, text, state := "completed", fmt.Sprintf("done %d", n), api.RunCompleted
		switch n {
		case 1:
			status, text, state = "failed", "the executor exited with status 3: 1 broke", api.RunFailed
		case 4:
			stopped, err := f.c.StopRun(t.Context(), child.ID)
			if err != nil {
				t.Fatal(err)
			}
			status, text, state = "failed", "The run was stopped by "+stopped.StoppedBy+" before it had a result.", api.RunStopped
		}
		release(t, dir, fmt.Sprint(n))
		ended(t, f.c, child.ID, state)
		want += fmt.Sprintf("<agent-callback session=\"%s\" status=\"%s\">\n%s\n</agent-callback>\n", child.Session, status, text)
	}
	want += "</agent-callback>"
	resumes := func() []api.Run {
		list, err := f.c.Runs(t.Context(), client.RunQuery{Session: boss.Session})
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(list.Runs)
		return list.Runs[1:]
	}
	if all := resumes(); len(all) > 0 {
		t.Errorf("a busy agent was resumed: %+v", all)
	}
	release(t, dir, "boss")
	ended(t, f.c, boss.ID, api.RunCompleted)
	resumed := func(n int) *api.Run {
		t.Helper()
		var all []api.Run
		if err := eventually(func() error {
			if all = resumes(); len(all) < n {
				return fmt.Errorf("it was resumed as %+v", all)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return &all[n-1]
	}
	first := resumed(1)
	firstText(t, f.c, first.ID)
	release(t, dir, "5")
	ended(t, f.c, children[5].ID, api.RunCompleted)
	if all := resumes(); len(all) != 1 {
		t.Errorf("resumed while it is told: %+v", all)
	}
	release(t, dir, "told")
	last := fmt.Sprintf("<agent-callback session=\"%s\" status=\"completed\">\ndone 5\n</agent-callback>", children[5].Session)
	for n, want := range []string{want, last} {
		if got := resultOf[acted](t, ended(t, f.c, resumed(n+1).ID, api.RunCompleted)).Job; got.Prompt != want || got.Mode != "resume" {
			t.Errorf("it was told in the mode %s %s\nwant %s", got.Mode, got.Prompt, want)
		}
	}
	if all := resumes(); len(all) != 2 {
		t.Errorf("it was resumed %d times, want 2", len(all))
	}
}

// children are what the gateway adds to the start of an agent by another one.
func (f *flows) children(t *testing.T) {
	dir := t.TempDir()
	run := startRun(t, f.c, api.NewRun{
		Agent: "actor", ProjectDir: dir, Scope: map[string]string{"tenant": "seven"}, Labels: map[string]string{"team": "a"},
		Parameters: api.Parameters{"prompt": "go", "calls": []any{
			starting("actor", api.ModeSync, map[string]any{"prompt": "child"}),
			[]any{"orchestrator", "start_agent_session", map[string]any{"agent_name": "asks", "mode": "sync", "parameters": map[string]any{"depth": "deep"}}},
			starting("wrong-ref", api.ModeSync, map[string]any{"prompt": "x"}),
		}},
	})
	parent := resultOf[acted](t, ended(t, f.c, run.ID, api.RunCompleted))
	if m := parent.Job.Metadata; m["capability_tags"] != "big,gpu" || m["project_dir"] != dir || m["runner_id"] == nil || m["parent_session_id"] != nil {
		t.Errorf("the metadata of the parent are %v", m)
	}
	a := parent.Answers[0].Structured
	var child acted
	if err := json.Unmarshal(a.Data, &child); err != nil || a.Text != "acted" {
		t.Fatalf("the child has answered %+v, %v", parent.Answers[0], err)
	}
	want := map[string]any{
		"parent_session_id": run.Session, "parent_agent_name": "actor", "project_dir": dir,
		"runner_id": parent.Job.Metadata["runner_id"], "capability_tags": "big,gpu",
	}
	if !reflect.DeepEqual(child.Job.Metadata, want) || child.Job.ProjectDir != dir || child.Job.Prompt != "child" || child.Job.Mode != "start" {
		t.Errorf("the child has got %+v, want the metadata %v", child.Job, want)
	}
	list, err := f.c.Runs(t.Context(), client.RunQuery{Parent: run.Session})
	if err != nil || len(list.Runs) != 1 || list.Runs[0].Session != a.Session || list.Runs[0].Labels["team"] != "a" || list.Runs[0].Mode != api.ModeSync {
		t.Errorf("below it are %+v, %v", list, err)
	}
	for n, words := range map[int]string{1: "/depth", 2: `there is no server "nowhere"`} {
		if a := parent.Answers[n]; !a.IsError || len(a.Content) != 1 || !strings.Contains(a.Content[0].Text, words) {
			t.Errorf("a start that is wrong answers %+v, want %q", a, words)
		}
	}
}

// post is a request as any HTTP client makes it.
func (f *flows) post(t *testing.T, path, body string) (int, map[string]any) {
	t.Helper()
	r, err := f.g.record()
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.g.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.Token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	var answer map[string]any
	if err := errors.Join(err, json.Unmarshal(text, &answer)); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return resp.StatusCode, answer
}

// mistakes are refused with a code, and no run is made of them.
func (f *flows) mistakes(t *testing.T) {
	done := f.does(t, api.RunCompleted, api.NewRun{Agent: "program", Parameters: api.Parameters{"does": "true"}})
	for _, tt := range []struct {
		body, code string
		violations []any
	}{
		{`{"agent": "asks", "parameters": {"depth": "deep", "more": 1}}`, "parameter_validation_failed", []any{
			map[string]any{"path": "/prompt", "message": "is missing", "schema_path": "/required"},
			map[string]any{"path": "/depth", "message": "want integer, got string", "schema_path": "/properties/depth/type"},
			map[string]any{"path": "/more", "message": "is not known; there are depth, prompt", "schema_path": "/additionalProperties"},
		}},
		{fmt.Sprintf(`{"session": %q, "parameters": {"does": "true"}}`, done.Session), "procedural_agent_no_resume", nil},
		{`{"agent": "wrong-ref", "prompt": "x"}`, "mcp_ref_resolution_failed", nil},
		{`{"agent": "wrong-config", "prompt": "x"}`, "missing_required_mcp_config", nil},
	} {
		status, answer := f.post(t, "/v1/runs", tt.body)
		got, _ := answer["validation_errors"].([]any)
		if status != http.StatusBadRequest || answer["error"] != tt.code || !reflect.DeepEqual(got, tt.violations) {
			t.Errorf("%s: %d %v, want the code %s and %v", tt.body, status, answer, tt.code, tt.violations)
		}
	}
	for _, agent := range []string{"wrong-ref", "wrong-config"} {
		if list, err := f.c.Runs(t.Context(), client.RunQuery{Agent: agent}); err != nil || len(list.Runs) > 0 {
			t.Errorf("of %s there are the runs %+v, %v", agent, list, err)
		}
	}
}

// results are made of what programs print.
func (f *flows) results(t *testing.T) {
	type want struct{ state, text, data, err string }
	const ok, bad = api.RunCompleted, api.RunFailed
	runs := map[string]want{}
	for _, tt := range []struct {
		agent, does string
		want
	}{
		{"program", `echo '[1, 2]'`, want{ok, "", `[1,2]`, ""}},
		{"program", `echo hi; echo note >&2`, want{ok, "", `{"return_code":0,"stdout":"hi\n","stderr":"note\n"}`, ""}},
		{"program", `echo '{"a": 1}'; exit 4`, want{bad, "", `{"a":1}`, "the executor exited with status 4"}},
		{"program", `echo hi; exit 4`, want{bad, "", `{"return_code":4,"stdout":"hi\n","stderr":""}`, "the executor exited with status 4"}},
		{"number", `echo 17`, want{ok, "", `17`, ""}},
		{"number", `echo hi`, want{bad, "", `{"return_code":0,"stdout":"hi\n","stderr":""}`, "the program printed no JSON, and the agent has a schema for its result"}},
		{"number", `echo '"hi"'`, want{bad, "", `"hi"`, "the result does not fit the agent's schema"}},
		{"script", `echo hello; echo you`, want{ok, "hello\nyou", "", ""}},
		{"script", `printf '\377{"type":"result"'`, want{ok, "\uFFFD" + `{"type":"result"`, "", ""}},
		{"script", `echo '{"type":"result","result":{"resu'`, want{bad, "", "", "the executor printed no result, but a line with a type that can't be read"}},
		{"script", `echo '{"type":"error","message":"no more"}'; echo '{"type":"result","result":1}'`, want{bad, "", "", "no more"}},
		{"script", `exit 0`, want{ok, "", "", ""}},
	} {
		runs[startRun(t, f.c, api.NewRun{Agent: tt.agent, Parameters: api.Parameters{"does": tt.does}}).ID] = tt.want
	}
	for id, want := range runs {
		ended(t, f.c, id, want.state)
		// The exit status of the command is that of the run.
		out, err := f.g.tine(t.Context(), "runs", "show", "--wait", "--json", id)
		var r api.Run
		if jsonErr := json.Unmarshal([]byte(out), &r); jsonErr != nil || (err == nil) != (want.state == ok) {
			t.Fatalf("%v, %v in %s", err, jsonErr, out)
		}
		got := want
		got.state, got.text, got.data = r.State, "", ""
		if r.Result != nil {
			var data bytes.Buffer
			if len(r.Result.Data) > 0 && json.Compact(&data, r.Result.Data) != nil {
				t.Errorf("the data %s", r.Result.Data)
			}
			got.text, got.data = r.Result.Text, data.String()
		}
		if r.Error != nil && (want.err == "" || !strings.HasPrefix(r.Error.Message, want.err)) {
			got.err = r.Error.Message
		}
		if got != want {
			t.Errorf("%s came to %q, want %q", r.Parameters, got, want)
		}
	}
}

// noRunner has a run fail that no runner fits.
func (f *flows) noRunner(t *testing.T) {
	for _, in := range []api.NewRun{
		{Agent: "picky", Prompt: "x"},
		{Agent: "script", Parameters: api.Parameters{"does": "true"}, Demands: &api.Demands{Tags: []string{"gpu", "${env.SECRET}"}}},
	} {
		tag := "no-such-tag"
		if in.Demands != nil {
			tag = in.Demands.Tags[1]
		}
		run := startRun(t, f.c, in)
		if r, err := f.c.Run(t.Context(), run.ID, 0); err != nil || r.State != api.RunPending || !strings.Contains(r.WaitsFor, tag) {
			t.Errorf("the run waits as %+v, %v, want that it names %q", r, err, tag)
		}
		if r := ended(t, f.c, run.ID, api.RunFailed); !strings.Contains(r.Error.Message, tag) {
			t.Errorf("the run has failed: %+v, want that it names %q", r.Error, tag)
		}
		endedOnce(t, f.c, run.ID, api.RunPending, api.RunFailed)
		if s, err := f.c.AgentSession(t.Context(), run.Session); err != nil || s.State != api.AgentFailed {
			t.Errorf("its session is %+v, %v", s, err)
		}
	}
	f.does(t, api.RunCompleted, api.NewRun{Agent: "script", Parameters: api.Parameters{"does": "true"}, Demands: &api.Demands{Tags: []string{"gpu", "big"}}})
}

// pipes has programs that leave a big invocation unread.
func (f *flows) pipes(t *testing.T) {
	f.g.writeAgents(t, map[string]string{
		"deaf":  "executor: command\nexecutor_config: {command: sh, args: [-c, 'exec <&-; echo closed']}\n",
		"mute":  "executor: command\nexecutor_config: {command: sh, args: [-c, 'exec <&-; echo \"{\\\"type\\\":\\\"turn_complete\\\",\\\"result\\\":\\\"closed\\\"}\"'], persistent: true}\n",
		"short": "executor: command\nexecutor_config: {command: sh, args: [-c, 'head -c 10 >/dev/null; echo closed']}\n",
	})
	for _, agent := range []string{"deaf", "mute", "short"} {
		r := f.does(t, api.RunCompleted, api.NewRun{Agent: agent, Prompt: strings.Repeat("x", 900<<10)})
		if r.Result.Text != "closed" {
			t.Errorf("%s came to %+v", agent, r.Result)
		}
	}
}

// hooks change a run, and refuse one.
func (f *flows) hooks(t *testing.T) {
	f.g.writeAgents(t, map[string]string{"hooked": `executor: actor
hooks:
  on_run_start:
  - {command: sh, args: [-c, 'if grep -q "\"prompt\":\"bad\""; then echo "{\"refuse\":\"not today\"}"; fi']}
  - {command: sh, args: [-c, 'echo "{\"parameters\":{\"prompt\":\"changed\"}}"']}
`})
	run := f.does(t, api.RunCompleted, api.NewRun{Agent: "hooked", Prompt: "good"})
	if got := resultOf[acted](t, run).Job; got.Prompt != "changed" || !strings.Contains(string(run.Parameters), `"changed"`) {
		t.Errorf("after the hooks the run has %s, and its program %q", run.Parameters, got.Prompt)
	}
	const words = "agent hooked: hooks.on_run_start[0] refuses the run: not today"
	for _, in := range []api.NewRun{{Agent: "hooked", Prompt: "bad"}, {Session: run.Session, Prompt: "bad"}} {
		_, err := f.c.StartRun(t.Context(), in)
		if e := kindOf(err); e == nil || e.Kind != api.KindRefused || e.Status != http.StatusForbidden || e.Message != words {
			t.Errorf("refused with %v", err)
		}
	}
	// What is refused is no run, and the gateway's log tells of it.
	if list, err := f.c.Runs(t.Context(), client.RunQuery{Agent: "hooked"}); err != nil || len(list.Runs) != 1 {
		t.Errorf("there are the runs %+v, %v", list, err)
	}
	if log, err := os.ReadFile(f.g.logPath()); err != nil || strings.Count(string(log), "not today") != 2 {
		t.Errorf("the log does not tell of the two refusals: %v", err)
	}
	if again := f.acts(t, api.NewRun{Session: run.Session, Prompt: "good"}); again.Job.Mode != "resume" || again.Job.Prompt != "changed" {
		t.Errorf("resumed after a refusal, it has %+v", again.Job)
	}
}

// edits has a blueprint change between two runs of a session.
func (f *flows) edits(t *testing.T) {
	write := func(prompt, servers string) {
		f.g.writeAgents(t, map[string]string{"edited": "executor: actor\nparameters: {type: object}\nsystem_prompt: " + prompt + "\nmcp_servers: {kept: {}, " + servers + "}\n"})
	}
	write("before", "goes: {ref: mem}")
	pid := func(server string) []any { return []any{server, "pid", map[string]any{}} }
	run := startRun(t, f.c, api.NewRun{Agent: "edited", Parameters: api.Parameters{"prompt": "x", "calls": []any{pid("kept"), []any{"goes", "read_graph", map[string]any{}}}}})
	first := resultOf[acted](t, ended(t, f.c, run.ID, api.RunCompleted))
	write("after", "comes: {ref: orchestrator}")
	second := f.acts(t, api.NewRun{Session: run.Session, Parameters: api.Parameters{"prompt": "x", "calls": []any{pid("kept"), []any{"comes", "list_agent_sessions", map[string]any{}}}}})
	names := func(a acted) (all []string) {
		for name := range a.Job.Blueprint.Servers {
			all = append(all, name)
		}
		slices.Sort(all)
		return all
	}
	if a, b := names(first), names(second); !slices.Equal(a, []string{"goes", "kept"}) || !slices.Equal(b, []string{"comes", "kept"}) {
		t.Errorf("it has the servers %q, then %q", a, b)
	}
	if a, b := first.Job.Blueprint.SystemPrompt, second.Job.Blueprint.SystemPrompt; a != "before" || b != "after" {
		t.Errorf("it has the system prompt %q, then %q", a, b)
	}
	for _, a := range append(first.Answers, second.Answers...) {
		if a.IsError {
			t.Errorf("a call has failed: %+v", a)
		}
	}
	if a, b := first.Answers[0].Content[0].Text, second.Answers[0].Content[0].Text; a == "" || a != b {
		t.Errorf("the server that stays is process %s, then %s", a, b)
	}
	s, err := f.c.Session(t.Context(), run.Session)
	if err != nil {
		t.Fatal(err)
	}
	var members []string
	for _, m := range s.Members {
		members = append(members, m.Server)
	}
	if !slices.Equal(members, []string{"kept"}) { // the orchestrator is shared
		t.Errorf("the session has the members %q", members)
	}
}

// secrets has a caller write a placeholder of a secret wherever it may write something.
func (f *flows) secrets(t *testing.T) {
	const literal = "${env.SECRET}"
	f.g.writeAgents(t, map[string]string{"filled": `executor: actor
parameters: {type: object, properties: {prompt: {type: string}, text: {type: string}}}
system_prompt: "${params.text} ${params.prompt} ${scope.tenant}"
executor_config: {note: "${params.text}", more: {deep: ["${scope.tenant}"]}}
env: {SECRET_OF_TEST: "${env.SECRET}", GIVEN: "${params.text} ${scope.tenant}"}
mcp_servers: {orchestrator: {headers: {X-Agent-Tags: "${params.text}"}}}
hooks: {on_run_start: {command: sh, args: [-c, 'if [ "$0" != "\$${env.SECRET}" ]; then echo "{\"refuse\":\"$0\"}"; fi', "${params.text}"]}}
`})
	dir := filepath.Join(t.TempDir(), literal)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	in := api.NewRun{
		Agent: "filled", Parameters: api.Parameters{"prompt": literal, "text": literal}, ProjectDir: dir,
		Scope: map[string]string{"tenant": literal}, Labels: map[string]string{"of": literal},
	}
	run := f.does(t, api.RunCompleted, in)
	got := resultOf[acted](t, run)
	if got.Leaked != 0 || got.Given != literal+" "+literal || got.Job.Blueprint.SystemPrompt != strings.Repeat(literal+" ", 2)+literal || got.Job.Prompt != literal || got.Job.ProjectDir != dir {
		t.Errorf("the program has got %+v", got)
	}
	if got.Job.Config["note"] != literal || fmt.Sprint(got.Job.Config["more"]) != "map[deep:["+literal+"]]" || got.Job.Blueprint.Servers["orchestrator"].Headers["X-Agent-Tags"] != literal {
		t.Errorf("its settings are %v, and its servers %v", got.Job.Config, got.Job.Blueprint.Servers)
	}
	if run.Labels["of"] != literal || run.ProjectDir != dir {
		t.Errorf("the run is %+v", run)
	}
	for _, in := range []api.NewRun{{Agent: literal, Prompt: "x"}, {Session: literal, Prompt: "x"}} {
		_, err := f.c.StartRun(t.Context(), in)
		if e := kindOf(err); e == nil || e.Status != http.StatusNotFound || !strings.Contains(e.Message, literal) {
			t.Errorf("the name %s: %v", literal, err)
		}
	}
	// Nothing that the gateway keeps or tells of it has the secret.
	for e, err := range f.c.Events(t.Context(), client.EventFilter{Run: run.ID, After: api.EventsFromStart, Once: true}) {
		if err != nil || bytes.Contains(e.Data, []byte(flowSecret)) {
			t.Errorf("an event: %+v, %v", e, err)
		}
	}
	if log, err := os.ReadFile(f.g.logPath()); err != nil || bytes.Contains(log, []byte(flowSecret)) {
		t.Errorf("the log has the secret, %v", err)
	}
}

// named has a run with a parameter that is a secret by its name, which its program prints.
func (f *flows) named(t *testing.T) {
	const password, short = "correct-horse-battery", "pw1"
	f.g.writeAgents(t, map[string]string{"named": `executor: command
parameters: {type: object, properties: {login: {type: object}}}
executor_config: {command: sh, args: [-c, 'tee /dev/stderr']}
`})
	in := api.NewRun{Agent: "named", Parameters: api.Parameters{"login": map[string]any{"user": "ada", "password": password, "api_key": short, "tokens": 3}}}
	run := f.does(t, api.RunCompleted, in)
	if got := string(run.Parameters); got != `{"login":{"api_key":"****","password":"****","tokens":3,"user":"ada"}}` {
		t.Errorf("shown parameters: %s", got)
	}
	if run.Result == nil || !bytes.Contains(run.Result.Data, []byte(`"password":"****","tokens":3,"user":"ada"`)) {
		t.Errorf("result: %+v", run.Result)
	}
	for e, err := range f.c.Events(t.Context(), client.EventFilter{Run: run.ID, After: api.EventsFromStart, Once: true}) {
		if err != nil || bytes.Contains(e.Data, []byte(password)) {
			t.Errorf("an event: %+v, %v", e, err)
		}
	}
}

// emptyPrompts are prompts, not missing ones.
func (f *flows) emptyPrompts(t *testing.T) {
	status, answer := f.post(t, "/v1/runs", `{"agent": "asks", "prompt": ""}`)
	posted, _ := answer["id"].(string)
	if status >= 300 {
		t.Fatalf("over HTTP: %d %v", status, answer)
	}
	if _, err := f.g.tine(t.Context(), "run", "asks", "", "--label", "by=argument"); err != nil {
		t.Error(err)
	}
	if _, err := f.g.tine(t.Context(), "run", "asks", "--prompt", "", "--label", "by=flag"); err != nil {
		t.Error(err)
	}
	by := f.acts(t, api.NewRun{Agent: "actor", Parameters: api.Parameters{"calls": []any{
		[]any{"orchestrator", "start_session", map[string]any{"agent_name": "asks", "prompt": "", "mode": "sync"}},
	}}})
	if by.Answers[0].IsError {
		t.Errorf("the tool answers %+v", by.Answers[0])
	}
	all := []string{posted}
	for r, err := range f.c.AllRuns(t.Context(), client.RunQuery{Agent: "asks"}) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Labels["by"] != "" || r.Session == by.Answers[0].Structured.Session {
			all = append(all, r.ID)
		}
	}
	if len(all) != 4 {
		t.Errorf("there are the runs %q", all)
	}
	for _, id := range all {
		r := ended(t, f.c, id, api.RunCompleted)
		if got := resultOf[struct{ Parameters map[string]any }](t, r).Parameters; got["prompt"] != "" {
			t.Errorf("run %s has got %v", id, got)
		}
	}
}
