package gateway_test

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestBlueprintsOfTheAPI puts, reads, starts and deletes agents over HTTP.
func TestBlueprintsOfTheAPI(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	const body = ` {"description": "Reads <code> & more", "mcp_servers": {"n": {}},  "scope": {"tenant": "1"}}` + "\n"
	r := w.ask(t, "PUT", "/v1/agents/reader", body, asAda...)
	var a api.Agent
	if decode(t, r.body, &a); r.status != http.StatusCreated || a.Name != "reader" || !slices.Equal(a.Servers, []string{"n"}) || len(a.Problems) > 0 {
		t.Errorf("a new one: %d %s", r.status, r.body)
	}
	if a := want[api.Agent](t, w, "PUT", "/v1/agents/reader", body, asAda...); a.Description != "Reads <code> & more" {
		t.Errorf("put again it is %+v", a)
	}
	if a := want[api.Agent](t, w, "PUT", "/v1/agents/reader", `{"mcp_servers":{"m":{}}}`, asAda...); len(a.Problems) != 1 || !strings.Contains(a.Problems[0], `agent reader:1:17: mcp_servers.m: there is no server "m"`) {
		t.Errorf("what it lacks: %q", a.Problems)
	}
	want[api.Agent](t, w, "PUT", "/v1/agents/reader", body, asAda...)
	written := strings.TrimSpace(body)
	for _, who := range [][]string{asAda, asOps} {
		if r := w.ask(t, "GET", "/v1/agents/reader/blueprint", "", who...); r.status != http.StatusOK || string(r.body) != written {
			t.Errorf("as it was written: %d %s", r.status, r.body)
		}
	}

	w.restart()
	if r := w.ask(t, "GET", "/v1/agents/reader/blueprint", "", asAda...); string(r.body) != written {
		t.Errorf("after a restart: %d %s", r.status, r.body)
	}
	if a := want[api.Agent](t, w, "GET", "/v1/agents/reader", "", asBob...); a.Source != "" || a.Executor != "claude-code" || len(a.Problems) > 0 {
		t.Errorf("after a restart it is %+v", a)
	}
	if run := want[api.Run](t, w, "POST", "/v1/runs", `{"agent":"reader","prompt":"x"}`, asBob...); run.Agent != "reader" || run.Owner != "bob" {
		t.Errorf("bob's run of it: %+v", run)
	}
	w.gone(t, "/v1/agents/reader", asAda...)
	w.refused(t, http.StatusNotFound, "GET", "/v1/agents/reader", "", asAda...)
	w.refused(t, http.StatusNotFound, "POST", "/v1/runs", `{"agent":"reader","prompt":"x"}`, asBob...)
}

// TestBlueprintsRefused holds blueprints of the API to whom they belong to, to what only an
// operator may write, and to their bounds.
func TestBlueprintsRefused(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	file := filepath.Join(w.dir, "agents", "file.md")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("---\ndescription: the file\n---\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := w.open(t, `{}`, asAda...)
	asRun := bearer(w.mint(t, s.ID, `{"run":"run_1"}`, asAda...).Token)
	for _, name := range []string{"adas", "ops"} {
		who := map[string][]string{"adas": asAda, "ops": asOps}[name]
		if r := w.ask(t, "PUT", "/v1/agents/"+name, `{"description":"first"}`, who...); r.status != http.StatusCreated {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	const program = `{"mcp_servers":{"own":{"command":"true"}}}`
	for _, tt := range []struct {
		what, method, path, body string
		who                      []string
		status                   int
		code                     string
		words                    []string
	}{
		{"another's", "PUT", "adas", `{}`, asBob, 403, "", []string{"agent adas", "another principal's", "another name"}},
		{"another's, read", "GET", "adas/blueprint", "", asBob, 403, "", []string{"another principal's"}},
		{"another's, by a viewer", "PUT", "adas", `{}`, asEve, 403, "", []string{"another principal's"}},
		{"another's, read by a viewer", "GET", "adas/blueprint", "", asEve, 403, "", []string{"another principal's"}},
		{"another's, deleted", "DELETE", "adas", "", asBob, 403, "", []string{"another principal's"}},
		{"an operator's", "PUT", "ops", `{}`, asAda, 403, "", []string{"another principal's"}},
		{"by a session", "PUT", "new", `{}`, bearer(s.Token), 403, "", []string{"the token of session"}},
		{"by a run", "PUT", "new", `{}`, asRun, 403, "", []string{"the token of session"}},
		{"read by a run", "GET", "adas/blueprint", "", asRun, 403, "", nil},
		{"deleted by a run", "DELETE", "adas", "", asRun, 403, "", nil},
		{"a file's name", "PUT", "file", `{}`, asOps, 409, "", []string{"file.md", "change the file"}},
		{"a file, read", "GET", "file/blueprint", "", asOps, 409, "", []string{"file.md", "read the file"}},
		{"a file, deleted", "DELETE", "file", "", asOps, 409, "", []string{"file.md", "remove the file"}},
		{"a server of its own", "PUT", "new", program, asAda, 403, "", []string{"mcp_servers.own", "role operator"}},
		{"a hook", "PUT", "new", `{"hooks":{"on_run_start":{"command":"true"}}}`, asAda, 403, "", []string{"hooks.on_run_start", "role operator"}},
		{"a wrong name", "PUT", "a.b", `{}`, asOps, 400, blueprint.CodeBlueprint, []string{`"a.b" can't name an agent`}},
		{"another name in it", "PUT", "new", `{"name":"old"}`, asAda, 400, blueprint.CodeBlueprint, []string{"agent new:1:2: name", `"old"`, "the agent is called"}},
		{"an unknown key", "PUT", "new", `{"descripton":"x"}`, asAda, 400, blueprint.CodeBlueprint, []string{"agent new:1:2", `did you mean "description"?`}},
		{"a wrong type", "PUT", "new", "{\n \"limits\": {\"runs\": 0}}", asAda, 400, blueprint.CodeBlueprint, []string{"agent new:2:21", "limits.runs"}},
		{"a key twice", "PUT", "new", `{"color":"a","color":"b"}`, asAda, 400, blueprint.CodeBlueprint, []string{"agent new:1:14", "color"}},
		{"no blueprint", "PUT", "new", `null`, asAda, 400, blueprint.CodeBlueprint, []string{"agent new", "is empty"}},
		{"a list", "PUT", "new", `[]`, asAda, 400, blueprint.CodeBlueprint, []string{"agent new", "want a map"}},
		{"no JSON", "PUT", "new", `description: x`, asAda, 400, "", []string{"unreadable body"}},
		{"no body", "PUT", "new", ``, asAda, 400, "", []string{"unreadable body"}},
		{"too large", "PUT", "new", `{"system_prompt":"` + strings.Repeat("x", 1<<20) + `"}`, asAda, 400, blueprint.CodeBlueprint, []string{"agent new", "larger than 1024 KiB"}},
		{"too long a prompt", "PUT", "new", `{"system_prompt":"` + strings.Repeat("x", 256<<10+1) + `"}`, asAda, 400, blueprint.CodeBlueprint, []string{"system_prompt", "256 KiB"}},
		{"a query", "PUT", "new?force=true", `{}`, asAda, 400, "", []string{"force"}},
		{"nothing to read", "GET", "nobody/blueprint", "", asAda, 404, "", []string{`"nobody"`}},
		{"nothing to delete", "DELETE", "nobody", "", asAda, 404, "", []string{`"nobody"`}},
	} {
		e := w.refused(t, tt.status, tt.method, "/v1/agents/"+tt.path, tt.body, tt.who...)
		if testkit.Has(t, tt.what, e.Message, tt.words...); e.Code != tt.code {
			t.Errorf("%s: code %q, want %q", tt.what, e.Code, tt.code)
		}
	}
	for _, name := range []string{"adas", "ops"} {
		if r := w.ask(t, "GET", "/v1/agents/"+name+"/blueprint", "", asOps...); !bytes.Equal(r.body, []byte(`{"description":"first"}`)) {
			t.Errorf("after refusals %s is %s", name, r.body)
		}
	}
	w.refused(t, http.StatusNotFound, "GET", "/v1/agents/new", "", asAda...)
	// An operator may have programs in it, also in ada's, which stays hers.
	for name, status := range map[string]int{"adas": http.StatusOK, "new": http.StatusCreated} {
		if r := w.ask(t, "PUT", "/v1/agents/"+name, program, asOps...); r.status != status {
			t.Errorf("an operator's %s: %d %s", name, r.status, r.body)
		}
	}
	w.refused(t, http.StatusForbidden, "PUT", "/v1/agents/adas", program, asAda...)
	w.gone(t, "/v1/agents/adas", asAda...)
	w.gone(t, "/v1/agents/new", asOps...)
}

// TestRunWaitIsOver asks for a run for so short a time that it can't be read within it.
func TestRunWaitIsOver(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML)
	run := want[api.Run](t, w, "POST", "/v1/runs", `{"agent":"worker","prompt":"x"}`, asAda...)
	if got := want[api.Run](t, w, "GET", "/v1/runs/"+run.ID+"?wait=1ns", "", asAda...); got.ID != run.ID || got.State != api.RunPending {
		t.Errorf("it is %+v", got)
	}
	w.refused(t, http.StatusNotFound, "GET", "/v1/runs/"+run.ID+"?wait=1ns", "", asBob...)
}
