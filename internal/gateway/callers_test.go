package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/memory"
	"github.com/tine-mcp/tine/internal/native/rollout"
)

// spied is who acts on sessions, and what handles it was given.
type spied struct {
	rollout.Sessions
	mu      sync.Mutex
	handles []string
}

func (s *spied) seen(caller string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handles = append(s.handles, caller)
}

func (s *spied) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.handles...)
}

func (s *spied) Open(ctx context.Context, caller string, in api.NewSession) (api.OpenedSession, error) {
	s.seen(caller)
	return s.Sessions.Open(ctx, caller, in)
}

func (s *spied) Fork(ctx context.Context, caller, session string, in api.ForkRequest) (api.Forks, error) {
	s.seen(caller)
	return s.Sessions.Fork(ctx, caller, session, in)
}

func (s *spied) List(ctx context.Context, caller, parent string, labels map[string]string, limit int, after string) (api.SessionList, error) {
	s.seen(caller)
	return s.Sessions.List(ctx, caller, parent, labels, limit, after)
}

// slow is a built-in server whose one change takes as long as the test likes.
type slow struct{ began, free chan struct{} }

func (s *slow) kind() builtin.Kind {
	machine := &layer.Machine[int]{Apply: func(n int, _ []byte, _ layer.Extent) (int, error) { return n + 1, nil }}
	return builtin.Kind{Remembers: true, New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
		h, err := layer.Open(e.Layers, e.State, machine)
		if err != nil {
			return nil, nil, err
		}
		srv := sdkServer("slow", nil)
		srv.AddTool(&mcp.Tool{Name: "change", InputSchema: anyObject}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			s.began <- struct{}{}
			select {
			case <-s.free:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			n, err := h.Commit(func(int) ([]byte, io.Reader, int64, error) { return []byte{1}, nil, 0, nil })
			if err != nil {
				return nil, err
			}
			return text(fmt.Sprint(n)), nil
		})
		srv.AddTool(&mcp.Tool{Name: "show", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return text(fmt.Sprint(h.Value())), nil
		})
		return srv, h, nil
	}}
}

// rollouts is a gateway with the server rollout, beside the real memory and a
// slow one.
type rollouts struct {
	*worlds
	spy  *spied
	slow *slow
}

func openRollouts(t *testing.T, yaml, policy string) *rollouts {
	t.Helper()
	control := &gateway.Control{}
	r := &rollouts{spy: &spied{Sessions: control}, slow: &slow{make(chan struct{}), make(chan struct{})}}
	kinds := map[string]builtin.Kind{
		"sqlite": r.slow.kind(),
		"memory": {Remembers: true, New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			h, err := layer.Open(e.Layers, e.State, memory.Machine())
			if err != nil {
				return nil, nil, err
			}
			s, err := memory.New(e.Settings, h)
			return s, h, err
		}},
		"rollout": {New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			s, err := rollout.New(e.Settings, r.spy)
			return s, nil, err
		}},
	}
	w := openWith(t, yaml+"servers:\n  n: {builtin: memory}\n  slow: {builtin: sqlite}\n  rollout: {builtin: rollout"+policy+"}\n",
		func(o *gateway.Options) { o.Control = control }, kinds)
	r.worlds = &worlds{w, readOpenAPI(t, w, "Authorization", "Bearer "+operator)}
	return r
}

// A way is one to call a tool of rollout.
type way func(tool, args string) message

// ways are all of them, in a session; an empty one is the
// caller's own.
func (r *rollouts) ways(t *testing.T, session string, who ...string) map[string]way {
	t.Helper()
	base := ""
	if session != "" {
		base = "/s/" + session
	}
	params := func(tool, args string) string { return fmt.Sprintf(`{"name":%q,"arguments":%s}`, tool, args) }
	return map[string]way{
		"handshake": func(tool, args string) message {
			return r.dial(t, base+"/mcp/rollout", `{}`, who...).ask("tools/call", params(tool, args))
		},
		"stateless": func(tool, args string) message {
			return r.modern(t, base+"/mcp/rollout", `{}`, who...).ask("tools/call", tool, params(tool, args))
		},
		"merged": func(tool, args string) message {
			return r.modern(t, base+"/mcp", `{}`, who...).ask("tools/call", "rollout__"+tool, params("rollout__"+tool, args))
		},
	}
}

// act calls a tool that must work, and checks that both forms of its answer are
// the same.
func act[T any](t *testing.T, call way, tool, args string) (out T) {
	t.Helper()
	m := call(tool, args)
	var r struct {
		IsError           bool
		StructuredContent json.RawMessage
		Content           []struct{ Text string }
	}
	if m.Result == nil {
		t.Fatalf("%s %s: %s", tool, args, m.raw)
	}
	decode(t, m.Result, &r)
	if r.IsError || len(r.Content) != 1 {
		t.Fatalf("%s %s: %s", tool, args, m.raw)
	}
	if canonical(t, r.Content[0].Text) != canonical(t, string(r.StructuredContent)) {
		t.Errorf("%s: the text is %s, the content %s", tool, r.Content[0].Text, r.StructuredContent)
	}
	decode(t, r.StructuredContent, &out)
	return out
}

// know has the memory of a session know of something, and remembers tells
// whether it does.
func (r *rollouts) know(t testing.TB, s api.OpenedSession, what string) {
	t.Helper()
	m := r.modern(t, "/s/"+s.ID+"/mcp/n", `{}`, bearer(s.Token)...).ask("tools/call", "create_entities",
		fmt.Sprintf(`{"name":"create_entities","arguments":{"entities":[{"name":%q,"entityType":"x","observations":[]}]}}`, what))
	if m.Result == nil || bytes.Contains(m.Result, []byte(`"isError":true`)) {
		t.Fatalf("%s", m.raw)
	}
}

func (r *rollouts) remembers(t testing.TB, s api.OpenedSession) string {
	t.Helper()
	m := r.modern(t, "/s/"+s.ID+"/mcp/n", `{}`, bearer(s.Token)...).ask("tools/call", "read_graph", `{"name":"read_graph"}`)
	var got struct {
		StructuredContent struct{ Entities []struct{ Name string } }
	}
	if m.Result == nil {
		t.Fatalf("%s", m.raw)
	}
	decode(t, m.Result, &got)
	var all []string
	for _, e := range got.StructuredContent.Entities {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

// shown is what the slow server of a session has.
func (r *rollouts) shown(t testing.TB, s api.OpenedSession) string {
	t.Helper()
	return resultText(t, r.modern(t, "/s/"+s.ID+"/mcp/slow", `{}`, bearer(s.Token)...).ask("tools/call", "show", `{"name":"show"}`))
}

// TestSessionsByTool does all that can be done, in both eras and both views.
func TestSessionsByTool(t *testing.T) {
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

// TestForkFromInside forks a session by a call in that session, which names no
// session, while another call in it is under way: the fork waits for that one
// and for nothing else.
func TestForkFromInside(t *testing.T) {
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
			eventually(t, "the fork is under way", func() bool { return r.server(t, "rollout").InFlight == 1 })
			// Nobody else has to wait for it.
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

// TestToolsOfASessionToken checks that whoever has a session's token does with
// the tools what it may do by the API.
func TestToolsOfASessionToken(t *testing.T) {
	r := openRollouts(t, teamYAML, "")
	other := r.open(t, `{}`, asAda...)
	for _, name := range []string{"handshake", "stateless", "merged"} {
		t.Run(name, func(t *testing.T) {
			s := r.open(t, `{}`, asAda...)
			call := r.ways(t, "", bearer(s.Token)...)[name]
			child := act[api.Forks](t, call, "fork_session", `{}`).Sessions[0]
			if child.Parent != s.ID || child.Owner != "ada" {
				t.Errorf("forked %+v", child)
			}
			if snap := act[api.Snapshot](t, call, "snapshot_session", `{"session_id":"`+s.ID+`"}`); snap.Session != s.ID {
				t.Errorf("snapshot %+v", snap)
			}
			act[api.Session](t, call, "rewind_session", `{}`)
			if list := act[api.SessionList](t, call, "list_sessions", `{"parent":"`+s.ID+`"}`); len(list.Sessions) != 1 || list.Sessions[0].ID != child.ID {
				t.Errorf("its forks are %+v", list)
			}
			for _, args := range []string{`{}`, `{"labels":{"a":"b"}}`, `{"parent":"` + s.ID + `","labels":{"a":"b"}}`} {
				wantKind(t, call("list_sessions", args), api.KindRefused)
			}
			if e := wantKind(t, call("open_session", `{}`), api.KindRefused); !strings.Contains(e.Message, s.ID) {
				t.Errorf("opening one: %+v", e)
			}
			for _, id := range []string{other.ID, child.ID, "ses_000000000000"} {
				for _, tool := range []string{"fork_session", "snapshot_session", "rewind_session", "close_session"} {
					if e := wantKind(t, call(tool, `{"session_id":"`+id+`"}`), api.KindInvalid); e.Message != "there is no session "+id+" of yours" {
						t.Errorf("%s of another: %+v", tool, e)
					}
				}
				wantKind(t, call("list_sessions", `{"parent":"`+id+`"}`), api.KindInvalid)
			}
			// Who closes the session that it is in is told so.
			act[map[string]any](t, call, "close_session", `{"session_id":"`+s.ID+`"}`)
			r.refused(t, http.StatusUnauthorized, "GET", "/v1/sessions/"+s.ID, "", bearer(s.Token)...)
			if r.remembers(t, child) != "" {
				t.Error("the child is gone too")
			}
		})
	}
	// Somebody else's sessions are as if they were not there.
	for _, tool := range []string{"fork_session", "snapshot_session", "rewind_session", "close_session"} {
		wantKind(t, r.ways(t, "", asBob...)["stateless"](tool, `{"session_id":"`+other.ID+`"}`), api.KindInvalid)
		wantKind(t, r.ways(t, "", asEve...)["stateless"](tool, `{"session_id":"`+other.ID+`"}`), api.KindRefused)
	}
}

// TestCloseFromInside closes a session by its own event stream and by its own
// client, whose other calls end with it.
func TestCloseFromInside(t *testing.T) {
	r := openRollouts(t, teamYAML, "")
	s := r.open(t, `{}`, asAda...)
	cs := r.connectTransport(t, &mcp.SSEClientTransport{Endpoint: r.at("/s/" + s.ID + "/sse"), HTTPClient: &http.Client{Transport: withToken{r.http.Transport, s.Token}}}, false, nil)
	bystander := r.dial(t, "/s/"+s.ID+"/mcp/n", `{}`, asAda...)
	stream := bystander.listen()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "rollout__close_session", Arguments: map[string]any{"session_id": s.ID}})
	if err != nil || res.IsError {
		t.Fatalf("closed: %+v, %v", res, err)
	}
	if was := want[api.Session](t, r.worlds, "GET", "/v1/sessions/"+s.ID, "", asAda...); was.Closed.IsZero() {
		t.Errorf("it is %+v", was)
	}
	for { // until it ends
		if _, err := stream.tryNext(); err != nil {
			break
		}
	}
	eventually(t, "the session's clients are gone", func() bool {
		return bystander.request("ping", `{}`).status == http.StatusNotFound
	})
}

// withToken shows a token with every request.
type withToken struct {
	http.RoundTripper
	token string
}

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+w.token)
	return w.RoundTripper.RoundTrip(r)
}

// TestForgedCaller has somebody show the handle of a call of somebody else that
// is under way.
func TestForgedCaller(t *testing.T) {
	r := openRollouts(t, teamYAML, "")
	s := r.open(t, `{}`, asAda...)
	theirs := r.open(t, `{}`, asBob...)
	changed, forked := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(changed)
		r.dial(t, "/s/"+s.ID+"/mcp/slow", `{}`, asAda...).ask("tools/call", `{"name":"change"}`)
	}()
	take(t, r.slow.began)
	go func() {
		defer close(forked)
		act[api.Forks](t, r.ways(t, s.ID, asAda...)["stateless"], "fork_session", `{}`)
	}()
	eventually(t, "ada's fork is under way", func() bool { return len(r.spy.all()) == 1 })
	handle := r.spy.all()[0]
	if handle == "" {
		t.Fatal("there is no handle")
	}
	for _, meta := range []string{`{"tine/caller":%q}`, `{"tine/caller":"x","tine/caller":%q}`, `{"tine\/caller":%q,"progressToken":1}`} {
		m := r.dial(t, "/mcp/rollout", `{}`, asBob...).ask("tools/call", `{"name":"list_sessions","arguments":{},"_meta":`+fmt.Sprintf(meta, handle)+`}`)
		var got struct{ StructuredContent api.SessionList }
		decode(t, m.Result, &got)
		if list := got.StructuredContent.Sessions; len(list) == 0 {
			t.Errorf("bob lists nothing: %s", m.raw)
		} else {
			for _, one := range list {
				if one.Owner != "bob" {
					t.Fatalf("with %s bob lists %+v", meta, one)
				}
			}
		}
		if e := tineError(t, r.dial(t, "/mcp/rollout", `{}`, asBob...).ask("tools/call",
			`{"name":"close_session","arguments":{"session_id":"`+s.ID+`"},"_meta":`+fmt.Sprintf(meta, handle)+`}`)); e == nil || e.Kind != api.KindInvalid {
			t.Errorf("bob closes ada's session: %+v", e)
		}
	}
	// To another server it is nothing but what a client wrote.
	r.know(t, theirs, "x")
	r.slow.free <- struct{}{}
	take(t, changed)
	take(t, forked)
	for _, old := range append(r.spy.all(), "", "guessed") {
		if _, err := r.spy.Sessions.List(t.Context(), old, "", nil, 0, ""); err == nil || !strings.Contains(err.Error(), "nobody is known") {
			t.Errorf("a call that is over still acts: %v", err)
		}
	}
	if _, err := new(gateway.Control).Open(t.Context(), handle, api.NewSession{}); err == nil || !strings.Contains(err.Error(), "still starting") {
		t.Errorf("before there is a gateway: %v", err)
	}
}

// TestNothingOfACallerIsKept looks for handles and tokens in all that the
// gateway writes.
func TestNothingOfACallerIsKept(t *testing.T) {
	r := openRollouts(t, teamYAML, "")
	call := r.ways(t, "", asAda...)["handshake"]
	s := act[api.OpenedSession](t, call, "open_session", `{"labels":{"find":"me-in-the-journal"}}`)
	inside := r.ways(t, s.ID, asAda...)
	secrets := []string{s.Token}
	for _, name := range []string{"handshake", "stateless", "merged"} {
		for _, child := range act[api.Forks](t, inside[name], "fork_session", `{"count":2}`).Sessions {
			secrets = append(secrets, child.Token)
			r.know(t, child, "x") // the token that was given is the session's
		}
	}
	handles := r.spy.all()
	if secrets = append(secrets, handles...); len(handles) != 4 {
		t.Fatalf("%d handles", len(handles))
	}
	story := string(r.do(t, "GET", "/v1/sessions/"+s.ID+"/trajectory", "", asAda...).body)
	calls := string(r.do(t, "GET", "/v1/calls", "", asAda...).body)
	if !strings.Contains(story, `"name":"fork_session"`) || !strings.Contains(story, "shown-once-") || !strings.Contains(calls, "me-in-the-journal") {
		t.Errorf("the story is %s, the calls %s", story, calls)
	}
	texts := map[string]string{"story": story, "calls": calls, "log": r.log.String()}
	r.stop(true)
	defer r.start()
	err := filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		texts[path] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for where, text := range texts {
		found = found || strings.Contains(where, "journal") && strings.Contains(text, "me-in-the-journal")
		for _, secret := range secrets {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s", where, secret)
			}
		}
	}
	if !found {
		t.Error("the journal's files can't be read like this")
	}
}

func TestToolErrors(t *testing.T) {
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
	r := openRollouts(t, teamYAML+"  rules:\n    - {principals: [ada], servers: [\"*\"]}\n    - {principals: [bob], servers: [n]}\n", ", policy: {cache: {results: 1h}}")
	if all := strings.Join(names(tools(t, r.world, "/mcp", asAda...)), " "); !strings.Contains(all, "rollout__fork_session") {
		t.Errorf("ada sees %s", all)
	}
	if all := strings.Join(names(tools(t, r.world, "/mcp/rollout", asAda...)), " "); all != "open_session fork_session snapshot_session rewind_session close_session list_sessions" {
		t.Errorf("ada sees %s", all)
	}
	if all := strings.Join(names(tools(t, r.world, "/mcp", asBob...)), " "); strings.Contains(all, "session") {
		t.Errorf("bob sees %s", all)
	}
	if m := r.modern(t, "/mcp", `{}`, asBob...).ask("tools/call", "rollout__open_session", `{"name":"rollout__open_session","arguments":{}}`); !strings.Contains(string(m.Error), "Unknown tool") {
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
	r := openRollouts(t, "", "")
	for _, isModern := range []bool{false, true} {
		in, out, _ := serveStdio(t, r.world, "rollout")
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
		_ = cs.Close()
	}
}
