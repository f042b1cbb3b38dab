// Package teller is an MCP server that tells what it was given: headers,
// metadata, arguments as bytes, its environment. On demand it fails in each way
// that a server can, with its own credentials in what it says. It speaks
// JSON-RPC by hand, so that nothing is tidied up on the way.
package teller

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Modern is the revision of the stateless era.
const Modern = "2026-07-28"

// A Server answers requests, the same over every transport.
type Server struct {
	Modern bool                               // speak the stateless era only
	Stderr func(text string)                  // where complain writes to; may be nil
	Called func(name string, params *Request) // is told of every tool call; may be nil
}

// Request is one message as it came in.
type Request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		ProtocolVersion string          `json:"protocolVersion"`
		Name            string          `json:"name"`
		URI             string          `json:"uri"`
		Arguments       json.RawMessage `json:"arguments"`
		Meta            json.RawMessage `json:"_meta"`
	} `json:"params"`
	Header http.Header `json:"-"` // nil over stdio
}

// Told is what the tool tell answers, as text.
type Told struct {
	Header http.Header     `json:"header"`
	Meta   json.RawMessage `json:"meta"`
	Env    []string        `json:"env"`
	Files  []string        `json:"files"` // what is open, by number
}

type arguments struct {
	Text   string `json:"text"`
	Status int    `json:"status"`
	MS     int    `json:"ms"`
}

// tools are what the server has; the read-only ones say so.
var tools = map[string]bool{
	"tell":      true,  // all of Told
	"arguments": false, // the bytes of its arguments, as text
	"echo":      false, // its text
	"fail":      false, // its text as a result with isError
	"refuse":    false, // its text as a JSON-RPC error, in the message and in the data
	"status":    false, // its text as the body of an HTTP error
	"complain":  false, // its text on standard error
	"sleep":     false, // its text after a while
}

// Answer returns the whole answer to a message, nil where there is none, and the
// HTTP status it goes with.
func (s *Server) Answer(ctx context.Context, frame []byte, header http.Header) (answer []byte, status int) {
	r := Request{Header: header}
	if err := json.Unmarshal(frame, &r); err != nil {
		return failure(nil, -32700, "parse error: "+err.Error(), nil), http.StatusBadRequest
	}
	if r.ID == nil {
		return nil, http.StatusAccepted
	}
	info := map[string]any{"name": "teller", "version": "1"}
	can := map[string]any{"tools": struct{}{}, "resources": struct{}{}, "prompts": struct{}{}}
	switch {
	case r.Method == "initialize" && !s.Modern:
		return success(r.ID, map[string]any{"protocolVersion": min(r.Params.ProtocolVersion, "2025-11-25"), "capabilities": can, "serverInfo": info}), http.StatusOK
	case r.Method == "server/discover" && s.Modern:
		return success(r.ID, map[string]any{
			"supportedVersions": []string{Modern}, "capabilities": can, "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
			"_meta": map[string]any{"io.modelcontextprotocol/serverInfo": info},
		}), http.StatusOK
	case r.Method == "tools/list":
		return success(r.ID, s.result(map[string]any{"tools": list()})), http.StatusOK
	case r.Method == "resources/read":
		return success(r.ID, s.result(map[string]any{"contents": []any{map[string]any{"uri": r.Params.URI, "text": "read"}}})), http.StatusOK
	case r.Method == "prompts/get":
		return success(r.ID, s.result(map[string]any{"messages": []any{}})), http.StatusOK
	case r.Method == "tools/call":
		if s.Called != nil {
			s.Called(r.Params.Name, &r)
		}
		return s.call(ctx, &r)
	}
	return failure(r.ID, -32601, "method not found: "+r.Method, nil), http.StatusOK
}

func list() []any {
	kind := func(of string) map[string]any { return map[string]any{"type": of} }
	schema := kind("object")
	schema["properties"] = map[string]any{"text": kind("string"), "status": kind("integer"), "ms": kind("integer")}
	var all []any
	for name, readOnly := range tools {
		all = append(all, map[string]any{
			"name": name, "inputSchema": schema,
			"annotations": map[string]any{"readOnlyHint": readOnly},
		})
	}
	return all
}

// result adds what every result of the stateless era has.
func (s *Server) result(r map[string]any) map[string]any {
	if s.Modern {
		r["resultType"], r["ttlMs"], r["cacheScope"] = "complete", 0, "private"
	}
	return r
}

func (s *Server) call(ctx context.Context, r *Request) ([]byte, int) {
	var args arguments
	_ = json.Unmarshal(r.Params.Arguments, &args) // arguments of any form are told
	said := fill(args.Text, r.Header)
	text := func(t string, failed bool) ([]byte, int) {
		out := map[string]any{"content": []any{map[string]any{"type": "text", "text": t}}}
		if failed {
			out["isError"] = true
		}
		return success(r.ID, s.result(out)), http.StatusOK
	}
	switch r.Params.Name {
	case "tell":
		told, err := json.Marshal(Told{Header: r.Header, Meta: r.Params.Meta, Env: os.Environ(), Files: open()})
		if err != nil {
			return text(err.Error(), true)
		}
		return text(string(told), false)
	case "arguments":
		return text(string(r.Params.Arguments), false)
	case "echo":
		return text(said, false)
	case "fail":
		return text(said, true)
	case "refuse":
		return failure(r.ID, -32000, said, map[string]any{"detail": said}), http.StatusOK
	case "status":
		return []byte(said), args.Status
	case "complain":
		if s.Stderr != nil {
			s.Stderr(said)
		}
		return text("ok", false)
	case "sleep":
		select {
		case <-time.After(time.Duration(args.MS) * time.Millisecond):
		case <-ctx.Done():
		}
		return text(said, false)
	}
	return failure(r.ID, -32602, "unknown tool: "+r.Params.Name, nil), http.StatusOK
}

var placeholder = regexp.MustCompile(`\{(header|bearer|env):([^}]+)\}`)

// fill puts the server's own credentials into a text: {header:NAME} is what the
// caller sent, {bearer:NAME} the same without the word Bearer, {env:NAME} is a
// variable of its own.
func fill(text string, header http.Header) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		m := placeholder.FindStringSubmatch(p)
		switch m[1] {
		case "env":
			return os.Getenv(m[2])
		case "bearer":
			return strings.TrimPrefix(header.Get(m[2]), "Bearer ")
		}
		return header.Get(m[2])
	})
}

// open lists the files the process has, where the system tells.
func open() []string {
	links, _ := filepath.Glob("/proc/self/fd/*")
	var all []string
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil {
			all = append(all, filepath.Base(link)+" "+target)
		}
	}
	slices.Sort(all)
	return all
}

func success(id json.RawMessage, result any) []byte {
	return encode(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
}

func failure(id json.RawMessage, code int, message string, data any) []byte {
	e := map[string]any{"code": code, "message": message}
	if data != nil {
		e["data"] = data
	}
	return encode(map[string]any{"jsonrpc": "2.0", "id": id, "error": e})
}

func encode(v any) []byte {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // only maps, slices, strings and numbers are given
	}
	return []byte(b.String())
}
