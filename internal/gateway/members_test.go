package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestMemberViews looks at one of several instances by every way there is.
func TestMemberViews(t *testing.T) {
	t.Parallel()
	w := openBackends(t, teamYAML+"  rules:\n    - {principals: [ada], servers: [\"*\"]}\n    - {principals: [bob], tools: [\"memory__read_graph\"]}\n", "", nil, "")
	s := w.open(t, `{"servers":["memory"],"members":{"memory":{"instances":3}}}`, asAda...)
	var members []string
	for _, m := range s.Members {
		members = append(members, fmt.Sprint(m.Server, " ", m.Ordinal))
	}
	if got := strings.Join(members, ", "); got != "memory 0, memory~1 1, memory~2 2" {
		t.Errorf("its members are %s", got)
	}
	put := func(path, word string) {
		t.Helper()
		m := w.dial(t, path, `{}`, asAda...).ask("tools/call", fmt.Sprintf(`{"name":"create_entities","arguments":{"entities":[{"name":%q,"entityType":"x","observations":[]}]}}`, word))
		if m.Result == nil {
			t.Fatalf("%s: %s", path, m.raw)
		}
	}
	put("/s/"+s.ID+"/mcp/memory~0", "zero")
	put("/s/"+s.ID+"/mcp/memory~1", "one")
	put("/s/"+s.ID+"/mcp/memory~2/streamable-http", "two")
	for path, word := range map[string]string{"memory": "zero", "memory~0": "zero", "memory~1": "one", "memory~2": "two"} {
		m := w.modern(t, "/mcp/"+path, `{}`, bearer(s.Token)...).ask("tools/call", "read_graph", `{"name":"read_graph"}`)
		for _, other := range []string{"zero", "one", "two"} {
			if strings.Contains(string(m.Result), `"`+other+`"`) != (other == word) {
				t.Errorf("%s has %s", path, m.raw)
			}
		}
		if path != "memory" && path != "memory~0" {
			out := want[api.CallResponse](t, w, "POST", "/v1/call", fmt.Sprintf(`{"tool":"%s__read_graph","session":%q}`, path, s.ID), asAda...)
			if !strings.Contains(string(out.Result), word) {
				t.Errorf("by the API %s has %s", path, out.Result)
			}
		}
	}
	for _, path := range []string{"memory~3", "memory~01", "memory~-1", "memory~x", "memory~"} {
		if r := w.do(t, "POST", "/s/"+s.ID+"/mcp/"+path, `{}`, append([]string{"Content-Type", "application/json"}, asAda...)...); r.status != http.StatusNotFound {
			t.Errorf("%s: status %d %s", path, r.status, r.body)
		}
	}
	// The merged view has the first alone, under the server's name.
	all := names(tools(t, w.world, "/s/"+s.ID+"/mcp", asAda...))
	for _, name := range all {
		if !strings.HasPrefix(name, "memory__") {
			t.Errorf("the merged view has %s", name)
		}
	}
	if m := w.modern(t, "/s/"+s.ID+"/mcp", `{}`, asAda...).ask("tools/call", "memory~1__read_graph", `{"name":"memory~1__read_graph"}`); !strings.Contains(string(m.Error), "Unknown tool") {
		t.Errorf("a further instance in the merged view: %s", m.raw)
	}
	listed := want[api.ToolList](t, w, "GET", "/v1/tools?server=memory~1&session="+s.ID, "", asAda...)
	if len(listed.Tools) != len(all) || !strings.HasPrefix(listed.Tools[0].Name, "memory~1__") || listed.Tools[0].Server != "memory~1" {
		t.Errorf("the tools of the second instance are %+v", listed)
	}
	if n := len(want[api.ToolList](t, w, "GET", "/v1/tools?session="+s.ID, "", asAda...).Tools); n != len(all) {
		t.Errorf("%d tools are listed, and %d are in the merged view", n, len(all))
	}
	// Written down by name, counted by server.
	calls := want[api.CallList](t, w, "GET", "/v1/calls?server=memory~2", "", asAda...)
	if len(calls.Calls) != 3 {
		t.Errorf("the journal has %+v", calls)
	}
	if r := w.do(t, "GET", "/metrics", "", "Authorization", "Bearer "+operator); strings.Contains(string(r.body), "memory~") || !strings.Contains(string(r.body), `server="memory"`) {
		t.Errorf("metrics:\n%s", r.body)
	}
	if srv := w.server(t, "memory"); srv.Instances != 3 {
		t.Errorf("the server is %+v", srv)
	}
	// Rules are about the server, whichever instance.
	theirs := w.open(t, `{"servers":["memory"],"members":{"memory":{"instances":2}}}`, asBob...)
	for _, path := range []string{"/mcp/memory", "/mcp/memory~1"} {
		if got := names(tools(t, w.world, "/s/"+theirs.ID+path, asBob...)); len(got) != 1 || got[0] != "read_graph" {
			t.Errorf("bob sees %v at %s", got, path)
		}
	}
	if got := want[api.Session](t, w, "GET", "/v1/sessions/"+theirs.ID, "", asBob...); len(got.Members) != 2 {
		t.Errorf("bob's session has %+v", got.Members)
	}
	// A fork has them all.
	child := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", `{}`, asAda...).Sessions[0]
	if m := w.modern(t, "/mcp/memory~2", `{}`, bearer(child.Token)...).ask("tools/call", "read_graph", `{"name":"read_graph"}`); !strings.Contains(string(m.Result), `"two"`) {
		t.Errorf("the child's third instance has %s", m.raw)
	}
}

// TestNewMembers checks what a new session may have of its servers.
func TestNewMembers(t *testing.T) {
	t.Parallel()
	w := openBackends(t, teamYAML+"  rules:\n    - {principals: [ada], servers: [\"*\"]}\n    - {principals: [bob], servers: [memory]}\n", "", nil, "")
	for _, tt := range []struct{ body, say string }{
		{`{"members":{"nosuch":{}}}`, `there is no server \"nosuch\"`},
		{`{"members":{"memory~1":{}}}`, `there is no server \"memory~1\"`},
		{`{"members":{"memory":{"instances":-1}}}`, "members.memory.instances must be at least 1"},
		{`{"members":{"memory":{"instances":1001}}}`, "members.memory.instances must be a number from 1 to 1000"},
		{`{"servers":["files"],"members":{"memory":{"instances":2}}}`, "servers does not name it"},
		{`{"members":{"all":{"instances":2}}}`, "share"},
		{`{"members":{"memory":{"template":7}}}`, "must be a string"},
		{`{"members":{"memory":{"template":"../etc"}}}`, "template_roots"},
		{`{"members":{"memory":{"template":"snapshot:nosuch"}}}`, "there is no snapshot nosuch of yours"},
		{`{"members":{"memory":{"template":"` + strings.Repeat("x", 1<<20) + `"}}}`, "is larger than"},
	} {
		r := w.ask(t, "POST", "/v1/sessions", tt.body, asAda...)
		if r.status != http.StatusBadRequest && r.status != http.StatusNotFound || !strings.Contains(string(r.body), tt.say) {
			t.Errorf("%.80s: status %d %s", tt.body, r.status, r.body)
		}
	}
	w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions", `{"members":{"files":{}}}`, asBob...)

	base := w.open(t, `{"servers":["memory"]}`, asAda...)
	rig := rig(nil)
	_, args := rig.Put("memory", "from-the-template")
	want[api.CallResponse](t, w, "POST", "/v1/call", `{"tool":"memory__create_entities","arguments":`+args+`,"session":"`+base.ID+`"}`, asAda...)
	snap := want[api.Snapshot](t, w, "POST", "/v1/sessions/"+base.ID+"/snapshots", `{"name":"base"}`, asAda...)
	for _, name := range []string{"base", "snapshot:base", snap.ID} {
		s := w.open(t, fmt.Sprintf(`{"servers":["memory"],"members":{"memory":{"instances":2,"template":%q}}}`, name), asAda...)
		for _, member := range []string{"memory", "memory~1"} {
			out := want[api.CallResponse](t, w, "POST", "/v1/call", fmt.Sprintf(`{"tool":"%s__read_graph","session":%q}`, member, s.ID), asAda...)
			if !strings.Contains(string(out.Result), "from-the-template") {
				t.Errorf("%s of a session from %s has %s", member, name, out.Result)
			}
		}
		w.gone(t, "/v1/sessions/"+s.ID, asAda...)
		// One of another principal is not there, by whatever name.
		e := w.refused(t, http.StatusNotFound, "POST", "/v1/sessions", fmt.Sprintf(`{"members":{"memory":{"template":%q}}}`, "snapshot:"+strings.TrimPrefix(name, "snapshot:")), asBob...)
		if !strings.Contains(e.Message, "of yours") {
			t.Errorf("bob begins with %s: %+v", name, e)
		}
	}
	w.refused(t, http.StatusNotFound, "POST", "/v1/sessions", fmt.Sprintf(`{"members":{"memory":{"template":%q}}}`, snap.ID), asBob...)

	// Each that failed is named, by the API too.
	e := w.refused(t, http.StatusBadGateway, "POST", "/v1/sessions", `{"servers":["memory","bad","worse"],"eager":true}`, asAda...)
	if len(e.Causes) != 2 || e.Causes[0].Kind != api.KindInfrastructure || !strings.Contains(e.Causes[0].Message+e.Causes[1].Message, "broken") {
		t.Errorf("failed with %+v", e)
	}
}
