//go:build unix && codex

// The real Codex is not among the tools that the tests fetch, because it is large. Install
// it and run
//
//	TINE_TEST_CODEX=PATH/codex go test -tags codex ./internal/agent/executor/codex
package codex

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/executor/executortest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// scripted speaks as OpenAI's Responses API. Each reply is the items of one response.
type scripted struct {
	mu       sync.Mutex
	replies  [][]string
	requests []string
}

func (s *scripted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil || !strings.HasSuffix(r.URL.Path, "/responses") || len(s.replies) == 0 {
		http.Error(w, "not in the script", http.StatusNotFound)
		return
	}
	s.requests = append(s.requests, string(body))
	items := s.replies[0]
	s.replies = s.replies[1:]
	w.Header().Set("Content-Type", "text/event-stream")
	event := func(kind, rest string) {
		fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q,%s}\n\n", kind, kind, rest)
	}
	event("response.created", `"response":{"id":"resp_1"}`)
	for n, item := range items {
		event("response.output_item.done", fmt.Sprintf(`"output_index":%d,"item":%s`, n, item))
	}
	event("response.completed", `"response":{"id":"resp_1","usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":0},"output_tokens":5,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":15}}`)
}

func says(text string) string {
	raw, _ := json.Marshal(text)
	return `{"type":"message","role":"assistant","id":"m1","content":[{"type":"output_text","text":` + string(raw) + `}]}`
}

// The real program calls a tool of its MCP server and is resumed with another system
// prompt. It is offered nothing else that acts, and nothing of the user's or the project's
// reaches the model.
func TestRealProgram(t *testing.T) {
	path := os.Getenv("TINE_TEST_CODEX")
	if path == "" {
		t.Fatal("TINE_TEST_CODEX must be the path of the program codex")
	}
	server := mcp.NewServer(&mcp.Implementation{Name: "calculator", Version: "1"}, nil)
	type numbers struct{ A, B int }
	mcp.AddTool(server, &mcp.Tool{Name: "add", Description: "Adds."}, func(_ context.Context, _ *mcp.CallToolRequest, in numbers) (*mcp.CallToolResult, map[string]int, error) {
		return nil, map[string]int{"sum": in.A + in.B}, nil
	})
	inner := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil)
	calc := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+executortest.Token {
			http.Error(w, "no token", http.StatusForbidden)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	defer calc.Close()
	script := &scripted{replies: [][]string{
		{says("Adding."), `{"type":"function_call","id":"fc1","call_id":"call_1","name":"add","namespace":"mcp__calc","arguments":"{\"A\":1,\"B\":2}"}`},
		{says(`{"sum":3}`)},
		{says(`{"sum":4}`)},
	}}
	model := httptest.NewServer(script)
	defer model.Close()

	home, project := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		filepath.Join(home, ".codex", "AGENTS.md"):      "MEMORY_OF_THE_USER",
		filepath.Join(home, ".codex", "config.toml"):    `model = "CONFIG_OF_THE_USER"`,
		filepath.Join(project, "AGENTS.md"):             "MEMORY_OF_THE_PROJECT",
		filepath.Join(project, ".codex", "config.toml"): `model = "CONFIG_OF_THE_PROJECT"`,
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	job := executortest.Job(t)
	job.ProjectDir = project
	job.Agent.Result = json.RawMessage(`{"type":"object","additionalProperties":false,"required":["sum"],"properties":{"sum":{"type":"integer"}}}`)
	job.Agent.Servers = map[string]executor.Server{"calc": {Type: "http", URL: calc.URL, Headers: map[string]string{"Authorization": "Bearer " + executortest.Token}}}
	job.Config = map[string]any{"model": "gpt-5"}
	job.Env = map[string]string{"CODEX_API_KEY": "sk-test"}
	x := New(executor.Options{Program: executor.Program{Command: path, Args: []string{
		"-c", `model_provider="scripted"`,
		"-c", `model_providers.scripted={name="scripted",base_url="` + model.URL + `/v1",wire_api="responses",env_key="CODEX_API_KEY"}`,
	}}})
	run := func() (told, conversation string, result api.RunResult) {
		t.Helper()
		plan, err := x.Plan(job)
		if err != nil {
			t.Fatal(err)
		}
		out := executortest.Run(t, job, plan)
		r := x.Read(job)
		for _, e := range executortest.Read(r, out.Lines) {
			told += e.Type + " " + string(e.Data) + "\n"
			conversation += e.ExecutorSession
		}
		if result, err = r.End(out.Exit); err != nil {
			t.Fatalf("%v\n%s%s", err, out.Exit.Stdout, out.Exit.Stderr)
		}
		return told, conversation, result
	}
	told, conversation, result := run()
	if string(result.Data) != `{"sum":3}` || conversation == "" {
		t.Errorf("the result is %+v in the conversation %q", result, conversation)
	}
	testkit.Has(t, "what it told", told, `text {"text":"Adding."}`, `"name":"calc/add","arguments":{"A":1,"B":2}`, `"done":true,"text":"{\"sum\":3}"`, `usage {"input_tokens":20,"output_tokens":10}`)

	job.Run, job.Resume, job.ExecutorSession = "run_2", true, conversation
	job.Agent.SystemPrompt = "You are another system prompt."
	job.Parameters = map[string]any{"prompt": "Again?"}
	if _, again, result := run(); string(result.Data) != `{"sum":4}` || again != conversation {
		t.Errorf("resumed, the result is %+v in the conversation %q", result, again)
	}
	if len(script.requests) != 3 {
		t.Fatalf("%d requests", len(script.requests))
	}
	reads := []string{"list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource", "request_user_input"}
	for _, r := range script.requests {
		var got struct{ Tools []struct{ Name string } }
		if err := json.Unmarshal([]byte(r), &got); err != nil {
			t.Fatal(err)
		}
		for _, tool := range got.Tools {
			if tool.Name != "mcp__calc" && !slices.Contains(reads, tool.Name) {
				t.Errorf("the model is offered %q", tool.Name)
			}
		}
		testkit.Lacks(t, "a request", r, "MEMORY_OF", "CONFIG_OF", executortest.Token)
	}
	testkit.Has(t, "the first request", script.requests[0], executortest.System)
	testkit.Has(t, "the resumed request", script.requests[2], job.Agent.SystemPrompt, "What is six times seven?", "Again?")
	testkit.Lacks(t, "the resumed request", script.requests[2], executortest.System)
}
