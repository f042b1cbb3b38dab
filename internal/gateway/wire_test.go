package gateway_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
)

const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

// bothTypes is what every MCP client over HTTP must accept.
const bothTypes = "application/json, text/event-stream"

// A message is one JSON-RPC message with its parts as they came.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`

	raw []byte
	eid string // of the event that carried it
}

type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (m message) failure(t testing.TB) rpcError {
	t.Helper()
	var e rpcError
	if len(m.Error) == 0 {
		t.Fatalf("want an error, got %s", m.raw)
	}
	decode(t, m.Error, &e)
	return e
}

func decode(t testing.TB, raw []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
}

func parseMessage(raw []byte) (message, error) {
	var m message
	err := json.Unmarshal(raw, &m)
	m.raw = bytes.Clone(raw)
	return m, err
}

// A reply is an HTTP answer. Its body is a stream when it is one of events.
type reply struct {
	t      testing.TB
	status int
	header http.Header
	body   []byte
	stream *stream
}

// answer is the response to a request, whichever way it came. Messages before
// it are passed over.
func (r *reply) answer() message {
	r.t.Helper()
	m, _ := r.all()
	return m
}

// all is the response and what came before it.
func (r *reply) all() (message, []message) {
	r.t.Helper()
	if r.stream == nil {
		m, err := parseMessage(r.body)
		if err != nil {
			r.t.Fatalf("status %d, no message: %q", r.status, r.body)
		}
		return m, nil
	}
	defer r.stream.close()
	var before []message
	for {
		m := r.stream.next()
		if m.Method == "" {
			return m, before
		}
		before = append(before, m)
	}
}

// wantError checks status and code, and returns the error.
func (r *reply) wantError(status, code int) rpcError {
	r.t.Helper()
	e := r.answer().failure(r.t)
	if r.status != status || e.Code != code {
		r.t.Fatalf("got status %d code %d (%s), want %d and %d", r.status, e.Code, e.Message, status, code)
	}
	return e
}

// A stream reads server-sent events that carry messages.
type stream struct {
	t      testing.TB
	r      *bufio.Reader
	body   io.Closer
	cancel context.CancelFunc
	lastID string
}

func (s *stream) close() { s.cancel(); _ = s.body.Close() }

// event returns the next event that has data.
func (s *stream) event() (name, id string, data []byte, err error) {
	var lines [][]byte
	for {
		line, err := s.r.ReadBytes('\n')
		if err != nil {
			return "", "", nil, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			if len(lines) > 0 && len(bytes.Join(lines, nil)) > 0 {
				return name, id, bytes.Join(lines, []byte("\n")), nil
			}
			lines, name = nil, ""
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "data":
			lines = append(lines, bytes.Clone(value))
		case "id":
			id = string(value)
			s.lastID = id
		case "event":
			name = string(value)
		}
	}
}

func (s *stream) tryNext() (message, error) {
	_, id, data, err := s.event()
	if err != nil {
		return message{}, err
	}
	m, err := parseMessage(data)
	m.eid = id
	return m, err
}

func (s *stream) next() message {
	s.t.Helper()
	m, err := s.tryNext()
	if err != nil {
		s.t.Fatalf("stream: %v", err)
	}
	return m
}

// until passes over messages up to one of a method.
func (s *stream) until(method string) message {
	s.t.Helper()
	for {
		if m := s.next(); m.Method == method {
			return m
		}
	}
}

// do makes one HTTP request. Headers come as pairs; an empty value leaves the
// header out, and Host sets the host.
func (w *world) do(t testing.TB, method, path, body string, headers ...string) *reply {
	t.Helper()
	r, err := w.try(t, method, path, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (w *world) try(t testing.TB, method, path, body string, headers ...string) (*reply, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	req, err := http.NewRequestWithContext(ctx, method, w.at(path), strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		switch key, value := headers[i], headers[i+1]; {
		case value == "":
			req.Header.Del(key)
		case key == "Host":
			req.Host = value
		default:
			req.Header.Add(key, value)
		}
	}
	resp, err := w.http.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	r := &reply{t: t, status: resp.StatusCode, header: resp.Header}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		r.stream = &stream{t: t, r: bufio.NewReader(resp.Body), body: resp.Body, cancel: cancel}
		if t, ok := t.(*testing.T); ok {
			t.Cleanup(r.stream.close)
		}
		return r, nil
	}
	defer cancel()
	defer resp.Body.Close()
	if r.body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return r, nil
}

// A legacy is a client of the era with a handshake.
type legacy struct {
	w    *world
	t    testing.TB
	path string
	id   string
	more []string // headers
	hi   message  // the answer to initialize
	last atomic.Int64
}

// dial makes the handshake. Caps are the client's capabilities.
func (w *world) dial(t testing.TB, path, caps string, headers ...string) *legacy {
	t.Helper()
	c := &legacy{w: w, t: t, path: path, more: headers}
	r := w.do(t, http.MethodPost, path, fmt.Sprintf(
		`{"jsonrpc":"2.0","id":"hi","method":"initialize","params":{"protocolVersion":%q,"capabilities":%s,"clientInfo":{"name":"test","version":"0"}}}`,
		legacyVersion, caps), c.headers()...)
	c.hi = r.answer()
	if c.hi.Result == nil {
		t.Fatalf("initialize: status %d, %s", r.status, c.hi.raw)
	}
	c.id = r.header.Get("Mcp-Session-Id")
	if c.id == "" {
		t.Fatalf("initialize gave no Mcp-Session-Id: %v", r.header)
	}
	if r := c.post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); r.status != http.StatusAccepted {
		t.Fatalf("initialized: status %d %s", r.status, r.body)
	}
	return c
}

func (c *legacy) headers() []string {
	h := append([]string{"Content-Type", "application/json", "Accept", bothTypes}, c.more...)
	if c.id != "" {
		h = append(h, "Mcp-Session-Id", c.id, "Mcp-Protocol-Version", legacyVersion)
	}
	return h
}

func (c *legacy) post(body string) *reply {
	c.t.Helper()
	return c.w.do(c.t, http.MethodPost, c.path, body, c.headers()...)
}

// listen opens the GET stream.
func (c *legacy) listen(headers ...string) *stream {
	c.t.Helper()
	r := c.w.do(c.t, http.MethodGet, c.path, "", append(c.headers(), headers...)...)
	if r.stream == nil {
		c.t.Fatalf("GET: status %d %s", r.status, r.body)
	}
	return r.stream
}

// request sends a request with an id of its own and does not read the answer.
func (c *legacy) request(method, params string) *reply {
	c.t.Helper()
	return c.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, c.last.Add(1), method, params))
}

func (c *legacy) ask(method, params string) message {
	c.t.Helper()
	return c.request(method, params).answer()
}

// get is ask for what must work.
func (c *legacy) get(method, params string) json.RawMessage {
	c.t.Helper()
	m := c.ask(method, params)
	if m.Result == nil {
		c.t.Fatalf("%s %s: %s", method, params, m.raw)
	}
	return m.Result
}

// A modern is a client of the era without one.
type modern struct {
	w    *world
	t    testing.TB
	path string
	caps string
	more []string
	last *atomic.Int64
}

func (w *world) modern(t testing.TB, path, caps string, headers ...string) *modern {
	return &modern{w: w, t: t, path: path, caps: caps, more: headers, last: new(atomic.Int64)}
}

// meta is the _meta member every modern request has.
func meta(caps string) string {
	return fmt.Sprintf(`"_meta":{"io.modelcontextprotocol/protocolVersion":%q,"io.modelcontextprotocol/clientInfo":{"name":"test","version":"0"},"io.modelcontextprotocol/clientCapabilities":%s}`,
		modernVersion, caps)
}

func modernHeaders(method, name string) []string {
	return []string{"Content-Type", "application/json", "Accept", bothTypes,
		"Mcp-Protocol-Version", modernVersion, "Mcp-Method", method, "Mcp-Name", name}
}

// request sends params, an object without _meta, with the _meta they need.
func (c *modern) request(method, name, params string) *reply {
	c.t.Helper()
	inner := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(params), "{"), "}")
	if inner != "" {
		inner += ","
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s%s}}`, c.last.Add(1), method, inner, meta(c.caps))
	return c.w.do(c.t, http.MethodPost, c.path, body, append(modernHeaders(method, name), c.more...)...)
}

func (c *modern) ask(method, name, params string) message {
	c.t.Helper()
	return c.request(method, name, params).answer()
}

func (c *modern) get(method, name, params string) json.RawMessage {
	c.t.Helper()
	m := c.ask(method, name, params)
	if m.Result == nil {
		c.t.Fatalf("%s %s: %s", method, params, m.raw)
	}
	return m.Result
}
