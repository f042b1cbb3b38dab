package gateway_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver/builtin"
)

// A trajectory has the list of tools that the session saw, once, and again where it has
// changed.
func TestToolsInTrajectories(t *testing.T) {
	t.Parallel()
	var edition atomic.Int32
	kind := factory(func() *mcp.Server {
		s := sdkServer("changing", nil)
		for i := range edition.Load() + 1 {
			s.AddTool(&mcp.Tool{Name: fmt.Sprintf("t%d", i), Description: "does <nothing>", InputSchema: anyObject, Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
				func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("x"), nil })
		}
		return s
	})
	plain := open(t, teamYAML+"servers:\n  n: {builtin: everything, scope: session}\n", map[string]builtin.Kind{"everything": kind})
	w := &worlds{plain, readOpenAPI(t, plain, "Authorization", "Bearer "+operator)}
	s := w.open(t, `{}`, asAda...)
	list := func(session, path string, who ...string) string {
		t.Helper()
		r := w.do(t, "POST", "/s/"+session+path, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, append([]string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream"}, who...)...)
		var out struct{ Result struct{ Tools []any } }
		decode(t, r.body, &out)
		if len(out.Result.Tools) == 0 {
			t.Fatalf("status %d %s", r.status, r.body)
		}
		_, after, _ := strings.Cut(string(r.body), `"tools":`)
		return after
	}
	story := func(id string) string {
		t.Helper()
		var out []string
		for _, step := range w.steps(t, id, asAda...) {
			line := step.Type
			if step.Type == "tools" {
				line += fmt.Sprintf("(%s:%d)", step.Server, strings.Count(string(step.Tools), `"inputSchema"`))
			}
			out = append(out, line)
		}
		return strings.Join(out, " ")
	}
	seen := list(s.ID, "/mcp", bearer(s.Token)...)
	list(s.ID, "/mcp", asAda...)
	want[api.ToolList](t, w, "GET", "/v1/tools?session="+s.ID, "", asAda...)
	list(s.ID, "/mcp/n", asAda...)
	list(s.ID, "/mcp", asOps...) // what an operator sees is not for ada
	want[api.CallResponse](t, w, "POST", "/v1/call", `{"tool":"n__t0","session":"`+s.ID+`"}`, asAda...)
	for _, step := range w.steps(t, s.ID, asAda...) {
		if step.Type == "tools" && step.Server == "" && (!strings.HasPrefix(seen, string(step.Tools)) || !strings.Contains(string(step.Tools), `"readOnlyHint":true`) || !strings.Contains(string(step.Tools), `"n__t0"`)) {
			t.Errorf("the list is %s, and was seen as %s", step.Tools, seen)
		}
	}
	if got := story(s.ID); got != "session tools(:1) tools(n:1) call" {
		t.Errorf("it is told as %s", got)
	}
	fork := want[api.Forks](t, w, "POST", "/v1/sessions/"+s.ID+"/forks", "", asAda...).Sessions[0]
	list(fork.ID, "/mcp", asAda...)
	w.restart()
	edition.Store(1)
	w.restart()
	list(fork.ID, "/mcp", asAda...)
	list(s.ID, "/mcp", asOps...)
	if got := story(fork.ID); got != "session tools(:1) tools(n:1) call fork session tools(:2)" {
		t.Errorf("the fork is told as %s", got)
	}
}

// A call has the time that its caller gives it, where that is less than the server's.
func TestCallTimeout(t *testing.T) {
	t.Parallel()
	slow := factory(func() *mcp.Server {
		s := sdkServer("slow", nil)
		s.AddTool(&mcp.Tool{Name: "wait", InputSchema: anyObject}, func(ctx context.Context, _ *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		s.AddTool(&mcp.Tool{Name: "now", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return text("x"), nil })
		return s
	})
	plain := open(t, "servers:\n  slow: {builtin: everything, scope: shared, timeout: 1m}\n", map[string]builtin.Kind{"everything": slow})
	w := &worlds{plain, readOpenAPI(t, plain)}
	if e := w.refused(t, http.StatusGatewayTimeout, "POST", "/v1/call", `{"tool":"slow__wait","timeout":"50ms"}`); e.Kind != api.KindTimeout || !strings.Contains(e.Message, "within 50ms (the timeout of the call)") {
		t.Errorf("got %+v", e)
	}
	want[api.CallResponse](t, w, "POST", "/v1/call", `{"tool":"slow__now","timeout":"24h"}`)
	if all, failed := w.batch(t, `{"items":[{"call":{"tool":"slow__wait","timeout":"50ms"}},{"call":{"tool":"slow__now","timeout":"1m"}}]}`); failed != 1 || all[0].Error == nil || all[0].Error.Kind != api.KindTimeout {
		t.Errorf("a batch: %+v", all)
	}
	for _, wrong := range []string{"0s", "-1s", "soon", "25h"} {
		if e := w.refused(t, http.StatusBadRequest, "POST", "/v1/call", `{"tool":"slow__now","timeout":"`+wrong+`"}`); !strings.Contains(e.Message, "timeout must be") {
			t.Errorf("%s: %+v", wrong, e)
		}
	}
}

// A token may be the password of a URL, for sessions and the control API.
func TestBasic(t *testing.T) {
	t.Parallel()
	w := openWorlds(t, teamYAML+"cors: {origins: [\"https://page.example\"]}\n")
	s := w.open(t, `{}`, asAda...)
	basic := func(userinfo string) []string {
		return []string{"Authorization", "Basic " + base64.StdEncoding.EncodeToString([]byte(userinfo))}
	}
	const token = "ada-ada-ada-ada-ada"
	ping := func(path string, who ...string) int {
		t.Helper()
		return w.do(t, "POST", path, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, append([]string{"Content-Type", "application/json", "Accept", "application/json, text/event-stream"}, who...)...).status
	}
	for _, userinfo := range []string{"any:" + token, ":" + token, "token:" + s.Token} {
		if got := want[api.Session](t, w, "GET", "/v1/sessions/"+s.ID, "", basic(userinfo)...); got.ID != s.ID {
			t.Errorf("%s: %+v", userinfo, got)
		}
		if status := ping("/s/"+s.ID+"/mcp", basic(userinfo)...); status != http.StatusOK {
			t.Errorf("%s at the session: status %d", userinfo, status)
		}
	}
	for _, userinfo := range []string{token, token + ":", "any:wrong-wrong-wrong", ""} {
		if e := w.refused(t, http.StatusUnauthorized, "GET", "/v1/sessions/"+s.ID, "", basic(userinfo)...); strings.Contains(e.Message, token) {
			t.Errorf("%s: %+v", userinfo, e)
		}
	}
	w.refused(t, http.StatusUnauthorized, "GET", "/v1/status", "", "Authorization", "Basic !!!")
	// Elsewhere it is no token.
	if status := ping("/mcp", basic("any:"+token)...); status != http.StatusUnauthorized {
		t.Errorf("at /mcp: status %d", status)
	}
	// A browser sends passwords by itself, so that they don't excuse a foreign page.
	if r := w.do(t, "DELETE", "/v1/sessions/"+s.ID, "", append([]string{"Origin", "https://page.example"}, basic("any:"+token)...)...); r.status != http.StatusForbidden {
		t.Errorf("by a page: status %d %s", r.status, r.body)
	}
	// The session's token is for the session, in a password too.
	w.refused(t, http.StatusForbidden, "GET", "/v1/sessions", "", basic("any:"+s.Token)...)
	if log := w.log.String(); strings.Contains(log, token) || strings.Contains(log, s.Token) {
		t.Error("a token is in the log")
	}
}
