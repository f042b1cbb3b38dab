package gateway_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver/builtin"
)

// TestPrivateListsStayPrivate has a server that gives each of its sessions lists
// of their own. Two principals and two anonymous clients ask for them, in turns
// and in every view, and never get one of another.
func TestPrivateListsStayPrivate(t *testing.T) {
	t.Parallel()
	for name, more := range map[string][]string{
		"says nothing":  nil,
		"says private":  {`"ttlMs":3600000`, `"cacheScope":"private"`},
		"says nonsense": {`"ttlMs":3600000`, `"cacheScope":"Public"`},
		"says it twice": {`"cacheScope":"private"`, `"cacheScope":"public"`},
	} {
		t.Run(name, func(t *testing.T) {
			up := script(t, false, nil)
			for method := range listsOf {
				up.on(method, func(w http.ResponseWriter, _ *http.Request, in received) {
					writeResult(w, in, listed(method, "of-"+in.header.Get("Mcp-Session-Id"), more...))
				})
			}
			w := open(t, twoPeople+servers("a", up.URL))
			type asker struct {
				who string
				get func(method string) string
			}
			var all []asker
			for who, headers := range map[string][]string{"ada": asAda, "bob": asBob} {
				one, merged, old := w.modern(t, "/mcp/a", `{}`, headers...), w.modern(t, "/mcp", `{}`, headers...), w.dial(t, "/mcp", `{}`, headers...)
				all = append(all,
					asker{who, func(m string) string { return itemOf(t, m, one.get(m, "", `{}`)) }},
					asker{who, func(m string) string { return itemOf(t, m, merged.get(m, "", `{}`)) }},
					asker{who, func(m string) string { return itemOf(t, m, old.get(m, `{}`)) }},
				)
			}
			for method := range listsOf {
				owner := map[string]string{} // of an item
				for range 3 {
					for _, a := range all {
						item := a.get(method)
						if was := owner[item]; was != "" && was != a.who {
							t.Fatalf("%s: %s was given to %s and to %s", method, item, was, a.who)
						}
						owner[item] = a.who
					}
				}
				if len(owner) < 2 {
					t.Errorf("%s: the server saw no two sessions: %v", method, owner)
				}
			}
		})
	}
}

// TestPrivateListsOfAStatelessServer has one that makes every answer different,
// so that a list which two principals get is one that was kept for both.
func TestPrivateListsOfAStatelessServer(t *testing.T) {
	t.Parallel()
	for scope, shared := range map[string]bool{"private": false, "public": true} {
		up := numbering(t, true, `"ttlMs":3600000`, fmt.Sprintf(`"cacheScope":%q`, scope))
		w := open(t, twoPeople+servers("a", up.URL))
		for _, path := range []string{"/mcp/a", "/mcp"} {
			for method := range listsOf {
				ada, bob := w.modern(t, path, `{}`, asAda...), w.modern(t, path, `{}`, asBob...)
				a := itemOf(t, method, ada.get(method, "", `{}`))
				b := itemOf(t, method, bob.get(method, "", `{}`))
				if (a == b) != shared {
					t.Errorf("%s, %s: ada got %s of a %s list and bob %s", path, method, a, scope, b)
				}
				for range 2 {
					if again := itemOf(t, method, ada.get(method, "", `{}`)); again != a {
						t.Errorf("%s, %s: ada's %s list was not kept: %s, then %s", path, method, scope, a, again)
					}
					if again := itemOf(t, method, bob.get(method, "", `{}`)); again != b {
						t.Errorf("%s, %s: bob's %s list was not kept: %s, then %s", path, method, scope, b, again)
					}
				}
			}
		}
	}
}

// TestPrivateListsOfASharedProgram has one connection for all sessions, on which
// the server can't tell who asks; Tine keeps what each got apart nevertheless.
func TestPrivateListsOfASharedProgram(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	s := sdkServer("shared", keptLists("private"))
	s.AddTool(&mcp.Tool{Name: "tool", InputSchema: anyObject}, nil)
	s.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if list, ok := res.(*mcp.ListToolsResult); ok {
				n := asked.Add(1)
				list.Tools = []*mcp.Tool{{Name: fmt.Sprint("item", n), InputSchema: anyObject}}
			}
			return res, err
		}
	})
	w := open(t, twoPeople+servers("a", `{builtin: everything, scope: shared, protocol: 2025-11-25}`),
		map[string]builtin.Kind{"everything": factory(func() *mcp.Server { return s })})
	for _, path := range []string{"/mcp/a", "/mcp"} {
		ada, bob := w.modern(t, path, `{}`, asAda...), w.modern(t, path, `{}`, asBob...)
		a := itemOf(t, "tools/list", ada.get("tools/list", "", `{}`))
		b := itemOf(t, "tools/list", bob.get("tools/list", "", `{}`))
		if a == b {
			t.Errorf("%s: ada and bob both got %s", path, a)
		}
		if again := itemOf(t, "tools/list", ada.get("tools/list", "", `{}`)); again != a {
			t.Errorf("%s: ada got %s, then %s", path, a, again)
		}
	}
}

// TestRulesStandBeforeWhatIsKept has a public list in memory of which one of the
// principals may see a part.
func TestRulesStandBeforeWhatIsKept(t *testing.T) {
	t.Parallel()
	up := script(t, true, map[string]string{"tools/call": done,
		"tools/list": `{"tools":[{"name":"open","inputSchema":{}},{"name":"closed","inputSchema":{}}],"resultType":"complete","ttlMs":3600000,"cacheScope":"public"}`})
	w := open(t, `auth:
  tokens: [{name: ada, token: ada-ada-ada-ada-ada}, {name: bob, token: bob-bob-bob-bob-bob}]
  rules:
    - {principals: [ada]}
    - {principals: [bob], tools: ["a__open"]}
`+servers("a", up.URL))
	for _, path := range []string{"/mcp/a", "/mcp"} {
		for range 2 {
			if got := string(w.modern(t, path, `{}`, asAda...).get("tools/list", "", `{}`)); !strings.Contains(got, "closed") {
				t.Errorf("%s: ada sees %s", path, got)
			}
			if got := string(w.modern(t, path, `{}`, asBob...).get("tools/list", "", `{}`)); strings.Contains(got, "closed") || !strings.Contains(got, "open") {
				t.Errorf("%s: bob sees %s", path, got)
			}
		}
	}
}
