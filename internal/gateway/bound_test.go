package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// sessionRoutes is every operation on one session, as something that would be
// done if it were allowed.
var sessionRoutes = []struct{ method, path, body string }{
	{"GET", "", ""}, {"PATCH", "", `{"labels":{}}`}, {"GET", "/forks", ""}, {"POST", "/forks", ""}, {"GET", "/snapshots", ""},
	{"POST", "/snapshots", ""}, {"POST", "/rewind", ""}, {"POST", "/token", ""}, {"GET", "/calls", ""}, {"GET", "/trajectory", ""}, {"GET", "/tree", ""}, {"DELETE", "", ""},
}

// TestSessionsOfOthers checks that a session of another principal is like one
// that is not there, in every byte, and what viewers and operators may do with
// it.
func TestSessionsOfOthers(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	s := w.open(t, `{}`, asAda...)
	w.tool(t, s.ID, "add", asAda...)
	snap := want[api.Snapshot](t, w, "POST", "/v1/sessions/"+s.ID+"/snapshots", `{"name":"base"}`, asAda...)
	other := w.open(t, `{}`, asBob...)
	const unknown = "ses_000000000000"
	same := func(method, path, body string, who []string) {
		t.Helper()
		r := w.ask(t, method, strings.ReplaceAll(path, "ID", s.ID), strings.ReplaceAll(body, "ID", s.ID), who...)
		ghost := w.ask(t, method, strings.ReplaceAll(path, "ID", unknown), strings.ReplaceAll(body, "ID", unknown), who...)
		if r.status != http.StatusNotFound || ghost.status != r.status || strings.ReplaceAll(string(r.body), s.ID, unknown) != string(ghost.body) {
			t.Errorf("%s %s: status %d %s, and %d %s for one that is not there", method, path, r.status, r.body, ghost.status, ghost.body)
		}
	}
	mcp := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	bound := bearer(other.Token)
	for _, q := range sessionRoutes {
		same(q.method, "/v1/sessions/ID"+q.path, q.body, asBob)
		if !(q.method == "PATCH" || q.path == "/tree" || q.path == "/token") { // those it has not even for its own
			same(q.method, "/v1/sessions/ID"+q.path, q.body, bound)
		}
	}
	for _, who := range [][]string{asBob, bound} {
		same("GET", "/v1/tools?session=ID", "", who)
		same("POST", "/v1/call", `{"tool":"n__add","session":"ID"}`, who)
	}
	for _, who := range [][]string{asBob, bound} {
		r := w.do(t, "POST", "/s/"+s.ID+"/mcp", mcp, append([]string{"Content-Type", "application/json"}, who...)...)
		ghost := w.do(t, "POST", "/s/"+unknown+"/mcp", mcp, append([]string{"Content-Type", "application/json"}, who...)...)
		hint := w.do(t, "POST", "/mcp", mcp, append([]string{"Content-Type", "application/json", "Mcp-Session-Id", s.ID}, who...)...)
		if r.status != 404 || hint.status != 404 || strings.ReplaceAll(string(r.body), s.ID, unknown) != string(ghost.body) {
			t.Errorf("MCP: %d %s, %d %s, %d", r.status, r.body, ghost.status, ghost.body, hint.status)
		}
		if r := w.do(t, "GET", "/s/"+s.ID+"/sse", "", append([]string{"Accept", "text/event-stream"}, who...)...); r.status != 404 {
			t.Errorf("events: %d %s", r.status, r.body)
		}
	}
	// Snapshots too.
	for _, ref := range []string{"base", snap.ID} {
		for _, q := range []struct{ method, path string }{{"GET", ""}, {"DELETE", ""}, {"GET", "/export"}} {
			w.refused(t, http.StatusNotFound, q.method, "/v1/snapshots/"+ref+q.path, "", asBob...)
		}
		w.refused(t, http.StatusNotFound, "POST", "/v1/sessions", `{"from":"`+ref+`"}`, asBob...)
		w.refused(t, http.StatusNotFound, "POST", "/v1/sessions/"+other.ID+"/rewind", `{"snapshot":"`+ref+`"}`, asBob...)
	}
	if list := want[api.SnapshotList](t, w, "GET", "/v1/snapshots", "", asBob...); len(list.Snapshots) != 0 {
		t.Errorf("bob lists %+v", list)
	}
	for _, query := range []string{"", "?owner=ada", "?parent=" + s.ID} {
		for _, one := range want[api.SessionList](t, w, "GET", "/v1/sessions"+query, "", asBob...).Sessions {
			if one.Owner != "bob" {
				t.Errorf("bob lists %+v", one)
			}
		}
	}

	// A viewer sees, and changes nothing.
	if list := want[api.SessionList](t, w, "GET", "/v1/sessions?owner=ada", "", asEve...); len(list.Sessions) != 1 || list.Sessions[0].ID != s.ID {
		t.Errorf("a viewer lists %+v", list)
	}
	for _, q := range sessionRoutes {
		r := w.ask(t, q.method, "/v1/sessions/"+s.ID+q.path, q.body, asEve...)
		allowed := q.method == "GET" && q.path != "/trajectory"
		if status := r.status; status == http.StatusForbidden == allowed || allowed && status != http.StatusOK {
			t.Errorf("a viewer: %s %s: status %d %s", q.method, q.path, status, r.body)
		}
	}
	w.refused(t, http.StatusForbidden, "GET", "/v1/snapshots/base/export", "", asEve...)
	w.refused(t, http.StatusForbidden, "DELETE", "/v1/snapshots/base", "", asEve...)
	w.refused(t, http.StatusForbidden, "POST", "/v1/sessions", `{"from":"base"}`, asEve...)
	if got := want[api.Snapshot](t, w, "GET", "/v1/snapshots/base", "", asEve...); got.ID != snap.ID {
		t.Errorf("a viewer gets %+v", got)
	}

	// An operator does all of it; what is forked stays the owner's.
	f := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", "", asOps...)
	if f.Sessions[0].Owner != "ada" || w.tool(t, f.Sessions[0].ID, "show", asAda...) != "1" {
		t.Errorf("an operator forked %+v", f)
	}
	// Two owners may use one name, and then it says so to who sees both.
	want[api.Snapshot](t, w, "POST", "/v1/sessions/"+other.ID+"/snapshots", `{"name":"base"}`, asBob...)
	w.refused(t, http.StatusConflict, "GET", "/v1/snapshots/base", "", asOps...)
	if got := want[api.Snapshot](t, w, "GET", "/v1/snapshots/base", "", asAda...); got.ID != snap.ID {
		t.Errorf("ada gets %+v", got)
	}
	w.gone(t, "/v1/sessions/"+s.ID, asOps...)
	if e := w.refused(t, http.StatusGone, "POST", "/v1/sessions/"+s.ID+"/forks", "", asAda...); !strings.Contains(e.Message, "closed") {
		t.Errorf("its owner is told %+v", e)
	}
	same("POST", "/v1/sessions/ID/forks", "", asBob) // also when it is closed
}

// TestSessionToken checks what a caller with a session's token may do.
func TestSessionToken(t *testing.T) {
	t.Parallel()
	for name, yaml := range map[string]string{"named": teamYAML, "open": ""} {
		t.Run(name, func(t *testing.T) {
			w := openWorlds(t, yaml)
			var owner []string
			if yaml != "" {
				owner = asAda
			}
			s := w.open(t, `{}`, owner...)
			who := bearer(s.Token)
			w.tool(t, s.ID, "add", owner...)
			// Everything bare is about its session.
			if got := w.tool(t, "", "add", who...) + w.tool(t, s.ID, "show", who...); got != "22" {
				t.Errorf("counted %s", got)
			}
			for _, path := range []string{"/mcp/n", "/s/" + s.ID + "/mcp/n", "/streamable-http/n"} {
				c := w.dial(t, path, `{}`, who...)
				if got := resultText(t, c.ask("tools/call", `{"name":"show"}`)); got != "2" {
					t.Errorf("%s: %s", path, got)
				}
				m := w.modern(t, path, `{}`, who...)
				if got := resultText(t, m.request("tools/call", "show", `{"name":"show"}`).answer()); got != "2" {
					t.Errorf("%s, stateless: %s", path, got)
				}
			}
			events, post := openEvents(t, w.world, "/sse/n", who...)
			w.do(t, "POST", post, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`, append([]string{"Content-Type", "application/json"}, who...)...)
			events.next()
			w.do(t, "POST", post, `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"show"}}`, append([]string{"Content-Type", "application/json"}, who...)...)
			if got := resultText(t, events.next()); got != "2" {
				t.Errorf("events: %s", got)
			}
			if list := want[api.ServerList](t, w, "GET", "/v1/servers", "", who...); len(list.Servers) != 1 {
				t.Errorf("servers %+v", list)
			}
			if list := want[api.ToolList](t, w, "GET", "/v1/tools", "", who...); len(list.Tools) != 3 {
				t.Errorf("tools %+v", list)
			}
			want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "", who...)
			snap := want[api.Snapshot](t, w, "POST", "/v1/sessions/"+s.ID+"/snapshots", "", who...)
			w.tool(t, "", "add", who...)
			want[api.Session](t, w, "POST", "/v1/sessions/"+s.ID+"/rewind", `{"snapshot":"`+snap.ID+`"}`, who...)
			if got := w.tool(t, "", "show", who...); got != "2" {
				t.Errorf("after its rewind: %s", got)
			}
			if calls := want[api.CallList](t, w, "GET", "/v1/sessions/"+s.ID+"/calls", "", who...); len(calls.Calls) == 0 {
				t.Error("it sees no calls")
			}
			if len(w.steps(t, s.ID, who...)) == 0 {
				t.Error("it sees no trajectory")
			}
			f := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", "", who...)
			child := f.Sessions[0]
			if child.Owner != s.Owner || w.tool(t, "", "show", bearer(child.Token)...) != "2" || w.tool(t, child.ID, "add", owner...) != "3" {
				t.Errorf("its fork: %+v", child)
			}
			if list := want[api.SessionList](t, w, "GET", "/v1/sessions/"+s.ID+"/forks", "", who...); len(list.Sessions) != 1 {
				t.Errorf("its forks: %+v", list)
			}
			// The child is another session.
			w.refused(t, http.StatusNotFound, "GET", "/v1/sessions/"+child.ID, "", who...)
			w.refused(t, http.StatusNotFound, "POST", "/v1/call", `{"tool":"n__show","session":"`+child.ID+`"}`, who...)
			w.refused(t, http.StatusNotFound, "DELETE", "/v1/sessions/"+s.ID, "", bearer(child.Token)...)

			// Nothing else.
			for _, q := range []struct{ method, path string }{
				{"POST", "/v1/sessions"}, {"GET", "/v1/sessions"}, {"PATCH", "/v1/sessions/" + s.ID}, {"GET", "/v1/sessions/" + s.ID + "/tree"},
				{"GET", "/v1/snapshots"}, {"GET", "/v1/snapshots/" + snap.ID}, {"DELETE", "/v1/snapshots/" + snap.ID}, {"GET", "/v1/snapshots/" + snap.ID + "/export"}, {"POST", "/v1/snapshots/import"},
				{"GET", "/v1/calls"}, {"GET", "/v1/calls/x"}, {"POST", "/v1/calls/x/replay"}, {"GET", "/v1/tokens"}, {"POST", "/v1/tokens"},
				{"GET", "/v1/status"}, {"POST", "/v1/reload"}, {"GET", "/v1/servers/n"}, {"PATCH", "/v1/servers/n"}, {"GET", "/v1/servers/n/logs"}, {"POST", "/v1/servers/n/login"},
			} {
				if e := w.refused(t, http.StatusForbidden, q.method, q.path, "", who...); e.Kind != api.KindRefused || !strings.Contains(e.Message, s.ID) {
					t.Errorf("%s %s: %+v", q.method, q.path, e)
				}
			}
			if r := w.do(t, "GET", "/metrics", "", who...); r.status != http.StatusForbidden {
				t.Errorf("metrics: status %d", r.status)
			}
			// A client of another session of its owner is not its own.
			c := w.dial(t, "/mcp", `{}`, owner...)
			if r := w.do(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, append([]string{"Content-Type", "application/json", "Accept", bothTypes, "Mcp-Session-Id", c.id}, who...)...); r.status != http.StatusNotFound {
				t.Errorf("its owner's client: status %d %s", r.status, r.body)
			}

			w.restart()
			if got := w.tool(t, "", "show", who...); got != "2" {
				t.Errorf("after a restart: %s", got)
			}
			// It closes its session, and is worth nothing then.
			streams := map[string]*stream{
				"its stream": w.dial(t, "/mcp", `{}`, who...).listen(), "its owner's stream": w.dial(t, "/s/"+s.ID+"/mcp", `{}`, owner...).listen(),
				"its subscription": w.modern(t, "/mcp", `{}`, who...).request("subscriptions/listen", "", `{"notifications":{"toolsListChanged":true}}`).stream,
			}
			streams["its events"], _ = openEvents(t, w.world, "/sse", who...)
			w.gone(t, "/v1/sessions/"+s.ID, who...)
			for what, stream := range streams {
				err := error(nil)
				for err == nil {
					_, err = stream.tryNext()
				}
				if errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s does not end with the session", what)
				}
			}
			for _, path := range []string{"/v1/tools", "/v1/sessions/" + s.ID, "/mcp"} {
				r := w.do(t, "GET", path, "", who...)
				if r.status != http.StatusUnauthorized || !strings.Contains(string(r.body), "session") || r.header.Get("WWW-Authenticate") == "" {
					t.Errorf("%s after its end: status %d %s", path, r.status, r.body)
				}
			}
			if got := w.tool(t, child.ID, "show", bearer(child.Token)...); got != "3" {
				t.Errorf("the child after its parent's end: %s", got)
			}
			if log := w.log.String(); strings.Contains(log, s.Token) || strings.Contains(log, child.Token) {
				t.Error("a session's token is in the log")
			}
		})
	}
}
