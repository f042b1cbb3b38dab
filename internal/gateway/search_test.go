package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
)

const searching = "?view=search"

// A searched is what search_tools answers.
type searched struct {
	Tools []struct {
		Name, Description, Omitted string
		InputSchema                json.RawMessage
	}
	Found, Searched int
	Missing         []api.Missing
}

func (s searched) names() (all []string) {
	for _, t := range s.Tools {
		all = append(all, t.Name)
	}
	return all
}

// search calls search_tools in both eras and checks that they find the same, and
// that it stands there as text too.
func search(t *testing.T, w *world, path, args string, who ...string) searched {
	t.Helper()
	params := `{"name":"search_tools","arguments":` + args + `}`
	var old, young struct {
		Content           []struct{ Text string }
		StructuredContent json.RawMessage
	}
	decode(t, w.dial(t, path, `{}`, who...).get("tools/call", params), &old)
	decode(t, w.modern(t, path, `{}`, who...).get("tools/call", "search_tools", params), &young)
	if string(old.StructuredContent) != string(young.StructuredContent) || len(old.Content) != 1 || old.Content[0].Text != string(old.StructuredContent) {
		t.Errorf("legacy clients find %s, modern ones %s, and read %v", old.StructuredContent, young.StructuredContent, old.Content)
	}
	var s searched
	decode(t, old.StructuredContent, &s)
	return s
}

// wrap renders the params of a call_tool.
func wrap(tool, args string) string {
	return fmt.Sprintf(`{"name":"call_tool","arguments":{"name":%q,"arguments":%s}}`, tool, args)
}

// TestSearchView checks what is seen where two tools stand for all.
func TestSearchView(t *testing.T) {
	t.Parallel()
	up := partly(t, true, "", "find_a", "find_b", "secret_b")
	w := open(t, limited+servers("open", up.URL, "part", up.URL, "dark", up.URL,
		"trim", `{url: "`+up.URL+`", tools: {deny: ["secret_*"], rename: {find_a: finde_a}, describe: {find_b: "Sucht das Zebra"}}}`))
	want := []string{"search_tools", "call_tool"}
	for _, path := range []string{"/mcp", "/mcp/part", "/streamable-http", "/streamable-http/part"} {
		list := tools(t, w, path+searching, asAda...)
		if !slices.Equal(names(list), want) {
			t.Errorf("%s lists %q", path, names(list))
		}
		for _, l := range list {
			if len(l.text()) < 40 || !json.Valid(l.InputSchema) {
				t.Errorf("%s: %+v", path, l)
			}
		}
	}
	c := w.dial(t, "/mcp"+searching, `{}`, asAda...)
	var hi struct{ Instructions string }
	if decode(t, c.hi.Result, &hi); !strings.Contains(hi.Instructions, "search_tools") {
		t.Errorf("instructions %q", hi.Instructions)
	}
	if got := string(c.get("prompts/list", `{}`)); !strings.Contains(got, `"open__p"`) {
		t.Errorf("prompts: %s", got)
	}
	wantMistake(t, "a tool by itself", c.ask("tools/call", `{"name":"open__find_a"}`))

	all := search(t, w, "/mcp"+searching, `{"query":"","limit":50}`, asAda...)
	if want := []string{"open__find_a", "open__find_b", "open__secret_b", "part__find_a", "part__find_b", "trim__finde_a", "trim__find_b"}; !slices.Equal(all.names(), want) || all.Found != len(want) || all.Searched != len(want) {
		t.Errorf("ada finds %q of %d, want %q", all.names(), all.Searched, want)
	}
	if got := search(t, w, "/mcp"+searching, `{"query":"zebra"}`, asAda...); !slices.Equal(got.names(), []string{"trim__find_b"}) || got.Tools[0].Description != "[trim] Sucht das Zebra" || string(got.Tools[0].InputSchema) != `{"type":"object"}` {
		t.Errorf("found %+v", got)
	}
	if got := search(t, w, "/mcp/part"+searching, `{"query":"find secret","limit":1}`, asAda...); !slices.Equal(got.names(), []string{"find_a"}) || got.Found != 2 {
		t.Errorf("in the view of one server: %+v", got)
	}
	if got := search(t, w, "/mcp"+searching, `{"query":"dark"}`, asAda...); got.Found != 0 {
		t.Errorf("of a hidden server ada finds %q", got.names())
	}
	if got := search(t, w, "/mcp"+searching, `{"query":"dark"}`, asBob...); got.Found != 3 || got.Tools[0].Name != "dark__find_a" {
		t.Errorf("bob finds %q", got.names())
	}
	for _, bad := range []string{
		`{"name":"search_tools"}`, `{"name":"search_tools","arguments":{"query":7}}`, `{"name":"search_tools","arguments":{"query":"x","limit":0}}`,
		`{"name":"search_tools","arguments":{"query":"x","limit":51}}`, `{"name":"search_tools","arguments":{"query":"` + strings.Repeat("x", 1001) + `"}}`,
		`{"name":"call_tool"}`, `{"name":"call_tool","arguments":{}}`, `{"name":"call_tool","arguments":{"name":7}}`, `{"name":"call_tool","arguments":[]}`,
		`{"name":"call_tool","arguments":{"name":"open__find_a","arguments":"{}"}}`, `{"name":"call_tool","arguments":{"name":"open__find_a","name":"part__secret_b"}}`,
		wrap("call_tool", `{"name":"open__find_a"}`), wrap("search_tools", `{"query":"x"}`), wrap("", `{}`), wrap(strings.Repeat("x", 2000), `{}`),
	} {
		wantMistake(t, bad, c.ask("tools/call", bad))
	}
	for _, query := range []string{"view=", "view=find", "view=search&view=search"} {
		r := w.do(t, "POST", "/mcp?"+query, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, append([]string{"Content-Type", "application/json"}, asAda...)...)
		if r.status != http.StatusBadRequest || !strings.Contains(string(r.body), "search") {
			t.Errorf("?%s: status %d %s", query, r.status, r.body)
		}
	}
	// A client comes back to the same view, also after a restart, and to no other.
	w.restart()
	var again struct{ Tools []listedTool }
	if decode(t, c.get("tools/list", `{}`), &again); !slices.Equal(names(again.Tools), want) {
		t.Errorf("after a restart: %q", names(again.Tools))
	}
	c.path = "/mcp"
	if r := c.request("tools/list", `{}`); r.status != http.StatusNotFound {
		t.Errorf("at another view: status %d %s", r.status, r.body)
	}
}

// TestSearchIsBounded searches among tools that are too large to be told, and
// servers that are not there.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	big := func(name string, description, schema int) string {
		return fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object","title":%q}}`, name, "huge "+strings.Repeat("é", description/2), strings.Repeat("y", schema))
	}
	all := []string{big("a", 1<<20, 1<<20), big(strings.Repeat("n", 2000), 1, 1)}
	for i := range 40 {
		all = append(all, big(fmt.Sprint("b", i), 5000, 1000))
	}
	up := script(t, true, map[string]string{"tools/list": `{"tools":[` + strings.Join(all, ",") + `]}`})
	w := open(t, servers("up", up.URL, "gone", "http://127.0.0.1:1/mcp"))
	got := search(t, w, "/mcp"+searching, `{"query":"huge up","limit":50}`)
	size := 0
	for _, f := range got.Tools {
		size += len(f.Name) + len(f.Description) + len(f.InputSchema)
		if len(f.Description) > 5000 || f.Name == "up__a" && (f.Omitted == "" || f.InputSchema != nil) {
			t.Errorf("%s is told with %d bytes of description, %q", f.Name, len(f.Description), f.Omitted)
		}
	}
	if got.Found != 41 || len(got.Tools) < 10 || len(got.Tools) > 20 || size > 64<<10 || !slices.Contains(got.names(), "up__a") {
		t.Errorf("%d tools with %d bytes are told of %d: %q", len(got.Tools), size, got.Found, got.names())
	}
	if len(got.Missing) != 1 || got.Missing[0].Server != "gone" || got.Missing[0].Kind != api.KindInfrastructure {
		t.Errorf("missing: %+v", got.Missing)
	}
}

// TestSearchCallsAreCalls makes each call in both ways, by the tool's name and
// through call_tool, and wants the same answer, the same line in the journal, and
// the same at the server.
func TestSearchCallsAreCalls(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		part := partly(t, isModern, "isError", "find_a", "secret_b")
		broken := script(t, isModern, map[string]string{"tools/list": toolList("one")})
		broken.on("tools/call", func(w http.ResponseWriter, _ *http.Request, _ received) {
			http.Error(w, "it broke", http.StatusBadGateway)
		})
		w := open(t, limited+servers("part", part.URL, "dark", partly(t, isModern, "", "find_a").URL,
			"trim", `{url: "`+part.URL+`", tools: {deny: ["secret_*"], rename: {find_a: finde_a}}}`,
			"open", `{url: "`+broken.URL+`", policy: {retry: {attempts: 1}, breaker: {failures: 0}}}`))
		journalled := func() (c api.Call) {
			var list api.CallList
			decode(t, w.do(t, "GET", "/v1/calls?limit=1", "", "Authorization", "Bearer "+operator).body, &list)
			c = list.Calls[0]
			return api.Call{Server: c.Server, Name: c.Name, Method: c.Method, Principal: c.Principal, Outcome: c.Outcome, Arguments: c.Arguments, Error: c.Error}
		}
		for way, ask := range ways(t, w) {
			for _, tt := range []struct{ view, tool string }{
				{"", "part__find_a"}, {"", "part__secret_b"}, {"", "part__find_none"}, {"", "dark__find_a"}, {"", "nope__find_a"}, {"", "nope"},
				{"", "trim__finde_a"}, {"", "trim__find_a"}, {"", "trim__secret_b"}, {"", "open__one"},
				{"part", "find_a"}, {"part", "secret_b"}, {"part", "find_none"}, {"trim", "finde_a"},
			} {
				const args = `{"big":12345678901234567890,"b":[1, "x"]}`
				direct := ask(tt.view, "tools/call", tt.tool, fmt.Sprintf(`{"name":%q,"arguments":%s}`, tt.tool, args))
				before, sent := journalled(), part.of("tools/call")
				wrapped := ask(tt.view+searching, "tools/call", "call_tool", wrap(tt.tool, args))
				if direct != wrapped {
					t.Errorf("%s: %s at %q answers\n  %+v\nand through call_tool\n  %+v", way, tt.tool, tt.view, direct, wrapped)
				}
				if after := journalled(); fmt.Sprintf("%+v", before) != fmt.Sprintf("%+v", after) {
					t.Errorf("%s: %s at %q is in the journal as %+v, and through call_tool as %+v", way, tt.tool, tt.view, before, after)
				}
				now := part.of("tools/call")
				if len(now) == len(sent) {
					continue
				}
				one, two := sent[len(sent)-1], now[len(now)-1]
				if string(one.Params) != string(two.Params) || one.header.Get("Mcp-Name") != two.header.Get("Mcp-Name") {
					t.Errorf("%s: the server got\n  %s, and through call_tool\n  %s", way, one.raw, two.raw)
				}
			}
		}
	}
}

// TestSearchCallsConverse has tools that report, ask and hang called through
// call_tool, in both eras and on stdio.
func TestSearchCallsConverse(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for _, where := range []string{"/mcp", "/mcp/t", "stdio"} {
			t.Run(era.name+", "+where, func(t *testing.T) {
				s := newTalkative(t, era.upstream)
				w := open(t, servers("t", serveSDK(t, s.Server, era.upstream)))
				progress := make(chan string, 16)
				o := &mcp.ClientOptions{
					ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
						return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"who": "you"}}, nil
					},
					ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
						progress <- fmt.Sprint(r.Params.ProgressToken, r.Params.Progress)
					},
				}
				var cs *mcp.ClientSession
				prefix := "t__"
				switch where {
				case "stdio":
					in, out, _ := serveStdio(t, w, "", true)
					cs = w.connectTransport(t, &mcp.IOTransport{Reader: out, Writer: in}, era.client, o)
				case "/mcp/t":
					prefix = ""
					fallthrough
				default:
					cs = w.connect(t, where+searching, era.client, o)
				}
				args := func(tool string) map[string]any {
					return map[string]any{"name": prefix + tool, "arguments": map[string]any{}}
				}
				if got := textOf(t, call(t, cs, "search_tools", map[string]any{"query": "elicit"})); !strings.Contains(got, `"`+prefix+`elicit"`) {
					t.Errorf("found %s", got)
				}
				if got := textOf(t, call(t, cs, "call_tool", args("elicit"))); got != "accept you" {
					t.Errorf("elicited %q", got)
				}
				p := &mcp.CallToolParams{Name: "call_tool", Arguments: args("progress")}
				p.SetProgressToken("p")
				if _, err := cs.CallTool(t.Context(), p); err != nil {
					t.Fatal(err)
				}
				for i := 1; i <= 3; i++ {
					if got := <-progress; got != fmt.Sprint("p", i) {
						t.Errorf("progress %s, want step %d", got, i)
					}
				}
				r, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "call_tool", Arguments: args("fail")})
				if err != nil || !r.IsError || textOf(t, r) != "it broke" {
					t.Errorf("a tool's own error: %+v, %v", r, err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "call_tool", Arguments: args("wait")})
					ended <- err
				}()
				<-s.started
				cancel()
				if err := <-ended; err == nil {
					t.Error("a cancelled call was answered")
				}
				<-s.ended
			})
		}
	}
}

// TestSearchCallsInForm checks that the other parameters of a URL hold, and that a
// tool whose arguments go into headers gets them.
func TestSearchCallsInForm(t *testing.T) {
	t.Parallel()
	w := open(t, failsEachWay(t))
	for _, c := range []func() message{
		func() message {
			return w.dial(t, "/mcp?errors=protocol&view=search", `{}`).ask("tools/call", wrap("infrastructure__one", `{}`))
		},
		func() message {
			return w.modern(t, "/mcp?view=search&errors=protocol", `{}`).ask("tools/call", "call_tool", wrap("infrastructure__one", `{}`))
		},
	} {
		if m := c(); m.Error == nil || wantKind(t, m, api.KindInfrastructure) == nil {
			t.Errorf("got %s", m.raw)
		}
	}
	up := script(t, true, map[string]string{"tools/call": done,
		"tools/list": `{"tools":[{"name":"sql","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}}]}`})
	w = open(t, servers("db", up.URL))
	c := w.modern(t, "/mcp"+searching, `{}`)
	c.get("tools/call", "search_tools", `{"name":"search_tools","arguments":{"query":"sql"}}`)
	c.get("tools/call", "call_tool", wrap("db__sql", `{"region":"eu"}`))
	if got := up.last(t, "tools/call").header.Get("Mcp-Param-Region"); got != "eu" {
		t.Errorf("the server got Mcp-Param-Region %q", got)
	}
}

// TestSearchFindsPlurals asks for one entity where the tools of the built-in memory have
// entities in their names.
func TestSearchFindsPlurals(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, "", "")
	for query, want := range map[string][]string{
		"remember entity": {"n__delete_entities", "n__create_entities", "n__add_observations"},
		"create entity":   {"n__create_entities", "n__create_relations", "n__delete_entities"},
	} {
		got := search(t, r.world, "/mcp"+searching, fmt.Sprintf(`{"query":%q}`, query)).names()
		for _, name := range want {
			if len(got) == 0 || got[0] != want[0] || !slices.Contains(got, name) {
				t.Errorf("%q finds %q, want %q, the first one first", query, got, want)
			}
		}
	}
}
