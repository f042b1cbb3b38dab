package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/native/rollout"
)

// curtainYAML keeps server n from ada, who may use server m, and gives bob and
// the others everything.
const curtainYAML = teamYAML + `  rules:
    - {principals: [ada], servers: [m, rollout]}
    - {principals: [bob, eve, ops]}
`

// openCurtain is a gateway on which server n is hidden from ada.
func openCurtain(t *testing.T) *worlds {
	t.Helper()
	control := &gateway.Control{}
	w := openWith(t, curtainYAML+`servers:
  n: {builtin: memory, scope: session}
  m: {builtin: memory, scope: session}
  rollout: {builtin: rollout}
`, func(o *gateway.Options) { o.Control, o.Orchestrate = control, true }, map[string]builtin.Kind{
		"memory": remembering(),
		"rollout": {New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			s, err := rollout.New(e.Settings, control)
			return s, nil, err
		}},
	})
	return &worlds{w, readOpenAPI(t, w, "Authorization", "Bearer "+operator)}
}

// TestImportKeepsToTheRules has a principal import the state of a server that
// the rules hide: it is refused in the words for one that there is not.
func TestImportKeepsToTheRules(t *testing.T) {
	w := openCurtain(t)
	s := w.open(t, `{"servers":["n"]}`, asBob...)
	w.tool(t, s.ID, "add", asBob...)
	want[api.Snapshot](t, w, "POST", "/v1/sessions/"+s.ID+"/snapshots", `{"name":"a"}`, asBob...)
	file := string(w.ask(t, "GET", "/v1/snapshots/a/export", "", asBob...).body)
	e := w.refused(t, http.StatusBadRequest, "POST", "/v1/snapshots/import?name=b", file, asAda...)
	if !strings.Contains(e.Message, `no server of that name`) || strings.Contains(e.Message, "driver") {
		t.Errorf("ada is told %+v", e)
	}
	for _, hidden := range []string{
		`{"members":[{"server":"n","driver":"process","carries":"memory"}]}`, `{"members":[],"counts":{"n":2}}`,
	} {
		unknown := strings.ReplaceAll(hidden, `"n"`, `"x"`)
		got := w.refused(t, http.StatusBadRequest, "POST", "/v1/snapshots/import", snapshotFile(hidden), asAda...)
		same := w.refused(t, http.StatusBadRequest, "POST", "/v1/snapshots/import", snapshotFile(unknown), asAda...)
		if strings.ReplaceAll(got.Message, `"n"`, `"x"`) != same.Message {
			t.Errorf("of a hidden server ada is told %q, of an unknown one %q", got.Message, same.Message)
		}
	}
	if list := want[api.SnapshotList](t, w, "GET", "/v1/snapshots", "", asAda...); len(list.Snapshots) != 0 {
		t.Errorf("ada has %+v", list)
	}
	want[api.Snapshot](t, w, "POST", "/v1/snapshots/import?name=b", file, asBob...)
	want[api.Snapshot](t, w, "POST", "/v1/snapshots/import?name=b", file, asOps...)
}

// TestHiddenServersAreNotStarted checks that eager sessions and forks of a
// principal start only what the rules give.
func TestHiddenServersAreNotStarted(t *testing.T) {
	w := openCurtain(t)
	running := func() int {
		return want[api.Server](t, w, "GET", "/v1/servers/n", "", asOps...).Instances
	}
	s := w.open(t, `{"eager":true}`, asAda...)
	if n := running(); n != 0 {
		t.Errorf("opening started %d", n)
	}
	// An operator may call it there. Then a fork has it too, and does not start it.
	if got := w.tool(t, s.ID, "add", asOps...); got != "1" {
		t.Fatalf("an operator gets %s", got)
	}
	before := running()
	f := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", `{"count":3}`, asAda...)
	if n := running(); n != before {
		t.Errorf("forks started %d", n-before)
	}
	for _, m := range f.Sessions[0].Members {
		if m.Server == "n" {
			t.Errorf("the fork shows %+v", m)
		}
	}
	if got := w.tool(t, f.Sessions[0].ID, "add", asOps...); got != "2" {
		t.Errorf("the fork has %s of it", got)
	}
	// A viewer knows of all servers, and starts none that it may not use.
	w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions", `{"servers":["n"],"eager":true}`, asAda...)
	w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions", `{"members":{"n":{"instances":2}}}`, asAda...)
	// What leaves in a file of ada's has nothing of it.
	snap := want[api.Snapshot](t, w, "POST", "/v1/sessions/"+s.ID+"/snapshots", `{}`, asAda...)
	if file := string(w.ask(t, "GET", "/v1/snapshots/"+snap.ID+"/export", "", asAda...).body); strings.Contains(file, `"server":"n"`) {
		t.Errorf("ada exports %.300q", file)
	}
	if file := string(w.ask(t, "GET", "/v1/snapshots/"+snap.ID+"/export", "", asOps...).body); !strings.Contains(file, `"server":"n"`) {
		t.Errorf("an operator exports %.300q", file)
	}
}
