//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A scriptedModel stands in for a language model: it asks for tool calls, one after
// another, and once it is given the last result, it repeats that as its last word.
// It speaks as much of the messages API as Claude Code needs.
type scriptedModel struct {
	*httptest.Server
	calls []scriptedCall

	mu      sync.Mutex
	offered []string // names of the tools it was offered
	results []string // of the calls, as JSON
}

type scriptedCall struct {
	tool  string
	input map[string]any
}

func newScriptedModel(t testing.TB, tool string, input map[string]any, more ...scriptedCall) *scriptedModel {
	t.Helper()
	m := &scriptedModel{calls: append([]scriptedCall{{tool, input}}, more...)}
	m.Server = httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(m.Close)
	return m
}

func (m *scriptedModel) tools() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.offered
}

func (m *scriptedModel) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/v1/messages" {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"input_tokens":1}`)
		return
	}
	var req struct {
		Model    string
		Stream   bool
		Tools    []struct{ Name string }
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var results []string
	for _, msg := range req.Messages {
		var blocks []struct {
			Type    string
			Content json.RawMessage
		}
		if json.Unmarshal(msg.Content, &blocks) != nil {
			continue // plain text
		}
		for _, b := range blocks {
			if b.Type == "tool_result" {
				results = append(results, string(b.Content))
			}
		}
	}
	m.mu.Lock()
	for _, tool := range req.Tools {
		m.offered = append(m.offered, tool.Name)
	}
	if len(results) > len(m.results) {
		m.results = results
	}
	m.mu.Unlock()
	type object = map[string]any
	block := object{"type": "text", "text": ""}
	delta := object{"type": "text_delta", "text": "The tool said " + strings.Join(results, " and then ")}
	reason := "end_turn"
	if n := len(results); n < len(m.calls) && len(req.Tools) > 0 {
		call := m.calls[n]
		input, err := json.Marshal(call.input)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		block = object{"type": "tool_use", "id": fmt.Sprintf("toolu_%d", n), "name": call.tool, "input": object{}}
		delta = object{"type": "input_json_delta", "partial_json": string(input)}
		reason = "tool_use"
	}
	if !req.Stream {
		http.Error(w, "only streams are scripted", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(kind string, fields object) {
		fields["type"] = kind
		data, err := json.Marshal(fields)
		if err != nil {
			panic(err) // maps, strings and numbers
		}
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, data)
	}
	send("message_start", object{"message": object{
		"id": "msg_1", "type": "message", "role": "assistant", "model": req.Model, "content": []any{},
		"stop_reason": nil, "stop_sequence": nil, "usage": object{"input_tokens": 1, "output_tokens": 1},
	}})
	send("content_block_start", object{"index": 0, "content_block": block})
	send("content_block_delta", object{"index": 0, "delta": delta})
	send("content_block_stop", object{"index": 0})
	send("message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": 1}})
	send("message_stop", object{})
}

// claudeEnv keeps Claude Code to itself: a fake key, the scripted model, no
// calls home.
func claudeEnv(t testing.TB, model string) []string {
	return toolEnv(t,
		"ANTHROPIC_BASE_URL="+model, "ANTHROPIC_API_KEY=sk-ant-nobody", "DISABLE_TELEMETRY=1", "DISABLE_AUTOUPDATER=1",
		"DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "ENABLE_TOOL_SEARCH=false")
}

// TestClaudeCode lists Tine in Claude Code and lets it call a tool through
// Tine, over HTTP and over stdio.
func TestClaudeCode(t *testing.T) {
	t.Parallel()
	claude := need(t, claudeCode(), node, npmEverything)[0]
	g := clientGateway(t)
	for _, tt := range []struct {
		name   string
		add    []string
		config map[string]any
	}{
		{"http", []string{"--transport", "http", "tine", g.url + "/mcp"},
			map[string]any{"type": "http", "url": g.url + "/mcp"}},
		{"stdio", []string{"tine", "--", tineBinary, "stdio", "--state", g.state()},
			map[string]any{"command": tineBinary, "args": []string{"stdio", "--state", g.state()}}},
	} {
		t.Run(tt.name+"/list", func(t *testing.T) {
			t.Parallel()
			env := claudeEnv(t, "http://127.0.0.1:1")
			if _, err := runTool(t.Context(), t, env, claude, append([]string{"mcp", "add", "--scope", "user"}, tt.add...)...); err != nil {
				t.Fatal(err)
			}
			out, err := runTool(t.Context(), t, env, claude, "mcp", "list")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out, "Connected") || strings.Contains(out, "Failed") {
				t.Errorf("claude mcp list says\n%s", out)
			}
		})
		t.Run(tt.name+"/call", func(t *testing.T) {
			t.Parallel()
			model := newScriptedModel(t, "mcp__tine__every__echo", map[string]any{"message": "a word from the model"})
			config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"tine": tt.config}})
			if err != nil {
				t.Fatal(err)
			}
			out, err := runTool(t.Context(), t, claudeEnv(t, model.URL), claude, "-p", "Please say it.",
				"--model", "claude-sonnet-4-5", "--mcp-config", string(config), "--strict-mcp-config", "--allowedTools", "mcp__tine__every__echo")
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out, "Echo: a word from the model") {
				t.Errorf("claude -p says\n%s\nthe model was offered %v", out, model.tools())
			}
		})
	}
}
