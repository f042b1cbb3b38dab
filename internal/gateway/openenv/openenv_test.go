package openenv

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

const (
	add  = `{"type":"step","data":{"type":"call_tool","tool_name":"add","arguments":{"by":1}}}`
	list = `{"type":"step","data":{"type":"list_tools"}}`
)

// TestEpisode is an episode and the next one, message by message.
func TestEpisode(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	p := dial(t, url+"/ws")
	for _, tt := range []struct{ say, want string }{
		{`{"type":"reset","data":{"episode_id":"one","seed":3}}`,
			`{"type":"observation","data":{"observation":{"metadata":{"environment":"game","episode_id":"one","session":"ses_1"}},"reward":null,"done":false,"metadata":{"environment":"game","episode_id":"one","session":"ses_1"}}}`},
		{list, `{"type":"observation","data":{"observation":{"metadata":{},"tools":[{"name":"add","description":"Adds","input_schema":{"type":"object"}},{"name":"odd","description":"","input_schema":{}}]},"reward":null,"done":false}}`},
		{add, `{"type":"observation","data":{"observation":{"metadata":{"call":"call_1"},"tool_name":"add","result":{"content":[{"type":"text","text":"1"}],"structured_content":{"result":1},"meta":null,"data":1,"is_error":false},"error":null},"reward":null,"done":false,"metadata":{"call":"call_1"}}}`},
		{`{"type":"mcp","data":{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"add"}}}`,
			`{"type":"mcp","data":{"jsonrpc":"2.0","id":"a","result":{"content":[{"type":"text","text":"2"}],"structured_content":{"result":2},"meta":null,"data":2,"is_error":false}}}`},
		{`{"type":"state"}`, `{"type":"state","data":{"episode_id":"one","step_count":3,"environment":"game","session":"ses_1"}}`},
		{`{"type":"reset","data":{"episode_id":"two"}}`,
			`{"type":"observation","data":{"observation":{"metadata":{"environment":"game","episode_id":"two","session":"ses_2"}},"reward":null,"done":false,"metadata":{"environment":"game","episode_id":"two","session":"ses_2"}}}`},
		// Nothing was done in it, so it is as good as a new one.
		{`{"type":"reset","data":{"episode_id":"three"}}`,
			`{"type":"observation","data":{"observation":{"metadata":{"environment":"game","episode_id":"three","session":"ses_2"}},"reward":null,"done":false,"metadata":{"environment":"game","episode_id":"three","session":"ses_2"}}}`},
		{`{"type":"state"}`, `{"type":"state","data":{"episode_id":"three","step_count":0,"environment":"game","session":"ses_2"}}`},
	} {
		if got := p.say(tt.say); got != tt.want {
			t.Errorf("%s\ngives %s\nwant  %s", tt.say, got, tt.want)
		}
	}
	if open := f.open(); !slices.Equal(open, []string{"ses_2"}) {
		t.Errorf("open: %v", open)
	}
	in := f.opened[0]
	if in.Labels["openenv"] != "game" || in.Labels["openenv_episode"] != "one" || f.sessions["ses_2"].labels["openenv_episode"] != "three" || in.TTL != "1h0m0s" || !slices.Equal(in.Servers, []string{"game"}) {
		t.Errorf("opened %+v, then %+v", in, f.sessions["ses_2"].labels)
	}
	p.send(`{"type":"close"}`)
	p.over(websocket.StatusNormalClosure)
	if open := f.open(); len(open) > 0 {
		t.Errorf("open after the end: %v", open)
	}
}

// TestMistakes are messages that are wrong; the episode goes on after each.
func TestMistakes(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	p := dial(t, url+"/ws")
	for _, tt := range []struct{ say, code, words string }{
		{`{`, codeJSON, "Invalid JSON"},
		{`[]`, codeJSON, "an object"},
		{`{"type":"fly"}`, codeType, "fly"},
		{`{"type":"step"}`, codeValidation, "data"},
		{`{"type":"step","data":{"type":"move"}}`, codeValidation, "type"},
		{`{"type":"step","data":{"type":"call_tool"}}`, codeValidation, "tool_name"},
		{`{"type":"step","data":{"type":"call_tool","tool_name":"add","arguments":[1]}}`, codeValidation, "arguments"},
		{`{"type":"step","data":{"type":"call_tool","tool_name":"add","args":{}}}`, codeValidation, "args"},
		{`{"type":"reset","data":{"episode_id":5}}`, codeValidation, "episode_id"},
		{`{"type":"reset","data":{"episode_id":"` + strings.Repeat("x", 256) + `"}}`, codeValidation, "episode_id"},
		{`{"type":"reset","data":{"seed":-1}}`, codeValidation, "seed"},
		{`{"type":"reset","data":[1]}`, codeValidation, "object"},
		{add, codeValidation, "send a reset"},
	} {
		var got struct {
			Type string
			Data errorData
		}
		answer := p.say(tt.say)
		if err := json.Unmarshal([]byte(answer), &got); err != nil || got.Type != "error" || got.Data.Code != tt.code || !strings.Contains(got.Data.Message, tt.words) {
			t.Errorf("%s gives %s", tt.say, answer)
		}
	}
	p.say(`{"type":"reset"}`)
	testkit.Has(t, "a step after them", p.say(add), `"data":1`)
}

// TestFailures are calls that don't succeed: what an observation says, and what is none.
func TestFailures(t *testing.T) {
	for _, tt := range []struct {
		name   string
		break_ func(f *fake)
		want   string
		over   bool
	}{
		{"tool", func(f *fake) {
			f.answer = func(*fakeSession, Call) string { return `{"content":[{"type":"text","text":"boom"}],"isError":true}` }
		},
			`"result":null,"error":{"error_type":"execution_error","message":"boom"}`, false},
		{"error of the server", func(f *fake) { f.callErr = &api.Error{Kind: api.KindTool, Message: "no"} }, `"error_type":"execution_error","message":"no"`, false},
		{"invented", func(f *fake) { f.callErr = fmt.Errorf("%w: add", ErrNoTool) }, `"error_type":"tool_not_found","message":"unknown tool: add"`, false},
		{"arguments", func(f *fake) { f.callErr = &api.Error{Kind: api.KindInvalid, Message: "by"} }, `"error_type":"invalid_args","message":"by"`, false},
		{"timeout", func(f *fake) { f.callErr = &api.Error{Kind: api.KindTimeout, Message: "late"} }, `"error_type":"timeout","message":"late"`, false},
		{"refused", func(f *fake) { f.callErr = &api.Error{Kind: api.KindRefused, Message: "too many"} }, `{"type":"error","data":{"message":"too many","code":"EXECUTION_ERROR"}}`, false},
		{"infrastructure", func(f *fake) { f.callErr = &api.Error{Kind: api.KindInfrastructure, Message: "died"} }, `{"type":"error","data":{"message":"died","code":"SESSION_ERROR"}}`, true},
		{"lost", func(f *fake) { f.callErr = &api.Error{Kind: api.KindLost, Message: "memory"} }, `{"type":"error","data":{"message":"memory","code":"SESSION_ERROR"}}`, true},
		{"damage that fails no call", func(f *fake) {
			f.answer = func(s *fakeSession, _ Call) string {
				s.lost = "a server died"
				return `{"content":[]}`
			}
		}, "damaged: a server died", true},
		{"unreadable", func(f *fake) { f.answer = func(*fakeSession, Call) string { return `{"content":5,"isError":"x"}` } }, "SESSION_ERROR", true},
		{"closed meanwhile", func(f *fake) {
			f.answer = func(s *fakeSession, _ Call) string {
				close(s.gone)
				return `{"content":[]}`
			}
		}, "session ses_1 of this episode was closed", true},
		{"no session", func(f *fake) { f.openErr = &api.Error{Kind: api.KindRefused, Message: "no room"} }, `{"type":"error","data":{"message":"no room","code":"FACTORY_ERROR"}}`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newFake()
			tt.break_(f)
			url, _ := serve(t, f)
			p := dial(t, url+"/ws")
			if f.openErr != nil {
				testkit.Has(t, "a reset", p.say(`{"type":"reset"}`), tt.want)
			} else {
				p.say(`{"type":"reset"}`)
				testkit.Has(t, "the answer", p.say(add), tt.want)
			}
			if tt.over {
				p.over(websocket.StatusNormalClosure)
				if open := f.open(); len(open) > 0 {
					t.Errorf("open: %v", open)
				}
				return
			}
			f.mu.Lock()
			fresh := newFake()
			f.callErr, f.answer = nil, fresh.answer
			f.mu.Unlock()
			testkit.Has(t, "the next step", p.say(add), `"data":1`)
		})
	}
}

// A session that ends by itself ends the episode, without a message.
func TestGone(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	p := begin(t, url+"/ws")
	p.say(add)
	f.mu.Lock()
	close(f.sessions["ses_1"].gone)
	f.mu.Unlock()
	testkit.Has(t, "what is told", p.hear(), "SESSION_ERROR", "environments.game.ttl")
	p.over(websocket.StatusNormalClosure)
}

// A client that connects again after a failure finds no world in which a step would be
// made: neither in place of the one that failed, nor with a reward.
func TestStepBeforeReset(t *testing.T) {
	f := graded(func(Call) string { return `{"content":[],"structuredContent":{"reward":0.5}}` })
	url, _ := serve(t, f)
	p := begin(t, url+"/ws")
	f.mu.Lock()
	f.callErr = &api.Error{Kind: api.KindInfrastructure, Message: "died"}
	f.mu.Unlock()
	testkit.Has(t, "the step that fails", p.say(add), "SESSION_ERROR")
	p.over(websocket.StatusNormalClosure)
	f.mu.Lock()
	f.callErr = nil
	f.mu.Unlock()
	p = dial(t, url+"/ws")
	testkit.Has(t, "a step of the next connection", p.say(add), codeValidation, "send a reset")
	testkit.Has(t, "a list, which is of no episode", p.say(list), `"name":"add"`)
	testkit.Has(t, "a step after that", p.say(add), codeValidation)
	if n := len(f.calls); n != 1 {
		t.Errorf("%d calls were made, want only the one that failed", n)
	}
	p.say(`{"type":"reset"}`)
	testkit.Has(t, "a step after a reset", p.say(add), `"reward":0.5`)
}

// TestFull has as many episodes as there may be.
func TestFull(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	one, two := begin(t, url+"/ws"), begin(t, url+"/ws")
	one.say(add)
	two.say(add)
	three := dial(t, url+"/ws")
	testkit.Has(t, "the third", three.hear(), `"code":"CAPACITY_REACHED","active_sessions":2,"max_sessions":2`)
	three.over(websocket.StatusNormalClosure)
	if status, body := post(t, url+"/step", `{"action":{"type":"list_tools"}}`); status != http.StatusTooManyRequests {
		t.Errorf("a step over HTTP: %d %s", status, body)
	}
	one.send(`{"type":"close"}`)
	one.over(websocket.StatusNormalClosure)
	testkit.Has(t, "one in its place", begin(t, url+"/ws").say(add), `"data":1`)
}

// A peer that vanishes between two steps leaves nothing.
func TestPeerVanishes(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	p := begin(t, url+"/ws")
	p.say(add)
	p.c.CloseNow()
	testkit.Eventually(t, "the session is closed", func() bool { return len(f.open()) == 0 })
}

// A peer that vanishes in the middle of a step ends the call.
func TestPeerVanishesInAStep(t *testing.T) {
	f := newFake()
	f.blocks = make(chan struct{}, 1)
	url, _ := serve(t, f)
	p := begin(t, url+"/ws")
	p.send(add)
	testkit.Within(t, "the call runs", f.blocks)
	p.c.CloseNow()
	testkit.Eventually(t, "the session is closed", func() bool { return len(f.open()) == 0 })
}

// An episode without a message is over after its idle time.
func TestIdleEpisode(t *testing.T) {
	f := newFake()
	f.set("game", func(e *Environment) { e.Idle = time.Millisecond })
	url, _ := serve(t, f)
	p := dial(t, url+"/ws")
	testkit.Has(t, "what is told", p.hear(), "SESSION_ERROR", "no message for 1ms (environments.game.idle)")
	p.over(websocket.StatusNormalClosure)
}

// A gateway that stops ends episodes.
func TestStop(t *testing.T) {
	f := newFake()
	url, s := serve(t, f)
	p := begin(t, url+"/ws")
	p.say(add)
	close(f.stopping)
	p.over(websocket.StatusGoingAway)
	post(t, url+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"openenv/session/create"}`)
	s.Close()
	if open := f.open(); len(open) > 0 {
		t.Errorf("open: %v", open)
	}
	if status, _ := post(t, url+"/reset", ""); status != http.StatusServiceUnavailable {
		t.Errorf("a reset after the end: %d", status)
	}
}

// A message over the limit ends the connection.
func TestTooLarge(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	p := dial(t, url+"/ws")
	p.send(`{"type":"` + strings.Repeat("x", 1<<16) + `"}`)
	p.over(websocket.StatusMessageTooBig)
}

// TestReload changes an environment while an episode runs.
func TestReload(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	p := dial(t, url+"/ws")
	p.say(`{"type":"reset"}`)
	f.set("game", func(e *Environment) { e.Template = "start" })
	testkit.Has(t, "a step", p.say(add), `"data":1`)
	if n := len(f.opened); n != 1 {
		t.Errorf("%d sessions were opened", n)
	}
	p.say(`{"type":"reset"}`)
	if last := f.opened[len(f.opened)-1]; len(f.opened) != 2 || last.From != "start" {
		t.Errorf("the next is %+v", last)
	}
	f.mu.Lock()
	delete(f.envs, "game")
	f.mu.Unlock()
	testkit.Has(t, "a step", p.say(add), `"data":1`)
	testkit.Has(t, "a reset", p.say(`{"type":"reset"}`), "FACTORY_ERROR", `no environment \"game\" here; add it to environments in the config`)
}

// TestHTTP are operations of which each has a world of its own.
func TestHTTP(t *testing.T) {
	f := newFake()
	url, _ := serve(t, f)
	for _, tt := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"POST", "/reset", "", 200, `"session":"ses_1"`},
		{"POST", "/reset", `{"episode_id":"e"}`, 200, `"episode_id":"e"`},
		{"POST", "/reset", `{"seed":"x"}`, 422, `{"detail":[{"type":"value_error","loc":["seed"]`},
		{"POST", "/step", `{"action":{"type":"call_tool","tool_name":"add"},"timeout_s":1.5,"request_id":"r"}`, 200, `"data":1`},
		{"POST", "/step", `{"action":{"type":"list_tools"}}`, 200, `"tools":[{"name":"add"`},
		{"POST", "/step", `{"action":{"type":"move"}}`, 422, `"loc":["body","action","type"]`},
		{"POST", "/step", `{}`, 422, `"loc":["body","action"]`},
		{"POST", "/step", `{`, 422, `"loc":["body"]`},
		{"POST", "/step", `{"action":{"type":"list_tools"},"timeout_s":0}`, 422, `timeout_s`},
		{"GET", "/state", "", 200, `"step_count":0`},
		{"GET", "/health", "", 200, `{"status":"healthy"}`},
		{"GET", "/metadata", "", 200, `"name":"game","description":"The tools of game"`},
		{"GET", "/schema", "", 200, `"action"`},
		{"GET", "/openapi.json", "", 200, `"/reset"`},
		{"GET", "/step", "", 405, "it has POST"},
		{"POST", "/state", "", 405, "it has GET"},
		{"GET", "/ws", "", 426, "Upgrade"},
		{"GET", "/nothing", "", 404, "there is nothing at"},
		{"GET", "", "", 404, "there is nothing at"},
		{"GET", "2/health", "", 404, `there is no environment "game2" here (did you mean "game"?); there is game`},
	} {
		status, body := ask(t, tt.method, url+tt.path, tt.body)
		if status != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s %s: %d %s, want %d and %s", tt.method, tt.path, tt.body, status, body, tt.status, tt.want)
		}
	}
	if got := f.calls[0].Timeout; got != "1.5s" {
		t.Errorf("a step has the timeout %q", got)
	}
	if open := f.open(); len(open) > 0 {
		t.Errorf("open: %v", open)
	}
	f.callErr = &api.Error{Kind: api.KindInfrastructure, Status: http.StatusBadGateway, Message: "died"}
	if status, body := post(t, url+"/step", `{"action":{"type":"call_tool","tool_name":"add"}}`); status != http.StatusBadGateway || body != "died" {
		t.Errorf("a failed world: %d %s", status, body)
	}
}

// The documents are JSON, and say of all operations that there are.
func TestDescriptions(t *testing.T) {
	var schema map[string]map[string]any
	if err := json.Unmarshal(schemaJSON, &schema); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"action", "observation", "reset_observation", "state"} {
		if schema[key]["type"] != "object" {
			t.Errorf("the schema of %s is %v", key, schema[key])
		}
	}
	doc, err := encode(document(newFake().envs["game"]))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Has(t, "the document", string(doc), `"version":"1.0.0"`, `"url":"/openenv/game"`, "/reset", "/step", "/state", "/mcp", "/schema", "/metadata", "/health")
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	return ask(t, http.MethodPost, url, body)
}

func ask(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	return resp.StatusCode, string(b)
}

// FuzzMessage shows that no message of a peer is too much.
func FuzzMessage(f *testing.F) {
	for _, seed := range []string{add, list, `{"type":"reset","data":{"episode_id":"e"}}`, `{"type":"mcp","data":{"jsonrpc":"2.0","method":"tools/list"}}`, `{"type":"state"}`, `[`, `{"type":"close"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		host := newFake()
		s := New(host, new(testkit.Log).Logger())
		w := s.newWorld(someone, "game")
		answer, _ := s.episodeMessage(t.Context(), new(http.Request), w, message)
		if answer != nil {
			if b, err := encode(answer); err != nil || !json.Valid(b) {
				t.Errorf("the answer %+v is %s, %v", answer, b, err)
			}
		}
		w.close()
		s.Close()
		if open := host.open(); len(open) > 0 {
			t.Errorf("open: %v", open)
		}
	})
}
