package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
)

func TestSessionLife(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	s := w.open(t, `{"labels":{"run":"7","a/b.c-d":"x y"},"ttl":"2h","idle":"30m"}`)
	if !strings.HasPrefix(s.ID, "ses_") || s.Kind != api.SessionOpened || s.Owner != "" || s.Labels["run"] != "7" || s.Idle != "30m0s" ||
		s.Expires.Before(time.Now().Add(time.Hour)) || s.Depth != 0 || s.Token == "" || s.URL != w.ts.URL+"/s/"+s.ID+"/mcp" || len(s.Members) != 1 || s.Members[0].Server != "n" {
		t.Errorf("opened %+v", s)
	}
	// Its world is its own, at its URL and by the API.
	if got := w.tool(t, s.ID, "add") + w.tool(t, s.ID, "add") + w.tool(t, "", "add"); got != "121" {
		t.Errorf("counted %s", got)
	}
	c := w.dial(t, "/s/"+s.ID+"/mcp/n", `{}`)
	if got := resultText(t, c.ask("tools/call", `{"name":"add"}`)); got != "3" {
		t.Errorf("at its URL: %s", got)
	}
	tools := want[api.ToolList](t, w, "GET", "/v1/tools?session="+s.ID, "")
	if len(tools.Tools) != 3 || tools.Tools[0].Server != "n" {
		t.Errorf("tools %+v", tools)
	}
	got := want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "")
	if got.Calls != 3 || got.URL != s.URL || len(got.Members) != 1 || !got.Members[0].Instance {
		t.Errorf("got %+v", got)
	}
	got = want[api.Session](t, w, "PATCH", "/v1/sessions/"+s.ID, `{"labels":{"run":"8"},"ttl":"0s","idle":"1h"}`)
	if len(got.Labels) != 1 || got.Labels["run"] != "8" || !got.Expires.IsZero() || got.Idle != "1h0m0s" {
		t.Errorf("patched %+v", got)
	}
	got = want[api.Session](t, w, "PATCH", "/v1/sessions/"+s.ID, `{}`)
	if got.Labels["run"] != "8" {
		t.Errorf("patched with nothing: %+v", got)
	}
	calls := want[api.CallList](t, w, "GET", "/v1/sessions/"+s.ID+"/calls?limit=2", "")
	if len(calls.Calls) != 2 || calls.Calls[0].Session != s.ID || calls.Next == "" {
		t.Errorf("calls %+v", calls)
	}
	rest := want[api.CallList](t, w, "GET", "/v1/sessions/"+s.ID+"/calls?before="+calls.Next, "")
	if len(rest.Calls) == 0 || rest.Calls[0].ID >= calls.Calls[1].ID {
		t.Errorf("the next page: %+v", rest)
	}
	w.restart()
	if got := w.tool(t, s.ID, "show"); got != "3" {
		t.Errorf("after a restart: %s", got)
	}

	w.gone(t, "/v1/sessions/"+s.ID)
	w.gone(t, "/v1/sessions/"+s.ID)
	was := want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "")
	if was.Closed.IsZero() || was.URL != "" || was.Labels["run"] != "8" {
		t.Errorf("closed: %+v", was)
	}
	for method, path := range map[string]string{"POST": "/forks", "PATCH": ""} {
		if e := w.refused(t, http.StatusGone, method, "/v1/sessions/"+s.ID+path, `{}`); e.Kind != api.KindInvalid || !strings.Contains(e.Message, "closed at") {
			t.Errorf("%s: %+v", method, e)
		}
	}
	w.refused(t, http.StatusGone, "POST", "/v1/call", `{"tool":"n__add","session":"`+s.ID+`"}`)
	w.refused(t, http.StatusGone, "GET", "/v1/tools?session="+s.ID, "")
	if r := w.do(t, "POST", "/s/"+s.ID+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Content-Type", "application/json"); r.status != http.StatusGone {
		t.Errorf("at its URL: status %d %s", r.status, r.body)
	}
	for _, path := range []string{"", "/forks", "/snapshots", "/calls", "/trajectory", "/tree"} {
		w.refused(t, http.StatusNotFound, "GET", "/v1/sessions/ses_nosuch"+path, "")
	}
	w.refused(t, http.StatusNotFound, "DELETE", "/v1/sessions/ses_nosuch", "")
	// The rest of it can still be read.
	if steps := w.steps(t, s.ID); len(steps) < 5 || steps[len(steps)-1].Type != "close" {
		t.Errorf("trajectory %+v", steps)
	}
}

func TestSessionForks(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	s := w.open(t, `{"labels":{"run":"7"}}`)
	w.tool(t, s.ID, "add")
	f := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", `{"count":3,"labels":{"arm":"x"},"idle":"5m"}`)
	if f.Parent != s.ID || len(f.Sessions) != 3 || !strings.HasPrefix(f.Call, "call_") || f.Paused < 0 {
		t.Fatalf("forked %+v", f)
	}
	tokens := map[string]bool{s.Token: true}
	for i, c := range f.Sessions {
		if c.Parent != s.ID || c.Depth != 1 || c.Labels["arm"] != "x" || c.Labels["run"] != "7" || c.URL != w.ts.URL+"/s/"+c.ID+"/mcp" || c.Idle != "5m0s" || tokens[c.Token] {
			t.Errorf("child %d: %+v", i, c)
		}
		tokens[c.Token] = true
		for range i {
			w.tool(t, c.ID, "add")
		}
	}
	for i, c := range f.Sessions {
		if got := w.tool(t, c.ID, "show"); got != fmt.Sprint(1+i) {
			t.Errorf("child %d has %s", i, got)
		}
	}
	if got := w.tool(t, s.ID, "show"); got != "1" {
		t.Errorf("the parent has %s", got)
	}
	// A fork of a fork, without a body.
	g := want[api.Forks](t, w, "POST", "/v1/sessions/"+f.Sessions[2].ID+"/forks", "")
	if len(g.Sessions) != 1 || g.Sessions[0].Depth != 2 || w.tool(t, g.Sessions[0].ID, "show") != "3" {
		t.Errorf("a fork's fork: %+v", g)
	}
	w.gone(t, "/v1/sessions/"+f.Sessions[0].ID)
	if list := want[api.SessionList](t, w, "GET", "/v1/sessions/"+s.ID+"/forks", ""); len(list.Sessions) != 2 {
		t.Errorf("open children: %+v", list)
	}
	if list := want[api.SessionList](t, w, "GET", "/v1/sessions/"+s.ID+"/forks?closed=1", ""); len(list.Sessions) != 3 {
		t.Errorf("children: %+v", list)
	}
	tree := want[api.Tree](t, w, "GET", "/v1/sessions/"+g.Sessions[0].ID+"/tree", "")
	if tree.Session.ID != s.ID || tree.Session.URL == "" || len(tree.Children) != 3 || len(tree.Children[2].Children)+len(tree.Children[1].Children)+len(tree.Children[0].Children) != 1 {
		t.Errorf("tree %+v", tree)
	}
	for _, body := range []string{`{"count":-1}`, `{"count":10001}`, `{"count":1.5}`, `{"count":"2"}`, `{"cuont":2}`, `{"labels":{"a b":""}}`, `{"ttl":"soon"}`, `{} {}`} {
		w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions/"+s.ID+"/forks", body)
	}
	// A trajectory goes back to the root.
	steps := w.steps(t, g.Sessions[0].ID)
	var line []string
	for _, s := range steps {
		if s.Type == "session" {
			line = append(line, s.Session)
		}
	}
	if !slices.Equal(line, []string{s.ID, f.Sessions[2].ID, g.Sessions[0].ID}) {
		t.Errorf("the line is %q in %+v", line, steps)
	}
}

func TestSessionChecks(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	for _, tt := range []struct{ body, say string }{
		{`{"ttl":"2"}`, "ttl"},
		{`{"ttl":"-1s"}`, "ttl"},
		{`{"idle":"1d"}`, "idle"},
		{`{"wait":"x"}`, "wait"},
		{`{"labels":{"":"x"}}`, "labels"},
		{`{"labels":{"ä":"x"}}`, "labels"},
		{`{"labels":{"` + strings.Repeat("k", 129) + `":"x"}}`, "labels"},
		{`{"labels":{"k":"` + strings.Repeat("v", 1025) + `"}}`, "labels"},
		{`{"labels":{"k":"a\nb"}}`, "labels"},
		{`{"labels":{` + strings.Join(many, ",") + `}}`, "labels"},
		{`{"servers":[]}`, "servers"},
		{`{"servers":["nosuch"]}`, "nosuch"},
		{`{"from":"nosuch"}`, "nosuch"},
		{`{"autosnapshot":{"every":-1}}`, "autosnapshot.every"},
		{`{"autosnapshot":{"keep":1001}}`, "autosnapshot.keep"},
		{`{"autosnapshot":{"before":["["]}}`, "autosnapshot.before"},
		{`{"autosnapshot":{"befor":[]}}`, "befor"},
		{`{"label":{}}`, "label"},
		{`[]`, "body"},
		{`{`, "body"},
		{`null null`, "body"},
	} {
		r := w.ask(t, "POST", "/v1/sessions", tt.body)
		if (r.status != http.StatusBadRequest && r.status != http.StatusNotFound) || !strings.Contains(string(r.body), tt.say) {
			t.Errorf("%s: status %d %s", tt.body, r.status, r.body)
		}
	}
	s := w.open(t, `{"labels":{"k":"`+strings.Repeat("v", 1024)+`"},"servers":["n"],"eager":true,"wait":"0s","autosnapshot":{"every":2,"keep":3}}`)
	for _, body := range []string{`{"ttl":""}`, `{"idle":"x"}`, `{"labels":{"a b":"c"}}`, ``, `{"owner":"x"}`} {
		w.refused(t, http.StatusBadRequest, "PATCH", "/v1/sessions/"+s.ID, body)
	}
	for _, name := range []string{"-a", ".a", "a b", "a/b", "snp_a", strings.Repeat("n", 65), "ä"} {
		w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions/"+s.ID+"/snapshots", fmt.Sprintf(`{"name":%q}`, name))
		if r := w.do(t, "POST", "/v1/snapshots/import?name="+strings.ReplaceAll(name, " ", "%20"), "x"); r.status != http.StatusBadRequest {
			t.Errorf("import as %q: status %d %s", name, r.status, r.body)
		}
	}
	if list := want[api.SessionList](t, w, "GET", "/v1/sessions", ""); len(list.Sessions) != 1 {
		t.Errorf("what was refused left something: %+v", list)
	}
}

func TestSessionPages(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	var ids []string
	for i := range 7 {
		s := w.open(t, fmt.Sprintf(`{"labels":{"odd":"%v","i":"%d"}}`, i%2 == 1, i))
		ids = append(ids, s.ID)
	}
	slices.Reverse(ids) // newest first
	for _, tt := range []struct {
		query string
		want  []string
	}{
		{"limit=3", ids},
		{"limit=7", ids},
		{"limit=1", ids},
		{"limit=2&label=odd=true", []string{ids[1], ids[3], ids[5]}},
		{"label=odd=true&label=i=3", []string{ids[3]}},
		{"label=odd=maybe", nil},
		{"parent=" + ids[0], nil},
		{"owner=nobody", nil},
	} {
		var got []string
		after := ""
		for range 10 {
			list := want[api.SessionList](t, w, "GET", "/v1/sessions?"+tt.query+after, "")
			for _, s := range list.Sessions {
				got = append(got, s.ID)
			}
			if list.Next == "" {
				break
			}
			if len(got) == len(tt.want) {
				t.Errorf("%s: there is a page after the last session", tt.query)
			}
			after = "&after=" + list.Next
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.query, got, tt.want)
		}
	}
	for _, path := range []string{"/v1/sessions?", "/v1/sessions?label=a=b&", "/v1/sessions/" + ids[0] + "/forks?", "/v1/snapshots?"} {
		if e := w.refused(t, http.StatusBadRequest, "GET", path+"after=ses_nosuch", ""); e.Kind != api.KindInvalid || e.Retryable {
			t.Errorf("%s after one that is none: %+v", path, e)
		}
	}
}

// TestSessionServers checks that a session has the servers that it was asked to
// have, at every door.
func TestSessionServers(t *testing.T) {
	t.Parallel()
	w := open(t, "default_view: m\nservers:\n  n: {builtin: memory, scope: session}\n  m: {builtin: memory, scope: session}\n", map[string]builtin.Kind{"memory": remembering()})
	var s api.OpenedSession
	control(t, w, "POST", "/v1/sessions", `{"servers":["n"]}`, &s)
	if len(s.Members) != 1 || s.Members[0].Server != "n" {
		t.Errorf("members %+v", s.Members)
	}
	who := bearer(s.Token)
	for _, path := range []string{"/s/" + s.ID + "/mcp", "/mcp"} {
		for _, tool := range names(tools(t, w, path, who...)) {
			if !strings.HasPrefix(tool, "n__") {
				t.Errorf("%s has %s", path, tool)
			}
		}
	}
	for _, path := range []string{"/s/" + s.ID + "/mcp/m", "/mcp/m"} {
		if r := w.do(t, "POST", path, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, append([]string{"Content-Type", "application/json"}, who...)...); r.status != http.StatusNotFound {
			t.Errorf("%s: status %d %s", path, r.status, r.body)
		}
	}
	// Also where a header names the session, and for its owner, who has the others
	// elsewhere.
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
	for path, status := range map[string]int{"/mcp/m": http.StatusNotFound, "/mcp/n": http.StatusOK, "/s/" + s.ID + "/mcp/m": http.StatusNotFound} {
		if r := w.do(t, "POST", path, list, "Content-Type", "application/json", "Mcp-Session-Id", s.ID); r.status != status {
			t.Errorf("%s in it by a header: status %d %s", path, r.status, r.body)
		}
	}
	if r := w.do(t, "POST", "/mcp/m", list, "Content-Type", "application/json"); r.status != http.StatusOK {
		t.Errorf("outside of it: status %d %s", r.status, r.body)
	}
	refusal(t, w, "GET", "/v1/tools?server=m&session="+s.ID, "", http.StatusNotFound, api.KindInvalid)
	refusal(t, w, "POST", "/v1/call", `{"tool":"m__add","session":"`+s.ID+`"}`, http.StatusBadRequest, api.KindInvalid)
	r := w.do(t, "GET", "/v1/servers", "", who...)
	if strings.Contains(string(r.body), `"id":"m"`) || !strings.Contains(string(r.body), `"id":"n"`) {
		t.Errorf("its servers: %s", r.body)
	}
}

// TestSessionKeepsItsServers checks that a session which is named by a header has
// its own servers, and that they are gone with those of the config.
func TestSessionKeepsItsServers(t *testing.T) {
	t.Parallel()
	const with, without = "servers:\n  n: {builtin: memory, scope: session}\n  m: {builtin: memory, scope: session}\n", "servers:\n  n: {builtin: memory, scope: session}\n"
	w := open(t, with, map[string]builtin.Kind{"memory": remembering()})
	var s api.OpenedSession
	control(t, w, "POST", "/v1/sessions", `{}`, &s)
	list := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add"}}`
	add := func(want string) {
		t.Helper()
		if r := w.do(t, "POST", "/mcp/m", list, "Content-Type", "application/json", "Mcp-Session-Id", s.ID); r.status != http.StatusOK || resultText(t, r.answer()) != want {
			t.Errorf("in it: status %d %s", r.status, r.body)
		}
	}
	w.reload(t, strings.Replace(with, "m: {", "m: {tools: {rename: {add: plus}}, ", 1))
	add("1")
	w.reload(t, without)
	if r := w.do(t, "POST", "/mcp/m", list, "Content-Type", "application/json", "Mcp-Session-Id", s.ID); r.status != http.StatusNotFound || !strings.Contains(string(r.body), "removed from the config") {
		t.Errorf("in it, without the server: status %d %s", r.status, r.body)
	}
	w.reload(t, with)
	add("2")
	w.reload(t, without)
	for _, other := range []string{"", "ses_000000000000"} {
		if r := w.do(t, "POST", "/mcp/m", list, "Content-Type", "application/json", "Mcp-Session-Id", other); r.status != http.StatusNotFound {
			t.Errorf("in %q: status %d %s", other, r.status, r.body)
		}
	}
}

// The owner of a session that is not served hears why, an operator also what to
// put back, and no other principal that there is one.
func TestUnservedSession(t *testing.T) {
	w := open(t, twoPeople+servers("a", echoServer(t, true, "one").URL))
	var opened api.OpenedSession
	if r := w.do(t, "POST", "/v1/sessions", "{}", append([]string{"Content-Type", "application/json"}, asAda...)...); json.Unmarshal(r.body, &opened) != nil || opened.ID == "" {
		t.Fatalf("status %d %s", r.status, r.body)
	}
	home := filepath.Join(w.dir, "states", "sessions", opened.ID)
	if err := os.RemoveAll(home); err != nil {
		t.Fatal(err)
	}
	w.restart()
	for _, tt := range []struct {
		who  []string
		want int
		home bool
	}{
		{asAda, http.StatusConflict, false}, {asBob, http.StatusNotFound, false}, {[]string{"Authorization", "Bearer " + operator}, http.StatusConflict, true},
	} {
		for _, path := range []string{"/v1/sessions/" + opened.ID, "/v1/sessions/" + opened.ID + "/calls"} {
			r := w.do(t, "GET", path, "", tt.who...)
			if r.status != tt.want || strings.Contains(string(r.body), home) != tt.home || (tt.want == http.StatusConflict) != strings.Contains(string(r.body), "its folder is gone") {
				t.Errorf("%s as %v: status %d %s", path, tt.who, r.status, r.body)
			}
		}
	}
}
