package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// hintedTools are tools of every kind that a retry tells apart, by what their
// server says of them. The first five may change something when they are called
// again.
const hintedTools = `{"tools":[` +
	`{"name":"plain","inputSchema":{"type":"object"}},` +
	`{"name":"destroys","inputSchema":{"type":"object"},"annotations":{"destructiveHint":true}},` +
	`{"name":"adds","inputSchema":{"type":"object"},"annotations":{"idempotentHint":false,"destructiveHint":false}},` +
	`{"name":"writes","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":false}},` +
	`{"name":"vague","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":"true","idempotentHint":1}},` +
	`{"name":"reads","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}},` +
	`{"name":"sets","inputSchema":{"type":"object"},"annotations":{"idempotentHint":true,"destructiveHint":true}}` +
	`],"resultType":"complete","ttlMs":60000,"cacheScope":"private"}`

var (
	mutations  = []string{"plain", "destroys", "adds", "writes", "vague"}
	repeatable = []string{"reads", "sets"}
)

// nameOf is the tool that a call is of.
func nameOf(in received) string {
	var p struct{ Name string }
	_ = json.Unmarshal(in.Params, &p)
	return p.Name
}

// callsOf counts the calls of a tool that arrived.
func (s *scripted) callsOf(tool string) int {
	n := 0
	for _, in := range s.of("tools/call") {
		if nameOf(in) == tool {
			n++
		}
	}
	return n
}

// hijack takes the connection of a request out of the server's hands.
func hijack(w http.ResponseWriter) net.Conn {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err) // only over HTTP/2
	}
	_ = buf.Flush()
	return conn
}

// failures are the ways in which a server fails after it got a request.
var failures = []struct {
	name string
	kind api.Kind
	fail answer
}{
	{"cut before the answer", api.KindLost, func(w http.ResponseWriter, _ *http.Request, _ received) {
		hijack(w).Close()
	}},
	{"reset before the answer", api.KindLost, func(w http.ResponseWriter, _ *http.Request, _ received) {
		conn := hijack(w)
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}},
	{"cut in the headers", api.KindLost, func(w http.ResponseWriter, _ *http.Request, _ received) {
		conn := hijack(w)
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Ty")
		conn.Close()
	}},
	{"cut in the answer", api.KindLost, func(w http.ResponseWriter, _ *http.Request, in received) {
		conn := hijack(w)
		whole := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, in.ID, done)
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(whole), whole[:len(whole)/2])
		conn.Close()
	}},
	{"cut in a chunk", api.KindLost, func(w http.ResponseWriter, _ *http.Request, in received) {
		conn := hijack(w)
		fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n40\r\n{\"jsonrpc\":\"2.0\"")
		conn.Close()
	}},
	{"HTTP 500", api.KindInfrastructure, func(w http.ResponseWriter, _ *http.Request, _ received) {
		http.Error(w, "oops", http.StatusInternalServerError)
	}},
	{"HTTP 502", api.KindInfrastructure, func(w http.ResponseWriter, _ *http.Request, _ received) {
		http.Error(w, "<html>bad gateway</html>", http.StatusBadGateway)
	}},
	{"HTTP 503", api.KindInfrastructure, func(w http.ResponseWriter, _ *http.Request, _ received) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}},
	{"HTTP 504", api.KindInfrastructure, func(w http.ResponseWriter, _ *http.Request, _ received) {
		w.WriteHeader(http.StatusGatewayTimeout)
	}},
	{"stream ends at once", api.KindLost, func(w http.ResponseWriter, _ *http.Request, _ received) {
		events(w)
	}},
	{"stream ends early", api.KindLost, func(w http.ResponseWriter, _ *http.Request, _ received) {
		events(w)(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"at work"}}`)
	}},
	{"stream ends in an event", api.KindLost, func(w http.ResponseWriter, _ *http.Request, in received) {
		events(w)
		fmt.Fprintf(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s", in.ID)
	}},
	{"stream is reset", api.KindLost, func(w http.ResponseWriter, _ *http.Request, _ received) {
		conn := hijack(w)
		fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ndata: {\r\n")
		_ = conn.(*net.TCPConn).SetLinger(0)
		conn.Close()
	}},
}

// failing is a server of one era whose calls and reads fail as it is told, as
// often as it is told.
type failing struct {
	*scripted
	mu   sync.Mutex
	fail answer
	left int
}

func newFailing(t *testing.T, isModern bool) *failing {
	f := &failing{scripted: script(t, isModern, map[string]string{
		"tools/list":               hintedTools,
		"prompts/list":             `{"prompts":[{"name":"p"}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`,
		"resources/list":           `{"resources":[{"uri":"r://x","name":"x"}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`,
		"resources/templates/list": `{"resourceTemplates":[],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`,
	})}
	for method, result := range map[string]string{
		"tools/call":     done,
		"resources/read": `{"contents":[{"uri":"r://x","text":"x"}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`,
		"prompts/get":    `{"messages":[],"resultType":"complete"}`,
	} {
		f.on(method, f.either(result1(result)))
	}
	return f
}

// either fails while it is to, and else answers.
func (f *failing) either(good answer) answer {
	return func(w http.ResponseWriter, r *http.Request, in received) {
		f.mu.Lock()
		fail := f.fail
		if f.left == 0 {
			fail = nil
		} else {
			f.left--
		}
		f.mu.Unlock()
		if fail != nil {
			fail(w, r, in)
			return
		}
		good(w, r, in)
	}
}

// next has the next requests fail; a negative number all of them.
func (f *failing) next(n int, fail answer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left, f.fail = n, fail
}

// A caller calls a tool of a server's own view, as one of the kinds of clients
// there are.
type caller struct {
	name string
	call func(tool, arguments string) *reply
}

func callersOf(t *testing.T, w *world, server string, headers ...string) []caller {
	t.Helper()
	old := w.dial(t, "/mcp/"+server, `{}`, headers...)
	young := w.modern(t, "/mcp/"+server, `{}`, headers...)
	merged := w.dial(t, "/mcp", `{}`, headers...)
	return []caller{
		{"legacy client", func(tool, args string) *reply {
			return old.request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
		}},
		{"modern client", func(tool, args string) *reply {
			return young.request("tools/call", tool, fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args))
		}},
		{"merged view", func(tool, args string) *reply {
			return merged.request("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, server+"__"+tool, args))
		}},
	}
}

// tineError is what a failed call says about whose failure it is; nil where the
// call did not fail, or where that is the tool's own doing.
func tineError(t testing.TB, m message) *api.Error {
	t.Helper()
	var r struct {
		IsError bool
		Meta    map[string]json.RawMessage `json:"_meta"`
	}
	if m.Result == nil {
		var data map[string]json.RawMessage
		if e := m.failure(t); len(e.Data) > 0 {
			decode(t, e.Data, &data)
		}
		r.Meta, r.IsError = data, true
	} else {
		decode(t, m.Result, &r)
	}
	raw, ok := r.Meta["tine/error"]
	if !ok {
		return nil
	}
	if !r.IsError {
		t.Errorf("an error that is none: %s", m.raw)
	}
	var e api.Error
	decode(t, raw, &e)
	return &e
}

// wantKind checks that a call failed for a reason of ours.
func wantKind(t testing.TB, m message, kind api.Kind) *api.Error {
	t.Helper()
	e := tineError(t, m)
	if e == nil {
		t.Fatalf("want a failure of kind %s, got %s", kind, m.raw)
	}
	if e.Kind != kind || e.Message == "" {
		t.Errorf("want kind %s, got %+v", kind, e)
	}
	return e
}

// metric reads one figure from /metrics; zero where there is none.
func (w *world) metric(t testing.TB, name, labels string) float64 {
	t.Helper()
	r := w.do(t, "GET", "/metrics", "", "Authorization", "Bearer "+operator)
	if r.status != http.StatusOK {
		t.Fatalf("/metrics: status %d", r.status)
	}
	for line := range strings.Lines(string(r.body)) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok || series != name+"{"+labels+"}" {
			continue
		}
		f, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		return f
	}
	return 0
}

// server is how a server is doing, as the machine's own user sees it.
func (w *world) server(t *testing.T, id string) api.Server {
	t.Helper()
	var s api.Server
	r := w.do(t, "GET", "/v1/servers/"+id, "", "Authorization", "Bearer "+operator)
	decode(t, r.body, &s)
	if r.status != http.StatusOK {
		t.Fatalf("GET /v1/servers/%s: status %d %s", id, r.status, r.body)
	}
	return s
}

// A door is an address that can be shut and opened again, in front of a server.
type door struct {
	t       *testing.T
	addr    string
	backend string

	mu    sync.Mutex
	l     net.Listener
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

func newDoor(t *testing.T, backend string) *door {
	d := &door{t: t, addr: "127.0.0.1:0", backend: strings.TrimPrefix(backend, "http://"), conns: map[net.Conn]struct{}{}}
	d.open()
	d.addr = d.l.Addr().String()
	t.Cleanup(func() { d.shut(); d.wg.Wait() })
	return d
}

func (d *door) url() string { return "http://" + d.addr }

func (d *door) open() {
	d.t.Helper()
	l, err := net.Listen("tcp", d.addr)
	if err != nil {
		d.t.Fatal(err)
	}
	d.mu.Lock()
	d.l = l
	d.mu.Unlock()
	d.wg.Go(func() {
		for {
			front, err := l.Accept()
			if err != nil {
				return
			}
			back, err := net.Dial("tcp", d.backend)
			if err != nil {
				front.Close()
				continue
			}
			d.mu.Lock()
			if d.l != l { // it was shut while this one came in
				front.Close()
				back.Close()
			}
			d.conns[front], d.conns[back] = struct{}{}, struct{}{}
			d.mu.Unlock()
			pass := func(to, from net.Conn) {
				_, _ = io.Copy(to, from)
				to.Close()
				from.Close()
				d.mu.Lock()
				delete(d.conns, to)
				delete(d.conns, from)
				d.mu.Unlock()
			}
			d.wg.Go(func() { pass(front, back) })
			d.wg.Go(func() { pass(back, front) })
		}
	})
}

// shut refuses connections and ends those there are.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.l != nil {
		d.l.Close()
		d.l = nil
	}
	for c := range d.conns {
		c.Close()
	}
}
