package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/testkit"
)

// openPair is a gateway with two servers that are alike, n and m.
func openPair(t *testing.T) *worlds {
	t.Helper()
	w := openWith(t, teamYAML+"servers:\n  n: {builtin: memory, scope: session}\n  m: {builtin: memory, scope: session}\n", nil, map[string]builtin.Kind{"memory": remembering()})
	return &worlds{w, readOpenAPI(t, w, "Authorization", "Bearer "+operator)}
}

func (w *worlds) mint(t testing.TB, session, body string, who ...string) api.MintedToken {
	t.Helper()
	return want[api.MintedToken](t, w, "POST", "/v1/sessions/"+session+"/tokens", body, who...)
}

// rightsOf is what routes need of a further token of a session, by their names.
func rightsOf(t *testing.T, doc *openAPI) (rights map[string]string, at map[string][2]string) {
	t.Helper()
	var all struct {
		Paths map[string]map[string]struct {
			ID    string `json:"operationId"`
			Bound bool   `json:"x-session-token"`
			Right string `json:"x-session-token-right"`
		}
	}
	if err := json.Unmarshal(doc.raw, &all); err != nil {
		t.Fatal(err)
	}
	rights, at = make(map[string]string), make(map[string][2]string)
	for path, methods := range all.Paths {
		for method, op := range methods {
			at[op.ID] = [2]string{strings.ToUpper(method), path}
			if op.Bound {
				rights[op.ID] = op.Right
			} else if op.Right != "" {
				t.Errorf("%s is for no token of a session, and needs the right %q", op.ID, op.Right)
			}
		}
	}
	return rights, at
}

// TestRoutesOfRuns makes every request of the control API with a token of a run, with
// each right and without any.
func TestRoutesOfRuns(t *testing.T) {
	t.Parallel()
	w := openPair(t)
	rights, routes := rightsOf(t, w.doc)
	// What each right is for, in words that don't come from the table of routes.
	open := map[string]string{
		"openAPI": "*", "listServers": "*", "listTools": "*", "callTool": "*", "batch": "*", "getSession": "*", "listSessionCalls": "*",
		"closeSession": "close", "listForks": "fork", "forkSession": "fork", "listSessionSnapshots": "snapshot", "makeSnapshot": "snapshot",
		"rewindSession": "rewind", "trajectory": "trajectory", "events": "",
	}
	// What a run may do with agents is decided by its coordinator, which does not know
	// this one.
	ofAgents := []string{
		"listAgents", "getAgent", "listRuns", "startRun", "getRun", "stopRun", "runTree", "listAgentSessions", "getAgentSession", "closeAgentSession",
	}
	for _, name := range ofAgents {
		open[name] = "*"
	}
	if !maps.Equal(rights, open) {
		t.Errorf("tokens of sessions may use %v, want %v", rights, open)
	}
	bodies := map[string]string{
		"callTool": `{"tool":"n__show"}`, "batch": `{"items":[{"call":{"tool":"n__show"}}]}`, "annotate": `{"reward":1}`, "openSession": `{}`,
		"patchSession": `{"labels":{}}`, "execCommand": `{"server":"n","argv":["ls"]}`, "mintSessionToken": `{"run":"other"}`,
	}
	for _, allow := range append([]string{""}, api.Allows[:]...) {
		s := w.open(t, `{}`, asAda...)
		want[api.Snapshot](t, w, "POST", "/v1/sessions/"+s.ID+"/snapshots", "", asAda...)
		body := `{"run":"run_1"}`
		if allow != "" {
			body = fmt.Sprintf(`{"run":"run_1","allow":[%q]}`, allow)
		}
		who := bearer(w.mint(t, s.ID, body, asAda...).Token)
		names := slices.Sorted(maps.Keys(routes))
		// Closing comes last: nothing works after it.
		names = append(slices.DeleteFunc(names, func(n string) bool { return n == "closeSession" }), "closeSession")
		for _, name := range names {
			method, path := routes[name][0], strings.ReplaceAll(routes[name][1], "{session}", s.ID)
			for _, part := range []string{"{server}", "{flow}", "{call}", "{token}", "{lease}", "{place}", "{path}", "{snapshot}", "{agent}", "{run}"} {
				path = strings.ReplaceAll(path, part, "x")
			}
			r := w.do(t, method, path, bodies[name], append([]string{"Content-Type", "application/json"}, who...)...)
			if slices.Contains(ofAgents, name) {
				if r.status/100 == 2 && !strings.Contains(string(r.body), `:[]`) {
					t.Errorf("with the right %q, %s of a run that there is not: status %d %s", allow, name, r.status, r.body)
				}
				continue
			}
			may := open[name] == "*" || allow != "" && open[name] == allow
			if may && r.status/100 != 2 || !may && r.status != http.StatusForbidden {
				t.Errorf("with the right %q, %s: %s %s: status %d %s", allow, name, method, path, r.status, r.body)
			}
		}
		if closed := want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "", asAda...).Closed; closed.IsZero() == (allow == "close") {
			t.Errorf("with the right %q, the session is closed: %v", allow, closed)
		}
	}
}

// TestRunsActNowhereElse checks the ways to a right that are no route of it.
func TestRunsActNowhereElse(t *testing.T) {
	t.Parallel()
	w := openPair(t)
	s, other := w.open(t, `{}`, asAda...), w.open(t, `{}`, asAda...)
	who := bearer(w.mint(t, s.ID, `{"run":"run_1"}`, asAda...).Token)
	for name, item := range map[string]string{
		"fork": `{"fork":{"session":"` + s.ID + `"}}`, "close": `{"close":{"session":"` + s.ID + `"}}`, "open": `{"open":{}}`,
		"a call elsewhere": `{"call":{"tool":"n__show","session":"` + other.ID + `"}}`,
	} {
		lines, failed := w.batch(t, `{"items":[`+item+`]}`, who...)
		if failed != 1 || lines[0].Status != http.StatusForbidden && lines[0].Status != http.StatusNotFound {
			t.Errorf("%s in a batch: %+v", name, lines)
		}
	}
	w.refused(t, http.StatusNotFound, "GET", "/v1/sessions/"+other.ID, "", who...)
	w.refused(t, http.StatusNotFound, "POST", "/v1/call", `{"tool":"n__show","session":"`+other.ID+`"}`, who...)
	if r := w.callAt(t, "/s/"+other.ID+"/mcp/n", "show", who...); r.status != http.StatusNotFound {
		t.Errorf("another session of its owner: status %d %s", r.status, r.body)
	}
	if r := w.do(t, "GET", "/metrics", "", who...); r.status != http.StatusForbidden {
		t.Errorf("metrics: status %d", r.status)
	}
	if want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "", asAda...).Closed.IsZero() == false {
		t.Error("the session is closed")
	}
	// The same key of another token, or of the owner, is another key.
	allowed := bearer(w.mint(t, s.ID, `{"allow":["fork"]}`, asAda...).Token)
	key := []string{"Idempotency-Key", "k-0123456789"}
	f := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", "", append(key, asAda...)...)
	g := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", "", append(key, allowed...)...)
	if f.Sessions[0].ID == g.Sessions[0].ID {
		t.Error("a token of a run is answered what its owner made")
	}
	w.refused(t, http.StatusForbidden, "POST", "/v1/sessions/"+s.ID+"/forks", "", append(key, who...)...)
	// What it forks does not outlast it.
	short := bearer(w.mint(t, s.ID, `{"allow":["fork"],"ttl":"1h"}`, asAda...).Token)
	child := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", `{"ttl":"0s"}`, short...).Sessions[0]
	if left := time.Until(child.Expires); child.Expires.IsZero() || left > time.Hour {
		t.Errorf("a fork by a token that is good for an hour is there for %s", left)
	}
}

// TestServersOfRuns checks by every way in that a token reaches no other server.
func TestServersOfRuns(t *testing.T) {
	t.Parallel()
	w := openPair(t)
	s := w.open(t, `{}`, asAda...)
	made := w.mint(t, s.ID, `{"run":"run_1","servers":["n","n"]}`, asAda...)
	if !slices.Equal(made.Servers, []string{"n"}) || made.Run != "run_1" || made.Session != s.ID || time.Until(made.Expires) > 24*time.Hour || time.Until(made.Expires) < 23*time.Hour {
		t.Errorf("made %+v", made.SessionToken)
	}
	none := w.mint(t, s.ID, `{"run":"run_0","servers":[],"ttl":"0s"}`, asAda...)
	if none.Servers == nil || len(none.Servers) > 0 || !none.Expires.IsZero() {
		t.Errorf("made %+v", none.SessionToken)
	}
	for _, restarted := range []bool{false, true} {
		if restarted {
			w.restart()
		}
		for token, sees := range map[string]string{made.Token: "n", none.Token: "", s.Token: "m n"} {
			who := bearer(token)
			var servers, members, tools []string
			for _, one := range want[api.ServerList](t, w, "GET", "/v1/servers", "", who...).Servers {
				servers = append(servers, one.ID)
			}
			for _, one := range want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "", who...).Members {
				members = append(members, one.Server)
			}
			for _, one := range want[api.ToolList](t, w, "GET", "/v1/tools", "", who...).Tools {
				if !slices.Contains(tools, one.Server) {
					tools = append(tools, one.Server)
				}
			}
			for what, got := range map[string][]string{"servers": servers, "members": members, "tools": tools} {
				slices.Sort(got)
				if strings.Join(got, " ") != sees {
					t.Errorf("it sees the %s %v, want %s", what, got, sees)
				}
			}
			for _, server := range []string{"n", "m"} {
				may := strings.Contains(sees, server)
				if r := w.ask(t, "POST", "/v1/call", `{"tool":"`+server+`__show"}`, who...); (r.status == http.StatusOK) != may {
					t.Errorf("%s, which may see %q, is called: status %d %s", server, sees, r.status, r.body)
				}
				for _, path := range []string{"/s/" + s.ID + "/mcp/" + server, "/mcp/" + server} {
					if r := w.callAt(t, path, "show", who...); strings.Contains(string(r.body), `"result"`) != may {
						t.Errorf("%s, which may see %q: status %d %s", path, sees, r.status, r.body)
					}
				}
				if r := w.callAt(t, "/s/"+s.ID+"/mcp", server+"__show", who...); strings.Contains(string(r.body), `"result"`) != may {
					t.Errorf("%s in the merged view, which may see %q: status %d %s", server, sees, r.status, r.body)
				}
			}
		}
	}
	// A client with a handshake is the token's that opened it.
	c := w.dial(t, "/s/"+s.ID+"/mcp", `{}`, bearer(made.Token)...)
	list := func(token string) *reply {
		return w.do(t, "POST", "/s/"+s.ID+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			append([]string{"Content-Type", "application/json", "Accept", bothTypes, "Mcp-Session-Id", c.id}, bearer(token)...)...)
	}
	w.restart()
	for token, status := range map[string]int{made.Token: http.StatusOK, none.Token: http.StatusNotFound, s.Token: http.StatusNotFound} {
		if r := list(token); r.status != status || strings.Contains(string(r.body), "m__") {
			t.Errorf("the client of a run with another token: status %d %s, want %d", r.status, r.body, status)
		}
	}
}

// TestCallsOfRuns checks that a call has the run of its token wherever it is shown, and
// who is shown it.
func TestCallsOfRuns(t *testing.T) {
	t.Parallel()
	w := openPair(t)
	s := w.open(t, `{}`, asAda...)
	at := "/v1/sessions/" + s.ID
	one, two := bearer(w.mint(t, s.ID, `{"run":"run_1"}`, asAda...).Token), bearer(w.mint(t, s.ID, `{"run":"run_2","servers":["n"]}`, asAda...).Token)
	followed, end := follow(t, w.world, "/v1/calls?follow=true&run=run_1", asOps)
	defer end()
	mine, end := follow(t, w.world, at+"/calls?follow=true", two)
	defer end()
	w.tool(t, s.ID, "add", asAda...)
	w.tool(t, "", "add", two...)
	w.tool(t, "", "add", one...)
	w.ask(t, "POST", "/v1/call", `{"tool":"m__show"}`, two...) // which it does not reach
	w.callAt(t, "/s/"+s.ID+"/mcp/n", "show", one...)
	for _, name := range []string{"add", "show"} {
		var c api.Call
		if err := json.Unmarshal([]byte(<-followed), &c); err != nil || c.Run != "run_1" || c.Name != name || c.Principal != "ada" || c.Session != s.ID {
			t.Errorf("followed %+v, %v", c, err)
		}
	}
	runs := func(path string, who ...string) string {
		t.Helper()
		var all []string
		for _, c := range want[api.CallList](t, w, "GET", path, "", who...).Calls {
			all = append(all, strings.TrimSpace(c.Run+" "+c.Server+" "+c.Name))
		}
		slices.Sort(all)
		return strings.Join(all, ", ")
	}
	testkit.Eventually(t, "the calls are listed", func() bool { return strings.Count(runs("/v1/calls", asOps...), ",") == 4 })
	for path, list := range map[string]string{
		"/v1/calls?run=run_1":   "run_1 n add, run_1 n show",
		"/v1/calls?run=run_3":   "",
		at + "/calls?run=run_2": "run_2 m show, run_2 n add",
		at + "/calls":           "n add, run_1 n add, run_1 n show, run_2 m show, run_2 n add",
	} {
		if got := runs(path, asAda...); got != list {
			t.Errorf("%s: %s, want %s", path, got, list)
		}
	}
	if got := runs("/v1/calls?run=run_1", asBob...); got != "" {
		t.Errorf("somebody else is shown %s", got)
	}
	for path, list := range map[string]string{at + "/calls": "run_2 n add", at + "/calls?run=run_1": "", at + "/calls?server=m": ""} {
		if got := runs(path, two...); got != list {
			t.Errorf("the run itself, %s: %s, want %s", path, got, list)
		}
	}
	var c api.Call
	if err := json.Unmarshal([]byte(<-mine), &c); err != nil || c.Run != "run_2" || c.Name != "add" {
		t.Errorf("it follows %+v, %v", c, err)
	}
	var told []string
	for _, step := range ofType(w.steps(t, s.ID, asAda...), "call") {
		told = append(told, step.Run)
	}
	if got := strings.Join(told, " "); got != " run_2 run_1 run_2 run_1" {
		t.Errorf("the trajectory has the runs %q", got)
	}
	// Who may read the trajectory reads all but rewards.
	w.annotate(t, s.ID, `{"reward":0.5}`, asAda...)
	reader := bearer(w.mint(t, s.ID, `{"allow":["trajectory"]}`, asAda...).Token)
	steps := w.steps(t, s.ID, reader...)
	if len(ofType(steps, "call")) != 5 || len(ofType(steps, "annotation")) != 0 {
		t.Errorf("who may read the trajectory reads %+v", steps)
	}
}

// TestRevokedRuns checks that a token is worth nothing once it is revoked, also for what
// was open, and that the others go on.
func TestRevokedRuns(t *testing.T) {
	t.Parallel()
	w := openPair(t)
	s := w.open(t, `{}`, asAda...)
	at := "/v1/sessions/" + s.ID
	made := map[string]api.MintedToken{}
	for _, run := range []string{"run_1", "run_2"} {
		made[run] = w.mint(t, s.ID, `{"run":"`+run+`"}`, asAda...)
	}
	again := w.mint(t, s.ID, `{"run":"run_1","allow":["snapshot","fork"]}`, asAda...)
	streams := map[string]*stream{}
	for run, m := range made {
		streams[run] = w.dial(t, "/s/"+s.ID+"/mcp", `{}`, bearer(m.Token)...).listen()
	}
	list := want[api.SessionTokenList](t, w, "GET", at+"/tokens", "", asAda...)
	if len(list.Tokens) != 3 || list.Tokens[2].ID != again.ID || !slices.Equal(list.Tokens[2].Allow, []string{"fork", "snapshot"}) {
		t.Errorf("listed %+v", list)
	}
	if raw := string(w.ask(t, "GET", at+"/tokens", "", asAda...).body); strings.Contains(raw, again.Token) || strings.Contains(raw, `"token"`) {
		t.Errorf("a list shows tokens: %s", raw)
	}
	for status, who := range map[int][]string{http.StatusForbidden: asEve, http.StatusNotFound: asBob} {
		for _, q := range []struct{ method, path, body string }{
			{"GET", "/tokens", ""}, {"POST", "/tokens", `{}`}, {"DELETE", "/tokens?run=run_1", ""}, {"DELETE", "/tokens/" + again.ID, ""},
		} {
			w.refused(t, status, q.method, at+q.path, q.body, who...)
		}
	}
	w.refused(t, http.StatusBadRequest, "DELETE", at+"/tokens", "", asAda...)
	w.refused(t, http.StatusNotFound, "DELETE", at+"/tokens/tok_x", "", asAda...)
	w.gone(t, at+"/tokens/"+made["run_1"].ID, asAda...)
	if _, err := streams["run_1"].tryNext(); err == nil {
		t.Error("a stream goes on whose token is revoked")
	}
	w.refused(t, http.StatusUnauthorized, "GET", at, "", bearer(made["run_1"].Token)...)
	w.tool(t, "", "add", bearer(again.Token)...)
	if got := want[api.RevokedTokens](t, w, "DELETE", at+"/tokens?run=run_1", "", asOps...); got.Revoked != 1 {
		t.Errorf("revoked %+v", got)
	}
	if got := want[api.RevokedTokens](t, w, "DELETE", at+"/tokens?run=run_1", "", asAda...); got.Revoked != 0 {
		t.Errorf("revoked twice: %+v", got)
	}
	for _, restarted := range []bool{false, true} {
		if restarted {
			w.restart()
		}
		w.refused(t, http.StatusUnauthorized, "GET", at, "", bearer(again.Token)...)
		w.tool(t, "", "add", bearer(made["run_2"].Token)...)
	}
	// A session token that is replaced leaves them as they are, and the session's end does not.
	want[api.OpenedSession](t, w, "POST", at+"/token", "", asAda...)
	w.tool(t, "", "add", bearer(made["run_2"].Token)...)
	w.gone(t, at, asAda...)
	w.refused(t, http.StatusUnauthorized, "GET", at, "", bearer(made["run_2"].Token)...)
	w.refused(t, http.StatusGone, "POST", at+"/tokens", `{}`, asAda...)
	if got := want[api.RevokedTokens](t, w, "DELETE", at+"/tokens?run=run_2", "", asAda...); got.Revoked != 0 {
		t.Errorf("of a closed session: %+v", got)
	}
	if log := w.log.String(); strings.Contains(log, again.Token) || strings.Contains(log, made["run_2"].Token) {
		t.Error("a token is in the log")
	}
}

func TestWrongTokensOfRuns(t *testing.T) {
	t.Parallel()
	w := openPair(t)
	s := w.open(t, `{"servers":["n"]}`, asAda...)
	at := "/v1/sessions/" + s.ID + "/tokens"
	for _, tt := range []struct{ body, says string }{
		{`{"servers":["m"]}`, "m"}, {`{"servers":["x"]}`, "x"}, {`{"servers":["n~1"]}`, "n~1"}, {`{"servers":[""]}`, "servers"},
		{`{"run":"a b"}`, "run"}, {`{"run":"` + strings.Repeat("r", 65) + `"}`, "run"}, {`{"ttl":"soon"}`, "ttl"}, {`{"ttl":"-1h"}`, "ttl"}, {`{"ttl":"9000h"}`, "ttl"},
		{`{"allow":["all"]}`, "all"}, {`{"allow":[""]}`, "allow"}, {`{"allow":["fork"],"servers":["n"]}`, "fork"}, {`{"allow":["trajectory"],"servers":[]}`, "trajectory"},
		{`{"server":"n"}`, "server"},
	} {
		if e := w.refused(t, http.StatusBadRequest, "POST", at, tt.body, asAda...); !strings.Contains(e.Message, tt.says) {
			t.Errorf("%s: %s", tt.body, e.Message)
		}
	}
	key := append([]string{"Idempotency-Key", "k-0123456789"}, asAda...)
	first := want[api.MintedToken](t, w, "POST", at, `{"run":"r"}`, key...)
	if next := want[api.MintedToken](t, w, "POST", at, `{"run":"r"}`, key...); next.Token != first.Token || next.ID != first.ID {
		t.Errorf("the same request makes %+v, then %+v", first.SessionToken, next.SessionToken)
	}
	want[api.ToolList](t, w, "GET", "/v1/tools", "", asAda...)
	for _, one := range want[api.SessionList](t, w, "GET", "/v1/sessions", "", asAda...).Sessions {
		if one.Kind != api.SessionOpened {
			w.refused(t, http.StatusBadRequest, "POST", "/v1/sessions/"+one.ID+"/tokens", `{}`, asAda...)
		}
	}
}

// TestInstancesOfRuns checks the orchestration API with a further token of the session
// that an instance is.
func TestInstancesOfRuns(t *testing.T) {
	t.Parallel()
	w := openOrchestrator(t, teamYAML)
	rights, _ := rightsOf(t, w.doc)
	if want := map[string]string{
		"openAPI": "*", "health": "*", "getInstance": "*", "callInstance": "*", "listInstanceTools": "*", "deleteInstance": "close", "forkInstance": "fork", "snapshotInstance": "snapshot",
	}; !maps.Equal(rights, want) {
		t.Errorf("tokens of sessions may use %v, want %v", rights, want)
	}
	i := w.instances(t, `{"resource_type_identifier":"n"}`, asAda...)[0]
	var made api.MintedToken
	decode(t, w.do(t, "POST", "/v1/sessions/"+i.ID+"/tokens", `{"run":"run_1","servers":["n"],"allow":["snapshot"]}`, append([]string{"Content-Type", "application/json"}, asAda...)...).body, &made)
	who := bearer(made.Token)
	for _, q := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "", "", 200}, {"GET", "/tools", "", 200}, {"POST", "/call", `{"tool_name":"show","arguments":{}}`, 200}, {"POST", "/snapshot", "", 200},
		{"POST", "/fork", "", 403}, {"DELETE", "", "", 403},
	} {
		if r := w.ask(t, q.method, "/instances/"+i.ID+q.path, q.body, who...); r.status != q.status {
			t.Errorf("%s %s: status %d %s, want %d", q.method, q.path, r.status, r.body, q.status)
		}
	}
	decode(t, w.do(t, "POST", "/v1/sessions/"+i.ID+"/tokens", `{"servers":[]}`, append([]string{"Content-Type", "application/json"}, asAda...)...).body, &made)
	for _, path := range []string{"/tools", "/call"} {
		method, body := "GET", ""
		if path == "/call" {
			method, body = "POST", `{"tool_name":"show","arguments":{}}`
		}
		if r := w.ask(t, method, "/instances/"+i.ID+path, body, bearer(made.Token)...); r.status/100 == 2 && !strings.Contains(string(r.body), `"isError":true`) {
			t.Errorf("without its server, %s: status %d %s", path, r.status, r.body)
		}
	}
}
