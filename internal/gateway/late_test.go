package gateway_test

import (
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestLateCallsAreWrittenDown checks that calls which come after the end of their
// session are in the journal, by whatever way, and in no other session's story.
func TestLateCallsAreWrittenDown(t *testing.T) {
	t.Parallel()
	r := openRollouts(t, teamYAML, "")
	for name, over := range map[string]api.OpenedSession{"ttl": r.open(t, `{"ttl":"1ms"}`, asAda...), "idle": r.open(t, `{"idle":"1ms"}`, asAda...)} {
		testkit.Eventually(t, "the session's "+name+" is over", func() bool {
			return !want[api.Session](t, r.worlds, "GET", "/v1/sessions/"+over.ID, "", asAda...).Closed.IsZero()
		})
		call := func(tool string) string {
			return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `"}}`
		}
		json := append([]string{"Content-Type", "application/json"}, asAda...)
		for i, way := range []struct{ path, body, server, tool string }{
			{"/v1/call", `{"tool":"n__add","session":"` + over.ID + `"}`, "n", "add"},
			{"/s/" + over.ID + "/mcp", call("n__add"), "n", "add"},
			{"/s/" + over.ID + "/mcp/n", call("add"), "n", "add"},
			{"/s/" + over.ID + "/mcp", "[" + call("n__add") + "]", "n", "add"},
			{"/s/" + over.ID + "/mcp", call("nosuch__add"), "nosuch", "add"},
		} {
			if got := r.do(t, "POST", way.path, way.body, json...); got.status != http.StatusGone {
				t.Fatalf("%s: status %d %s", way.path, got.status, got.body)
			}
			list := want[api.CallList](t, r.worlds, "GET", "/v1/calls?session="+over.ID, "", asAda...).Calls
			if len(list) != i+1 {
				t.Fatalf("%s %s: the journal has %+v", way.path, way.body, list)
			}
			if e := list[0]; e.Server != way.server || e.Name != way.tool || e.Outcome != string(api.KindLost) || e.Principal != "ada" || !strings.Contains(e.Error, "was closed at") {
				t.Errorf("%s: the journal has %+v", way.path, e)
			}
		}
		lists := `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`
		r.do(t, "POST", "/s/"+over.ID+"/mcp", lists, json...)
		r.do(t, "POST", "/s/"+over.ID+"/mcp", call("n__add"), append([]string{"Content-Type", "application/json"}, asBob...)...)
		if list := want[api.CallList](t, r.worlds, "GET", "/v1/calls?session="+over.ID, "", asAda...).Calls; len(list) != 5 {
			t.Errorf("a list, or a call of another principal, is in the journal: %+v", list)
		}
	}
}

// TestRefusedCallsAreWrittenDown checks that the calls which a damaged session refuses
// are in the journal.
func TestRefusedCallsAreWrittenDown(t *testing.T) {
	t.Parallel()
	kind, gone := remembering(), atomic.Bool{}
	was := kind.New
	kind.New = func(e builtin.Env) (*mcp.Server, io.Closer, error) {
		if gone.Load() {
			return nil, nil, fmt.Errorf("reading a layer: %w", fs.ErrNotExist)
		}
		return was(e)
	}
	w := &worlds{world: open(t, "sessions: {on_loss: refuse}\nservers:\n  n: {builtin: memory, scope: session}\n  m: {builtin: memory, scope: session}\n",
		map[string]builtin.Kind{"memory": kind})}
	w.doc = readOpenAPI(t, w.world)
	s := w.open(t, `{}`)
	w.tool(t, s.ID, "add")
	gone.Store(true)
	w.restart()
	calls := func() []api.Call {
		return want[api.CallList](t, w, "GET", "/v1/calls?session="+s.ID, "").Calls
	}
	w.refused(t, http.StatusGone, "POST", "/v1/call", fmt.Sprintf(`{"tool":"n__show","session":%q}`, s.ID))
	before := len(calls())
	for i, server := range []string{"n", "m"} {
		e := w.refused(t, http.StatusGone, "POST", "/v1/call", fmt.Sprintf(`{"tool":"%s__show","arguments":{"k":1},"session":%q}`, server, s.ID))
		if !strings.Contains(e.Message, "sessions.on_loss is refuse") {
			t.Fatalf("the call of %s failed for another reason: %+v", server, e)
		}
		list := calls()
		if len(list) != before+i+1 {
			t.Fatalf("the journal has %+v", list)
		}
		if c := list[0]; c.Server != server || c.Name != "show" || c.Outcome != string(api.KindLost) || !strings.Contains(c.Error, "on_loss") || string(c.Arguments) != `{"k":1}` {
			t.Errorf("the journal has %+v", c)
		}
	}
}
