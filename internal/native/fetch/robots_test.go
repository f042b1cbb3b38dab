package fetch

import (
	"net/http"
	"strings"
	"testing"

	"github.com/temoto/robotstxt"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestRobots(t *testing.T) {
	tests := []struct {
		name   string
		robots http.HandlerFunc
		path   string
		refuse string // empty: allowed
	}{
		{"none", nil, "/x", ""},
		{"empty", page("text/plain", ""), "/x", ""},
		{"all", page("text/plain", "User-agent: *\nDisallow: /"), "/x", "does not allow"},
		{"nothing disallowed", page("text/plain", "User-agent: *\nDisallow:\n"), "/x", ""},
		{"other path", page("text/plain", "User-agent: *\nDisallow: /y"), "/x", ""},
		{"allow wins when longer", page("text/plain", "User-agent: *\nDisallow: /\nAllow: /x"), "/x", ""},
		{"query counts", page("text/plain", "User-agent: *\nDisallow: /x?q="), "/x?q=1", "does not allow"},
		{"pattern", page("text/plain", "User-agent: *\nDisallow: /*.pdf$"), "/a/b.pdf", "does not allow"},
		{"pattern's end", page("text/plain", "User-agent: *\nDisallow: /*.pdf$"), "/a/b.pdf.html", ""},
		{"named for us", page("text/plain", "User-agent: TINE\nDisallow: /\n\nUser-agent: *\nAllow: /"), "/x", "does not allow"},
		{"named for others", page("text/plain", "User-agent: badbot\nDisallow: /"), "/x", ""},
		{"ours is better than everyone's", page("text/plain", "User-agent: tine\nAllow: /\n\nUser-agent: *\nDisallow: /"), "/x", ""},
		{"shared group", page("text/plain", "User-agent: badbot\nUser-agent: tine\nDisallow: /"), "/x", "does not allow"},
		{"comments and case", page("text/plain", "# no\nUSER-AGENT: * # all\nDISALLOW: /x # this"), "/x", "does not allow"},
		{"carriage returns", page("text/plain", "User-agent: *\rDisallow: /x\r"), "/x", "does not allow"},
		{"byte order mark", page("text/plain", "\xef\xbb\xbfUser-agent: *\nDisallow: /x"), "/x", "does not allow"},
		{"rules before a group", page("text/plain", "Disallow: /\nUser-agent: *\nDisallow: /y"), "/x", ""},
		{"broken delay", page("text/plain", "User-agent: *\nCrawl-delay: soon\nDisallow: /x"), "/x", "does not allow"},
		{"a web page", page("text/html", "<html><body>user-agent: nobody</body></html>"), "/x", ""},
		{"401", status(401), "/x", "status 401"},
		{"403", status(403), "/x", "status 403"},
		{"404", status(404), "/x", ""},
		{"429", status(429), "/x", ""},
		{"500", status(500), "/x", "status 500"},
		{"503", status(503), "/x", "status 503"},
		{"moved", redirect("/rules"), "/x", "does not allow"},
		{"moved round and round", redirect("/robots.txt"), "/x", "redirects more than"},
		{"huge", page("text/plain", "User-agent: *\nDisallow: /x\n"+strings.Repeat("# filler\n", 1<<17)), "/x", "does not allow"},
		{"huge line", page("text/plain", "User-agent: *\nDisallow: /x\nDisallow: /"+strings.Repeat("a", 1<<20)), "/x", "does not allow"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path, _, _ := strings.Cut(tt.path, "?")
			s := newSite(t, map[string]http.HandlerFunc{
				"/robots.txt": tt.robots, path: page("text/plain", "content"),
				"/rules": page("text/plain", "User-agent: *\nDisallow: /x"),
			})
			text, isError := fetched(t, open(t, nativetest.Modern, nil), map[string]any{"url": s.URL + tt.path})
			if tt.refuse == "" {
				if isError || !strings.HasSuffix(text, "content") {
					t.Errorf("refused: %.300q", text)
				}
			} else {
				if !isError || !strings.Contains(text, tt.refuse) {
					t.Errorf("got %v %.300q, want %q", isError, text, tt.refuse)
				}
				if s.agent(path) != "" {
					t.Error("the page was asked for")
				}
				if len(text) > 4000 {
					t.Errorf("a refusal of %d bytes", len(text))
				}
			}
			// The setting switches all of it off.
			text, isError = fetched(t, open(t, nativetest.Modern, map[string]any{"ignore_robots": true}), map[string]any{"url": s.URL + tt.path})
			if isError || !strings.HasSuffix(text, "content") {
				t.Errorf("with ignore_robots: %v %.300q", isError, text)
			}
		})
	}
}

func FuzzDirectives(f *testing.F) {
	for _, s := range []string{"", "User-agent: *\nDisallow: /", "Disallow: x\nAllow:\n", "user-agent:\r\nallow: /*$*", "\xff\xfe", "Crawl-delay: x"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		rules, err := robotstxt.FromBytes(directives(body))
		if err != nil {
			t.Fatalf("%q becomes %q: %v", body, directives(body), err)
		}
		rules.TestAgent("/x", "tine")
	})
}
