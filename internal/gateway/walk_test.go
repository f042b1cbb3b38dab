package gateway_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/native/rollout"
	"github.com/tine-mcp/tine/internal/testkit"
)

// A walked is one operation, asked for by ada, from whom the rules hide server
// zebra, by eve, a viewer, and by kim, who is revoked. In path and body stand {B}
// for a session of bob's, {S} for a snapshot of it, {C} for a call in it, {I} for an
// instance of bob's, {L} for a lease of bob's, {R} and {G} for a run of an agent of bob's and its session, {A} and {T} for a session and a snapshot of ada's own.
type walked struct {
	id, method, path, body string
	ada, eve               int // statuses; zero for a principal that is not asked
}

const (
	hiddenFile = `{"members":[{"server":"zebra","driver":"builtin","builtin":"memory","carries":"memory"}]}`
	said       = "what bob said"
)

// controlWalk goes through the control API. Each operation acts on what is another
// principal's or hidden, and some on what is the caller's own too.
var controlWalk = []walked{
	{"openAPI", "GET", "/v1/openapi.json", "", 200, 200},
	{"status", "GET", "/v1/status", "", 200, 200},
	{"reload", "POST", "/v1/reload", "", 403, 403},
	{"listServers", "GET", "/v1/servers", "", 200, 200},
	{"getServer", "GET", "/v1/servers/zebra", "", 404, 200},
	{"patchServer", "PATCH", "/v1/servers/zebra", `{"enabled":false}`, 403, 403},
	{"serverLogs", "GET", "/v1/servers/zebra/logs", "", 403, 403},
	{"beginLogin", "POST", "/v1/servers/zebra/login", `{"redirect":"http://127.0.0.1:1/x"}`, 404, 400},
	{"finishLogin", "POST", "/v1/servers/zebra/login/flow", `{"query":"x"}`, 404, 400},
	{"logout", "DELETE", "/v1/servers/zebra/login", "", 404, 400},
	{"listTools", "GET", "/v1/tools", "", 200, 200},
	{"listTools", "GET", "/v1/tools?server=zebra", "", 404, 200},
	{"listTools", "GET", "/v1/tools?server=zebra~1&session={A}", "", 404, 0},
	{"listTools", "GET", "/v1/tools?session={B}", "", 404, 403},
	{"callTool", "POST", "/v1/call", `{"tool":"zebra__add"}`, 400, 0},
	{"callTool", "POST", "/v1/call", `{"tool":"zebra__add","session":"{A}"}`, 400, 403},
	{"callTool", "POST", "/v1/call", `{"tool":"zebra__add","session":"{B}"}`, 404, 403},
	{"batch", "POST", "/v1/batch", `{"items":[{"fork":{"session":"{B}"}},{"close":{"session":"{B}"}},{"call":{"tool":"seen__add","session":"{B}"}},{"open":{"from":"{S}"}}]}`, 200, 200},
	{"batch", "POST", "/v1/batch", `{"items":[{"call":{"tool":"zebra__add","session":"{A}"}},{"open":{"servers":["zebra"],"from":"{T}"}}],"at_once":1}`, 200, 0},
	{"events", "GET", "/v1/events?follow=false&after=start", "", 200, 200},
	{"events", "GET", "/v1/events?follow=false&after=start&session={B}", "", 404, 200},
	{"listCalls", "GET", "/v1/calls", "", 200, 200},
	{"listCalls", "GET", "/v1/calls?server=zebra&principal=bob", "", 200, 200},
	{"getCall", "GET", "/v1/calls/{C}", "", 404, 200},
	{"replayCall", "POST", "/v1/calls/{C}/replay", "", 404, 409},
	{"listTokens", "GET", "/v1/tokens", "", 403, 403},
	{"newToken", "POST", "/v1/tokens", `{"name":"mallory","role":"operator"}`, 403, 403},
	{"rotateToken", "POST", "/v1/tokens/kim/rotate", "", 403, 403},
	{"confirmToken", "POST", "/v1/tokens/kim/confirm", "", 403, 403},
	{"confirmLost", "POST", "/v1/tokens/confirm", "", 403, 403},
	{"revokeToken", "DELETE", "/v1/tokens/kim", "", 403, 403},
	{"listSessions", "GET", "/v1/sessions?closed=true", "", 200, 200},
	{"listSessions", "GET", "/v1/sessions?owner=bob", "", 200, 200},
	{"openSession", "POST", "/v1/sessions", `{"eager":true}`, 200, 0},
	{"openSession", "POST", "/v1/sessions", `{"servers":["zebra"]}`, 400, 0},
	{"openSession", "POST", "/v1/sessions", `{"members":{"zebra":{"instances":2}}}`, 400, 0},
	{"openSession", "POST", "/v1/sessions", `{"from":"{T}","servers":["zebra"]}`, 400, 403},
	{"openSession", "POST", "/v1/sessions", `{"from":"{T}","eager":true}`, 200, 403},
	{"openSession", "POST", "/v1/sessions", `{"from":"{S}"}`, 404, 403},
	{"openSession", "POST", "/v1/sessions", `{"members":{"seen":{"template":"snapshot:{S}"}}}`, 404, 403},
	{"getSession", "GET", "/v1/sessions/{B}", "", 404, 200},
	{"getSession", "GET", "/v1/sessions/{A}", "", 200, 200},
	{"patchSession", "PATCH", "/v1/sessions/{B}", `{"labels":{"a":"b"}}`, 404, 403},
	{"patchSession", "PATCH", "/v1/sessions/{A}", `{"labels":{"a":"b"}}`, 200, 403},
	{"newSessionToken", "POST", "/v1/sessions/{B}/token", "", 404, 403},
	{"newSessionToken", "POST", "/v1/sessions/{A}/token", "", 200, 403},
	{"mintSessionToken", "POST", "/v1/sessions/{B}/tokens", "", 404, 403},
	{"mintSessionToken", "POST", "/v1/sessions/{A}/tokens", `{"servers":["zebra"]}`, 400, 403},
	{"mintSessionToken", "POST", "/v1/sessions/{A}/tokens", `{"run":"r"}`, 200, 403},
	{"listSessionTokens", "GET", "/v1/sessions/{B}/tokens", "", 404, 403},
	{"listSessionTokens", "GET", "/v1/sessions/{A}/tokens", "", 200, 403},
	{"revokeSessionToken", "DELETE", "/v1/sessions/{B}/tokens/x", "", 404, 403},
	{"revokeSessionToken", "DELETE", "/v1/sessions/{A}/tokens/x", "", 404, 403},
	{"revokeSessionTokens", "DELETE", "/v1/sessions/{B}/tokens?run=r", "", 404, 403},
	{"revokeSessionTokens", "DELETE", "/v1/sessions/{A}/tokens?run=r", "", 200, 403},
	{"listForks", "GET", "/v1/sessions/{B}/forks", "", 404, 200},
	{"forkSession", "POST", "/v1/sessions/{B}/forks", "", 404, 403},
	{"forkSession", "POST", "/v1/sessions/{A}/forks", `{"count":2}`, 200, 403},
	{"listForks", "GET", "/v1/sessions/{A}/forks", "", 200, 200},
	{"listSessionSnapshots", "GET", "/v1/sessions/{B}/snapshots", "", 404, 200},
	{"makeSnapshot", "POST", "/v1/sessions/{B}/snapshots", "", 404, 403},
	{"makeSnapshot", "POST", "/v1/sessions/{A}/snapshots", "", 200, 403},
	{"listSessionSnapshots", "GET", "/v1/sessions/{A}/snapshots", "", 200, 200},
	{"rewindSession", "POST", "/v1/sessions/{B}/rewind", "", 404, 403},
	{"rewindSession", "POST", "/v1/sessions/{A}/rewind", `{"snapshot":"{S}"}`, 404, 403},
	{"rewindSession", "POST", "/v1/sessions/{A}/rewind", "", 200, 403},
	{"listSessionCalls", "GET", "/v1/sessions/{B}/calls", "", 404, 200},
	{"trajectory", "GET", "/v1/sessions/{B}/trajectory", "", 404, 403},
	{"trajectories", "GET", "/v1/trajectories?owner=bob&closed=true", "", 403, 403},
	{"trajectories", "GET", "/v1/trajectories?label=nosuch%3Dx", "", 200, 200},
	{"annotate", "POST", "/v1/sessions/{B}/annotations", `{"reward":1}`, 404, 403},
	{"annotate", "POST", "/v1/sessions/{A}/annotations", `{"reward":1,"call":"{C}"}`, 404, 403},
	{"annotate", "POST", "/v1/sessions/{A}/annotations", `{"reward":1}`, 200, 403},
	{"sessionTree", "GET", "/v1/sessions/{B}/tree", "", 404, 200},
	{"sessionTree", "GET", "/v1/sessions/{A}/tree", "", 200, 200},
	{"newLease", "POST", "/v1/leases", `{"ttl":"1h"}`, 200, 0},
	{"listLeases", "GET", "/v1/leases", "", 200, 200},
	{"renewLease", "PUT", "/v1/leases/{L}", "", 404, 403},
	{"openSession", "POST", "/v1/sessions", `{"lease":"{L}"}`, 404, 404},
	{"endLease", "DELETE", "/v1/leases/{L}", "", 404, 403},
	{"execCommand", "POST", "/v1/sessions/{B}/exec", `{"server":"seen","argv":["ls"]}`, 404, 403},
	{"execCommand", "POST", "/v1/sessions/{A}/exec", `{"server":"zebra","argv":["ls"]}`, 400, 403},
	{"execCommand", "POST", "/v1/sessions/{A}/exec", `{"server":"seen","argv":["ls"]}`, 403, 403},
	{"getFiles", "GET", "/v1/sessions/{B}/files/workspace/x", "", 404, 403},
	{"getFiles", "GET", "/v1/sessions/{A}/files/zebra/x?list=true", "", 400, 403},
	{"putFiles", "PUT", "/v1/sessions/{B}/files/workspace/x", "x", 404, 403},
	{"putFiles", "PUT", "/v1/sessions/{A}/files/zebra/x", "x", 400, 403},
	{"putFiles", "PUT", "/v1/sessions/{A}/files/workspace/x", "x", 403, 403},
	{"diffSession", "GET", "/v1/sessions/{B}/diff?from={S}", "", 404, 403},
	{"diffSession", "GET", "/v1/sessions/{A}/diff?from={S}", "", 404, 403},
	{"diffSession", "GET", "/v1/sessions/{A}/diff?from={T}", "", 200, 403},
	{"readState", "GET", "/v1/sessions/{B}/state/seen", "", 404, 403},
	{"readState", "GET", "/v1/sessions/{A}/state/zebra", "", 400, 403},
	{"listAgents", "GET", "/v1/agents", "", 200, 200},
	{"getAgent", "GET", "/v1/agents/worker", "", 200, 200},
	{"putAgent", "PUT", "/v1/agents/bobs", `{}`, 403, 403},
	{"putAgent", "PUT", "/v1/agents/own", `{"mcp_servers":{"zebra":{}}}`, 200, 403},
	{"putAgent", "PUT", "/v1/agents/own", `{"mcp_servers":{"zebr":{}}}`, 200, 403},
	{"getBlueprint", "GET", "/v1/agents/bobs/blueprint", "", 403, 403},
	{"getBlueprint", "GET", "/v1/agents/own/blueprint", "", 200, 403},
	{"deleteAgent", "DELETE", "/v1/agents/bobs", "", 403, 403},
	{"startRun", "POST", "/v1/runs", `{"agent":"worker","prompt":"x"}`, 200, 0},
	{"startRun", "POST", "/v1/runs", `{"session":"{G}","prompt":"x"}`, 404, 403},
	{"listRuns", "GET", "/v1/runs", "", 200, 200},
	{"getRun", "GET", "/v1/runs/{R}", "", 404, 200},
	{"getRun", "GET", "/v1/runs/{R}?wait=1ms", "", 404, 200},
	{"runTree", "GET", "/v1/runs/{R}/tree", "", 404, 200},
	{"stopRun", "POST", "/v1/runs/{R}/stop", "", 404, 403},
	{"listAgentSessions", "GET", "/v1/agent-sessions", "", 200, 200},
	{"getAgentSession", "GET", "/v1/agent-sessions/{G}", "", 404, 200},
	{"closeAgentSession", "DELETE", "/v1/agent-sessions/{G}", "", 404, 403},
	{"listSnapshots", "GET", "/v1/snapshots?auto=true", "", 200, 200},
	{"importSnapshot", "POST", "/v1/snapshots/import", hiddenFile, 400, 400},
	{"importSnapshot", "POST", "/v1/snapshots/import", `{"members":[],"counts":{"zebra":2}}`, 400, 0},
	{"getSnapshot", "GET", "/v1/snapshots/{S}", "", 404, 200},
	{"getSnapshot", "GET", "/v1/snapshots/{T}", "", 200, 200},
	{"exportSnapshot", "GET", "/v1/snapshots/{S}/export", "", 404, 403},
	{"exportSnapshot", "GET", "/v1/snapshots/{T}/export", "", 200, 403},
	{"deleteSnapshot", "DELETE", "/v1/snapshots/{S}", "", 404, 403},
	{"closeSession", "DELETE", "/v1/sessions/{B}", "", 404, 403},
}

// orchestrationWalk goes through the orchestration API.
var orchestrationWalk = []walked{
	{"openAPI", "GET", "/openapi.json", "", 200, 200},
	{"health", "GET", "/health", "", 200, 200},
	{"listInstances", "GET", "/instances", "", 200, 200},
	{"createInstances", "POST", "/instances", `{"resource_type_identifier":"zebra"}`, 400, 0},
	{"createInstances", "POST", "/instances", `{"resource_type_identifier":"seen","template_details":{"snapshot_id":"{S}"}}`, 404, 403},
	{"getInstance", "GET", "/instances/{I}", "", 404, 200},
	{"forkInstance", "POST", "/instances/{I}/fork", "", 404, 403},
	{"snapshotInstance", "POST", "/instances/{I}/snapshot", "", 404, 403},
	{"callInstance", "POST", "/instances/{I}/call", `{"tool_name":"add"}`, 404, 403},
	{"listInstanceTools", "GET", "/instances/{I}/tools", "", 404, 403},
	{"deleteSnapshot", "DELETE", "/snapshots/{S}", "", 404, 403},
	{"deleteInstance", "DELETE", "/instances/{I}", "", 404, 403},
}

// rolloutWalk goes through the tools of rollout: what only bob may do has ada and eve zero.
var rolloutWalk = []walked{
	{id: "ping", body: `{"session_id":"{B}"}`, eve: 1}, // it is there, she sees
	{id: "list_sessions", body: `{}`, ada: 1, eve: 1},
	{id: "open_session", body: `{"from":"{S}"}`},
	{id: "open_session", body: `{"servers":["zebra"]}`, eve: 1},
	{id: "fork_session", body: `{"session_id":"{B}"}`},
	{id: "fork_session", body: `{"session_id":"{A}"}`, ada: 1},
	{id: "snapshot_session", body: `{"session_id":"{B}"}`},
	{id: "rewind_session", body: `{"session_id":"{B}"}`},
	{id: "close_session", body: `{"session_id":"{B}"}`},
	{id: "initialize_session", body: `{"backends":[{"backend_name_ref":"zebra"}]}`, eve: 1},
	{id: "call_backend_tool", body: `{"session_id":"{B}","backend_name_ref":"zebra","tool_name":"add","tool_args":{}}`},
	{id: "call_backend_tool", body: `{"session_id":"{A}","backend_name_ref":"zebra","tool_name":"add","tool_args":{}}`},
	{id: "list_backend_tools", body: `{"session_id":"{B}","backend_name_ref":"zebra"}`},
	{id: "list_backend_tools", body: `{"session_id":"{A}","backend_name_ref":"zebra"}`},
	{id: "cleanup_session", body: `{"session_id":"{B}"}`, ada: 1}, // there is none, it says
}

// TestRulesHoldOnEveryRoute walks every operation of both APIs and every tool of
// rollout: as a principal from whom a server is hidden, as a viewer, and as a
// principal that was revoked, with their own token and with that of their
// session.
func TestRulesHoldOnEveryRoute(t *testing.T) {
	control := &gateway.Control{}
	plain := openWith(t, teamYAML+`  rules:
    - {principals: [ada], servers: [seen, rollout]}
    - {principals: [bob, eve, ops, kim]}
servers:
  zebra: {builtin: memory, scope: session}
  seen: {builtin: memory, scope: session}
  rollout: {builtin: rollout}
`, func(o *gateway.Options) { o.Control, o.Orchestrate = control, true }, map[string]builtin.Kind{
		"memory": remembering(),
		"rollout": {New: func(e builtin.Env) (*mcp.Server, io.Closer, error) {
			s, err := rollout.New(e.Settings, control)
			return s, nil, err
		}},
	})
	w := &worlds{plain, readOpenAPI(t, plain, "Authorization", "Bearer "+operator)}
	call := func(session string, who []string) {
		t.Helper()
		want[api.CallResponse](t, w, "POST", "/v1/call", fmt.Sprintf(`{"tool":"zebra__add","session":%q,"arguments":{"text":%q}}`, session, said), who...)
	}
	kim := want[api.CreatedToken](t, w, "POST", "/v1/tokens", `{"name":"kim"}`, asOps...)
	of := func(who []string) (api.OpenedSession, api.Snapshot) {
		t.Helper()
		s := w.open(t, `{}`, who...)
		caller := who
		if slices.Equal(who, asAda) {
			caller = asOps // an operator has used it in her session
		}
		call(s.ID, caller)
		return s, want[api.Snapshot](t, w, "POST", "/v1/sessions/"+s.ID+"/snapshots", `{}`, caller...)
	}
	bobs, frozen := of(asBob)
	adas, adasFrozen := of(asAda)
	kims, _ := of(bearer(kim.Secret))
	inst := want1[[]api.Instance](t, w, "POST", "/instances", `{"resource_type_identifier":"zebra"}`, asBob...)[0]
	var made api.Call
	testkit.Eventually(t, "bob's call is in the journal", func() bool {
		for _, c := range want[api.CallList](t, w, "GET", "/v1/sessions/"+bobs.ID+"/calls", "", asBob...).Calls {
			made = c
		}
		return made.Name == "add"
	})
	want[api.Token](t, w, "DELETE", "/v1/tokens/kim", "", asOps...)
	running := func() int { return want[api.Server](t, w, "GET", "/v1/servers/zebra", "", asOps...).Instances }
	before := running()

	for name, who := range map[string][]string{"bobs": asBob, "own": asAda} {
		if r := w.ask(t, "PUT", "/v1/agents/"+name, fmt.Sprintf(`{"system_prompt":%q}`, said), who...); r.status != http.StatusCreated {
			t.Fatalf("%s: %d %s", name, r.status, r.body)
		}
	}
	lease := want[api.Lease](t, w, "POST", "/v1/leases", `{"ttl":"1h"}`, asBob...)
	run := want[api.Run](t, w, "POST", "/v1/runs", fmt.Sprintf(`{"agent":"worker","prompt":%q}`, said), asBob...)
	fill := strings.NewReplacer("{R}", run.ID, "{G}", run.Session, "{L}", lease.ID, "{B}", bobs.ID, "{S}", frozen.ID, "{C}", made.ID, "{I}", inst.ID, "{A}", adas.ID, "{T}", adasFrozen.ID).Replace
	send := func(q walked, who []string) *reply {
		t.Helper()
		body := fill(q.body)
		if q.id == "importSnapshot" {
			body = snapshotFile(body)
		}
		return w.do(t, q.method, fill(q.path), body, append([]string{"Content-Type", "application/json"}, who...)...)
	}
	tool := func(q walked, who []string) *reply {
		t.Helper()
		q.method, q.path = "POST", "/mcp/rollout"
		q.body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + q.id + `","arguments":` + q.body + `}}`
		return send(q, who)
	}
	// hidden checks that ada is told nothing of zebra: where she has named it herself,
	// that she is told what she would be told of anything that is not there.
	hidden := func(q walked, r *reply, again func(walked, []string) *reply) {
		t.Helper()
		if !strings.Contains(q.path+q.body, "zebra") {
			if strings.Contains(string(r.body), "zebra") || strings.Contains(string(r.body), said) {
				t.Errorf("%s: %s %s %s tells ada %s", q.id, q.method, q.path, q.body, r.body)
			}
			return
		}
		ghost := q
		ghost.path, ghost.body = strings.ReplaceAll(q.path, "zebra", "ghost"), strings.ReplaceAll(q.body, "zebra", "ghost")
		same := func(r *reply) string {
			return callID.ReplaceAllString(strings.ReplaceAll(string(r.body), "zebra", "ghost"), "call_ID")
		}
		if g := again(ghost, asAda); g.status != r.status || same(r) != same(g) {
			t.Errorf("%s: %s %s %s tells ada %d %s, and of what is not there %d %s", q.id, q.method, q.path, q.body, r.status, r.body, g.status, g.body)
		}
	}
	walk := func(all []walked, left map[string]bool) {
		t.Helper()
		for _, q := range all {
			delete(left, q.id)
			if r := send(q, asAda); r.status != q.ada {
				t.Errorf("%s: %s %s %s as ada: status %d %s, want %d", q.id, q.method, q.path, q.body, r.status, r.body, q.ada)
			} else {
				hidden(q, r, send)
			}
			if q.eve != 0 {
				if r := send(q, asEve); r.status != q.eve || strings.Contains(string(r.body), said) {
					t.Errorf("%s: %s %s %s as eve: status %d %s, want %d", q.id, q.method, q.path, q.body, r.status, r.body, q.eve)
				}
			}
			for what, token := range map[string]string{"own": kim.Secret, "session's": kims.Token} {
				if r := send(q, bearer(token)); r.status != http.StatusUnauthorized {
					t.Errorf("%s: %s %s %s by kim's %s token: status %d %s", q.id, q.method, q.path, q.body, what, r.status, r.body)
				}
			}
		}
		if len(left) > 0 {
			t.Errorf("not walked: %q", slices.Sorted(maps.Keys(left)))
		}
	}
	names := func(operations map[string]string) map[string]bool {
		left := make(map[string]bool)
		for _, id := range operations {
			left[id] = true
		}
		return left
	}
	walk(controlWalk, names(gateway.Operations()))
	walk(orchestrationWalk, names(gateway.OrchestrationOperations()))

	left := make(map[string]bool)
	for _, one := range tools(t, w.world, "/mcp/rollout", asAda...) {
		left[one.Name] = true
	}
	for _, q := range rolloutWalk {
		delete(left, q.id)
		failed := func(r *reply) bool {
			var m struct {
				Result struct{ IsError bool }
				Error  json.RawMessage
			}
			_ = json.Unmarshal(r.body, &m)
			return r.status != http.StatusOK || m.Error != nil || m.Result.IsError
		}
		if r := tool(q, asAda); failed(r) == (q.ada == 1) {
			t.Errorf("%s %s as ada: %s", q.id, q.body, r.body)
		} else {
			hidden(q, r, tool)
		}
		if r := tool(q, asEve); failed(r) == (q.eve == 1) || strings.Contains(string(r.body), said) {
			t.Errorf("%s %s as eve: %s", q.id, q.body, r.body)
		}
		for what, token := range map[string]string{"own": kim.Secret, "session's": kims.Token} {
			if r := tool(q, bearer(token)); r.status != http.StatusUnauthorized {
				t.Errorf("%s by kim's %s token: status %d %s", q.id, what, r.status, r.body)
			}
		}
	}
	if len(left) > 0 {
		t.Errorf("not walked of rollout: %q", slices.Sorted(maps.Keys(left)))
	}

	// No principal but eve, who may, has started anything of zebra; bob's world is as it was.
	if n := running(); n > before+2 {
		t.Errorf("%d instances of zebra run, and %d did before", n, before)
	}
	if got := want[api.Session](t, w, "GET", "/v1/sessions/"+bobs.ID, "", asBob...); !got.Closed.IsZero() || len(got.Labels) > 0 {
		t.Errorf("bob's session is %+v", got)
	}
	want[api.Session](t, w, "GET", "/v1/sessions/"+bobs.ID, "", bearer(bobs.Token)...)
	if list := want[api.SnapshotList](t, w, "GET", "/v1/snapshots", "", asBob...); len(list.Snapshots) != 1 {
		t.Errorf("bob has %+v", list)
	}
}
