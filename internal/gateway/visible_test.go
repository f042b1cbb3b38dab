package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// limited gives ada two servers and a part of a third; bob has everything.
const limited = `auth:
  tokens: [{name: ada, token: ada-ada-ada-ada-ada}, {name: bob, token: bob-bob-bob-bob-bob}]
  rules:
    - {principals: [ada], servers: [open, trim]}
    - {principals: [ada], tools: ["part__find_*"]}
    - {principals: [bob]}
`

// A partly is a server some of whose things are hidden from some: it has a
// resource, a template and a prompt beside its tools, and says in one of the
// ways of servers that it does not know a tool.
func partly(t *testing.T, modern bool, how string, tools ...string) *scripted {
	end := `,"resultType":"complete","ttlMs":0,"cacheScope":"private"}`
	s := script(t, modern, map[string]string{
		"tools/list":               toolList(tools...),
		"prompts/list":             `{"prompts":[{"name":"p"}]` + end,
		"prompts/get":              `{"messages":[],"resultType":"complete"}`,
		"resources/list":           `{"resources":[{"uri":"res://one","name":"one"}]` + end,
		"resources/templates/list": `{"resourceTemplates":[{"uriTemplate":"any://{x}","name":"any"}]` + end,
		"resources/read":           `{"contents":[{"uri":"res://one","text":"first"}],"resultType":"complete","ttlMs":0,"cacheScope":"private"}`,
		"completion/complete":      `{"completion":{"values":["yes"]},"resultType":"complete"}`,
		"resources/subscribe":      `{}`,
	})
	s.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
		var p struct{ Name string }
		decode(t, in.Params, &p)
		switch {
		case slices.Contains(tools, p.Name):
			writeResult(w, in, done)
		case how == "isError":
			writeResult(w, in, `{"content":[{"type":"text","text":"no tool `+p.Name+`"}],"isError":true,"resultType":"complete"}`)
		case modern:
			writeFailure(w, http.StatusBadRequest, in, -32602, "never heard of "+p.Name)
		default:
			writeFailure(w, http.StatusOK, in, -32602, "never heard of "+p.Name)
		}
	})
	return s
}

// An outcome is all that a caller can see of an answer but its date.
type outcome struct {
	status int
	header string
	body   string
}

// without takes from an outcome what its caller put into the request.
func (o outcome) without(names ...string) outcome {
	o.header = callID.ReplaceAllString(o.header, "call_ID")
	for _, n := range names {
		o.body = strings.ReplaceAll(o.body, n, "NAME")
		o.header = strings.ReplaceAll(o.header, n, "NAME")
	}
	return o
}

// callID is the id of a call, of which each has the next.
var callID = regexp.MustCompile(`call_[0-9a-f]{12}`)

func outcomeOf(r *reply) outcome {
	o := outcome{status: r.status}
	h := r.header.Clone()
	for _, name := range []string{"Date", "Content-Length", "Mcp-Session-Id"} {
		h.Del(name)
	}
	raw, _ := json.Marshal(h) // keys are sorted
	o.header = string(raw)
	if r.stream == nil {
		o.body = string(r.body)
		return o
	}
	m, before := r.all()
	for _, b := range before {
		o.body += string(b.raw) + "\n"
	}
	o.body += string(m.raw)
	return o
}

// ways are how a request can be put to a view, as ada. Each returns what comes
// back.
func ways(t *testing.T, w *world) map[string]func(view, method, name, params string) outcome {
	request := func(method, params string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params)
	}
	mcp := func(view string) string { return strings.TrimSuffix("/mcp/"+view, "/") }
	plain := append([]string{"Content-Type", "application/json", "Accept", bothTypes}, asAda...)
	clients := map[string]*legacy{}
	type channel struct {
		s    *stream
		post string
	}
	channels := map[string]channel{}
	return map[string]func(view, method, name, params string) outcome{
		"legacy": func(view, method, _, params string) outcome {
			if clients[view] == nil {
				clients[view] = w.dial(t, mcp(view), `{}`, asAda...)
			}
			return outcomeOf(clients[view].post(request(method, params)))
		},
		"bare": func(view, method, _, params string) outcome {
			return outcomeOf(w.do(t, "POST", mcp(view), request(method, params), plain...))
		},
		"batch": func(view, method, _, params string) outcome {
			return outcomeOf(w.do(t, "POST", mcp(view), "["+request(method, params)+"]", plain...))
		},
		"modern": func(view, method, name, params string) outcome {
			c := w.modern(t, mcp(view), `{}`, asAda...)
			return outcomeOf(c.request(method, name, params))
		},
		"modern that can be asked": func(view, method, name, params string) outcome {
			c := w.modern(t, mcp(view), `{"elicitation":{}}`, asAda...)
			return outcomeOf(c.request(method, name, params))
		},
		"events": func(view, method, _, params string) outcome {
			c, ok := channels[view]
			send := func(body string) {
				w.do(t, "POST", c.post, body, append([]string{"Content-Type", "application/json"}, asAda...)...)
			}
			if !ok {
				c.s, c.post = openEvents(t, w, strings.TrimSuffix("/sse/"+view, "/"), asAda...)
				channels[view] = c
				send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`)
				c.s.next()
				send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			}
			send(request(method, params))
			for {
				if m := c.s.next(); m.Method == "" {
					return outcome{body: string(m.raw)}
				}
			}
		},
	}
}

// TestHiddenIsLikeUnknown asks for what ada may not see and for what is not
// there, in every way there is to ask, and wants the same bytes back. What she
// may not see is never bothered with it.
func TestHiddenIsLikeUnknown(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		for _, how := range []string{"error", "isError"} {
			t.Run(fmt.Sprintf("modern server=%v, %s", isModern, how), func(t *testing.T) {
				open1 := partly(t, isModern, how, "one")
				part := partly(t, isModern, how, "find_a", "secret_b")
				trim := partly(t, isModern, how, "find_a", "secret_b")
				dark := partly(t, isModern, how, "find_a", "secret_b")
				w := open(t, limited+servers("open", open1.URL, "part", part.URL, "dark", dark.URL,
					"trim", `{url: "`+trim.URL+`", tools: {deny: ["secret_*"]}}`))
				for way, ask := range ways(t, w) {
					for _, tt := range []struct {
						view, method, params string // params with %s for the name
						hidden, unknown      string
						eraless              bool // there is no such method in the modern era
					}{
						{"", "tools/call", `{"name":"%s","arguments":{}}`, "dark__find_a", "nope__find_a", false},
						{"", "tools/call", `{"name":"%s","arguments":{}}`, "part__secret_b", "part__absent_b", false},
						{"", "tools/call", `{"name":"%s","arguments":{}}`, "part__secret_b", "part__find_z", false},
						{"", "tools/call", `{"name":"%s","arguments":{}}`, "trim__secret_b", "trim__absent_b", false},
						{"part", "tools/call", `{"name":"%s","arguments":{}}`, "secret_b", "absent_b", false},
						{"part", "tools/call", `{"name":"%s","arguments":{}}`, "secret_b", "find_z", false},
						{"trim", "tools/call", `{"name":"%s","arguments":{}}`, "secret_b", "absent_b", false},
						{"", "prompts/get", `{"name":"%s"}`, "dark__p", "nope__p", false},
						{"", "resources/read", `{"uri":"%s"}`, "tine://dark/res://one", "tine://nope/res://one", false},
						{"", "resources/read", `{"uri":"%s"}`, "tine://dark/any://x", "tine://nope/any://x", false},
						{"", "completion/complete", `{"ref":{"type":"ref/prompt","name":"%s"},"argument":{"name":"x","value":"y"}}`, "dark__p", "nope__p", false},
						{"", "completion/complete", `{"ref":{"type":"ref/resource","uri":"%s"},"argument":{"name":"x","value":"y"}}`, "tine://dark/any://{x}", "tine://nope/any://{x}", false},
						{"", "resources/subscribe", `{"uri":"%s"}`, "tine://dark/res://one", "tine://nope/res://one", true},
						{"", "resources/unsubscribe", `{"uri":"%s"}`, "tine://dark/res://one", "tine://nope/res://one", true},
					} {
						if strings.HasPrefix(way, "modern") && tt.eraless {
							continue
						}
						one := ask(tt.view, tt.method, tt.hidden, fmt.Sprintf(tt.params, tt.hidden)).without(tt.hidden)
						two := ask(tt.view, tt.method, tt.unknown, fmt.Sprintf(tt.params, tt.unknown)).without(tt.unknown)
						if one != two {
							t.Errorf("%s: %s of %s at /mcp/%s answers\n  %+v\nof %s\n  %+v", way, tt.method, tt.hidden, tt.view, one, tt.unknown, two)
						}
						if !strings.Contains(one.body, `"error"`) {
							t.Errorf("%s: %s of %s is not refused: %+v", way, tt.method, tt.hidden, one)
						}
					}
					// What she may use works in the same way.
					for view, tool := range map[string]string{"": "part__find_a", "part": "find_a", "trim": "find_a", "open": "one"} {
						if got := ask(view, "tools/call", tool, fmt.Sprintf(`{"name":%q,"arguments":{}}`, tool)); !strings.Contains(got.body, "done") {
							t.Errorf("%s: %s at /mcp/%s answers %+v", way, tool, view, got)
						}
					}
				}
				wantUnasked(t, dark)
				for _, s := range []*scripted{part, trim} {
					for _, in := range s.of("tools/call") {
						if strings.Contains(string(in.Params), "secret") {
							t.Errorf("a hidden tool was called: %s", in.raw)
						}
					}
				}
			})
		}
	}
}

// wantUnasked checks that a server was never spoken to, not even greeted.
func wantUnasked(t *testing.T, s *scripted) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.got) > 0 {
		t.Errorf("the hidden server was asked %d times, first %s", len(s.got), s.got[0].raw)
	}
}

// TestHiddenDoors compares the URLs of a server that ada may not see with those
// of one that is not there.
func TestHiddenDoors(t *testing.T) {
	t.Parallel()
	dark := partly(t, true, "error", "find_a")
	w := open(t, limited+servers("open", echoServer(t, true, "one").URL, "part", echoServer(t, true, "find_a").URL,
		"dark", `{url: "`+dark.URL+`", auth: {type: login}, credential: per-principal}`))
	// A session of bob's, in which the hidden server is.
	w.dial(t, "/mcp", `{}`, asBob...)
	bobs := ""
	for _, s := range w.rg.Sessions() {
		if s.Owner == "bob" {
			bobs = s.ID
		}
	}
	if bobs == "" {
		t.Fatal("bob has no session")
	}
	const nobodys = "ses_0123456789ab"
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find_a"}}`
	modernCall := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find_a",` + meta(`{}`) + `}}`
	modern := append(modernHeaders("tools/call", "find_a"), asAda...)
	old := append([]string{"Content-Type", "application/json", "Accept", bothTypes}, asAda...)
	type request struct {
		method, path, body string
		headers            []string
		hidden, unknown    string // put for NAME in path and body
	}
	var all []request
	for _, d := range []string{"/mcp/NAME", "/streamable-http/NAME", "/mcp/NAME/streamable-http", "/sse/NAME", "/mcp/NAME/sse", "/s/" + nobodys + "/mcp/NAME"} {
		all = append(all,
			request{"POST", d, initialize, old, "dark", "nope"}, request{"POST", d, call, old, "dark", "nope"},
			request{"POST", d, modernCall, modern, "dark", "nope"}, request{"GET", d, "", old, "dark", "nope"},
			request{"DELETE", d, "", append(slices.Clone(old), "Mcp-Session-Id", "x"), "dark", "nope"}, request{"PUT", d, "", old, "dark", "nope"})
	}
	for _, d := range []string{"/s/NAME/mcp", "/s/NAME/mcp/open", "/s/NAME/sse"} {
		all = append(all, request{"POST", d, initialize, old, bobs, nobodys}, request{"POST", d, call, old, bobs, nobodys},
			request{"POST", d, "[" + call + "]", old, bobs, nobodys}, request{"POST", d, modernCall, modern, bobs, nobodys}, request{"GET", d, "", old, bobs, nobodys})
	}
	for _, body := range []string{initialize, call, "[" + call + "]", modernCall} {
		headers := old
		if body == modernCall {
			headers = modern
		}
		all = append(all, request{"POST", "/mcp", body, append(slices.Clone(headers), "Mcp-Session-Id", "NAME"), bobs, nobodys})
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/servers/NAME", ""}, {"PATCH", "/v1/servers/NAME", `{"enabled":false}`}, {"GET", "/v1/servers/NAME/logs", ""},
		{"POST", "/v1/servers/NAME/login", `{"redirect":"http://127.0.0.1:1/callback"}`}, {"POST", "/v1/servers/NAME/login/x", `{"query":"code=1"}`},
		{"DELETE", "/v1/servers/NAME/login", ""}, {"GET", "/v1/tools?server=NAME", ""}, {"GET", "/v1/calls?server=NAME", ""},
		{"POST", "/v1/call", `{"tool":"NAME__find_a"}`},
	} {
		all = append(all, request{c.method, c.path, c.body, old, "dark", "nope"})
	}
	for _, q := range all {
		ask := func(name string) outcome {
			put := func(s string) string { return strings.ReplaceAll(s, "NAME", name) }
			headers := slices.Clone(q.headers)
			for i := range headers {
				headers[i] = put(headers[i])
			}
			return outcomeOf(w.do(t, q.method, put(q.path), put(q.body), headers...)).without(name)
		}
		one, two := ask(q.hidden), ask(q.unknown)
		if one != two {
			t.Errorf("%s %s %s answers for what is hidden\n  %+v\nfor what is not there\n  %+v", q.method, q.path, q.body, one, two)
		}
		if one.status < 400 && q.path != "/v1/calls?server=NAME" {
			t.Errorf("%s %s %s is not refused: %+v", q.method, q.path, q.body, one)
		}
	}
	wantUnasked(t, dark)
}

// TestHiddenFromLists looks for what ada may not see in every list there is.
func TestHiddenFromLists(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		t.Run(fmt.Sprintf("modern server=%v", isModern), func(t *testing.T) {
			w := open(t, limited+servers("open", partly(t, isModern, "", "one").URL, "part", partly(t, isModern, "", "find_a", "secret_b").URL,
				"dark", partly(t, isModern, "", "find_a", "secret_b").URL, "gone", "http://127.0.0.1:1/",
				"trim", `{url: "`+partly(t, isModern, "", "find_a", "secret_b").URL+`", tools: {deny: ["secret_*"]}}`))
			// Bob sees all of it first: nothing that is kept for him is for ada.
			for _, who := range [][]string{asBob, asAda, asBob} {
				all := who[1] == asBob[1]
				old, young := w.dial(t, "/mcp", `{}`, who...), w.modern(t, "/mcp", `{}`, who...)
				for method, want := range map[string][2][]string{
					"tools/list": {{"open__one", "part__find_a", "trim__find_a"}, {"part__secret_b", "dark__find_a", "dark__secret_b"}},
					// A rule for tools gives nothing else of a server.
					"prompts/list":             {{"open__p", "trim__p"}, {"part__p", "dark__p"}},
					"resources/list":           {{"tine://open/res://one"}, {"tine://part/res://one", "tine://dark/res://one"}},
					"resources/templates/list": {{"tine://open/any://{x}"}, {"tine://part/any://{x}", "tine://dark/any://{x}"}},
				} {
					for era, raw := range map[string]string{"legacy": string(old.get(method, `{}`)), "modern": string(young.get(method, "", `{}`))} {
						for _, name := range want[0] {
							if !strings.Contains(raw, `"`+name+`"`) {
								t.Errorf("%s, %s: %s is not there: %s", era, method, name, raw)
							}
						}
						for _, name := range append(want[1], "gone") {
							if strings.Contains(raw, name) != all {
								t.Errorf("%s, %s as %s: %s is there: %v", era, method, who[1], name, !all)
							}
						}
						if strings.Contains(raw, "trim__secret_b") {
							t.Errorf("%s: a tool that is denied to all is there: %s", method, raw)
						}
					}
				}
				view := string(w.dial(t, "/mcp/part", `{}`, who...).get("tools/list", `{}`))
				if strings.Contains(view, "secret_b") != all || !strings.Contains(view, "find_a") {
					t.Errorf("/mcp/part as %s: %s", who[1], view)
				}
				for _, path := range []string{"/v1/servers", "/v1/tools", "/v1/tools?server=part"} {
					got := string(w.do(t, "GET", path, "", who...).body)
					for _, name := range []string{"dark", "gone", "secret_b"} {
						if strings.Contains(got, name) && !all {
							t.Errorf("%s as %s: %s is there: %s", path, who[1], name, got)
						}
					}
					if !strings.Contains(got, `"part`) {
						t.Errorf("%s as %s: %s", path, who[1], got)
					}
				}
			}
		})
	}
}

// TestHiddenOwners reads a resource that two servers have by its bare URI: for
// whom one of them is hidden there is only the other.
func TestHiddenOwners(t *testing.T) {
	t.Parallel()
	w := open(t, limited+servers("open", partly(t, true, "", "one").URL, "dark", partly(t, true, "", "one").URL))
	ada, bob := w.dial(t, "/mcp", `{}`, asAda...), w.dial(t, "/mcp", `{}`, asBob...)
	if got := bob.ask("resources/read", `{"uri":"res://one"}`).failure(t); !strings.Contains(got.Message, "tine://dark/") {
		t.Errorf("bob is told %q", got.Message)
	}
	if got := string(ada.get("resources/read", `{"uri":"res://one"}`)); !strings.Contains(got, "first") || strings.Contains(got, "dark") {
		t.Errorf("ada reads %s", got)
	}
	body := `{"jsonrpc":"2.0","id":5,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true,"resourceSubscriptions":["tine://dark/res://one","tine://open/res://one","tine://nope/res://one"]},` + meta(`{}`) + `}}`
	ack := w.do(t, "POST", "/mcp", body, append(modernHeaders("subscriptions/listen", ""), asAda...)...).stream.next()
	if strings.Contains(string(ack.raw), "dark") || strings.Contains(string(ack.raw), "nope") {
		t.Errorf("acknowledged %s", ack.raw)
	}
}

// TestHiddenDefaultView makes a server the view of /mcp that ada may not see.
func TestHiddenDefaultView(t *testing.T) {
	t.Parallel()
	w := open(t, "default_view: dark\n"+limited+servers("open", partly(t, true, "", "one").URL, "dark", partly(t, true, "", "find_a").URL))
	r := w.do(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, append([]string{"Content-Type", "application/json"}, asAda...)...)
	if strings.Contains(string(r.body), "dark") {
		t.Errorf("ada is told of the server: %d %s", r.status, r.body)
	}
}
