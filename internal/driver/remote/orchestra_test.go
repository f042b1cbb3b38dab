package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// orchestra is an orchestrator with instances that remember: MCP servers of the
// SDK with the tools echo, put and get. It counts what it makes and removes.
type orchestra struct {
	*httptest.Server
	// before may answer a request itself, and says so; nil for never.
	before func(w http.ResponseWriter, r *http.Request, body []byte) bool
	// after may spoil an answer that was made: it returns what is sent instead,
	// and whether the connection breaks off before.
	after func(r *http.Request, answer []byte) (instead []byte, breaks bool)
	// token is what the instances want to be shown; empty for nothing.
	token string
	// keyless ignores idempotency keys.
	keyless bool

	mu        sync.Mutex
	n         int
	boxes     map[string]*box
	snapshots map[string]map[string]string
	keys      map[string]string // answers by key
	created   int
	deleted   int
	seen      []*http.Request
	bodies    []string
}

type box struct {
	mu      sync.Mutex
	values  map[string]string
	handler http.Handler
}

func newOrchestra(t testing.TB) *orchestra {
	t.Helper()
	o := &orchestra{boxes: map[string]*box{}, snapshots: map[string]map[string]string{}, keys: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /instances", o.create)
	mux.HandleFunc("GET /instances/{id}", o.look)
	mux.HandleFunc("DELETE /instances/{id}", o.remove)
	mux.HandleFunc("POST /instances/{id}/call", o.call)
	mux.HandleFunc("POST /instances/{id}/fork", o.fork)
	mux.HandleFunc("POST /instances/{id}/snapshot", o.snapshot)
	mux.HandleFunc("DELETE /snapshots/{id}", o.removeSnapshot)
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"status":"ok"}`) })
	mux.HandleFunc("/mcp/{id}", o.speak)
	mux.Handle("/orchestrator", o.tools())
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has left
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		o.mu.Lock()
		o.seen, o.bodies = append(o.seen, r), append(o.bodies, string(body))
		before := o.before
		o.mu.Unlock()
		if before == nil || !before(w, r, body) {
			mux.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(o.Close)
	return o
}

// set changes how it behaves.
func (o *orchestra) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// left is how many instances and snapshots there are.
func (o *orchestra) left() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.boxes) + len(o.snapshots)
}

func (o *orchestra) counts() (created, deleted int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.created, o.deleted
}

// forget loses every instance, as after a restart.
func (o *orchestra) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.deleted += len(o.boxes)
	clear(o.boxes)
}

func (o *orchestra) make(values map[string]string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.n++
	o.created++
	id := fmt.Sprintf("box/%d", o.n) // a name that must be escaped in a path
	o.boxes[id] = newBox(values)
	return id
}

func (o *orchestra) box(id string) *box {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.boxes[id]
}

func newBox(values map[string]string) *box {
	b := &box{values: maps.Clone(values)}
	if b.values == nil {
		b.values = map[string]string{}
	}
	s := mcp.NewServer(&mcp.Implementation{Name: "box", Version: "1"}, nil)
	type in struct {
		Text  string `json:"text,omitempty"`
		Key   string `json:"key,omitempty"`
		Value string `json:"value,omitempty"`
	}
	for _, name := range []string{"echo", "put", "get"} {
		mcp.AddTool(s, &mcp.Tool{Name: name}, func(_ context.Context, _ *mcp.CallToolRequest, in in) (*mcp.CallToolResult, any, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: b.do(name, in.Text, in.Key, in.Value)}}}, nil, nil
		})
	}
	b.handler = mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
	return b
}

func (b *box) do(tool, text, key, value string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch tool {
	case "put":
		b.values[key] = value
		return "ok"
	case "get":
		return b.values[key]
	}
	return text
}

func (b *box) copy() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.values)
}

// answer writes what was made, once for a key.
func (o *orchestra) answer(w http.ResponseWriter, r *http.Request, make func() any) {
	key := r.Header.Get(headerKey)
	o.mu.Lock()
	answer, known := o.keys[key]
	known = known && !o.keyless
	after := o.after
	if !known {
		o.keys[key] = ""
	}
	o.mu.Unlock()
	if known && answer == "" {
		http.Error(w, "that request is running", http.StatusConflict)
		return
	}
	if !known {
		b, err := json.Marshal(make())
		if err != nil {
			panic(err)
		}
		answer = string(b)
		o.mu.Lock()
		o.keys[key] = answer
		o.mu.Unlock()
	}
	if after != nil {
		instead, breaks := after(r, []byte(answer))
		if breaks {
			w.Header().Set("Content-Length", "10000")
			fmt.Fprint(w, answer[:1])
			_ = http.NewResponseController(w).Flush() // or the client sends it again by itself
			panic(http.ErrAbortHandler)
		}
		if instead != nil {
			answer = string(instead)
		}
	}
	fmt.Fprint(w, answer)
}

func (o *orchestra) instance(id string) map[string]any {
	m := map[string]any{"remote_instance_id": id, "mcp_endpoint_url": o.URL + "/mcp/" + strings.ReplaceAll(id, "/", "%2F"), "instance_id": id, "additional_details": map[string]any{"x": 1}}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.token != "" {
		m["access_token"] = o.token
	}
	return m
}

func (o *orchestra) create(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Template json.RawMessage `json:"template_details"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var from struct {
		Snapshot string `json:"snapshot_id"`
	}
	var values map[string]string
	if json.Unmarshal(in.Template, &from) == nil && from.Snapshot != "" {
		o.mu.Lock()
		had, ok := o.snapshots[from.Snapshot]
		o.mu.Unlock()
		if !ok {
			http.Error(w, "no such snapshot", http.StatusUnprocessableEntity)
			return
		}
		values = had
	}
	o.answer(w, r, func() any { return []any{o.instance(o.make(values))} })
}

func (o *orchestra) found(w http.ResponseWriter, r *http.Request) *box {
	b := o.box(r.PathValue("id"))
	if b == nil {
		http.Error(w, `{"detail":"no such instance here"}`, http.StatusNotFound)
	}
	return b
}

func (o *orchestra) look(w http.ResponseWriter, r *http.Request) {
	if o.found(w, r) != nil {
		fmt.Fprint(w, "{}")
	}
}

func (o *orchestra) remove(w http.ResponseWriter, r *http.Request) {
	if o.found(w, r) == nil {
		return
	}
	o.mu.Lock()
	delete(o.boxes, r.PathValue("id"))
	o.deleted++
	o.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (o *orchestra) call(w http.ResponseWriter, r *http.Request) {
	b := o.found(w, r)
	if b == nil {
		return
	}
	var in struct {
		Tool      string         `json:"tool_name"`
		Arguments map[string]any `json:"arguments"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	text := b.do(in.Tool, str(in.Arguments, "text"), str(in.Arguments, "key"), str(in.Arguments, "value"))
	_ = json.NewEncoder(w).Encode(map[string]any{"content": []any{map[string]any{"type": "text", "text": text}}})
}

func str(m map[string]any, key string) string {
	s, _ := m[key].(string)
	return s
}

func (o *orchestra) fork(w http.ResponseWriter, r *http.Request) {
	if b := o.found(w, r); b != nil {
		o.answer(w, r, func() any { return []any{o.instance(o.make(b.copy()))} })
	}
}

func (o *orchestra) snapshot(w http.ResponseWriter, r *http.Request) {
	b := o.found(w, r)
	if b == nil {
		return
	}
	o.answer(w, r, func() any {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.n++
		id := fmt.Sprint("snap-", o.n)
		o.snapshots[id] = b.copy()
		return map[string]any{"snapshot_id": id}
	})
}

func (o *orchestra) removeSnapshot(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.snapshots[r.PathValue("id")] == nil {
		w.WriteHeader(http.StatusNotFound)
	}
	delete(o.snapshots, r.PathValue("id"))
}

// speak is an instance's own endpoint.
func (o *orchestra) speak(w http.ResponseWriter, r *http.Request) {
	o.mu.Lock()
	token := o.token
	o.mu.Unlock()
	if token != "" && r.Header.Get("Authorization") != "Bearer "+token {
		http.Error(w, "I want my token, not "+r.Header.Get("Authorization"), http.StatusUnauthorized)
		return
	}
	if b := o.found(w, r); b != nil {
		r.Header.Set("Accept", "application/json, text/event-stream")
		b.handler.ServeHTTP(w, r)
	}
}

// requests are those to paths with a prefix.
func (o *orchestra) requests(prefix string) []*http.Request {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(o.seen), func(r *http.Request) bool {
		return !strings.HasPrefix(r.Method+" "+r.URL.Path, prefix)
	})
}

// tools is the orchestrator as an MCP server: its sessions are boxes.
func (o *orchestra) tools() http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "orchestra", Version: "1"}, nil)
	add := func(name string, do func(args map[string]any, key string) (string, bool)) {
		schema := json.RawMessage(`{"type":"object","properties":{"args":{"type":"object","properties":{"idempotency_key":{"type":"string"}}}}}`)
		s.AddTool(&mcp.Tool{Name: name, InputSchema: schema}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			var in struct{ Args map[string]any }
			if err := json.Unmarshal(r.Params.Arguments, &in); err != nil {
				return nil, err
			}
			key, _ := in.Args["idempotency_key"].(string)
			text, failed := do(in.Args, key)
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}, IsError: failed}, nil
		})
	}
	add("initialize_session", func(args map[string]any, key string) (string, bool) {
		o.mu.Lock()
		answer, known := o.keys[key]
		o.mu.Unlock()
		if known {
			return answer, false
		}
		id := o.make(nil)
		answer = fmt.Sprintf(`{"session_id":%q,"rk_session_id":%q,"initialized_backends":[{"backend_name_ref":"box","instances":[{"instance_id":"i1"}]}]}`, id, id)
		o.mu.Lock()
		o.keys[key] = answer
		o.mu.Unlock()
		return answer, false
	})
	find := func(args map[string]any) (*box, string) {
		b := o.box(str(args, "rk_session_id"))
		return b, fmt.Sprintf("session %s not found", str(args, "rk_session_id"))
	}
	add("call_backend_tool", func(args map[string]any, _ string) (string, bool) {
		b, text := find(args)
		if b == nil {
			return text, true
		}
		in, _ := args["tool_args"].(map[string]any)
		out, err := json.Marshal(map[string]any{
			"content": []any{map[string]any{"type": "text", "text": b.do(str(args, "tool_name"), str(in, "text"), str(in, "key"), str(in, "value"))}},
			"odd":     json.RawMessage("12345678901234567890"),
		})
		return string(out), err != nil
	})
	add("list_backend_tools", func(args map[string]any, _ string) (string, bool) {
		if b, text := find(args); b == nil {
			return text, true
		}
		return `{"tools":[{"name":"echo","inputSchema":{"type":"object"},"odd":12345678901234567890}]}`, false
	})
	add("cleanup_session", func(args map[string]any, _ string) (string, bool) {
		o.mu.Lock()
		defer o.mu.Unlock()
		id := str(args, "rk_session_id")
		if o.boxes[id] == nil {
			return `{"status":"custom_session_data_not_found_or_already_cleaned"}`, false
		}
		delete(o.boxes, id)
		o.deleted++
		return `{"status":"cleaned"}`, false
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, nil)
}
