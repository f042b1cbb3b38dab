package gateway_test

import (
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestToolsOfASessionToken checks that a caller with a session's token does
// with the tools what it may do by the API.
func TestToolsOfASessionToken(t *testing.T) {
	t.Parallel()
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
	// Sessions of other principals are as if they were not there.
	for _, tool := range []string{"fork_session", "snapshot_session", "rewind_session", "close_session"} {
		wantKind(t, r.ways(t, "", asBob...)["stateless"](tool, `{"session_id":"`+other.ID+`"}`), api.KindInvalid)
		wantKind(t, r.ways(t, "", asEve...)["stateless"](tool, `{"session_id":"`+other.ID+`"}`), api.KindRefused)
	}
}

// TestCloseFromInside closes a session by its own event stream and by its own
// client, whose other calls end with it.
func TestCloseFromInside(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, teamYAML, "")
	s := r.open(t, `{}`, asAda...)
	cs := r.connectTransport(t, &mcp.SSEClientTransport{Endpoint: r.at("/s/" + s.ID + "/sse"), HTTPClient: &http.Client{Transport: withToken{r.http.Transport, s.Token}}}, false, nil)
	bystander := r.dial(t, "/s/"+s.ID+"/mcp/n", `{}`, asAda...)
	stream := bystander.listen()
	res, err := cs.CallTool(t.Context(), &mcp.CallToolParams{Name: "close_session", Arguments: map[string]any{"session_id": s.ID}})
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
	testkit.Eventually(t, "the session's clients are gone", func() bool {
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

// TestForgedCaller shows the handle of another principal's running call.
func TestForgedCaller(t *testing.T) {
	t.Parallel()
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
	testkit.Eventually(t, "ada's fork is running", func() bool { return len(r.spy.all()) == 1 })
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
		if _, err := r.spy.Sessions.List(t.Context(), old, "", nil, 0, ""); err == nil || !strings.Contains(err.Error(), "the caller is not known") {
			t.Errorf("a call that is over still acts: %v", err)
		}
	}
	if _, err := new(gateway.Control).Open(t.Context(), handle, "", api.NewSession{}); err == nil || !strings.Contains(err.Error(), "still starting") {
		t.Errorf("before there is a gateway: %v", err)
	}
}

// TestNothingOfACallerIsKept looks for handles and tokens in all that the
// gateway writes.
func TestNothingOfACallerIsKept(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, teamYAML, "")
	call := r.ways(t, "", asAda...)["handshake"]
	s := act[api.OpenedSession](t, call, "open_session", `{"labels":{"find":"me-in-the-journal"}}`)
	inside := r.ways(t, s.ID, asAda...)
	secrets := []string{s.Token}
	for _, name := range []string{"handshake", "merged"} {
		made := act[struct{ Token string }](t, r.ways(t, "", asAda...)[name], "initialize_session", `{"backends":[{"backend_name_ref":"n"}]}`)
		if !strings.HasPrefix(made.Token, "tine_ses_") {
			t.Errorf("the token is %q", made.Token)
		}
		secrets = append(secrets, made.Token)
	}
	for _, name := range []string{"handshake", "stateless", "merged"} {
		for _, child := range act[api.Forks](t, inside[name], "fork_session", `{"count":2}`).Sessions {
			secrets = append(secrets, child.Token)
			r.know(t, child, "x") // the token that was given is the session's
		}
	}
	handles := r.spy.all()
	if secrets = append(secrets, handles...); len(handles) != 6 {
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
