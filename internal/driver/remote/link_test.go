package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// ask sends one request over a stream and returns the whole answer.
func ask(t *testing.T, s driver.Stream, method, params string) string {
	t.Helper()
	if err := s.WriteFrame(t.Context(), fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"a","method":%q,"params":%s}`, method, params)); err != nil {
		t.Fatalf("write: %v", err)
	}
	f, err := s.ReadFrame()
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if !json.Valid(f) || bytes.ContainsAny(f, "\r\n") {
		t.Errorf("not one line of JSON: %s", f)
	}
	return string(f)
}

const call = `{"name":"echo","arguments":{"text":"x","n":12345678901234567890}}`

// What goes through an orchestrator stays as it is.
func TestRawResults(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		body string
		want string
	}{
		"a result": {`{"content":[{"type":"new","x":1}],` + "\n" + ` "odd":12345678901234567890,"isError":true}`,
			`"result":{"content":[{"type":"new","x":1}],  "odd":12345678901234567890,"isError":true}}`},
		"an object": {`{"n":12345678901234567890}`,
			`"result":{"content":[{"type":"text","text":"{\"n\":12345678901234567890}"}],"structuredContent":{"n":12345678901234567890}}}`},
		"a text":           {`"hello"`, `"result":{"content":[{"type":"text","text":"hello"}],"structuredContent":{"result":"hello"}}}`},
		"a list":           {`[1, 2]`, `"result":{"content":[{"type":"text","text":"[1, 2]"}],"structuredContent":{"result":[1, 2]}}}`},
		"nothing":          {``, `"result":{"content":[]}}`},
		"content of other": {`{"content":"mine"}`, `"structuredContent":{"content":"mine"}}}`},
		"garbage":          {`<html>`, `which is not JSON`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.before = times(always, "POST /instances/box/1/call", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, tt.body) })
			inst := r.start(t, r.d, r.spec(through))
			link := dial(t, inst)
			if got := ask(t, link.Stream, "tools/call", call); !strings.HasSuffix(got, tt.want) && !strings.Contains(got, tt.want) {
				t.Errorf("got %s\nwant %s", got, tt.want)
			}
			sent := r.bodies[len(r.bodies)-1]
			if sent != `{"tool_name":"echo","arguments":{"text":"x","n":12345678901234567890}}` {
				t.Errorf("sent %s", sent)
			}
		})
	}
}

func TestAServerOfToolsAlone(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*driver.Spec)
		tools  string
	}{
		"through": {through, `"name":"echo"`},
		"tools":   {tools, `"odd":12345678901234567890`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			inst := r.start(t, r.d, r.spec(tt.change))
			s := dial(t, inst).Stream
			for _, q := range []struct{ method, params, want string }{
				{"initialize", `{"protocolVersion":"2025-06-18"}`, `"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"box"`},
				{"initialize", `{"protocolVersion":"2026-07-28"}`, `"protocolVersion":"2025-11-25"`},
				{"ping", `{}`, `"result":{}`},
				{"tools/list", `{}`, tt.tools},
				{"tools/call", call, `"text":"x"`},
				{"tools/call", `{}`, `-32602`},
				{"resources/list", `{}`, `-32601`},
			} {
				if got := ask(t, s, q.method, q.params); !strings.Contains(got, q.want) {
					t.Errorf("%s: got %s, want %s", q.method, got, q.want)
				}
			}
			if err := s.WriteFrame(t.Context(), []byte("no message")); err == nil {
				t.Error("garbage was taken")
			}
			stop(t, inst)
			if _, err := s.ReadFrame(); !errors.Is(err, io.EOF) {
				t.Errorf("after the end: %v", err)
			}
			r.clears(t)
		})
	}
}

// Without an endpoint nothing is listed, and everything can be called.
func TestNoEndpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.after = func(_ *http.Request, b []byte) ([]byte, bool) {
		return []byte(strings.Replace(string(b), "mcp_endpoint_url", "other", 1)), false
	}
	s := dial(t, r.start(t, r.d, r.spec(through))).Stream
	if got := ask(t, s, "tools/list", `{}`); !strings.Contains(got, `"result":{"tools":[]}`) {
		t.Errorf("got %s", got)
	}
	if got := ask(t, s, "tools/call", call); !strings.Contains(got, `"text":"x"`) {
		t.Errorf("got %s", got)
	}
}

// A call that fails says whose failure it is.
func TestCallsThatFail(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		do    func(http.ResponseWriter, *http.Request)
		kind  api.Kind
		words string
	}{
		"broken":  {refuse(500), api.KindInfrastructure, "500 Internal Server Error: the disk"},
		"refused": {refuse(422), api.KindRefused, "422"},
		"reset":   {reset, api.KindInfrastructure, "EOF"},
		"no tool": {refuse(404), api.KindRefused, "404"},
		"huge": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat(" ", 2<<20)) },
			api.KindInfrastructure, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.d.maxFrame = 1 << 20
			inst := r.start(t, r.d, r.spec(through))
			s := dial(t, inst).Stream
			r.set(func() { r.before = times(1, "POST /instances/box/1/call", tt.do) })
			got := ask(t, s, "tools/call", call)
			var answer struct {
				Result struct {
					Meta map[string]api.Error `json:"_meta"`
				}
			}
			if err := json.Unmarshal([]byte(got), &answer); err != nil {
				t.Fatal(err)
			}
			e := answer.Result.Meta["tine/error"]
			if e.Kind != tt.kind {
				t.Errorf("kind %q, want %q", e.Kind, tt.kind)
			}
			says(t, &e, tt.words)
			// The instance is none the worse.
			if got := ask(t, s, "tools/call", call); !strings.Contains(got, `"text":"x"`) {
				t.Errorf("got %s", got)
			}
		})
	}
}

func TestCancelledCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	cut, begun := make(chan struct{}), make(chan struct{})
	r.before = times(1, "POST /instances/box/1/call", func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(cut)
	})
	inst := r.start(t, r.d, r.spec(through))
	s := dial(t, inst).Stream
	if err := s.WriteFrame(t.Context(), []byte(`{"jsonrpc":"2.0","id":"long","method":"tools/call","params":`+call+`}`)); err != nil {
		t.Fatal(err)
	}
	<-begun
	if err := s.WriteFrame(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"long"}}`)); err != nil {
		t.Fatal(err)
	}
	<-cut
	if got := ask(t, s, "tools/call", call); !strings.Contains(got, `"id":"a"`) {
		t.Errorf("got %s", got)
	}
}

// An orchestrator that forgets ends the instance, and says so.
func TestForgottenInstances(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*driver.Spec){"direct": func(*driver.Spec) {}, "through": through, "tools": tools} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			spec := r.spec(change)
			inst := r.start(t, r.d, spec)
			echo(t, inst, "hello")
			r.forget()
			link := dial(t, inst)
			if link.Stream != nil {
				if got := ask(t, link.Stream, "tools/call", call); !strings.Contains(got, `"kind":"lost"`) {
					t.Errorf("got %s", got)
				}
			} else {
				_, err := tryPost(t.Context(), link.HTTP, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+call+`}`)
				if !errors.Is(err, driver.ErrLost) {
					t.Errorf("got %v", err)
				}
			}
			<-inst.Done()
			if err := inst.Err(); !errors.Is(err, driver.ErrLost) {
				t.Errorf("the end was reported as: %v", err)
			}
			says(t, inst.Err(), "has forgotten the instance box/1")
			stop(t, inst)
			if !errors.Is(inst.Err(), driver.ErrLost) {
				t.Errorf("a stop afterwards made it forgotten: %v", inst.Err())
			}
			r.clears(t)
			again := r.start(t, r.d, spec)
			echo(t, again, "again")
			stop(t, again)
			r.clears(t)
		})
	}
}

func post(t *testing.T, e *driver.Endpoint, body string) *http.Response {
	t.Helper()
	resp, err := tryPost(t.Context(), e, body)
	if err != nil {
		t.Fatalf("post: %v", err)
	}
	return resp
}

func tryPost(ctx context.Context, e *driver.Endpoint, body string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.URL, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	for name, values := range e.Header {
		req.Header[name] = values
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := e.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return resp, err
}

// A 404 of the protocol, or of an instance that is there, is not the end.
func TestNotForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	inst := r.start(t, r.d, r.spec())
	echo(t, inst, "hello")
	link := dial(t, inst)
	for _, do := range []func(http.ResponseWriter, *http.Request){
		refuse(404),
		func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(404)
			fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"x"}}`)
		},
	} {
		r.set(func() { r.before = times(1, "POST /mcp/", do) })
		resp := post(t, link.HTTP, `{"jsonrpc":"2.0","id":1,"method":"x"}`)
		b, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != http.StatusNotFound || len(b) == 0 || bytes.Contains(b, []byte(theirs)) {
			t.Errorf("answered %s: %s", resp.Status, b)
		}
	}
	echo(t, inst, "still here")
}

// While it is held no request enters, and what ends others does.
func TestHoldOfADirectOne(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	inst := r.start(t, r.d, r.spec())
	link := dial(t, inst)
	release, err := inst.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := len(r.requests("POST /mcp/"))
	request := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":` + call + `}`
	entered := make(chan error, 1)
	enter := func() {
		_, err := tryPost(t.Context(), link.HTTP, request)
		entered <- err
	}
	go enter()
	post(t, link.HTTP, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := tryPost(short, link.HTTP, request); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a request while it is held: %v", err)
	}
	if n := len(r.requests("POST /mcp/")); n != before+1 {
		t.Errorf("%d requests came through, want only the notification", n-before)
	}
	release()
	if err := <-entered; err != nil {
		t.Error(err)
	}
	// A running call is waited for.
	begun, end := make(chan struct{}), make(chan struct{})
	r.set(func() {
		r.before = times(1, "POST /mcp/", func(http.ResponseWriter, *http.Request) { close(begun); <-end })
	})
	go enter()
	<-begun
	short, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := inst.Hold(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("held with a request inside: %v", err)
	}
	close(end)
	if release, err = inst.Hold(t.Context()); err != nil {
		t.Fatal(err)
	}
	release()
	if err := <-entered; err != nil {
		t.Error(err)
	}
	// The end of the instance is that of its requests.
	link2 := dial(t, inst)
	stop(t, inst)
	if _, err := tryPost(t.Context(), link2.HTTP, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); err == nil {
		t.Error("an instance that was stopped was asked")
	}
}

// A server may break the lines of what it answers; a frame has none.
func TestAListInSeveralLines(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.before = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
		msg, err := wire.Scan(body)
		if err != nil || msg.Method != wire.MethodListTools {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "{\"jsonrpc\":\"2.0\",\n\"id\":%s,\n\"result\":{\n\"tools\":[\n]\n}\n}\n", msg.ID)
		return true
	}
	inst := r.start(t, r.d, r.spec(through))
	if got := ask(t, dial(t, inst).Stream, wire.MethodListTools, "{}"); !strings.Contains(got, `"tools":[`) {
		t.Errorf("got %s", got)
	}
}

// Neither the caller that makes the handshake nor those that wait for it wait for ever.
func TestAHandshakeWithoutAnEnd(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	inst := r.start(t, r.d, r.spec(tools, func(s *driver.Spec) { options(*s).Timeout = 300 * time.Millisecond }))
	end := make(chan struct{})
	r.set(func() {
		r.before = func(_ http.ResponseWriter, r *http.Request, body []byte) bool {
			msg, err := wire.Scan(body)
			if err != nil || msg.Method != wire.MethodInitialize {
				return false
			}
			select {
			case <-end:
			case <-r.Context().Done():
			}
			return true
		}
	})
	t.Cleanup(func() { close(end) })
	got := ask(t, dial(t, inst).Stream, wire.MethodCallTool, `{"name":"echo","arguments":{}}`)
	if !strings.Contains(got, `"kind":"timeout"`) || !strings.Contains(got, "no answer within 300ms") {
		t.Errorf("got %s", got)
	}
}

// What an orchestrator says of whose failure it is holds here too.
func TestWhoseFailureItIs(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*driver.Spec){"api": through, "tools": tools} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			inst := r.start(t, r.d, r.spec(change))
			r.set(func() {
				r.before = func(w http.ResponseWriter, r *http.Request, body []byte) bool {
					if strings.HasSuffix(r.URL.Path, "/call") {
						w.WriteHeader(http.StatusConflict)
						fmt.Fprint(w, `{"kind":"timeout","message":"it took too long","retryable":false}`)
						return true
					}
					msg, err := wire.Scan(body)
					if err != nil || msg.Method != wire.MethodCallTool {
						return false
					}
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"_meta":{"tine/error":{"kind":"timeout","message":"x"}},"content":[{"type":"text","text":"it took too long"}],"isError":true}}`, msg.ID)
					return true
				}
			})
			got := ask(t, dial(t, inst).Stream, wire.MethodCallTool, `{"name":"echo","arguments":{}}`)
			if !strings.Contains(got, `"kind":"timeout"`) || !strings.Contains(got, "it took too long") {
				t.Errorf("got %s", got)
			}
			r.set(func() { r.before = nil })
		})
	}
}
