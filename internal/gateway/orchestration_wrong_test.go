package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/gateway"
)

func TestInstancesWrongInput(t *testing.T) {
	t.Parallel()
	w := openOrchestrator(t, "limits: {body: 64KiB}\nsessions: {max: 5}\n")
	i := w.instances(t, `{"resource_type_identifier":"n"}`)[0]
	at := "/instances/" + i.ID
	for _, tt := range []struct {
		method, path, body string
		status             int
		say                string
	}{
		{"POST", "/instances", ``, 400, "unreadable body: it is empty"},
		{"POST", "/instances", `[]`, 400, "unreadable body: it must be an object, and is a list"},
		{"POST", "/instances", `{}`, 400, "resource_type_identifier"},
		{"POST", "/instances", `{"resource_type_identifier":"n"} {}`, 400, "more than one"},
		{"POST", "/instances", `{"resource_type_identifier":7}`, 400, "resource_type_identifier must be a string, and is a number"},
		{"POST", "/instances", `{"resource_type_identifier":"nosuch"}`, 400, "there is n, other, one"},
		{"POST", "/instances", `{"resource_type_identifier":"n~1"}`, 400, "there is n, other, one"},
		{"POST", "/instances", `{"resource_type_identifier":"ctl"}`, 400, "can't be an instance"},
		{"POST", "/instances", `{"resource_type_identifier":"off"}`, 403, "is off"},
		{"POST", "/instances", `{"resource_type_identifier":"n","num_instances":0}`, 400, "num_instances must be a number from 1"},
		{"POST", "/instances", `{"resource_type_identifier":"n","num_instances":-1}`, 400, "num_instances"},
		{"POST", "/instances", `{"resource_type_identifier":"n","num_instances":10001}`, 400, "num_instances"},
		{"POST", "/instances", `{"resource_type_identifier":"n","num_instances":1.5}`, 400, "num_instances must be a whole number, and is 1.5"},
		{"POST", "/instances", `{"resource_type_identifier":"n","instance_scoping":"global"}`, 400, "shared_global"},
		{"POST", "/instances", `{"resource_type_identifier":"n","session_id":"a\u0007"}`, 400, "session_id"},
		{"POST", "/instances", `{"resource_type_identifier":"n","session_id":"` + strings.Repeat("x", 1025) + `"}`, 400, "session_id"},
		{"POST", "/instances", `{"resource_type_identifier":"n","template_details":""}`, 400, "template_details"},
		{"POST", "/instances", `{"resource_type_identifier":"n","template_details":7}`, 400, "template_details"},
		{"POST", "/instances", `{"resource_type_identifier":"n","template_details":["a"]}`, 400, "template_details"},
		{"POST", "/instances", `{"resource_type_identifier":"n","template_details":{"snapshot_id":"a","more":1}}`, 400, "template_details"},
		{"POST", "/instances", `{"resource_type_identifier":"one","template_details":"a"}`, 400, "share"},
		{"POST", "/instances", `{"resource_type_identifier":"n","nosuch":1}`, 400, "nosuch"},
		{"POST", "/instances", `{"resource_type_identifier":"` + strings.Repeat("n", 64<<10) + `"}`, 413, "limits.body"},
		{"POST", "/instances", `{"resource_type_identifier":"n","num_instances":5}`, 429, "sessions.max"},
		{"POST", "/instances?x=1", `{"resource_type_identifier":"n"}`, 400, `"x"`},
		{"GET", "/instances?limit=0", ``, 400, "limit"},
		{"GET", "/instances?after=x", ``, 400, "after"},
		{"GET", "/instances?server=n", ``, 400, "resource_type_identifier"},
		{"POST", at + "/fork", `{"count":0}`, 400, "count must be a number from 1"},
		{"POST", at + "/fork", `{"count":"two"}`, 400, "count must be a whole number, and is a string"},
		{"POST", at + "/fork", `{"count":1,"session_id":"\u0000"}`, 400, "session_id"},
		{"POST", at + "/fork", `{"count":5}`, 429, "sessions.max"},
		{"POST", at + "/snapshot", `{"name":"a b"}`, 400, "name must be"},
		{"POST", at + "/call", ``, 400, "unreadable body"},
		{"POST", at + "/call", `{"tool_name":""}`, 400, "tool"},
		{"POST", at + "/call", `{"tool_name":"show","arguments":[1]}`, 400, "arguments must be an object"},
		{"GET", "/instances/../v1", ``, 404, ""},
	} {
		r := w.do(t, tt.method, tt.path, tt.body, "Content-Type", "application/json")
		var e api.Error
		if err := json.Unmarshal(r.body, &e); err != nil || r.status != tt.status || e.Kind == "" || !strings.Contains(e.Message, tt.say) {
			t.Errorf("%s %s %.80s: status %d %s, want %d and %q", tt.method, tt.path, tt.body, r.status, r.body, tt.status, tt.say)
		}
	}
	for path, allow := range map[string]string{"/instances": "GET, POST", at: "DELETE, GET", at + "/fork": "POST", "/snapshots/x": "DELETE", "/health": "GET"} {
		if r := w.do(t, "PUT", path, ""); r.status != http.StatusMethodNotAllowed || r.header.Get("Allow") != allow {
			t.Errorf("PUT %s: status %d, Allow %q", path, r.status, r.header.Get("Allow"))
		}
	}
	for _, path := range []string{"/instances/a/b", "/instances/a/b/c", "/snapshots", "/health/x"} {
		if r := w.do(t, "GET", path, ""); r.status != http.StatusNotFound || !strings.Contains(string(r.body), "/openapi.json") {
			t.Errorf("GET %s: status %d %s", path, r.status, r.body)
		}
	}
	// Nothing came of any of it, of those in part least of all.
	if list := want[api.InstanceList](t, w, "GET", "/instances", ""); len(list.Instances) != 1 {
		t.Errorf("%d instances are there", len(list.Instances))
	}
}

func TestInstancesOfOthers(t *testing.T) {
	t.Parallel()
	w := openOrchestrator(t, teamYAML+`  rules:
    - {principals: [bob], servers: [n]}
    - {principals: [ada, eve, ops], servers: ["*"]}
`)
	adas := w.instances(t, `{"resource_type_identifier":"n","num_instances":2}`, asAda...)
	snap := want[api.InstanceSnapshot](t, w, "POST", "/instances/"+adas[0].ID+"/snapshot", `{"name":"base"}`, asAda...)
	bobs := w.instances(t, `{"resource_type_identifier":"n"}`, asBob...)[0]
	at := "/instances/" + adas[0].ID
	acts := []struct{ method, path, body string }{
		{"GET", at, ""}, {"DELETE", at, ""}, {"POST", at + "/fork", ""}, {"POST", at + "/snapshot", ""},
		{"POST", at + "/call", `{"tool_name":"add"}`}, {"GET", at + "/tools", ""},
	}
	for _, tt := range acts {
		for _, who := range [][]string{asBob, bearer(bobs.Token), bearer(adas[1].Token)} {
			w.refused(t, http.StatusNotFound, tt.method, tt.path, tt.body, who...)
		}
		w.refused(t, http.StatusUnauthorized, tt.method, tt.path, tt.body)
		if tt.method != "GET" || tt.path != at {
			w.refused(t, http.StatusForbidden, tt.method, tt.path, tt.body, asEve...) // she may look, and no more
		}
	}
	for _, body := range []string{`{"snapshot_id":"` + snap.ID + `"}`, `"` + snap.ID + `"`, `"snapshot:` + snap.ID + `"`, `{"snapshot_id":"base"}`} {
		w.refused(t, http.StatusNotFound, "POST", "/instances", `{"resource_type_identifier":"n","template_details":`+body+`}`, asBob...)
	}
	w.refused(t, http.StatusNotFound, "DELETE", "/snapshots/"+snap.ID, "", asBob...)
	// A server that a principal may not use is not there for it.
	if e := w.refused(t, http.StatusBadRequest, "POST", "/instances", `{"resource_type_identifier":"other"}`, asBob...); strings.Contains(e.Message, "other,") || !strings.Contains(e.Message, "there is n") {
		t.Errorf("got %+v", e)
	}
	// An instance's token is good for that instance alone.
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/instances", `{"resource_type_identifier":"n"}`}, {"GET", "/instances", ""}, {"DELETE", "/snapshots/" + snap.ID, ""},
	} {
		w.refused(t, http.StatusForbidden, tt.method, tt.path, tt.body, bearer(adas[0].Token)...)
	}
	want[api.Instance](t, w, "GET", at, "", bearer(adas[0].Token)...)
	want[api.Health](t, w, "GET", "/health", "", bearer(adas[0].Token)...)
	w.refused(t, http.StatusUnauthorized, "GET", "/health", "")
	for who, n := range map[string]int{"ada": 2, "bob": 1, "eve": 3, "ops": 3} {
		token := who + strings.Repeat("-"+who, 4)
		if list := want[api.InstanceList](t, w, "GET", "/instances", "", bearer(token)...); len(list.Instances) != n {
			t.Errorf("%s sees %d instances, want %d", who, len(list.Instances), n)
		}
	}
	// Who looks after all may act on all; its owner has it all the same.
	fork := want[[]api.Instance](t, w, "POST", at+"/fork", "", asOps...)[0]
	want[api.Instance](t, w, "GET", "/instances/"+fork.ID, "", asAda...)
	w.gone(t, "/instances/"+fork.ID, asOps...)
	for _, i := range adas {
		w.gone(t, "/instances/"+i.ID, asAda...)
	}
	w.refused(t, http.StatusNotFound, "DELETE", at, "", asBob...) // also when it is gone
}

// TestInstanceToolsCount holds that a list of tools, which a server is asked for,
// has a place among the calls.
func TestInstanceToolsCount(t *testing.T) {
	t.Parallel()
	up, started, release := blocking(t, true)
	w := openWith(t, "limits: {calls: 1}\n"+servers("a", up.URL), func(o *gateway.Options) { o.Orchestrate = true }, nil)
	var made []api.Instance
	control(t, w, "POST", "/instances", `{"resource_type_identifier":"a"}`, &made)
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.do(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__hold"}}`, "Content-Type", "application/json")
	}()
	take(t, started)
	if r := w.do(t, "GET", "/instances/"+made[0].ID+"/tools", ""); r.status != http.StatusServiceUnavailable {
		t.Errorf("in a full gateway: status %d %s", r.status, r.body)
	}
	close(release)
	<-over
}
