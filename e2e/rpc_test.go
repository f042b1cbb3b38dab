//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// The tests that look at headers, ids and bytes speak MCP by hand, so that no
// SDK tidies up what is sent or hides what comes back.

const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (e *rpcError) Error() string {
	return fmt.Sprintf("%s (%d) %s", e.Message, e.Code, e.Data)
}

// toolResult is what a tools/call answers, as far as tests look at it.
type toolResult struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	IsError bool                       `json:"isError"`
	Meta    map[string]json.RawMessage `json:"_meta"`
}

func (r toolResult) text() string {
	var b strings.Builder
	for _, c := range r.Content {
		b.WriteString(c.Text)
	}
	return b.String()
}

// reply is the answer to one HTTP request, with every message it carried.
type reply struct {
	status   int
	header   http.Header
	body     []byte // unless it was an event stream
	messages []message
}

// answer finds the response among the messages.
func (r reply) answer() (message, error) {
	for _, m := range r.messages {
		if m.Method == "" {
			return m, nil
		}
	}
	return message{}, fmt.Errorf("no answer in %d %s", r.status, r.body)
}

// post sends one body and reads all that comes back.
func post(ctx context.Context, url string, header http.Header, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for k, v := range header {
		req.Header[http.CanonicalHeaderKey(k)] = v
	}
	if host := header.Get("Host"); host != "" {
		req.Host = host
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	r := reply{status: resp.StatusCode, header: resp.Header}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		r.messages, err = readEvents(resp.Body)
		return r, err
	}
	if r.body, err = io.ReadAll(resp.Body); err != nil {
		return r, err
	}
	var m message
	if json.Unmarshal(r.body, &m) == nil {
		r.messages = append(r.messages, m)
	}
	return r, nil
}

// readEvents reads a stream of events up to the first response or its end.
func readEvents(body io.Reader) ([]message, error) {
	var all []message
	var data bytes.Buffer
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadBytes('\n')
		if text, ok := bytes.CutPrefix(line, []byte("data:")); ok {
			data.Write(bytes.TrimSpace(text))
		}
		if len(bytes.TrimSpace(line)) == 0 && data.Len() > 0 {
			var m message
			if err := json.Unmarshal(data.Bytes(), &m); err != nil {
				return all, fmt.Errorf("event %q: %w", data.Bytes(), err)
			}
			data.Reset()
			all = append(all, m)
			if m.Method == "" {
				return all, nil
			}
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
	}
}

// A session is one legacy connection: the client's side of an Mcp-Session-Id.
type session struct {
	url    string
	id     string
	header http.Header
	next   atomic.Int64
}

// open does the handshake of the legacy era.
func open(ctx context.Context, url string, header http.Header) (*session, error) {
	s := &session{url: url, header: header.Clone()}
	if s.header == nil {
		s.header = http.Header{}
	}
	r, err := post(ctx, url, s.header, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+legacyVersion+
		`","capabilities":{},"clientInfo":{"name":"e2e","version":"1"}}}`)
	if err != nil {
		return nil, err
	}
	m, err := r.answer()
	if err != nil {
		return nil, err
	}
	if m.Error != nil {
		return nil, m.Error
	}
	s.id = r.header.Get("Mcp-Session-Id")
	s.header.Set("Mcp-Session-Id", s.id)
	s.header.Set("Mcp-Protocol-Version", legacyVersion)
	_, err = post(ctx, url, s.header, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return s, err
}

// mustOpen is open for tests in which the handshake is not the point.
func mustOpen(t testing.TB, url string) *session {
	t.Helper()
	s, err := open(t.Context(), url, nil)
	if err != nil {
		t.Fatalf("initialize at %s: %v", url, err)
	}
	return s
}

// request sends one request and returns its result.
func (s *session) request(ctx context.Context, method string, params any) (json.RawMessage, error) {
	raw, err := json.Marshal(params)
	if err != nil {
		return nil, err
	}
	id := strconv.FormatInt(s.next.Add(1), 10)
	r, err := post(ctx, s.url, s.header, `{"jsonrpc":"2.0","id":`+id+`,"method":"`+method+`","params":`+string(raw)+`}`)
	if err != nil {
		return nil, err
	}
	m, err := r.answer()
	if err != nil {
		return nil, err
	}
	if string(m.ID) != id && m.Error == nil {
		return nil, fmt.Errorf("answer to %s carries the id of %s", id, m.ID)
	}
	if m.Error != nil {
		return nil, m.Error
	}
	return m.Result, nil
}

// call calls a tool. A tool's own error is a result, not an error.
func (s *session) call(ctx context.Context, tool string, args any) (toolResult, error) {
	raw, err := s.request(ctx, "tools/call", map[string]any{"name": tool, "arguments": args})
	var r toolResult
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	return r, err
}

// mustCall calls a tool that has to work and returns its text.
func (s *session) mustCall(t testing.TB, tool string, args any) string {
	t.Helper()
	r, err := s.call(t.Context(), tool, args)
	if err != nil {
		t.Fatalf("call %s: %v", tool, err)
	}
	if r.IsError {
		t.Fatalf("call %s: %s", tool, r.text())
	}
	return r.text()
}

// tools lists the names of all tools, over all pages.
func (s *session) tools(ctx context.Context) ([]string, error) {
	var names []string
	params := map[string]any{}
	for {
		raw, err := s.request(ctx, "tools/list", params)
		if err != nil {
			return names, err
		}
		var page struct {
			Tools []struct {
				Name string `json:"name"`
			} `json:"tools"`
			NextCursor string `json:"nextCursor"`
		}
		if err := json.Unmarshal(raw, &page); err != nil {
			return names, err
		}
		for _, t := range page.Tools {
			names = append(names, t.Name)
		}
		if page.NextCursor == "" {
			return names, nil
		}
		params["cursor"] = page.NextCursor
	}
}

// close ends the session as a client does that leaves for good.
func (s *session) close(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, s.url, nil)
	if err != nil {
		return err
	}
	req.Header = s.header.Clone()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 300 {
		return fmt.Errorf("DELETE answers %s", resp.Status)
	}
	return nil
}

// modernHeader is what a 2026-07-28 client sends beside its body.
func modernHeader(method, name string) http.Header {
	h := http.Header{}
	h.Set("Mcp-Protocol-Version", modernVersion)
	h.Set("Mcp-Method", method)
	if name != "" {
		h.Set("Mcp-Name", name)
	}
	return h
}

// modernCall is the body of a 2026-07-28 tool call.
func modernCall(id int, tool string, args any) string {
	raw, err := json.Marshal(map[string]any{
		"jsonrpc": "2.0", "id": id, "method": "tools/call",
		"params": map[string]any{
			"name": tool, "arguments": args,
			"_meta": map[string]any{
				"io.modelcontextprotocol/protocolVersion":    modernVersion,
				"io.modelcontextprotocol/clientInfo":         map[string]any{"name": "e2e", "version": "1"},
				"io.modelcontextprotocol/clientCapabilities": map[string]any{},
			},
		},
	})
	if err != nil {
		panic(err) // args are maps and strings of the tests
	}
	return string(raw)
}
