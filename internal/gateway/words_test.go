package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/gateway"
	"github.com/tine-mcp/tine/internal/testkit"
)

// dyingEnv makes the test program a server: see dyingServer.
const dyingEnv = "TINE_TEST_DYING"

// dyingServer is a server that writes what it is given to its standard error and
// ends. While there is a file called broken it does so when it starts.
func dyingServer(env string) {
	name, broken, _ := strings.Cut(env, ":")
	die := func(text string) {
		fmt.Fprintf(os.Stderr, "fatal: %s-stderr-%s\n", name, text)
		os.Exit(3)
	}
	if b, err := os.ReadFile(broken); err == nil {
		die(string(b))
	}
	s := sdkServer("dying", nil)
	s.AddTool(&mcp.Tool{Name: "fine", InputSchema: anyObject}, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return text("fine"), nil
	})
	s.AddTool(&mcp.Tool{Name: "die", InputSchema: anyObject}, func(_ context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var in struct{ Text string }
		_ = json.Unmarshal(r.Params.Arguments, &in)
		die(in.Text)
		return nil, nil
	})
	_ = s.Run(context.Background(), &mcp.StdioTransport{})
}

// TestLastWordsAreForWhoMayReadThem checks that what a server writes to its standard
// error before it ends is on no route for a viewer and for another user of a shared
// server, and there for operators and for the owner of a session's own instance.
func TestLastWordsAreForWhoMayReadThem(t *testing.T) {
	t.Parallel()
	broken := filepath.Join(t.TempDir(), "broken")
	server := func(name, keys string) string {
		return fmt.Sprintf("  %s: {command: %q, env: {%s: %q}, %s, policy: {retry: {attempts: 1}}}\n", name, os.Args[0], dyingEnv, name+":"+broken, keys)
	}
	w := &worlds{world: openWith(t, teamYAML+"servers:\n"+server("shr", "scope: shared")+server("own", "scope: session, fork: fresh"),
		func(o *gateway.Options) { o.Orchestrate = true })}
	w.doc = readOpenAPI(t, w.world, "Authorization", "Bearer "+operator)
	call := func(session, tool, text string, who []string) *reply {
		t.Helper()
		return w.do(t, "POST", "/v1/call", fmt.Sprintf(`{"tool":%q,"session":%q,"arguments":{"text":%q}}`, tool, session, text), append([]string{"Content-Type", "application/json"}, who...)...)
	}
	adas, bobs := w.open(t, `{}`, asAda...), w.open(t, `{}`, asBob...)
	for _, tool := range []string{"shr__fine", "own__fine"} {
		for _, s := range []struct {
			id  string
			who []string
		}{{adas.ID, asAda}, {bobs.ID, asBob}} {
			if r := call(s.id, tool, "", s.who); r.status != 200 {
				t.Fatalf("%s: %s", tool, r.body)
			}
		}
	}
	answers := string(call(bobs.ID, "shr__die", "4711", asBob).body)
	call(bobs.ID, "own__die", "4712", asBob)
	for id, who := range map[string][]string{adas.ID: asAda, bobs.ID: asBob} {
		testkit.Eventually(t, "the session is damaged", func() bool {
			return len(want[api.Session](t, w, "GET", "/v1/sessions/"+id, "", who...).Damaged) > 0
		})
	}
	if err := os.WriteFile(broken, []byte("start"), 0o600); err != nil {
		t.Fatal(err)
	}
	of := func(id string, who []string) api.Snapshot {
		call(id, "shr__fine", "", who)
		call(id, "own__fine", "", who)
		return want[api.Snapshot](t, w, "POST", "/v1/sessions/"+id+"/snapshots", `{}`, who...)
	}
	frozen, adasFrozen := of(bobs.ID, asBob), of(adas.ID, asAda)

	fill := strings.NewReplacer("{B}", bobs.ID, "{S}", frozen.ID, "{A}", adas.ID, "{T}", adasFrozen.ID, "{C}", "call_1", "{I}", bobs.ID+":own", "zebra", "shr").Replace
	read := func(who []string) string {
		var all strings.Builder
		add := func(method, path, body string) {
			fmt.Fprintf(&all, "\n%s %s: %s", method, path, w.do(t, method, path, body, append([]string{"Content-Type", "application/json"}, who...)...).body)
		}
		for _, q := range append(controlWalk[:len(controlWalk):len(controlWalk)], orchestrationWalk...) {
			if q.method == "GET" && q.id != "serverLogs" && q.id != "openAPI" {
				add(q.method, fill(q.path), "")
			}
		}
		for _, id := range []string{adas.ID, bobs.ID} {
			for _, path := range []string{"/calls", "/trajectory", "/tree", "/snapshots"} {
				add("GET", "/v1/sessions/"+id+path, "")
			}
			add("POST", "/v1/call", fmt.Sprintf(`{"tool":"own__fine","session":%q}`, id))
			add("POST", "/s/"+id+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"shr__fine"}}`)
			add("POST", "/s/"+id+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`)
			add("POST", "/v1/sessions", fmt.Sprintf(`{"from":%q,"eager":true}`, map[string]string{adas.ID: adasFrozen.ID, bobs.ID: frozen.ID}[id]))
			add("POST", "/v1/sessions/"+id+"/forks", `{}`)
		}
		add("GET", "/v1/servers/own", "")
		return all.String()
	}
	none := func(who, text string, markers ...string) {
		t.Helper()
		for line := range strings.SplitSeq(text, "\n") {
			for _, m := range markers {
				if strings.Contains(line, m) {
					t.Errorf("%s reads %s in %.600s", who, m, line)
				}
			}
		}
	}
	some := func(who, text string, markers ...string) {
		t.Helper()
		for _, m := range markers {
			if !strings.Contains(text, m) {
				t.Errorf("%s does not read %s in %s", who, m, text)
			}
		}
	}
	none("bob, whose call it was,", answers, "stderr-")
	ada, bob, eve, ops := read(asAda), read(asBob), read(asEve), read(asOps)
	for who, text := range map[string]string{"ada": ada, "eve": eve, "bob": bob} {
		none(who, text, "shr-stderr-")
		some(who, text, "exited with status 3")
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasPrefix(line, "GET /v1/servers") {
				none(who, line, "stderr-") // of another principal's instance
			}
		}
	}
	none("ada", ada, "own-stderr-4712")
	none("eve", eve, "own-stderr-4712")
	some("bob", bob, "own-stderr-4712")
	some("an operator", ops, "own-stderr-4712", "shr-stderr-start")
	// Neither is it in what a session has of a shared server.
	for who, headers := range map[string][]string{"ada": asAda, "ops": asOps} {
		file := w.do(t, "GET", "/v1/snapshots/"+adasFrozen.ID+"/export", "", headers...)
		none(who, string(file.body), "shr-stderr-")
	}
	// Why an instance does not start is for its session too.
	call(adas.ID, "own__die", "4713", asAda)
	testkit.Eventually(t, "ada is told why her instance does not start", func() bool {
		return strings.Contains(string(call(adas.ID, "own__fine", "", asAda).body), "own-stderr-start")
	})
}
