package gateway_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestAnswersFitTheDocument asks for every operation, and holds what is answered
// against the document: well where that can be had here, and badly.
func TestAnswersFitTheDocument(t *testing.T) {
	t.Parallel()
	var wrong error // with the config
	w := openWorldsWith(t, teamYAML, func(o *gateway.Options) { o.Reload = func(context.Context) error { return wrong } })
	left := gateway.Operations()
	byID := make(map[string]string)
	for where, id := range left {
		byID[id] = where
	}
	// A login wants a server that has one, and a command a program to be beside; their own
	// tests look at what they answer.
	for _, id := range []string{"beginLogin", "finishLogin", "logout", "execCommand"} {
		delete(left, byID[id])
	}
	good := func(method, path, body string) *reply {
		t.Helper()
		r := w.ask(t, method, path, body, asOps...)
		if r.status >= http.StatusMultipleChoices {
			t.Errorf("%s %s: status %d %s", method, path, r.status, r.body)
		}
		delete(left, byID[w.doc.operationOf(t, method, path).ID])
		return r
	}
	bad := func(method, path, body string) {
		t.Helper()
		if r := w.ask(t, method, path, body, asOps...); r.status < 400 {
			t.Errorf("%s %s: status %d %s", method, path, r.status, r.body)
		}
	}
	var s api.OpenedSession
	decode(t, good("POST", "/v1/sessions", `{"labels":{"a":"b"},"eager":true}`).body, &s)
	in := "/v1/sessions/" + s.ID
	good("POST", "/v1/call", `{"tool":"n__add","session":"`+s.ID+`"}`)
	for _, path := range []string{"/v1/openapi.json", "/v1/status", "/v1/servers", "/v1/servers/n", "/v1/servers/n/logs", "/v1/tools"} {
		good("GET", path, "")
	}
	good("POST", "/v1/reload", "")
	wrong = errors.New("unknown key")
	if r := w.ask(t, "POST", "/v1/reload", "", asOps...); r.status != http.StatusBadRequest || !strings.Contains(string(r.body), "the old one stays: unknown key") {
		t.Errorf("a config that is wrong: status %d %s", r.status, r.body)
	}
	good("PATCH", "/v1/servers/n", `{"set":{"timeout":"7s"}}`)
	var calls api.CallList
	testkit.Eventually(t, "the call is in the journal", func() bool {
		decode(t, good("GET", "/v1/calls?session="+s.ID, "").body, &calls)
		return slices.ContainsFunc(calls.Calls, func(c api.Call) bool { return c.Method == "tools/call" })
	})
	at := slices.IndexFunc(calls.Calls, func(c api.Call) bool { return c.Method == "tools/call" })
	good("GET", "/v1/calls/"+calls.Calls[at].ID, "")
	good("POST", "/v1/calls/"+calls.Calls[at].ID+"/replay", "")
	good("POST", "/v1/tokens", `{"name":"ci","expires":"2200-01-01T00:00:00Z"}`)
	bad("POST", "/v1/tokens", `{"name":"far","expires":"2999-01-01T00:00:00Z"}`)
	good("GET", "/v1/tokens", "")
	good("POST", "/v1/tokens/ci/rotate", "")
	good("POST", "/v1/tokens/ci/confirm", "")
	good("POST", "/v1/tokens/confirm", "")
	good("DELETE", "/v1/tokens/ci", "")
	good("POST", in+"/token", "")
	var further api.MintedToken
	decode(t, good("POST", in+"/tokens", `{"run":"r","servers":["n"],"ttl":"1h","allow":["close"]}`).body, &further)
	good("POST", in+"/tokens", "")
	good("POST", in+"/tokens", `{"servers":[]}`)
	good("GET", in+"/tokens", "")
	good("DELETE", in+"/tokens/"+further.ID, "")
	good("DELETE", in+"/tokens?run=r", "")
	bad("DELETE", in+"/tokens", "")
	good("PATCH", in, `{"labels":{}}`)
	good("POST", in+"/forks", `{"count":2}`)
	good("POST", in+"/snapshots", `{"name":"base"}`)
	good("POST", in+"/rewind", `{"snapshot":"base"}`)
	var lease api.Lease
	decode(t, good("POST", "/v1/leases", `{"ttl":"1h","labels":{"a":"b"}}`).body, &lease)
	good("POST", "/v1/sessions", `{"lease":"`+lease.ID+`"}`)
	good("GET", "/v1/leases", "")
	good("PUT", "/v1/leases/"+lease.ID, "")
	good("DELETE", "/v1/leases/"+lease.ID, "")
	bad("DELETE", "/v1/leases/"+lease.ID, "")
	good("POST", "/v1/batch", `{"items":[{"open":{}},{"call":{"tool":"n__add"}},{"open":{"from":"nosuch"}}]}`)
	good("POST", in+"/annotations", `{"reward":1,"logprobs":[null,-1]}`)
	for _, path := range []string{"", "/forks", "/snapshots", "/calls", "/trajectory", "/tree"} {
		good("GET", in+path, "")
		bad("GET", "/v1/sessions/nosuch"+path, "")
	}
	good("PUT", in+"/files/workspace/d/a?mode=600", "text")
	good("GET", in+"/files/workspace/d/a", "")
	good("GET", in+"/files/workspace", "")
	good("GET", in+"/files/workspace/d?list=1", "")
	bad("GET", in+"/files/workspace/nosuch", "")
	bad("PUT", in+"/files/workspace/d/a?mode=9", "text")
	good("GET", in+"/diff?from=base", "")
	bad("GET", in+"/diff", "")
	good("GET", in+"/state/n", "")
	bad("POST", in+"/exec", `{"server":"n","argv":["ls"]}`)
	good("GET", "/v1/events?after=start&follow=false", "")
	bad("GET", "/v1/events?after=nonsense", "")
	good("GET", "/v1/agents", "")
	good("GET", "/v1/agents/worker", "")
	bad("GET", "/v1/agents/nosuch", "")
	good("PUT", "/v1/agents/kept", `{"description":"x"}`)
	good("PUT", "/v1/agents/kept", `{"description":"y"}`)
	bad("PUT", "/v1/agents/kept", `{"descripton":"y"}`)
	good("GET", "/v1/agents/kept/blueprint", "")
	bad("GET", "/v1/agents/nosuch/blueprint", "")
	good("DELETE", "/v1/agents/kept", "")
	bad("DELETE", "/v1/agents/kept", "")
	var run api.Run
	decode(t, good("POST", "/v1/runs", `{"agent":"worker","prompt":"hi"}`).body, &run)
	bad("POST", "/v1/runs", `{"agent":"nosuch"}`)
	good("GET", "/v1/runs", "")
	good("GET", "/v1/runs/"+run.ID, "")
	good("GET", "/v1/runs/"+run.ID+"?wait=1ms", "")
	bad("GET", "/v1/runs/"+run.ID+"?wait=soon", "")
	good("GET", "/v1/runs/"+run.ID+"/tree", "")
	good("GET", "/v1/agent-sessions", "")
	good("GET", "/v1/agent-sessions/"+run.Session, "")
	good("POST", "/v1/runs/"+run.ID+"/stop", "")
	good("DELETE", "/v1/agent-sessions/"+run.Session, "")
	good("GET", "/v1/sessions", "")
	good("GET", "/v1/snapshots", "")
	good("GET", "/v1/snapshots/base", "")
	file := good("GET", "/v1/snapshots/base/export", "")
	good("POST", "/v1/snapshots/import?name=two", string(file.body))
	good("DELETE", "/v1/snapshots/two", "")
	good("DELETE", in, "")
	good("GET", in, "")
	good("GET", "/v1/sessions?closed=true", "")
	good("GET", "/v1/trajectories?closed=true&label=a%3Db", "")
	bad("GET", "/v1/trajectories?label=a", "")
	for _, where := range []string{"/v1/servers/n/login", "/v1/servers/n/login/flow"} {
		bad("POST", where, `{}`)
	}
	bad("DELETE", "/v1/servers/n/login", "")
	bad("POST", "/v1/call", `{"tool":"nosuch"}`)
	bad("POST", "/v1/call", `{"tool":"n__add","arguments":7}`)
	if len(left) > 0 {
		t.Errorf("not asked for: %q", slices.Sorted(maps.Keys(left)))
	}
}
