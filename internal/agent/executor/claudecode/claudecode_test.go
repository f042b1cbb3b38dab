//go:build unix

package claudecode

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/executor/executortest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func standIn(t *testing.T, c executortest.Case) *Executor {
	return New(executor.Options{Program: executortest.Script(t, "testdata/claude.sh", c)})
}

func TestSuite(t *testing.T) {
	executortest.Suite{SilentFails: true, Make: func(t *testing.T, c executortest.Case, job *executor.Job) executor.Executor {
		return standIn(t, c)
	}}.Run(t)
}

func TestEvents(t *testing.T) {
	job := executortest.Job(t)
	x := standIn(t, executortest.Answers)
	plan, err := x.Plan(job)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range executortest.Read(x.Read(job), executortest.Run(t, job, plan).Lines) {
		got = append(got, e.Type+" "+string(e.Data)+e.ExecutorSession)
	}
	const id = "6f7d3c1e-3b1a-4a2b-9c1d-000000000001"
	want := []string{
		`stderr {"text":"Claude Code has no connection to the server \"files\": failed"}`,
		`state {"executor_session_id":"` + id + `"}` + id,
		`text {"text":"Let me see."}`,
		`tool {"id":"t1","name":"mcp__files__multiply","arguments":{"a":6}}`,
		`tool {"id":"t1","done":true,"text":"42\nexactly"}`,
		`stderr {"text":"a warning"}`,
		`usage {"input_tokens":15,"output_tokens":3,"cost":0.2}`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// A model that does not answer is no failure of the agent, and the error has the mend.
func TestUnanswered(t *testing.T) {
	read := func(lines ...string) (events []executor.Event, r executor.Reader) {
		r = New(executor.Options{}).Read(executortest.Job(t))
		for _, line := range lines {
			events = append(events, r.Line([]byte(line))...)
		}
		return events, r
	}
	for _, tt := range []struct {
		fault, status, text string
		want                *api.Error
	}{
		{"authentication_failed", "401", "Invalid API key", &api.Error{Kind: api.KindInfrastructure, Message: "Claude Code failed: Invalid API key (status 401); set ANTHROPIC_API_KEY in the environment of the gateway or in env of the blueprint, or log in with claude as the gateway's user"}},
		{"billing_error", "400", "Credit balance is too low", &api.Error{Kind: api.KindInfrastructure, Message: "Claude Code failed: Credit balance is too low (status 400); add credit to the account of the key, or use another key"}},
		{"server_error", "529", "API Error: 529 Overloaded.", &api.Error{Kind: api.KindInfrastructure, Retryable: true, Message: `Claude Code failed: API Error: 529 Overloaded.; the conversation is kept; go on with it later: tine runs send run_0123456789ab "Go on"`}},
		{"invalid_request", "400", "Too large", &api.Error{Kind: api.KindTool, Message: "Claude Code failed: Too large"}},
	} {
		events, r := read(`{"type":"assistant","session_id":"s","error":"`+tt.fault+`","message":{"content":[{"type":"text","text":"`+tt.text+`"}]}}`,
			`{"type":"result","subtype":"success","is_error":true,"api_error_status":`+tt.status+`,"result":"`+tt.text+`"}`)
		_, err := r.End(executor.Exit{})
		if !reflect.DeepEqual(err, error(tt.want)) {
			t.Errorf("%s: %v, want %v", tt.fault, err, tt.want)
		}
		for _, e := range events {
			testkit.Lacks(t, "what the model said", string(e.Data), tt.text)
		}
	}
	events, _ := read(`{"type":"system","subtype":"api_retry","attempt":2,"max_retries":10,"retry_delay_ms":1207.4,"error_status":null,"error":"server_error"}`)
	if len(events) != 1 || string(events[0].Data) != `{"text":"Claude Code has no answer from the model (server_error) and asks again in 1.2 s: 2 of 10"}` {
		t.Errorf("of another try it tells %+v", events)
	}
}

func TestConfig(t *testing.T) {
	x := New(executor.Options{})
	for _, tt := range []struct {
		key   string
		value any
		want  string
	}{
		{"model", "opus", "<nil>"}, {"model", "--danger", "executor_config.model"}, {"model", 1, "executor_config.model"},
		{"tools", []any{"Read", "Bash(git *)"}, "<nil>"}, {"tools", "Read", "must be a list"}, {"tools", []any{"--x"}, "executor_config.tools[0]"},
		{"tools", []any{"mcp__other__tool"}, "executor_config.tools[0]"},
		{"max_turns", 3, "<nil>"}, {"max_turns", 0.5, "whole number"}, {"max_turns", 0, "whole number"},
		{"max_budget_usd", 0.5, "<nil>"}, {"max_budget_usd", -1, "above 0"}, {"max_budget_usd", "1", "above 0"},
		{"dangerously_skip_permissions", true, "unknown key"},
	} {
		testkit.Has(t, fmt.Sprint("the error of ", tt), fmt.Sprint(x.Check(map[string]any{tt.key: tt.value})), tt.want)
	}
}

// The login of the gateway's environment is taken as a whole, and only where the run is
// given none.
func TestLogin(t *testing.T) {
	outer := map[string]string{"ANTHROPIC_API_KEY": "key-of-the-gateway", "ANTHROPIC_BASE_URL": "http://proxy", "OTHER": "x"}
	x := New(executor.Options{Getenv: func(name string) string { return outer[name] }})
	for _, tt := range []struct {
		given             map[string]string
		key, url, folders string
	}{
		{nil, "key-of-the-gateway", "http://proxy", "/session/.claude"},
		{map[string]string{"ANTHROPIC_API_KEY": "mine"}, "mine", "", "/session/.claude"},
		{map[string]string{"ANTHROPIC_BASE_URL": "http://mine"}, "", "http://mine", ""},
		{map[string]string{"CLAUDE_CODE_USE_BEDROCK": "1"}, "", "", "/session/.claude"},
	} {
		job := executortest.Job(t)
		job.Env = tt.given
		plan, err := x.Plan(job)
		if err != nil {
			t.Fatal(err)
		}
		if env := plan.Env; env["ANTHROPIC_API_KEY"] != tt.key || env["ANTHROPIC_BASE_URL"] != tt.url || !strings.HasSuffix(env[configDir], tt.folders) || tt.folders == "" && env[configDir] != "" || env["OTHER"] != "" {
			t.Errorf("given %v it has %v", tt.given, env)
		}
	}
	if got := x.Secrets(); !slices.Equal(got, []string{"key-of-the-gateway"}) {
		t.Errorf("its secrets are %q", got)
	}
}

func TestPlan(t *testing.T) {
	job := executortest.Job(t)
	job.Agent.Servers["my server.x"] = executor.Server{Type: "http", URL: "http://x"}
	job.Config = map[string]any{"tools": []any{"Read", "Bash(git *)"}}
	x := New(executor.Options{})
	plan := func() executor.Plan {
		t.Helper()
		p, err := x.Plan(job)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	one := plan()
	testkit.Has(t, "arguments", strings.Join(one.Args, "|"), "|--tools|Read,Bash|--allowed-tools|Read|Bash(git *)|mcp__files|mcp__my_server_x|", "|--session-id|")
	if one.Env[configDir] != "" || string(one.Stdin) != "What is six times seven?" || string(one.Files[systemFile]) != executortest.System {
		t.Errorf("the plan is %+v", one)
	}
	// With a key the program's own files are in the session's folder.
	job.Env = map[string]string{"ANTHROPIC_API_KEY": "k"}
	own := filepath.Join(job.Dir, ".claude")
	two := plan()
	if two.Env[configDir] != own {
		t.Errorf("its folder is %q", two.Env[configDir])
	}
	// An attempt that was lost may have begun the conversation.
	id := two.Args[len(two.Args)-1]
	begun := filepath.Join(own, "projects", "-x")
	if err := os.MkdirAll(begun, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(begun, id+".jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if again := plan().Args; again[len(again)-1] == id || again[len(again)-2] != "--session-id" {
		t.Errorf("the conversation is %q again", again[len(again)-2:])
	}
	// One that is told of and not there any more begins anew.
	job.Resume, job.ExecutorSession = true, "conversation"
	if p := plan(); p.Args[len(p.Args)-2] != "--session-id" || p.Args[len(p.Args)-1] != "conversation" || string(p.Stdin) != "(What was said in this session before is lost.)\n\nWhat is six times seven?" {
		t.Errorf("without its conversation it is resumed by %q with %q", p.Args, p.Stdin)
	}
	if err := os.WriteFile(filepath.Join(begun, "conversation.jsonl"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if p := plan(); p.Args[len(p.Args)-1] != "--resume=conversation" || string(p.Stdin) != "What is six times seven?" {
		t.Errorf("it is resumed by %q with %q", p.Args, p.Stdin)
	}
	job.Parameters = map[string]any{"file": "a.txt"}
	if got := string(plan().Stdin); got != `{"file":"a.txt"}` {
		t.Errorf("without a prompt the message is %s", got)
	}
	for _, params := range []map[string]any{nil, {"prompt": " "}} {
		job.Parameters = params
		if _, err := x.Plan(job); err == nil {
			t.Errorf("a run of %v was planned", params)
		}
	}
}
