package fetch

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// TestSameAsReference makes the same calls to mcp-server-fetch. What the two
// answer to a page must be the same text; of refusals and failures only that
// they are errors, as each words its own. In Markdown, the marker of lists, the
// padding of tables and the number of blank lines are left out.
func TestSameAsReference(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{
		"/robots.txt": page("text/plain", "User-agent: *\nDisallow: /no\n\nUser-agent: other\nDisallow: /\n"),
		"/":           page("text/html", article),
		"/page":       page("text/html; charset=utf-8", article),
		"/json":       page("application/json", `{"a": [1, 2]}`),
		"/text":       page("text/plain; charset=utf-8", strings.Repeat("añ日𝄞b", 100)),
		"/latin":      page("text/plain; charset=iso-8859-1", "caf\xe9"),
		"/untyped":    page("", article),
		"/empty":      page("text/html", "<html><body></body></html>"),
		"/no":         page("text/plain", "not for programs"),
		"/hop":        redirect("/page"),
		"/hopno":      redirect("/no"),
		"/gone":       status(410),
		"/broken":     status(500),
	})
	kept := newSite(t, map[string]http.HandlerFunc{"/robots.txt": status(403), "/": page("text/plain", "x")})

	ref := nativetest.ConnectReference(t, testkit.PyPI(t, "mcp-server-fetch", "--allow-private-ips", "--user-agent", "shared/1"), nil)
	strict := nativetest.ConnectReference(t, testkit.PyPI(t, "mcp-server-fetch"), nil)
	// Without its own copy of Readability.js the reference server falls back to
	// a conversion that keeps the whole page, which is not what is compared.
	if strings.Contains(nativetest.Text(nativetest.Call(t, ref, "fetch", map[string]any{"url": s.URL + "/page"})), "Nav one") {
		testkit.Missing(t, "mcp-server-fetch has no Readability.js; run npm install in readabilipy/javascript of its venv")
	}
	// The reference server starts Node for every page: each answer is asked for
	// once and serves both eras.
	answers := map[string]*mcp.CallToolResult{}
	answer := func(t *testing.T, want *mcp.ClientSession, args map[string]any) *mcp.CallToolResult {
		key := fmt.Sprintf("%p %#v", want, args)
		if answers[key] == nil {
			answers[key] = nativetest.Call(t, want, "fetch", args)
		}
		return answers[key]
	}
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			cs := open(t, era, map[string]any{"user_agent": "shared/1"})
			nativetest.SameTools(t, cs, ref)
			nativetest.SamePrompts(t, cs, ref)

			same := func(got, want *mcp.ClientSession, args map[string]any) {
				t.Helper()
				g, w := nativetest.Call(t, got, "fetch", args), answer(t, want, args)
				if g.IsError != w.IsError {
					t.Errorf("%v: isError %v, reference %v\n got %s\nwant %s", args, g.IsError, w.IsError, nativetest.Text(g), nativetest.Text(w))
					return
				}
				if !w.IsError && plain(nativetest.Text(g)) != plain(nativetest.Text(w)) {
					t.Errorf("%v:\n got %q\nwant %q", args, plain(nativetest.Text(g)), plain(nativetest.Text(w)))
				}
			}
			for _, path := range []string{"", "/page", "/json", "/text", "/latin", "/untyped", "/empty", "/no", "/hop", "/hopno", "/gone", "/broken", "/missing"} {
				same(cs, ref, map[string]any{"url": s.URL + path})
			}
			for _, path := range []string{"/page", "/json", "/no"} {
				same(cs, ref, map[string]any{"url": s.URL + path, "raw": true})
			}
			for _, cut := range []map[string]any{{"max_length": 7}, {"max_length": 7, "start_index": 3}, {"start_index": 499}, {"start_index": 500}, {"max_length": 500}, {"max_length": 499}, {"max_length": 0}, {"start_index": -1}, {"max_length": 1000000}, {"max_length": "7"}, {"raw": 1}} {
				cut["url"] = s.URL + "/text"
				same(cs, ref, cut)
			}
			for _, bad := range []map[string]any{{}, {"url": ""}, {"url": "nope"}, {"url": 1}, {"url": "ftp://127.0.0.1/"}, {"url": "file:///etc/passwd"}, {"url": "http://127.0.0.1:1/"}, {"url": kept.URL}} {
				same(cs, ref, bad)
			}
			guarded := open(t, era, map[string]any{"allow_private": false})
			for _, host := range []string{s.URL, "http://localhost/", "http://169.254.169.254/latest/", "http://2130706433/", "http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/"} {
				same(guarded, strict, map[string]any{"url": host})
			}

			for _, path := range []string{"/json", "/no", "/text"} {
				prompt := func(cs *mcp.ClientSession) string {
					t.Helper()
					res, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "fetch", Arguments: map[string]string{"url": s.URL + path}})
					if err != nil {
						t.Fatal(err)
					}
					if len(res.Messages) != 1 {
						t.Fatalf("%d messages", len(res.Messages))
					}
					return plain(string(res.Messages[0].Role) + ": " + res.Messages[0].Content.(*mcp.TextContent).Text)
				}
				if g, w := prompt(cs), prompt(ref); g != w {
					t.Errorf("prompt %s:\n got %q\nwant %q", path, g, w)
				}
			}
		})
	}
}

var (
	dashes = regexp.MustCompile(`-{2,}`)
	spaces = regexp.MustCompile(`[ \t]+`)
	blank  = regexp.MustCompile(`\n\s*\n`)
	bullet = regexp.MustCompile(`(?m)^[*-] `)
)

func plain(s string) string {
	s = bullet.ReplaceAllString(s, "- ")
	s = dashes.ReplaceAllString(s, "--")
	s = spaces.ReplaceAllString(s, " ")
	s = strings.ReplaceAll(s, "|--|", "| -- |")
	s = strings.ReplaceAll(s, "|--|", "| -- |")
	return strings.TrimSpace(blank.ReplaceAllString(s, "\n\n"))
}
