//go:build unix

package claudecode

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/executor/executortest"
	"github.com/tine-mcp/tine/internal/model/modeltest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// calculator is an MCP server that adds, for callers with the token.
func calculator(t *testing.T) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	server := mcp.NewServer(&mcp.Implementation{Name: "calculator", Version: "1"}, nil)
	type numbers struct{ A, B int }
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Adds."}, func(_ context.Context, _ *mcp.CallToolRequest, in numbers) (*mcp.CallToolResult, map[string]int, error) {
		calls.Add(1)
		return nil, map[string]int{"sum": in.A + in.B}, nil
	})
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+executortest.Token {
			http.Error(w, "no token", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return h.URL, calls
}

// put writes a file and the folders above it.
func put(t *testing.T, text string, path ...string) {
	t.Helper()
	name := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// The real program calls a tool of its MCP server and is resumed with another system
// prompt. It is offered nothing else, and nothing of the user's or the project's reaches
// the model.
func TestRealProgram(t *testing.T) {
	path := testkit.ClaudeCode(t)
	url, calls := calculator(t)
	model := modeltest.New(t,
		modeltest.Reply{Text: "Adding.", Calls: []modeltest.Call{{ID: "toolu_1", Name: "mcp__calc__add", Arguments: `{"A":1,"B":2}`}}, Usage: modeltest.Usage{Input: 11, Output: 7}},
		modeltest.Reply{Text: "It is 3.", Usage: modeltest.Usage{Input: 13, Output: 5}},
		modeltest.Reply{Text: "Still 3.", Usage: modeltest.Usage{Input: 17, Output: 3}})

	home, project, log := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "log")
	hook := `{"hooks":{"SessionStart":[{"hooks":[{"type":"command","command":"echo HOOKED >` + log + `"}]}]},"env":{"ANTHROPIC_MODEL":"SETTINGS_MODEL"}}`
	for _, dir := range []string{home, project} {
		put(t, hook, dir, ".claude", "settings.json")
		put(t, "MEMORY_OF_THE_USER", dir, ".claude", "CLAUDE.md")
	}
	put(t, "MEMORY_OF_THE_PROJECT", project, "CLAUDE.md")
	put(t, "MEMORY_OF_AGENTS", project, "AGENTS.md")
	put(t, `{"mcpServers":{"stray":{"command":"sh","args":["-c","echo STRAY >`+log+`"]}}}`, project, ".mcp.json")
	t.Setenv("HOME", home)

	job := executortest.Job(t)
	job.ProjectDir = project
	job.Agent.Servers = map[string]executor.Server{"calc": {Type: "http", URL: url, Headers: map[string]string{"Authorization": "Bearer " + executortest.Token}}}
	job.Env = map[string]string{"ANTHROPIC_BASE_URL": model.URL, "ANTHROPIC_API_KEY": "sk-test"}
	x := New(executor.Options{Program: executor.Program{Command: path}})
	run := func() (events []executor.Event, result api.RunResult) {
		t.Helper()
		plan, err := x.Plan(job)
		if err != nil {
			t.Fatal(err)
		}
		out := executortest.Run(t, job, plan)
		r := x.Read(job)
		events = executortest.Read(r, out.Lines)
		if result, err = r.End(out.Exit); err != nil {
			t.Fatalf("%v\n%s%s", err, out.Exit.Stdout, out.Exit.Stderr)
		}
		return events, result
	}
	told := func(events []executor.Event) (all string) {
		for _, e := range events {
			all += e.Type + " " + string(e.Data) + "\n"
		}
		return all
	}

	events, result := run()
	if result.Text != "It is 3." || calls.Load() != 1 {
		t.Errorf("the result is %+v after %d calls", result, calls.Load())
	}
	testkit.Has(t, "what it told", told(events), `text {"text":"Adding."}`, `tool {"id":"toolu_1","name":"mcp__calc__add","arguments":{"A":1,"B":2}}`,
		`tool {"id":"toolu_1","done":true,"text":"{\"sum\":3}"}`, `usage {"input_tokens":24,"output_tokens":12`)
	i := slices.IndexFunc(events, func(e executor.Event) bool { return e.ExecutorSession != "" })
	if i < 0 {
		t.Fatal("it named no conversation")
	}

	job.Run, job.Resume, job.ExecutorSession = "run_2", true, events[i].ExecutorSession
	job.Agent.SystemPrompt = "You are another system prompt."
	job.Parameters = map[string]any{"prompt": "Again?"}
	events, result = run()
	if result.Text != "Still 3." {
		t.Errorf("the result is %+v", result)
	}
	testkit.Has(t, "what it told", told(events), `usage {"input_tokens":17,"output_tokens":3`)

	requests := model.Requests()
	for n, r := range requests {
		if got := r.Asked().Tools; !slices.Equal(got, []string{"mcp__calc__add"}) {
			t.Errorf("request %d offers the tools %v", n, got)
		}
		if r.Key() != "sk-test" {
			t.Errorf("request %d came with the key %q", n, r.Key())
		}
		testkit.Lacks(t, "a request", string(r.Body), "MEMORY_OF", "SETTINGS_MODEL", "stray")
	}
	testkit.Has(t, "the first request", requests[0].Asked().System, executortest.System)
	testkit.Has(t, "the resumed request", requests[2].Asked().System, job.Agent.SystemPrompt)
	testkit.Lacks(t, "the resumed request", requests[2].Asked().System, executortest.System)
	testkit.Has(t, "the resumed request", string(requests[2].Body), "What is six times seven?", "It is 3.", "Again?")
	if text, err := os.ReadFile(log); err == nil {
		t.Errorf("a program of the user's or the project's ran: %s", text)
	}
	if made, _ := os.ReadDir(filepath.Join(home, ".claude", "projects")); len(made) > 0 {
		t.Error("the conversation is in the user's folder")
	}
}

// The real program fills in the form of a result, and runs those of its own tools that
// it is given, also for root.
func TestRealResultAndTools(t *testing.T) {
	path := testkit.ClaudeCode(t)
	t.Setenv("HOME", t.TempDir())
	model := modeltest.New(t,
		modeltest.Reply{Calls: []modeltest.Call{{ID: "toolu_1", Name: "Bash", Arguments: `{"command":"echo $((6*7)) >made"}`}}},
		modeltest.Reply{Calls: []modeltest.Call{{ID: "toolu_2", Name: "StructuredOutput", Arguments: `{"sum":42}`}}},
		modeltest.Reply{Text: "Done."})
	job := executortest.Job(t)
	job.Agent.Servers, job.Agent.Result = nil, json.RawMessage(executortest.Schema)
	job.Config = map[string]any{"tools": []any{"Bash"}, "max_turns": 5}
	job.Env = map[string]string{"ANTHROPIC_BASE_URL": model.URL, "ANTHROPIC_API_KEY": "sk-test"}
	x := New(executor.Options{Program: executor.Program{Command: path}})
	plan, err := x.Plan(job)
	if err != nil {
		t.Fatal(err)
	}
	out := executortest.Run(t, job, plan)
	r := x.Read(job)
	executortest.Read(r, out.Lines)
	result, err := r.End(out.Exit)
	if err != nil || result.Text != "" || strings.ReplaceAll(string(result.Data), " ", "") != `{"sum":42}` {
		t.Errorf("the result is %+v, %v\n%s", result, err, out.Exit.Stdout)
	}
	if text, err := os.ReadFile(filepath.Join(job.Dir, "made")); string(text) != "42\n" {
		t.Errorf("the tool has written %q, %v", text, err)
	}
}

// A request that the model refuses fails the run, and the conversation goes on with the
// next. One that is not there begins anew.
func TestRealFailures(t *testing.T) {
	path := testkit.ClaudeCode(t)
	t.Setenv("HOME", t.TempDir())
	model := modeltest.New(t, modeltest.Reply{Status: 401, Type: "authentication_error", Message: "no such thing"}, modeltest.Reply{Text: "Better."}, modeltest.Reply{Text: "Again."})
	job := executortest.Job(t)
	job.Agent.Servers = nil
	job.Env = map[string]string{"ANTHROPIC_BASE_URL": model.URL, "ANTHROPIC_API_KEY": "sk-test", "CLAUDE_CODE_MAX_RETRIES": "0"}
	x := New(executor.Options{Program: executor.Program{Command: path}})
	run := func() (conversation string, result api.RunResult, err error) {
		t.Helper()
		plan, err := x.Plan(job)
		if err != nil {
			t.Fatal(err)
		}
		out := executortest.Run(t, job, plan)
		r := x.Read(job)
		for _, e := range executortest.Read(r, out.Lines) {
			conversation += e.ExecutorSession
		}
		result, err = r.End(out.Exit)
		return conversation, result, err
	}
	conversation, _, err := run()
	if err == nil || !strings.Contains(err.Error(), "401 no such thing; set ANTHROPIC_API_KEY") || conversation == "" {
		t.Fatalf("a refused request: %v, in the conversation %q", err, conversation)
	}
	job.ExecutorSession = conversation
	job.Parameters = map[string]any{"prompt": "Try again."}
	if _, result, err := run(); err != nil || result.Text != "Better." {
		t.Errorf("after it: %+v, %v", result, err)
	}
	testkit.Has(t, "the second request", string(model.Requests()[1].Body), "What is six times seven?", "Try again.")
	job.ExecutorSession = "6f7d3c1e-3b1a-4a2b-9c1d-00000000000a"
	if named, result, err := run(); err != nil || result.Text != "Again." || named != job.ExecutorSession {
		t.Errorf("a conversation that is not there: %+v, %v, named %q", result, err, named)
	}
	testkit.Has(t, "what the model is told", string(model.Requests()[2].Body), "What was said in this session before is lost.", "Try again.")
}
