package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const hugeBytes = 100 << 20

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string          `json:"protocolVersion"`
		Cursor          string          `json:"cursor"`
		Name            string          `json:"name"`
		Arguments       json.RawMessage `json:"arguments"`
	} `json:"params"`
}

type arguments struct {
	Text  string `json:"text"`
	Key   string `json:"key"`
	Value string `json:"value"`
	MS    int    `json:"ms"`
}

// server answers requests, the same over every transport.
type server struct {
	mode  string
	calls io.Writer // nil when calls are not counted

	mu     sync.Mutex
	memory map[string]string
	called int
}

// What handle may do instead of answering.
type outcome int

const (
	answer outcome = iota
	silence
	collapse // end the process, or drop the connection
)

// handle returns the whole response to one request, or what to do instead.
func (s *server) handle(line []byte) ([]byte, outcome) {
	if s.mode == "hang" {
		return nil, silence
	}
	if s.mode == "garbage" {
		return []byte(`<html><body>502 Bad Gateway {"jsonrpc": "2.0", "id": ` + "\x01" + `</body></html>`), answer
	}
	var r request
	if err := json.Unmarshal(line, &r); err != nil {
		return failure(nil, -32700, "parse error: "+err.Error()), answer
	}
	if r.ID == nil {
		return nil, silence
	}
	switch r.Method {
	case "initialize":
		version := r.Params.ProtocolVersion
		if version > "2025-11-25" {
			version = "2025-11-25"
		}
		return success(r.ID, map[string]any{
			"protocolVersion": version,
			"capabilities":    map[string]any{"tools": map[string]any{}},
			"serverInfo":      map[string]any{"name": "badserver-" + s.mode, "version": "1"},
		}), answer
	case "ping":
		return success(r.ID, struct{}{}), answer
	case "tools/list":
		return success(r.ID, s.list(r.Params.Cursor)), answer
	case "tools/call":
		return s.call(r)
	}
	return failure(r.ID, -32601, "method not found: "+r.Method), answer
}

type tool struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	InputSchema any    `json:"inputSchema"`
}

func (s *server) list(cursor string) any {
	schema := map[string]any{"type": "object"}
	if s.mode == "hugelist" {
		return map[string]any{"tools": []tool{{"huge", strings.Repeat("x", hugeBytes), schema}}}
	}
	var tools []tool
	for _, name := range []string{"echo", "remember", "recall", "sleep", "count", "mirror", "huge", "secret"} {
		tools = append(tools, tool{name, "Does " + name + ".", schema})
	}
	if s.mode != "many" {
		return map[string]any{"tools": tools}
	}
	for i := len(tools); i < 500; i++ {
		tools = append(tools, tool{fmt.Sprintf("tool_%03d", i), strings.Repeat("A long description. ", 10), schema})
	}
	from, _ := strconv.Atoi(cursor)
	to := min(from+100, len(tools))
	page := map[string]any{"tools": tools[min(from, to):to]}
	if to < len(tools) {
		page["nextCursor"] = strconv.Itoa(to)
	}
	return page
}

func (s *server) call(r request) ([]byte, outcome) {
	s.mu.Lock()
	s.called++
	n := s.called
	if s.calls != nil {
		fmt.Fprintln(s.calls, r.Params.Name)
	}
	s.mu.Unlock()
	if s.mode == "hangcall" {
		return nil, silence
	}
	if s.mode == "flap" && n%2 == 0 {
		return nil, collapse
	}
	var args arguments
	if err := json.Unmarshal(r.Params.Arguments, &args); err != nil && r.Params.Arguments != nil {
		return failure(r.ID, -32602, "arguments: "+err.Error()), answer
	}
	switch name := r.Params.Name; {
	case name == "echo" || name == "secret" || strings.HasPrefix(name, "tool_"):
		return text(r.ID, args.Text), answer
	case name == "remember":
		s.mu.Lock()
		s.memory[args.Key] = args.Value
		s.mu.Unlock()
		return text(r.ID, strconv.Itoa(os.Getpid())), answer
	case name == "recall":
		s.mu.Lock()
		value := s.memory[args.Key]
		s.mu.Unlock()
		return text(r.ID, value), answer
	case name == "sleep":
		time.Sleep(time.Duration(args.MS) * time.Millisecond)
		return text(r.ID, args.Text), answer
	case name == "count":
		return text(r.ID, strconv.Itoa(n)), answer
	case name == "mirror":
		// Nothing here is made of maps: the order of keys is part of the answer.
		return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"strange":{"z":98765432109876543210,"a":[]},`+
			`"content":[{"type":"hologram","depth":3}],"arguments":%s}}`, r.ID, r.Params.Arguments), answer
	case name == "huge":
		return text(r.ID, strings.Repeat("x", hugeBytes)), answer
	}
	return failure(r.ID, -32602, "unknown tool: "+r.Params.Name), answer
}

func text(id json.RawMessage, s string) []byte {
	return success(id, map[string]any{"content": []any{map[string]any{"type": "text", "text": s}}})
}

func success(id json.RawMessage, result any) []byte {
	return encode(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

func failure(id json.RawMessage, code int, msg string) []byte {
	return encode(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": code, "message": msg}})
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only maps, slices, strings and numbers are given
	}
	return data
}
