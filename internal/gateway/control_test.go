package gateway_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/testkit"
)

// control makes a control API request and decodes a good answer.
func control(t *testing.T, w *world, method, path, body string, into any) {
	t.Helper()
	r := w.do(t, method, path, body, "Content-Type", "application/json")
	if r.status != http.StatusOK || r.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s %s: status %d %s", method, path, r.status, r.body)
	}
	dec := json.NewDecoder(bytes.NewReader(r.body))
	dec.DisallowUnknownFields() // the wire types are all there is
	if err := dec.Decode(into); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, r.body)
	}
}

// refusal makes one that must fail, and checks the form of the error.
func refusal(t *testing.T, w *world, method, path, body string, status int, kind api.Kind) api.Error {
	t.Helper()
	r := w.do(t, method, path, body, "Content-Type", "application/json")
	var e api.Error
	if err := json.Unmarshal(r.body, &e); err != nil {
		t.Fatalf("%s %s: status %d, %q is no error: %v", method, path, r.status, r.body, err)
	}
	if r.status != status || e.Kind != kind || e.Message == "" {
		t.Errorf("%s %s: status %d, %+v; want %d and kind %s with a message", method, path, r.status, e, status, kind)
	}
	return e
}

func TestControlServers(t *testing.T) {
	t.Parallel()
	up := echoServer(t, false, "one")
	w := open(t, servers("a", `{title: "The A", url: "`+up.URL+`"}`, "n", "{builtin: everything, scope: session}", "gone", deadURL(t), "off", `{url: "http://127.0.0.1:1", enabled: false}`),
		map[string]builtin.Kind{"everything": factory(counting)})
	var list api.ServerList
	control(t, w, "GET", "/v1/servers", "", &list)
	var ids []string
	for _, s := range list.Servers {
		ids = append(ids, s.ID)
	}
	if !slices.Equal(ids, []string{"a", "n", "gone", "off"}) {
		t.Fatalf("listed %q", ids)
	}
	if s := list.Servers[0]; s.State != api.StateIdle || !s.Enabled || s.Overridden || s.Title != "The A" || s.Driver != "url" || s.Scope != "shared" || s.Target != up.URL {
		t.Errorf("before its first use: %+v", s)
	}
	if s := list.Servers[3]; s.State != api.StateDisabled || s.Enabled || s.Overridden || s.Reason == "" {
		t.Errorf("switched off in the config: %+v", s)
	}
	calls(t, w, "/mcp", "a__one")
	calls(t, w, "/mcp", "gone__one")
	var s api.Server
	control(t, w, "GET", "/v1/servers/a", "", &s)
	if s.State != api.StateReady || s.Protocol != legacyVersion || s.ServerName != "scripted" || s.ServerVer != "1" || s.Instances == 0 {
		t.Errorf("in use: %+v", s)
	}
	// It is tried again and again while a client is there.
	testkit.Eventually(t, "the dead one is failed, with a reason", func() bool {
		control(t, w, "GET", "/v1/servers/gone", "", &s)
		return s.State == api.StateFailed && s.Reason != ""
	})
	refusal(t, w, "GET", "/v1/servers/nosuch", "", http.StatusNotFound, api.KindInvalid)
	refusal(t, w, "PATCH", "/v1/servers/nosuch", `{"enabled":true}`, http.StatusNotFound, api.KindInvalid)
	refusal(t, w, "GET", "/v1/servers/nosuch/logs", "", http.StatusNotFound, api.KindInvalid)
}

func TestControlSwitch(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, servers("a", up.URL, "b", `{url: "`+up.URL+`", enabled: false}`))
	patch := func(id, body string) (s api.Server) {
		t.Helper()
		control(t, w, "PATCH", "/v1/servers/"+id, body, &s)
		return s
	}
	state := func(id string) (s api.Server) {
		t.Helper()
		control(t, w, "GET", "/v1/servers/"+id, "", &s)
		return s
	}
	if s := patch("a", `{"enabled":false}`); s.Enabled || !s.Overridden || s.State != api.StateDisabled || s.Reason == "" {
		t.Errorf("switched off: %+v", s)
	}
	if s := patch("b", `{"enabled":true}`); !s.Enabled || !s.Overridden {
		t.Errorf("switched on: %+v", s)
	}
	check := func(when string) {
		t.Helper()
		if a, b := state("a"), state("b"); a.Enabled || !a.Overridden || !b.Enabled || !b.Overridden {
			t.Errorf("%s: %+v, %+v", when, a, b)
		}
		if got := names(tools(t, w, "/mcp")); !slices.Equal(got, []string{"b__one"}) {
			t.Errorf("%s: listed %q", when, got)
		}
		before := len(up.of("tools/call"))
		calls(t, w, "/mcp", "a__one")
		if len(up.of("tools/call")) != before {
			t.Errorf("%s: a call reached a server that is off", when)
		}
		if r := w.do(t, "POST", "/mcp/a", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Content-Type", "application/json"); r.status != http.StatusNotFound {
			t.Errorf("%s: its own view: status %d %s", when, r.status, r.body)
		}
	}
	check("at once")
	w.restart()
	check("after a restart")
	before := len(up.of("tools/call"))
	if s := patch("a", `{"reset":true}`); !s.Enabled || s.Overridden {
		t.Errorf("reset: %+v", s)
	}
	if s := patch("b", `{"reset":true}`); s.Enabled || s.Overridden {
		t.Errorf("reset: %+v", s)
	}
	for _, m := range calls(t, w, "/mcp", "a__one") {
		if m.Result == nil {
			t.Errorf("after reset: %s", m.raw)
		}
	}
	if n := len(up.of("tools/call")) - before; n != 2 {
		t.Errorf("%d calls came, want 2", n)
	}
	w.restart()
	if s := state("a"); s.Overridden {
		t.Errorf("after reset and restart: %+v", s)
	}
	// As the config has it is no override.
	if s := patch("a", `{"enabled":true}`); s.Overridden {
		t.Errorf("switched to what the config says: %+v", s)
	}
	if s := patch("a", `{}`); !s.Enabled {
		t.Errorf("nothing changed: %+v", s)
	}
	for _, bad := range []string{``, `{`, `[]`, `{"enabled":"no"}`, `{"enable":false}`, `{"enabled":true,"reset":true}`} {
		refusal(t, w, "PATCH", "/v1/servers/a", bad, http.StatusBadRequest, api.KindInvalid)
	}
	if s := state("a"); !s.Enabled {
		t.Errorf("after bad requests: %+v", s)
	}
}

func TestControlTools(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one", "two", "hidden")
	w := open(t, servers("a", `{url: "`+up.URL+`", title: A, tools: {deny: [hidden], rename: {two: zwei}}}`, "gone", deadURL(t), "b", up.URL))
	var list api.ToolList
	control(t, w, "GET", "/v1/tools", "", &list)
	var got []string
	for _, tool := range list.Tools {
		got = append(got, tool.Server+" "+tool.Name)
	}
	if want := []string{"a a__one", "a a__zwei", "b b__one", "b b__two", "b b__hidden"}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	if tool := list.Tools[0]; tool.Description != "[A] does one" || string(tool.InputSchema) != `{"type":"object"}` {
		t.Errorf("got %+v", tool)
	}
	if len(list.Missing) != 1 || list.Missing[0].Server != "gone" || list.Missing[0].Reason == "" {
		t.Errorf("missing %+v", list.Missing)
	}
	list = api.ToolList{}
	control(t, w, "GET", "/v1/tools?server=b", "", &list)
	if len(list.Tools) != 3 || len(list.Missing) != 0 {
		t.Errorf("of one server: %+v", list)
	}
	refusal(t, w, "GET", "/v1/tools?server=nosuch", "", http.StatusNotFound, api.KindInvalid)
}

// TestControlCall checks that the result is the server's own bytes.
func TestControlCall(t *testing.T) {
	t.Parallel()
	for _, isModern := range []bool{false, true} {
		up := script(t, isModern, map[string]string{"tools/list": plainTools, "tools/call": strangeResult})
		w := open(t, servers("a", up.URL))
		r := w.do(t, "POST", "/v1/call", `{"tool":"a__echo","arguments":`+strange+`}`, "Content-Type", "application/json")
		if r.status != http.StatusOK || !bytes.Contains(r.body, []byte(strangeResult)) {
			t.Errorf("status %d\n%s, want\n%s", r.status, r.body, strangeResult)
		}
		if in := up.last(t, "tools/call"); argumentsOf(t, in) != strange {
			t.Errorf("the server got %s, want %s", in.Params, strange)
		}
		w.do(t, "POST", "/v1/call", `{"tool":"a__echo"}`, "Content-Type", "application/json")
		if in := up.last(t, "tools/call"); argumentsOf(t, in) != `{}` {
			t.Errorf("without arguments the server got %s", in.Params)
		}
	}
}

func TestControlCallFails(t *testing.T) {
	t.Parallel()
	up := script(t, true, map[string]string{"tools/list": plainTools})
	up.on("tools/call", func(w http.ResponseWriter, _ *http.Request, in received) {
		writeFailure(w, http.StatusOK, in, -32000, "it says no")
	})
	w := open(t, servers("a", up.URL, "gone", deadURL(t), "off", `{url: "http://127.0.0.1:1", enabled: false}`))
	refusal(t, w, "POST", "/v1/call", `{"tool":"zz__x"}`, http.StatusBadRequest, api.KindInvalid)
	refusal(t, w, "POST", "/v1/call", `{"tool":""}`, http.StatusBadRequest, api.KindInvalid)
	refusal(t, w, "POST", "/v1/call", `{"tool":"a__echo","arguments":{"a":1,"a":2}`, http.StatusBadRequest, api.KindInvalid)
	refusal(t, w, "POST", "/v1/call", `not json`, http.StatusBadRequest, api.KindInvalid)
	if e := refusal(t, w, "POST", "/v1/call", `{"tool":"a__echo"}`, http.StatusUnprocessableEntity, api.KindTool); !strings.Contains(e.Message, "it says no") {
		t.Errorf("got %+v", e)
	}
	if e := refusal(t, w, "POST", "/v1/call", `{"tool":"gone__x"}`, http.StatusBadGateway, api.KindInfrastructure); e.Server != "gone" {
		t.Errorf("got %+v", e)
	}
}

func TestControlStatusAndTheRest(t *testing.T) {
	t.Parallel()
	w := open(t, servers("a", echoServer(t, true, "one").URL, "n", "{builtin: everything, scope: session}"), map[string]builtin.Kind{"everything": factory(counting)})
	w.dial(t, "/mcp", `{}`)
	var s api.Status
	control(t, w, "GET", "/v1/status", "", &s)
	if s.Version != "1.2.3" || s.Gateway == "" || s.URL != w.ts.URL || s.State != w.dir || s.PID == 0 || s.Sessions == 0 || s.Draining || s.Started.IsZero() {
		t.Errorf("got %+v", s)
	}
	if !slices.Contains(s.Protocols, modernVersion) || !slices.Contains(s.Protocols, "2024-11-05") {
		t.Errorf("speaks %q", s.Protocols)
	}
	calls(t, w, "/mcp", "n__count")
	var logs api.LogList
	control(t, w, "GET", "/v1/servers/n/logs", "", &logs)
	if len(logs.Instances) == 0 || logs.Instances[0].Session == "" {
		t.Errorf("logs %+v", logs)
	}
	control(t, w, "GET", "/v1/servers/n/logs?bytes=10", "", &logs)
	for _, bad := range []string{"0", "-1", "x", "99999999999999999999", "1e3"} {
		refusal(t, w, "GET", "/v1/servers/n/logs?bytes="+bad, "", http.StatusBadRequest, api.KindInvalid)
	}
	for _, path := range []string{"/v1/", "/v1/nosuch", "/v1/servers/a/nosuch", "/v1/servers/a/logs/x", "/v2/servers", "/nosuch", "/", "/mcp/a/nosuch", "/s/", "/s/ses_x", "/messages/x"} {
		refusal(t, w, "GET", path, "", http.StatusNotFound, api.KindInvalid)
	}
	for _, method := range []string{"POST", "DELETE", "PUT"} {
		r := w.do(t, method, "/v1/servers/a", "{}", "Content-Type", "application/json")
		if r.status != http.StatusNotFound && r.status != http.StatusMethodNotAllowed {
			t.Errorf("%s: status %d", method, r.status)
		}
	}
	var h api.Health
	control(t, w, "GET", "/healthz", "", &h)
	if h.Status != "ok" {
		t.Errorf("healthz %+v", h)
	}
	control(t, w, "GET", "/readyz", "", &h)
}
