package gateway_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	services "github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/testkit"
)

const agentSession = "ses_0123456789ab"

// namesOf are the tools that a client is listed.
func namesOf(t *testing.T, cs *mcp.ClientSession) string {
	t.Helper()
	list, err := cs.ListTools(t.Context(), nil)
	if err != nil {
		return err.Error()
	}
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// TestWorldsOfAgents has the servers of an open session change under its client.
func TestWorldsOfAgents(t *testing.T) {
	const secret = "hush-of-no-known-form"
	var key atomic.Value
	up := sdkServer("far", nil)
	up.AddTool(&mcp.Tool{Name: "echo", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("far"), nil
	})
	h := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return up }, &mcp.StreamableHTTPOptions{Stateless: true})
	far := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		key.Store(r.Header.Get("X-Key"))
		h.ServeHTTP(rw, r)
	}))
	defer far.Close()
	w := open(t, "servers:\n  n: {builtin: memory, scope: session}\n  other: {builtin: memory, scope: session}\n", map[string]builtin.Kind{"memory": remembering()})
	ctx := t.Context()
	world := services.World{
		Session: agentSession, Pinned: identity.Pin(identity.Local()), Labels: map[string]string{"agent": "tester"}, Parent: "ses_ba9876543210",
		Servers: []string{"n"}, Made: access.MadeByFile,
		Inline: map[string]json.RawMessage{"far": json.RawMessage(fmt.Sprintf(`{"url": %q, "headers": {"X-Key": %q}}`, far.URL, secret))},
	}
	for range 2 {
		if err := w.gw.Worlds().Open(ctx, world); err != nil {
			t.Fatal(err)
		}
	}
	changed := make(chan struct{}, 16)
	who := bearer(operator)
	tr := &mcp.StreamableClientTransport{Endpoint: w.at("/s/" + agentSession + "/mcp"), HTTPClient: &http.Client{Transport: withHeader{w.http.Transport, who}}}
	cs := w.connectTransport(t, tr, false, &mcp.ClientOptions{ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} }})
	if got := namesOf(t, cs); got != "far__echo n__add n__grow n__show" {
		t.Errorf("listed are %s", got)
	}
	r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "far__echo"})
	if err != nil || textOf(t, r) != "far" || key.Load() != secret {
		t.Errorf("called: %v %v, with key %v", r, err, key.Load())
	}
	if _, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "n__add"}); err != nil {
		t.Error(err)
	}

	// The names of inline servers make no series.
	page := string(w.do(t, "GET", "/metrics", "", who...).body)
	if !strings.Contains(page, `server="(inline)"`) || strings.Contains(page, `server="far"`) {
		t.Errorf("the metrics are\n%s", page)
	}
	var shown api.Session
	decode(t, w.do(t, "GET", "/v1/sessions/"+agentSession, "", who...).body, &shown)
	if shown.Parent != "" || shown.Labels["agent"] != "tester" || shown.Labels["agent/parent"] != "ses_ba9876543210" || len(shown.Members) != 2 || !shown.Expires.IsZero() || shown.Idle != "" {
		t.Errorf("the session is shown as %+v", shown)
	}

	// Another list: what is gone is gone at once, and clients hear of it.
	world.Servers, world.Inline = []string{"n", "other"}, nil
	if err := w.gw.Worlds().Open(ctx, world); err != nil {
		t.Fatal(err)
	}
	testkit.Within(t, "the note of another list", changed)
	if got := namesOf(t, cs); got != "n__add n__grow n__show other__add other__grow other__show" {
		t.Errorf("listed are %s", got)
	}
	if r, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "far__echo"}); err == nil {
		t.Errorf("what is gone answers %v", r)
	}
	r, err = cs.CallTool(ctx, &mcp.CallToolParams{Name: "n__show"})
	if err != nil || textOf(t, r) != "1" {
		t.Errorf("what stays: %v %v", r, err)
	}
	w.restart()
	if ok, err := w.gw.Worlds().Exists(ctx, agentSession, ""); !ok || err != nil {
		t.Errorf("after a restart it exists: %v %v", ok, err)
	}
	if err := w.gw.Worlds().Adapt(ctx, world); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	for range 2 {
		if err := w.gw.Worlds().Close(ctx, agentSession, ""); err != nil {
			t.Error(err)
		}
	}
	if ok, err := w.gw.Worlds().Exists(ctx, agentSession, ""); ok || err != nil {
		t.Errorf("closed it exists: %v %v", ok, err)
	}
	if err := w.gw.Worlds().Adapt(ctx, world); statusOf(err) != http.StatusGone {
		t.Errorf("closed: %v", err)
	}
	if strings.Contains(w.log.String(), secret) {
		t.Error("the log has a header of an inline server")
	}
}

// statusOf is the status of an error of the API; zero for another.
func statusOf(err error) int {
	var e *api.Error
	if !errors.As(err, &e) {
		return 0
	}
	return e.Status
}

// withHeader adds a header to every request.
type withHeader struct {
	next   http.RoundTripper
	header []string
}

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h.header[0], h.header[1])
	return h.next.RoundTrip(r)
}

// TestWorldsOfOwners holds what an agent may have to what its owner may have, and what
// is defined to who defines it.
func TestWorldsOfOwners(t *testing.T) {
	w := open(t, teamYAML+`  rules:
    - {principals: [ada], servers: [seen, "own*"]}
    - {principals: [ops], servers: ["*"]}
servers:
  seen: {builtin: memory, scope: session}
  hidden: {builtin: memory, scope: session}
`, map[string]builtin.Kind{"memory": remembering(), "time": remembering()})
	ctx, worlds := t.Context(), w.gw.Worlds()
	entry := func(id, text string) map[string]json.RawMessage {
		return map[string]json.RawMessage{id: json.RawMessage(text)}
	}
	const program = `{"command": "true"}`
	for name, tt := range map[string]struct {
		servers []string
		inline  map[string]json.RawMessage
		made    string
		want    []string
	}{
		"a server that no rule gives":       {[]string{"seen", "hidden"}, nil, "", []string{`"hidden"`}},
		"a server that there is not":        {[]string{"none"}, nil, "", []string{`"none"`}},
		"an inline one that no rule gives":  {nil, entry("other", `{"builtin": "memory"}`), access.MadeByFile, []string{"mcp_servers.other", "rule"}},
		"one of the config's name":          {nil, entry("seen", `{"builtin": "memory"}`), access.MadeByFile, []string{"mcp_servers.seen", "reference"}},
		"a wrong entry":                     {nil, entry("own", `{"comand": "x"}`), access.MadeByFile, []string{"mcp_servers.own", "comand"}},
		"a program of anybody":              {nil, entry("own", program), "", []string{"mcp_servers.own", "command", "operator"}},
		"a program of an unknown word":      {nil, entry("own", program), "root", []string{"mcp_servers.own", "operator"}},
		"a container of anybody":            {nil, entry("own", `{"docker": "x"}`), "", []string{"docker", "operator"}},
		"a file of anybody":                 {nil, entry("own", `{"url": "https://x.example.org", "ca_file": "/etc/passwd"}`), "", []string{"ca_file", "operator"}},
		"a variable file of anybody":        {nil, entry("own", `{"builtin": "memory", "env_file": "/etc/passwd"}`), "", []string{"env_file", "operator"}},
		"a template of anybody":             {nil, entry("own", `{"builtin": "memory", "template": "/etc/passwd"}`), "", []string{"template", "operator"}},
		"settings of anybody":               {nil, entry("own", `{"builtin": "files", "settings": {"root": "/"}}`), "", []string{"settings", "operator"}},
		"a program in disguise":             {nil, entry("own", `{"builtin": "rlm"}`), "", []string{"built-in", "operator"}},
		"what is no JSON object, so unread": {nil, entry("own", "command: x\n"), "", []string{"operator"}},
	} {
		err := worlds.Open(ctx, services.World{Session: agentSession, Owner: "ada", Servers: tt.servers, Inline: tt.inline, Made: tt.made})
		if err == nil {
			t.Errorf("%s: it is opened", name)
			continue
		}
		testkit.Has(t, name, err.Error(), tt.want...)
		if strings.Contains(err.Error(), "root:") {
			t.Errorf("%s: a file was read: %v", name, err)
		}
	}
	if ok, err := worlds.Exists(ctx, agentSession, "ada"); ok || err != nil {
		t.Errorf("after refusals it exists: %v %v", ok, err)
	}
	mine := services.World{Session: agentSession, Owner: "ada", Servers: []string{"seen"}, Inline: entry("own", `{"builtin": "memory"}`)}
	if err := worlds.Open(ctx, mine); err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{access.MadeByOperator, access.MadeByFile} {
		more := mine
		more.Inline, more.Made = entry("own-program", program), made
		if err := worlds.Open(ctx, more); err != nil {
			t.Errorf("a program of %s: %v", made, err)
		}
	}
	theirs := mine
	theirs.Owner = "ops"
	if err := worlds.Open(ctx, theirs); statusOf(err) != http.StatusConflict {
		t.Errorf("another owner's: %v", err)
	}
	if err := worlds.Close(ctx, agentSession, "ops"); statusOf(err) != http.StatusForbidden {
		t.Errorf("another owner closes it: %v", err)
	}
	// What anybody defines reaches public addresses only.
	reached := false
	local := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))
	defer local.Close()
	mine.Inline = entry("own", fmt.Sprintf(`{"url": %q}`, local.URL))
	mine.Servers = nil
	if err := worlds.Open(ctx, mine); err != nil {
		t.Fatal(err)
	}
	if err := worlds.Open(ctx, services.World{Session: agentSession, Owner: "ada"}); err != nil {
		t.Fatal(err)
	}
	if err := worlds.Open(ctx, mine); err != nil {
		t.Fatal(err)
	}
	s := w.rg.Get(agentSession)
	upstream, e, err := s.Upstream("own")
	if err != nil || !e.Public {
		t.Fatalf("%+v %v", e, err)
	}
	if _, err := upstream.Conn(ctx); err == nil || reached {
		t.Errorf("a private address was reached: %v", err)
	}
	// The rules are those of today.
	w.reload(t, strings.Replace(w.yaml, `servers: [seen, "own*"]`, "servers: [seen]", 1))
	if err := worlds.Open(ctx, mine); err == nil || !strings.Contains(err.Error(), "mcp_servers.own") {
		t.Errorf("by other rules: %v", err)
	}
}
