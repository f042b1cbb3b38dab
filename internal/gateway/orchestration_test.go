package gateway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/gateway"
)

func TestOrchestrationDocument(t *testing.T) {
	t.Parallel()
	w := openOrchestrator(t, "")
	if w.doc.OpenAPI != "3.1.0" || w.doc.Info.Title != "Tine orchestration" || w.doc.Info.Version != "1.2.3" {
		t.Errorf("got %s %+v", w.doc.OpenAPI, w.doc.Info)
	}
	if refs := w.doc.complete(t, gateway.OrchestrationOperations()); refs < 20 {
		t.Errorf("only %d references", refs)
	}
	// The control API has its own.
	readOpenAPI(t, w.world).complete(t, gateway.Operations())
}

// TestOrchestrationOff checks that a gateway that was not asked to has no such
// API.
func TestOrchestrationOff(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, "")
	for _, path := range []string{"/instances", "/instances/ses_x", "/snapshots/x", "/health", "/openapi.json"} {
		if r := w.do(t, "GET", path, ""); r.status != http.StatusNotFound || !strings.Contains(string(r.body), "there is nothing at") {
			t.Errorf("%s: status %d %s", path, r.status, r.body)
		}
	}
}

func TestInstances(t *testing.T) {
	t.Parallel()
	w := openOrchestrator(t, "")
	all := w.instances(t, `{"resource_type_identifier":"n","num_instances":3,"session_id":"run 7/a","instance_scoping":"session","template_details":null}`)
	if len(all) != 3 {
		t.Fatalf("%d instances", len(all))
	}
	seen := map[string]bool{}
	for _, i := range all {
		d := i.Details
		if seen[i.ID] || i.Instance != i.ID || i.Token == "" || i.URL != w.at("/s/"+i.ID+"/mcp/n") ||
			d.Server != "n" || d.Session != "run 7/a" || d.Driver != "builtin" || d.State != api.StateReady || d.Fork != "memory" || d.Created.IsZero() {
			t.Errorf("got %+v", i)
		}
		seen[i.ID] = true
	}
	// Each has a state of its own, and its tools unprefixed.
	w.speak(t, all[0], "add")
	if a, b := w.speak(t, all[0], "add"), w.speak(t, all[1], "add"); a != "2" || b != "1" {
		t.Errorf("counted %s and %s", a, b)
	}
	one := want[api.Instance](t, w, "GET", "/instances/"+all[0].ID, "")
	if one.Token != "" || one.URL != all[0].URL || one.Details.State != api.StateReady {
		t.Errorf("got %+v", one)
	}
	// A program that can't speak MCP calls through the orchestrator.
	call := w.ask(t, "POST", "/instances/"+all[0].ID+"/call", `{"tool_name":"show"}`)
	var result struct{ Content []struct{ Type, Text string } }
	decode(t, call.body, &result)
	if call.status != http.StatusOK || len(result.Content) != 1 || result.Content[0].Text != "2" {
		t.Errorf("status %d %s", call.status, call.body)
	}
	tools := want[struct {
		Tools []struct {
			Name        string          `json:"name"`
			InputSchema json.RawMessage `json:"inputSchema"`
		} `json:"tools"`
	}](t, w, "GET", "/instances/"+all[0].ID+"/tools", "")
	if len(tools.Tools) != 3 || tools.Tools[0].Name != "add" || tools.Tools[0].InputSchema == nil {
		t.Errorf("tools %+v", tools)
	}

	// It is gone for every caller, and stays gone.
	w.gone(t, "/instances/"+all[2].ID)
	w.gone(t, "/instances/"+all[2].ID)
	for _, tt := range []struct{ method, path, body string }{
		{"GET", "", ""}, {"POST", "/call", `{"tool_name":"show"}`}, {"GET", "/tools", ""}, {"POST", "/fork", ""}, {"POST", "/snapshot", ""},
	} {
		if e := w.refused(t, http.StatusNotFound, tt.method, "/instances/"+all[2].ID+tt.path, tt.body); !strings.Contains(e.Message, "was removed at") {
			t.Errorf("%s %s: %+v", tt.method, tt.path, e)
		}
	}
	if r := w.do(t, "POST", "/s/"+all[2].ID+"/mcp/n", `{}`, "Authorization", "Bearer "+all[2].Token); r.status != http.StatusUnauthorized {
		t.Errorf("the token of one that is gone: status %d %s", r.status, r.body)
	}
	w.refused(t, http.StatusNotFound, "DELETE", "/instances/ses_000000000000", "")
	// Sessions that are none are not shown here.
	s := want[api.OpenedSession](t, &worlds{w.world, readOpenAPI(t, w.world)}, "POST", "/v1/sessions", `{}`)
	for _, tt := range []struct{ method, path, body string }{{"GET", "", ""}, {"DELETE", "", ""}, {"POST", "/fork", ""}, {"POST", "/call", `{"tool_name":"show"}`}} {
		w.refused(t, http.StatusNotFound, tt.method, "/instances/"+s.ID+tt.path, tt.body)
	}
	list := want[api.InstanceList](t, w, "GET", "/instances", "")
	if len(list.Instances) != 2 || list.Next != "" {
		t.Errorf("listed %+v", list)
	}
	if h := want[api.Health](t, w, "GET", "/health", ""); h.Status != "ok" {
		t.Errorf("health %+v", h)
	}
	for _, i := range all {
		if strings.Contains(w.log.String(), i.Token) {
			t.Error("a token is in the log")
		}
	}
}

// TestInstancesAllOrNone checks that instances of a request of which one can't be
// started are all taken back, and that it is said why.
func TestInstancesAllOrNone(t *testing.T) {
	t.Parallel()
	var starts atomic.Int64
	k := remembering()
	make := k.New
	k.New = func(e builtin.Env) (*mcp.Server, io.Closer, error) {
		if starts.Add(1) > 5 {
			return nil, nil, errors.New("no room on the shelf")
		}
		return make(e)
	}
	w := openWith(t, "servers:\n  n: {builtin: memory, scope: session}\n", func(o *gateway.Options) { o.Orchestrate = true }, map[string]builtin.Kind{"memory": k})
	o := &worlds{w, readDocument(t, w, "/openapi.json")}
	if e := o.refused(t, http.StatusBadGateway, "POST", "/instances", `{"resource_type_identifier":"n","num_instances":40}`, key("k")...); e.Kind != api.KindInfrastructure || !strings.Contains(e.Message, "no room on the shelf") {
		t.Errorf("got %+v", e)
	}
	if list := want[api.InstanceList](t, o, "GET", "/instances", ""); len(list.Instances) > 0 {
		t.Errorf("%d instances are left", len(list.Instances))
	}
	if states, err := filepath.Glob(filepath.Join(w.dir, "states", "sessions", "*", "*")); err != nil || len(states) > 0 {
		t.Errorf("%q is left, %v", states, err)
	}
	// The key is free again.
	starts.Store(0)
	if all := o.instances(t, `{"resource_type_identifier":"n","num_instances":5}`, key("k")...); len(all) != 5 {
		t.Errorf("%d instances", len(all))
	}
}

// TestInstancesBehindProxy checks that instances are where the world knows the
// gateway to be.
func TestInstancesBehindProxy(t *testing.T) {
	t.Parallel()
	w := openOrchestrator(t, teamYAML+"public_url: https://tools.example.org/tine\n")
	i := w.instances(t, `{"resource_type_identifier":"n"}`, asAda...)[0]
	if at := "https://tools.example.org/tine/s/" + i.ID + "/mcp/n"; i.URL != at {
		t.Errorf("it is at %s, want %s", i.URL, at)
	}
}

func TestInstancePages(t *testing.T) {
	t.Parallel()
	w := openOrchestrator(t, "")
	w.instances(t, `{"resource_type_identifier":"n","num_instances":3,"session_id":"a"}`)
	w.instances(t, `{"resource_type_identifier":"other","num_instances":2,"session_id":"a"}`)
	w.instances(t, `{"resource_type_identifier":"n","num_instances":2,"instance_scoping":"shared_global"}`)
	want[api.OpenedSession](t, &worlds{w.world, readOpenAPI(t, w.world)}, "POST", "/v1/sessions", `{}`)
	for query, n := range map[string]int{"": 7, "&session_id=a": 5, "&resource_type_identifier=n": 5, "&session_id=a&resource_type_identifier=n": 3, "&session_id=b": 0} {
		seen, after := map[string]bool{}, ""
		for {
			list := want[api.InstanceList](t, w, "GET", "/instances?limit=2"+query+"&after="+after, "")
			for _, i := range list.Instances {
				if seen[i.ID] || i.Token != "" || i.URL == "" {
					t.Errorf("%q: %+v", query, i)
				}
				seen[i.ID] = true
			}
			if after = list.Next; after == "" {
				break
			}
		}
		if len(seen) != n {
			t.Errorf("%q: %d instances, want %d", query, len(seen), n)
		}
	}
}

func TestInstanceForks(t *testing.T) {
	t.Parallel()
	w := openOrchestrator(t, "")
	parent := w.instances(t, `{"resource_type_identifier":"n","session_id":"a"}`)[0]
	w.speak(t, parent, "add")
	forks := want[[]api.Instance](t, w, "POST", "/instances/"+parent.ID+"/fork", `{"count":2}`)
	for _, f := range append(forks, want[[]api.Instance](t, w, "POST", "/instances/"+parent.ID+"/fork", "", bearer(parent.Token)...)...) {
		if f.Token == "" || f.ID == parent.ID || f.Details.Parent != parent.ID || f.Details.Server != "n" || f.Details.Session != "a" {
			t.Errorf("forked %+v", f)
		}
		if got := w.speak(t, f, "add"); got != "2" {
			t.Errorf("a fork counts %s", got)
		}
	}
	if got := w.speak(t, parent, "show"); got != "1" {
		t.Errorf("the parent counts %s", got)
	}
	again := want[[]api.Instance](t, w, "POST", "/instances/"+forks[0].ID+"/fork", `{"count":1,"session_id":"b"}`)[0]
	if got := w.speak(t, again, "show"); got != "2" || again.Details.Session != "b" || again.Details.Parent != forks[0].ID {
		t.Errorf("a fork of a fork counts %s: %+v", got, again)
	}
	w.gone(t, "/instances/"+parent.ID)
	if got := w.speak(t, forks[1], "show"); got != "2" {
		t.Errorf("after the parent's end a fork counts %s", got)
	}
	// One that shares its server has nothing to carry, and forks all the same.
	one := w.instances(t, `{"resource_type_identifier":"one"}`)[0]
	want[[]api.Instance](t, w, "POST", "/instances/"+one.ID+"/fork", "")
}

func TestInstanceSnapshots(t *testing.T) {
	t.Parallel()
	roots := t.TempDir()
	if err := os.WriteFile(filepath.Join(roots, "base"), []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := openOrchestrator(t, "template_roots: ["+roots+"]\n")
	i := w.instances(t, `{"resource_type_identifier":"n"}`)[0]
	w.speak(t, i, "add")
	plain := want[api.InstanceSnapshot](t, w, "POST", "/instances/"+i.ID+"/snapshot", "")
	w.speak(t, i, "add")
	named := want[api.InstanceSnapshot](t, w, "POST", "/instances/"+i.ID+"/snapshot", `{"name":"two"}`, bearer(i.Token)...)
	if plain.ID == "" || plain.From != i.ID || plain.Created.IsZero() || named.Name != "two" {
		t.Errorf("made %+v and %+v", plain, named)
	}
	w.speak(t, i, "add")
	for template, count := range map[string]string{
		`{"snapshot_id":"` + plain.ID + `"}`: "1", `"` + plain.ID + `"`: "1", `"snapshot:` + plain.ID + `"`: "1", `"two"`: "2", `{"snapshot_id":"two"}`: "2",
	} {
		for _, made := range w.instances(t, `{"resource_type_identifier":"n","num_instances":2,"template_details":`+template+`}`) {
			if got := w.speak(t, made, "show"); got != count || made.Details.Snapshot == "" {
				t.Errorf("from %s: counts %s, want %s; %+v", template, got, count, made)
			}
		}
	}
	for template, say := range map[string]string{
		`{"snapshot_id":"base"}`: "no snapshot", `{"snapshot_id":"snp_x"}`: "no snapshot", `"snapshot:base"`: "no snapshot", `"nosuch"`: "template_roots", `"../x"`: "template_roots", `"/etc"`: "template_roots",
	} {
		r := w.ask(t, "POST", "/instances", `{"resource_type_identifier":"n","template_details":`+template+`}`)
		if r.status != http.StatusBadRequest && r.status != http.StatusNotFound || !strings.Contains(string(r.body), say) {
			t.Errorf("from %s: status %d %s", template, r.status, r.body)
		}
	}
	for _, path := range []string{"base", filepath.Join(roots, "base")} {
		made := w.instances(t, fmt.Sprintf(`{"resource_type_identifier":"n","template_details":%q}`, path))[0]
		if got := w.speak(t, made, "show"); got != "4" || made.Details.Snapshot != "" {
			t.Errorf("from %s: counts %s; %+v", path, got, made)
		}
	}
	// An instance is one, however many its snapshot was made of.
	control := func(method, path, body string, into any) {
		t.Helper()
		decode(t, w.do(t, method, path, body, "Content-Type", "application/json", "Authorization", "Bearer "+operator).body, into)
	}
	var several, one api.Session
	var frozen api.Snapshot
	control("POST", "/v1/sessions", `{"servers":["n"],"eager":true,"members":{"n":{"instances":3}}}`, &several)
	control("POST", "/v1/sessions/"+several.ID+"/snapshots", `{}`, &frozen)
	control("GET", "/v1/sessions/"+w.instances(t, `{"resource_type_identifier":"n","template_details":"`+frozen.ID+`"}`)[0].ID, "", &one)
	if len(several.Members) != 3 || len(one.Members) != 1 {
		t.Errorf("an instance from a snapshot of %d has %+v", len(several.Members), one.Members)
	}
	// What has nothing of a server is no template of it.
	if e := w.refused(t, http.StatusBadRequest, "POST", "/instances", `{"resource_type_identifier":"other","template_details":"two"}`); !strings.Contains(e.Message, "nothing of it") {
		t.Errorf("another server's: %+v", e)
	}
	// Instances outlive what they were made of.
	made := w.instances(t, `{"resource_type_identifier":"n","template_details":"two"}`)[0]
	w.gone(t, "/snapshots/"+named.ID)
	w.refused(t, http.StatusNotFound, "DELETE", "/snapshots/"+named.ID, "")
	if got := w.speak(t, made, "add"); got != "3" {
		t.Errorf("after the snapshot's end: %s", got)
	}
	w.refused(t, http.StatusNotFound, "POST", "/instances", `{"resource_type_identifier":"n","template_details":{"snapshot_id":"`+named.ID+`"}}`)
}

func TestInstancesOnce(t *testing.T) {
	t.Parallel()
	w := openOrchestrator(t, teamYAML)
	body := `{"resource_type_identifier":"n","num_instances":2,"session_id":"a"}`
	first := w.ask(t, "POST", "/instances", body, key("k1", asAda...)...)
	again := w.ask(t, "POST", "/instances", body, key("k1", asAda...)...)
	if first.status != http.StatusOK || !bytes.Equal(first.body, again.body) {
		t.Fatalf("first %s\nagain %s", first.body, again.body)
	}
	var made []api.Instance
	decode(t, first.body, &made)
	w.refused(t, http.StatusConflict, "POST", "/instances", `{"resource_type_identifier":"n"}`, key("k1", asAda...)...)
	w.instances(t, body, key("k1", asBob...)...)
	at := "/instances/" + made[0].ID
	fork := w.ask(t, "POST", at+"/fork", `{"count":2}`, key("k2", asAda...)...)
	snap := w.ask(t, "POST", at+"/snapshot", ``, key("k3", asAda...)...)
	w.speak(t, made[0], "add")
	w.restart()
	w.gone(t, at, asAda...)
	for _, tt := range []struct {
		path, body, key string
		was             *reply
	}{{"/instances", body, "k1", first}, {at + "/fork", `{"count":2}`, "k2", fork}, {at + "/snapshot", ``, "k3", snap}} {
		if r := w.ask(t, "POST", tt.path, tt.body, key(tt.key, asAda...)...); tt.was.status != http.StatusOK || !bytes.Equal(r.body, tt.was.body) {
			t.Errorf("%s: first %s\nagain %s", tt.path, tt.was.body, r.body)
		}
	}
	w.refused(t, http.StatusNotFound, "POST", at+"/fork", ``, key("k4", asAda...)...)
	if list := want[api.InstanceList](t, w, "GET", "/instances", "", asAda...); len(list.Instances) != 3 {
		t.Errorf("%d instances are there", len(list.Instances))
	}
}

// TestInstancesRestart checks that instances are still there after a restart,
// with their ids, their tokens and what they remember, and that those whose
// request was not answered are not.
func TestInstancesRestart(t *testing.T) {
	t.Parallel()
	w := openOrchestrator(t, teamYAML)
	made := w.instances(t, `{"resource_type_identifier":"n","num_instances":2,"session_id":"a"}`, asAda...)
	w.speak(t, made[0], "add")
	snap := want[api.InstanceSnapshot](t, w, "POST", "/instances/"+made[0].ID+"/snapshot", "", asAda...)
	lost := w.instances(t, `{"resource_type_identifier":"n","num_instances":2}`, key("k1", asAda...)...)
	w.stop(true)
	w.unanswer(t, "ada", "k1")
	w.start()
	if got := w.speak(t, made[0], "add"); got != "2" {
		t.Errorf("counts %s", got)
	}
	if got := w.speak(t, made[1], "add"); got != "1" {
		t.Errorf("counts %s", got)
	}
	if i := want[api.Instance](t, w, "GET", "/instances/"+made[0].ID, "", asAda...); i.URL != made[0].URL || i.Details.Session != "a" {
		t.Errorf("got %+v", i)
	}
	for _, i := range lost {
		w.refused(t, http.StatusNotFound, "GET", "/instances/"+i.ID, "", asAda...)
	}
	from := w.instances(t, `{"resource_type_identifier":"n","template_details":{"snapshot_id":"`+snap.ID+`"}}`, asAda...)[0]
	if got := w.speak(t, from, "show"); got != "1" {
		t.Errorf("from the snapshot: %s", got)
	}
	if again := w.instances(t, `{"resource_type_identifier":"n","num_instances":2}`, key("k1", asAda...)...); again[0].ID == lost[0].ID {
		t.Error("what was lost is answered again")
	}
}
