package gateway_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
)

const gameYAML = "environments:\n  game: {servers: [n], labels: {run: a}}\n  all: {}\n"

// episode begins one with headers.
func (w *worlds) episode(t *testing.T, environment string, headers ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	h := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		h.Add(headers[i], headers[i+1])
	}
	c, r, err := websocket.Dial(t.Context(), w.at("/openenv/"+environment+"/ws"), &websocket.DialOptions{HTTPHeader: h, Host: h.Get("Host"), HTTPClient: w.http})
	if c != nil {
		t.Cleanup(func() { c.CloseNow() })
	}
	return c, r, err
}

// told sends a message of an episode and returns the answer.
func told(t *testing.T, c *websocket.Conn, message string) string {
	t.Helper()
	if err := c.Write(t.Context(), websocket.MessageText, []byte(message)); err != nil {
		t.Fatal(err)
	}
	return hears(t, c)
}

func hears(t *testing.T, c *websocket.Conn) string {
	t.Helper()
	_, b, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func stepOf(tool string) string {
	return `{"type":"step","data":{"type":"call_tool","tool_name":"` + tool + `","arguments":{}}}`
}

// TestOpenEnvAccess comes in by all ways that there are, and by those that there are not.
func TestOpenEnvAccess(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML+gameYAML+"cors: {origins: [\"https://page.example\"]}\n")
	basic := func(password string) []string {
		return []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte("any:"+password))}
	}
	own := w.open(t, `{}`, asAda...)
	with := func(headers []string, more ...string) []string { return append(more, headers...) }
	for _, tt := range []struct {
		what    string
		headers []string
		status  int
	}{
		{"a token", asAda, 200},
		{"a password", basic("ada-ada-ada-ada-ada"), 200},
		{"nothing", nil, 401},
		{"a wrong password", basic("eve"), 401},
		{"a page that is listed, with a token", with(asAda, "Origin", "https://page.example"), 200},
		{"another page, with a token", with(asAda, "Origin", "https://evil.example"), 403},
		{"a page that is listed, with a password, which browsers send by themselves", with(basic("ada-ada-ada-ada-ada"), "Origin", "https://page.example"), 403},
		{"another name of this machine", with(asAda, "Host", "evil.example"), 403},
	} {
		if r := w.do(t, "GET", "/openenv/game/metadata", "", tt.headers...); r.status != tt.status {
			t.Errorf("%s: status %d %s, want %d", tt.what, r.status, r.body, tt.status)
		}
		c, r, err := w.episode(t, "game", tt.headers...)
		if tt.status == 200 {
			if err != nil {
				t.Errorf("%s: %v", tt.what, err)
				continue
			}
			told(t, c, `{"type":"reset"}`)
			testkit.Has(t, tt.what, told(t, c, stepOf("add")), `"data":"1"`)
		} else if err == nil || r.StatusCode != tt.status {
			t.Errorf("%s: the WebSocket gives %v, want %d", tt.what, err, tt.status)
		}
	}
	// The token of a session opens no others.
	if r := w.do(t, "POST", "/openenv/game/reset", "", bearer(own.Token)...); r.status != http.StatusForbidden {
		t.Errorf("a session's token: status %d %s", r.status, r.body)
	}
	if log := w.log.String(); strings.Contains(log, "ada-ada-ada-ada-ada") {
		t.Error("a token is in the log")
	}
}

// TestOpenEnvRules lets an agent have what its principal has.
func TestOpenEnvRules(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML+"  rules:\n    - {principals: [ada], servers: [n], tools: [n__add]}\n    - {principals: [ops]}\n"+gameYAML)
	c, _, err := w.episode(t, "game", asAda...)
	if err != nil {
		t.Fatal(err)
	}
	told(t, c, `{"type":"reset"}`)
	tools := told(t, c, `{"type":"step","data":{"type":"list_tools"}}`)
	testkit.Has(t, "the tools", tools, `"name":"add"`)
	testkit.Lacks(t, "the tools", tools, `"name":"show"`)
	for _, tool := range []string{"show", "invented", "n__add"} {
		testkit.Has(t, tool, told(t, c, stepOf(tool)), `"error_type":"tool_not_found","message":"unknown tool: `+tool+`"`)
	}
	testkit.Has(t, "add", told(t, c, stepOf("add")), `"data":"1"`)
	all, _, err := w.episode(t, "all", asAda...)
	if err != nil {
		t.Fatal(err)
	}
	told(t, all, `{"type":"reset"}`)
	testkit.Has(t, "the merged view", told(t, all, stepOf("n__add")), `"data":"1"`)
	testkit.Has(t, "the merged view", told(t, all, stepOf("n__show")), `"error_type":"tool_not_found"`)
	if n := w.openCount(t, asAda...); n != 2 {
		t.Errorf("%d sessions are open", n)
	}
	list := want[api.SessionList](t, w, "GET", "/v1/sessions?label=openenv%3Dgame&label=run%3Da", "", asAda...)
	if len(list.Sessions) != 1 || list.Sessions[0].Labels["openenv_episode"] == "" {
		t.Errorf("listed: %+v", list)
	}
	// The journal has the calls and the tools, as of any session.
	types := ""
	for _, step := range w.steps(t, list.Sessions[0].ID, asAda...) {
		types += step.Type + " "
	}
	if types != "session tools call call call call " && types != "session tools call " {
		t.Errorf("the trajectory is %s", types)
	}
}

// TestOpenEnvTemplate begins each episode as a copy of a snapshot, which may be forked as
// any session.
func TestOpenEnvTemplate(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML+"environments: {game: {template: start, servers: [n]}}\n")
	c, _, err := w.episode(t, "game", asAda...)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Has(t, "an episode without its template", told(t, c, `{"type":"reset"}`), `"code":"FACTORY_ERROR"`, "start")
	first := w.open(t, `{}`, asAda...)
	w.tool(t, first.ID, "add", asAda...)
	want[api.Snapshot](t, w, "POST", "/v1/sessions/"+first.ID+"/snapshots", `{"name":"start"}`, asAda...)
	if c, _, err = w.episode(t, "game", asAda...); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var out struct {
			Data struct{ Metadata struct{ Session string } }
		}
		if err := json.Unmarshal([]byte(told(t, c, `{"type":"reset"}`)), &out); err != nil {
			t.Fatal(err)
		}
		testkit.Has(t, "a step", told(t, c, stepOf("add")), `"data":"2"`)
		f := want[api.Forks](t, w, "POST", "/v1/sessions/"+out.Data.Metadata.Session+"/forks", "", asAda...)
		if got := w.tool(t, f.Sessions[0].ID, "add", asAda...); got != "3" {
			t.Errorf("a fork goes on with %s", got)
		}
	}
}

// TestOpenEnvEnds are the ends of an episode that its client does not make.
func TestOpenEnvEnds(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML+gameYAML)
	begin := func() (*websocket.Conn, string) {
		t.Helper()
		c, _, err := w.episode(t, "game", asAda...)
		if err != nil {
			t.Fatal(err)
		}
		var out struct{ Data struct{ Session string } }
		if err := json.Unmarshal([]byte(told(t, c, `{"type":"state"}`)), &out); err != nil || out.Data.Session == "" {
			t.Fatal(err)
		}
		return c, out.Data.Session
	}
	closed := func(what string) {
		t.Helper()
		testkit.Eventually(t, what, func() bool { return w.openCount(t, asOps...) == 0 })
	}
	c, id := begin()
	if r := w.ask(t, "DELETE", "/v1/sessions/"+id, "", asOps...); r.status != http.StatusNoContent {
		t.Fatalf("status %d %s", r.status, r.body)
	}
	testkit.Has(t, "the end of a session that an operator closes", hears(t, c), `"code":"SESSION_ERROR"`, id)
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("then %v", err)
	}
	closed("an operator closed it")

	c, _ = begin()
	c.CloseNow()
	closed("the peer vanished")

	// Others who are connected to the session don't keep it.
	c, id = begin()
	w.dial(t, "/s/"+id+"/mcp", `{}`, asAda...)
	c.Close(websocket.StatusNormalClosure, "")
	closed("the peer left, and another is connected")

	c, _ = begin()
	w.reload(t, strings.Replace(w.yaml, "name: ada, token: ada-", "name: ada, token: other-", 1))
	if _, _, err := c.Read(t.Context()); err == nil {
		t.Error("a principal whose token is gone is answered")
	}
	closed("the token was taken back")
}

// A gateway that stops closes the sessions of its episodes.
func TestOpenEnvStops(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML+gameYAML)
	c, _, err := w.episode(t, "game", asAda...)
	if err != nil {
		t.Fatal(err)
	}
	told(t, c, `{"type":"reset"}`)
	told(t, c, stepOf("add"))
	w.do(t, "POST", "/openenv/game/mcp", `{"jsonrpc":"2.0","id":1,"method":"openenv/session/create"}`, asAda...)
	if n := w.openCount(t, asAda...); n != 2 {
		t.Errorf("%d sessions are open", n)
	}
	w.restart()
	if n := w.openCount(t, asAda...); n != 0 {
		t.Errorf("%d sessions are open after the restart", n)
	}
}
