package gateway_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// callAt calls a tool of the server n at an endpoint, without a connection.
func (w *worlds) callAt(t *testing.T, path, tool string, who ...string) *reply {
	t.Helper()
	return w.do(t, "POST", path, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+tool+`"}}`, append([]string{"Content-Type", "application/json"}, who...)...)
}

// TestSessionsByName finds durable sessions by their names wherever one can be named.
func TestSessionsByName(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	count := func(want, path string, who ...string) {
		t.Helper()
		if r := w.callAt(t, path, "n__add", who...); r.status != http.StatusOK || resultText(t, r.answer()) != want {
			t.Errorf("%s: %d %s, want %s", path, r.status, r.body, want)
		}
	}
	count("1", "/mcp?session=work", asAda...)
	count("2", "/s/work/mcp", asAda...)
	count("1", "/mcp?session=work", asBob...)
	count("1", "/mcp", asAda...)
	count("2", "/mcp?session=default", asAda...)
	count("3", "/s/default/mcp", asAda...)
	if got := w.tool(t, "work", "show", asAda...); got != "2" {
		t.Errorf("/v1/call in work shows %s", got)
	}
	work := want[api.Session](t, w, "GET", "/v1/sessions/work", "", asAda...)
	own := want[api.Session](t, w, "GET", "/v1/sessions/default", "", asAda...)
	if work.Name != "work" || work.Kind != api.SessionNamed || work.Owner != "ada" || own.Name != "default" || own.Kind != api.SessionDefault {
		t.Errorf("work is %+v, the default session %+v", work, own)
	}
	names := map[string]string{}
	for _, s := range want[api.SessionList](t, w, "GET", "/v1/sessions", "", asAda...).Sessions {
		names[s.ID] = s.Name
	}
	if len(names) != 2 || names[work.ID] != "work" || names[own.ID] != "default" {
		t.Errorf("listed are %v", names)
	}
	if got := want[api.CallList](t, w, "GET", "/v1/calls?session=work", "", asAda...); len(got.Calls) != 3 {
		t.Errorf("%d calls were made in work", len(got.Calls))
	}
	fork := want[api.Forks](t, w, "POST", "/v1/sessions/work/forks", `{}`, asAda...)
	if fork.Parent != work.ID || w.tool(t, fork.Sessions[0].ID, "show", asAda...) != "2" || fork.Sessions[0].Name != "" {
		t.Errorf("the fork is %+v", fork)
	}
	want[api.Snapshot](t, w, "POST", "/v1/sessions/work/snapshots", `{}`, asAda...)
	count("3", "/s/work/mcp", asAda...)
	want[api.Session](t, w, "POST", "/v1/sessions/work/rewind", `{}`, asAda...)
	count("3", "/s/work/mcp", asAda...)

	// An operator means its own first, then the one there is, and never one of several
	// nor the default session of another.
	for _, name := range []string{"work", "default"} {
		e := w.refused(t, http.StatusConflict, "GET", "/v1/sessions/"+name, "", asOps...)
		if !strings.Contains(e.Message, "ambiguous") || name == "work" && (!strings.Contains(e.Message, work.ID+" of ada") || !strings.Contains(e.Message, " of bob")) {
			t.Errorf("an operator is told of %s: %s", name, e.Message)
		}
	}
	if r := w.callAt(t, "/s/work/mcp", "n__add", asOps...); r.status != http.StatusConflict {
		t.Errorf("an operator at /s/work/mcp: %d %s", r.status, r.body)
	}
	w.gone(t, "/v1/sessions/work", asBob...)
	if got := want[api.Session](t, w, "GET", "/v1/sessions/work", "", asOps...); got.ID != work.ID {
		t.Errorf("an operator finds %+v", got)
	}
	count("1", "/mcp?session=work", asOps...)
	if got := want[api.Session](t, w, "GET", "/v1/sessions/work", "", asOps...); got.Owner != "ops" {
		t.Errorf("an operator with one of that name finds %+v", got)
	}
	for _, who := range [][]string{asBob, bearer(fork.Sessions[0].Token)} {
		w.refused(t, http.StatusNotFound, "GET", "/v1/sessions/work", "", who...)
		if r := w.callAt(t, "/s/work/mcp", "n__add", who...); r.status != http.StatusNotFound {
			t.Errorf("another at /s/work/mcp: %d %s", r.status, r.body)
		}
	}
	w.gone(t, "/v1/sessions/work", asAda...)
	w.refused(t, http.StatusNotFound, "GET", "/v1/sessions/work", "", asAda...)
	count("1", "/mcp?session=work", asAda...)
}

// TestQueriesOfEndpoints has mistakes in the URL of an endpoint refused, and what others
// may have added let through.
func TestQueriesOfEndpoints(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	for query, want := range map[string]string{
		"session=":                  "must be one name",
		"session=work&session=play": "must be one name",
		"session=ses_work":          "",
		"session=a%2Fb":             "must be a name",
		"session=x;y=1":             "can't be read",
		"sesion=work":               "it is called session",
		"Session=work":              "it is called session",
		"veiw=search":               "it is called view",
		"error=protocol":            "it is called errors",
	} {
		r := w.callAt(t, "/mcp?"+query, "n__show")
		if status := map[bool]int{true: http.StatusBadRequest, false: http.StatusNotFound}[want != ""]; r.status != status || !strings.Contains(string(r.body), want) {
			t.Errorf("?%s: %d %s", query, r.status, r.body)
		}
	}
	if r := w.callAt(t, "/s/default/mcp?session=work", "n__show"); r.status != http.StatusBadRequest {
		t.Errorf("two sessions in one URL: %d %s", r.status, r.body)
	}
	for _, query := range []string{"", "api_key=x", "profile=a&config=b", "version=1", "sessionId=x", "session_id=x", "v=1"} {
		if r := w.callAt(t, "/mcp?"+query, "n__show"); r.status != http.StatusOK || resultText(t, r.answer()) != "0" {
			t.Errorf("?%s: %d %s", query, r.status, r.body)
		}
	}
	for _, s := range w.rg.Sessions() {
		if s.Name() != "default" {
			t.Errorf("session %s, called %q, was made", s.ID, s.Name())
		}
	}
}

// TestWhatAConnectionBorrows shows whose the memory of a connection is, and refuses in the
// words of what was asked.
func TestWhatAConnectionBorrows(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	c := w.dial(t, "/mcp", `{}`)
	c.ask("tools/call", `{"name":"n__add"}`)
	var client, own api.Session
	for _, s := range want[api.SessionList](t, w, "GET", "/v1/sessions", "").Sessions {
		if s.Kind == api.SessionClient {
			client = want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "")
		} else {
			own = s
		}
	}
	if m := client.Members; len(m) != 1 || m[0].Fork != "refuse" || m[0].Why != "it keeps its state in the default session "+own.ID {
		t.Errorf("the connection's session has %+v", m)
	}
	for what, has := range map[string]string{"forks": "fork that one", "snapshots": "snapshot that one"} {
		if e := w.refused(t, http.StatusConflict, "POST", "/v1/sessions/"+client.ID+"/"+what, "{}"); !strings.Contains(e.Message, has) {
			t.Errorf("%s: %s", what, e.Message)
		}
	}
	e := w.refused(t, http.StatusConflict, "DELETE", "/v1/sessions/default", "")
	if !strings.Contains(e.Message, "the last was heard of ") || !strings.Contains(e.Message, "a client counts for 10m") || e.RetryAfter < 1 || e.RetryAfter > 600 {
		t.Errorf("closing what a client that may have left uses: %+v", e)
	}
	listening := c.listen()
	defer listening.close()
	if e = w.refused(t, http.StatusConflict, "DELETE", "/v1/sessions/default", ""); strings.Contains(e.Message, "heard of") {
		t.Errorf("closing what a client that is there uses: %+v", e)
	}
}

// TestAnIDOfAnotherSession sends the Mcp-Session-Id of one session to the URL of another:
// it is unknown there, and no session is made.
func TestAnIDOfAnotherSession(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	work, play := w.dial(t, "/mcp?session=work", `{}`), w.dial(t, "/mcp?session=play", `{}`)
	for _, path := range []string{"/mcp?session=play", "/s/play/mcp", "/mcp?session=other"} {
		moved := &legacy{w: w.world, t: t, path: path, id: work.id}
		for what, r := range map[string]*reply{
			"a list":      moved.request("tools/list", `{}`),
			"a call":      moved.request("tools/call", `{"name":"n__add"}`),
			"a handshake": moved.post(helloAgain),
			"GET":         w.do(t, "GET", path, "", moved.headers()...),
			"DELETE":      w.do(t, "DELETE", path, "", moved.headers()...),
		} {
			if r.status != http.StatusNotFound || !strings.Contains(string(r.body), "the URL names another") {
				t.Errorf("%s at %s: %d %s", what, path, r.status, r.body)
			}
		}
		of := want[api.Session](t, w, "GET", "/v1/sessions/work", "")
		if r := w.callAt(t, path, "n__add", "Mcp-Session-Id", of.ID); r.status != http.StatusBadRequest || !strings.Contains(string(r.body), of.ID) {
			t.Errorf("the id of a session at %s: %d %s", path, r.status, r.body)
		}
	}
	w.refused(t, http.StatusNotFound, "GET", "/v1/sessions/other", "")
	for _, c := range []*legacy{work, play} {
		if got := resultText(t, c.ask("tools/call", `{"name":"n__add"}`)); got != "1" {
			t.Errorf("at %s the count is %s", c.path, got)
		}
	}
	by := want[api.Session](t, w, "GET", "/v1/sessions/work", "")
	for _, path := range []string{"/mcp?session=" + by.ID, "/s/work/mcp"} { // the same session by another name
		same := &legacy{w: w.world, t: t, path: path, id: work.id}
		if r := same.request("tools/list", `{}`); r.status != http.StatusOK {
			t.Errorf("%s: %d %s", path, r.status, r.body)
		}
	}
	if r := w.callAt(t, "/mcp?session="+by.ID, "n__show"); r.status != http.StatusOK || resultText(t, r.answer()) != "1" {
		t.Errorf("?session= with an id: %d %s", r.status, r.body)
	}
}
