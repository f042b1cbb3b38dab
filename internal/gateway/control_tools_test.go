package gateway_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestSessionsByTool does all that can be done, in both eras and both views.
func TestSessionsByTool(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, teamYAML, "")
	for name, call := range r.ways(t, "", asAda...) {
		t.Run(name, func(t *testing.T) {
			s := act[api.OpenedSession](t, call, "open_session", `{"labels":{"way":"`+name+`"},"ttl":"2h","idle":"30m"}`)
			if s.Owner != "ada" || s.Labels["way"] != name || s.Idle != "30m0s" || s.Expires.IsZero() || s.URL != r.at("/s/"+s.ID+"/mcp") || !strings.HasPrefix(s.Token, "tine_ses_") {
				t.Errorf("opened %+v", s)
			}
			r.know(t, s, "first")
			snap := act[api.Snapshot](t, call, "snapshot_session", `{"args":{"session_id":"`+s.ID+`","name":"`+name+`"}}`)
			if snap.Session != s.ID || snap.Name != name || snap.Owner != "ada" {
				t.Errorf("snapshot %+v", snap)
			}
			r.know(t, s, "second")
			f := act[api.Forks](t, call, "fork_session", `{"session_id":"`+s.ID+`","count":3,"labels":{"fork":"yes"}}`)
			if f.Parent != s.ID || len(f.Sessions) != 3 {
				t.Fatalf("forked %+v", f)
			}
			for i, child := range f.Sessions {
				if child.Parent != s.ID || child.Depth != 1 || child.Labels["way"] != name || child.Labels["fork"] != "yes" || child.URL == "" {
					t.Errorf("a child: %+v", child)
				}
				r.know(t, child, fmt.Sprint("own-", i))
			}
			back := act[api.Session](t, call, "rewind_session", `{"session_id":"`+s.ID+`"}`)
			if back.ID != s.ID {
				t.Errorf("rewound %+v", back)
			}
			from := act[api.OpenedSession](t, call, "open_session", `{"from":"`+name+`","servers":["n"],"eager":true}`)
			if from.From != snap.ID || len(from.Members) != 1 {
				t.Errorf("opened from the snapshot: %+v", from)
			}
			for i, child := range f.Sessions {
				if got, want := r.remembers(t, child), fmt.Sprintf("first second own-%d", i); got != want {
					t.Errorf("a child remembers %q, not %q", got, want)
				}
			}
			if got := r.remembers(t, s) + ", " + r.remembers(t, from); got != "first, first" {
				t.Errorf("after the rewind: %s", got)
			}

			forks := act[api.SessionList](t, call, "list_sessions", `{"parent":"`+s.ID+`","limit":2}`)
			if len(forks.Sessions) != 2 || forks.Next == "" {
				t.Errorf("the first page of forks: %+v", forks)
			}
			forks = act[api.SessionList](t, call, "list_sessions", `{"parent":"`+s.ID+`","limit":2,"after":"`+forks.Next+`"}`)
			if len(forks.Sessions) != 1 || forks.Next != "" {
				t.Errorf("the second page of forks: %+v", forks)
			}
			mine := act[api.SessionList](t, call, "list_sessions", `{"labels":{"way":"`+name+`"}}`)
			if len(mine.Sessions) != 4 {
				t.Errorf("by label: %+v", mine)
			}
			for range 2 {
				act[map[string]any](t, call, "close_session", `{"session_id":"`+s.ID+`"}`)
			}
			if e := wantKind(t, call("fork_session", `{"session_id":"`+s.ID+`"}`), api.KindInvalid); !strings.Contains(e.Message, "was closed at") {
				t.Errorf("a closed one is %+v", e)
			}
		})
	}
}

// TestEndedSession has the world of a rollout end by itself: no policy can name a session,
// so a call in it is no mistake, unless a request closed the session or it never was.
func TestEndedSession(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, teamYAML, "")
	call := r.ways(t, "", asAda...)["stateless"]
	strict := r.modern(t, "/mcp/rollout?errors=protocol", `{}`, asAda...)
	closed := r.open(t, `{}`, asAda...)
	r.gone(t, "/v1/sessions/"+closed.ID, asAda...)
	never := "ses_000000000000"
	for name, over := range map[string]api.OpenedSession{"ttl": r.open(t, `{"ttl":"1ms"}`, asAda...), "idle": r.open(t, `{"idle":"1ms"}`, asAda...)} {
		testkit.Eventually(t, "the session's "+name+" is over", func() bool {
			return !want[api.Session](t, r.worlds, "GET", "/v1/sessions/"+over.ID, "", asAda...).Closed.IsZero()
		})
		for _, tool := range []string{"call_backend_tool", "list_backend_tools", "fork_session", "ping"} {
			args := func(id string) string {
				out := `{"session_id":"` + id + `"`
				if strings.Contains(tool, "backend") {
					out += `,"backend_name_ref":"n"`
				}
				if tool == "call_backend_tool" {
					out += `,"tool_name":"read_graph"`
				}
				return out + `}`
			}
			if e := wantKind(t, call(tool, args(over.ID)), api.KindLost); !strings.Contains(e.Message, "was closed at") || e.Retryable {
				t.Errorf("%s after its %s: %+v", tool, name, e)
			}
			last := want[api.CallList](t, r.worlds, "GET", "/v1/calls?server=rollout&limit=1", "", asAda...).Calls[0]
			if last.Name != tool || last.Outcome != string(api.KindLost) {
				t.Errorf("the journal has %+v", last)
			}
			m := strict.ask("tools/call", tool, fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args(over.ID)))
			if e := m.failure(t); e.Code != -31000 || !strings.Contains(string(e.Data), `"kind":"lost"`) {
				t.Errorf("%s after its %s, with errors=protocol: %s", tool, name, m.raw)
			}
			for _, id := range []string{closed.ID, never} {
				wantKind(t, call(tool, args(id)), api.KindInvalid)
			}
		}
	}
}

// TestForkFromInside forks a session by a call in that session, which names no
// session, while another call in it runs: the fork waits for that one and for
// nothing else.
func TestForkFromInside(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, teamYAML, "")
	s := r.open(t, `{}`, asAda...)
	for name, call := range r.ways(t, s.ID, bearer(s.Token)...) {
		t.Run(name, func(t *testing.T) {
			before := r.shown(t, s)
			changed, forked := make(chan string, 1), make(chan api.Forks, 1)
			go func() {
				changed <- resultText(t, r.dial(t, "/mcp/slow", `{}`, bearer(s.Token)...).ask("tools/call", `{"name":"change"}`))
			}()
			take(t, r.slow.began)
			go func() { forked <- act[api.Forks](t, call, "fork_session", `{"count":2}`) }()
			testkit.Eventually(t, "the fork is running", func() bool { return r.server(t, "rollout").InFlight == 1 })
			// No other session has to wait for it.
			if list := act[api.SessionList](t, r.ways(t, "", asAda...)["stateless"], "list_sessions", `{}`); len(list.Sessions) == 0 {
				t.Error("nothing is listed")
			}
			select {
			case f := <-forked:
				t.Errorf("forked in the middle of a call: %+v", f)
			default:
			}
			r.slow.free <- struct{}{}
			now := take(t, changed)
			if now == before {
				t.Errorf("nothing has changed: %s", now)
			}
			f := take(t, forked)
			if f.Parent != s.ID || len(f.Sessions) != 2 {
				t.Fatalf("forked %+v", f)
			}
			r.know(t, f.Sessions[0], name)
			r.know(t, s, "parent-"+name)
			for i, child := range f.Sessions {
				if got := r.shown(t, child); got != now {
					t.Errorf("a child has %s of the call that was waited for, not %s", got, now)
				}
				if got := r.remembers(t, child); strings.Contains(got, "parent-"+name) || strings.Contains(got, name) != (i == 0) {
					t.Errorf("child %d remembers %q", i, got)
				}
			}
			if got := r.remembers(t, s); !strings.Contains(got, "parent-"+name) || strings.Contains(strings.ReplaceAll(got, "parent-"+name, ""), name) {
				t.Errorf("the parent remembers %q", got)
			}
		})
	}
}

func TestToolErrors(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, teamYAML+"sessions: {per_principal: 2, fork_wait: 10ms, wait: 10ms}\n", "")
	call := r.ways(t, "", asAda...)["stateless"]
	s := act[api.OpenedSession](t, call, "open_session", `{}`)
	for _, tt := range []struct {
		tool, args, say string
		kind            api.Kind
	}{
		{"open_session", `{"ttl":"soon"}`, "ttl must be a duration", api.KindInvalid},
		{"open_session", `{"servers":["nosuch"]}`, "nosuch", api.KindInvalid},
		{"open_session", `{"servers":[]}`, "servers must name", api.KindInvalid},
		{"open_session", `{"from":"nosuch"}`, "there is no snapshot nosuch", api.KindInvalid},
		{"open_session", `{"labels":{"a b":"c"}}`, "labels", api.KindInvalid},
		{"fork_session", `{"session_id":"ses_000000000000"}`, "there is no session", api.KindInvalid},
		{"fork_session", `{"session_id":"` + s.ID + `","count":10001}`, "count must be a number from 1 to 10000", api.KindInvalid},
		{"fork_session", `{"session_id":"` + s.ID + `","count":-1}`, "count must be a number from 1 to 10000", api.KindInvalid},
		{"fork_session", `{"session_id":"` + s.ID + `","count":9}`, "", api.KindRefused},
		{"snapshot_session", `{"session_id":"` + s.ID + `","name":"a/b"}`, "name must be", api.KindInvalid},
		{"rewind_session", `{"session_id":"` + s.ID + `"}`, "has no snapshot", api.KindInvalid},
		{"list_sessions", `{"limit":1001}`, "limit must be a number from 1 to 1000", api.KindInvalid},
		{"list_sessions", `{"limit":-1}`, "limit must be a number from 1 to 1000", api.KindInvalid},
		{"list_sessions", `{"labels":{"a=b":"c"}}`, "labels", api.KindInvalid},
	} {
		if e := wantKind(t, call(tt.tool, tt.args), tt.kind); !strings.Contains(e.Message, tt.say) {
			t.Errorf("%s %s: %+v", tt.tool, tt.args, e)
		}
	}
	// A call that does not end.
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		r.dial(t, "/s/"+s.ID+"/mcp/slow", `{}`, asAda...).ask("tools/call", `{"name":"change"}`)
	}()
	take(t, r.slow.began)
	if e := wantKind(t, call("fork_session", `{"session_id":"`+s.ID+`"}`), api.KindTimeout); !e.Retryable || !strings.Contains(e.Message, "slow__change") {
		t.Errorf("a fork that waited: %+v", e)
	}
	r.slow.free <- struct{}{}
	take(t, changed)
}

// TestToolsByRule checks that the tools are there for whom a rule gives them,
// and that what one was answered is not kept for another.
func TestToolsByRule(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, teamYAML+"  rules:\n    - {principals: [ada], servers: [\"*\"]}\n    - {principals: [bob], servers: [n]}\n", ", policy: {cache: {results: 1h}}")
	if all := strings.Join(names(tools(t, r.world, "/mcp", asAda...)), " "); !strings.Contains(all, " fork_session ") || strings.Contains(all, "rollout") {
		t.Errorf("ada sees %s", all)
	}
	if all := strings.Join(names(tools(t, r.world, "/mcp/rollout", asAda...)), " "); all != "open_session fork_session snapshot_session rewind_session close_session list_sessions initialize_session call_backend_tool list_backend_tools cleanup_session ping" {
		t.Errorf("ada sees %s", all)
	}
	if all := strings.Join(names(tools(t, r.world, "/mcp", asBob...)), " "); strings.Contains(all, "session") || !strings.Contains(all, "n__read_graph") {
		t.Errorf("bob sees %s", all)
	}
	if m := r.modern(t, "/mcp", `{}`, asBob...).ask("tools/call", "open_session", `{"name":"open_session","arguments":{}}`); !strings.Contains(string(m.Error), "Unknown tool") {
		t.Errorf("bob calls it: %s", m.raw)
	}
	call := r.ways(t, "", asAda...)["stateless"]
	before := len(act[api.SessionList](t, call, "list_sessions", `{}`).Sessions)
	s := r.open(t, `{}`, asAda...)
	if n := len(act[api.SessionList](t, call, "list_sessions", `{}`).Sessions); n != before+1 {
		t.Errorf("%d are listed, and then %d", before, n)
	}
	wantKind(t, r.ways(t, "", bearer(s.Token)...)["stateless"]("list_sessions", `{}`), api.KindRefused)
}

// TestToolsOnStdio has no URL to give, and a session of the client's own to fork.
func TestToolsOnStdio(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, "", "")
	for _, isModern := range []bool{false, true} {
		in, out, _ := serveStdio(t, r.world, "rollout", false)
		cs := r.connectTransport(t, &mcp.IOTransport{Reader: out, Writer: in}, isModern, nil)
		res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "fork_session", Arguments: map[string]any{}})
		if err != nil || res.IsError {
			t.Fatalf("forked %+v, %v", res, err)
		}
		var f api.Forks
		decode(t, []byte(textOf(t, res)), &f)
		if len(f.Sessions) != 1 || f.Sessions[0].Parent == "" || f.Sessions[0].URL != "" {
			t.Errorf("forked %+v", f)
		}
		r.know(t, f.Sessions[0], "x")
		// A pipe is a connection in either era.
		meant := map[string]bool{}
		for _, tool := range []string{"initialize_session", "ping"} {
			res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: map[string]map[string]any{
				"initialize_session": {"backends": []any{map[string]any{"backend_name_ref": "n"}}}, "ping": {},
			}[tool]})
			if err != nil || res.IsError {
				t.Fatalf("%s: %+v, %v", tool, res, err)
			}
			var s struct {
				ID string `json:"session_id"`
			}
			decode(t, []byte(textOf(t, res)), &s)
			meant[s.ID] = true
		}
		if len(meant) != 1 {
			t.Errorf("it opened and means %v", meant)
		}
		_ = cs.Close()
	}
}

// TestNamesByTool has a tool act on a session by its name, and never close it by that.
func TestNamesByTool(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, teamYAML, "")
	for _, query := range []string{"", "?session=work"} {
		if m := r.modern(t, "/mcp/rollout"+query, `{}`, asAda...).ask("tools/call", "list_sessions", `{"name":"list_sessions","arguments":{}}`); m.Result == nil {
			t.Fatal(m.raw)
		}
	}
	for name, call := range r.ways(t, "work", asAda...) {
		t.Run(name, func(t *testing.T) {
			if f := act[api.Forks](t, call, "fork_session", `{"session_id":"work"}`); f.Parent != act[api.Forks](t, call, "fork_session", `{}`).Parent {
				t.Errorf("forked %+v", f)
			}
			for _, ref := range []string{"work", "default"} {
				if m := call("close_session", `{"session_id":"`+ref+`"}`); !strings.Contains(string(m.raw), "is not closed by its name") {
					t.Errorf("closing %s: %s", ref, m.raw)
				}
			}
		})
	}
}
