package fetch

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// article is long enough for a reader mode to find it.
const article = `<!DOCTYPE html><html><head><meta charset="utf-8"><title>On tines</title></head><body>
<nav><a href="/a">Nav one</a> <a href="/b">Nav two</a></nav>
<article><h1>On tines</h1><p>A tine is a prong of a fork, and this page says so at some length, so that a reader mode takes it for an article, with commas, and clauses.</p>
<h2>Second part</h2><p>More text stands here, with <a href="https://example.com/x">a link</a>, some <strong>bold</strong> and <em>soft</em> words, and <code>code</code>, to be kept. Ünïcödé too.</p>
<ul><li>first item</li><li>second item</li></ul><pre><code>line one
line two</code></pre>
<table><tr><th>k</th><th>v</th></tr><tr><td>one</td><td>two</td></tr></table>
<p>A closing paragraph that is long enough to be counted as text, with several clauses, commas, and words in it, as articles have.</p></article>
<footer>Footer words</footer><script>var hidden = 1</script></body></html>`

// site is a web site on loopback. Handlers by path; what has none is a 404.
type site struct {
	*httptest.Server
	mu     sync.Mutex
	agents map[string]string // path to the user agent that asked last
}

func newSite(t *testing.T, pages map[string]http.HandlerFunc) *site {
	s := &site{agents: map[string]string{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.agents[r.URL.Path] = r.UserAgent()
		s.mu.Unlock()
		if h := pages[r.URL.Path]; h != nil {
			h(w, r)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) agent(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.agents[path]
}

func page(contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = nil
		if contentType != "" {
			w.Header().Set("Content-Type", contentType)
		}
		io.WriteString(w, body)
	}
}

func redirect(to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, http.StatusFound) }
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func open(t *testing.T, era string, set map[string]any) *mcp.ClientSession {
	t.Helper()
	if _, ok := set["allow_private"]; !ok {
		merged := map[string]any{"allow_private": true}
		for k, v := range set {
			merged[k] = v
		}
		set = merged
	}
	s, err := New(set)
	if err != nil {
		t.Fatal(err)
	}
	return nativetest.Connect(t, s, era, nil)
}

func fetched(t *testing.T, cs *mcp.ClientSession, args map[string]any) (text string, isError bool) {
	t.Helper()
	res := nativetest.Call(t, cs, "fetch", args)
	return nativetest.Text(res), res.IsError
}

func wantError(t *testing.T, cs *mcp.ClientSession, url, part string) {
	t.Helper()
	text, isError := fetched(t, cs, map[string]any{"url": url})
	if !isError || !strings.Contains(text, part) {
		t.Errorf("fetch %s: error %v %q, want an error with %q", url, isError, text, part)
	}
}

func TestPieces(t *testing.T) {
	const text = "añ日𝄞bcdefg" // 10 characters of 1 to 4 bytes
	const more = "\n\n<error>Content truncated. Call the fetch tool with a start_index of %d to get more content.</error>"
	tests := []struct {
		start, max int
		want       string
	}{
		{0, 10, text},
		{0, 100, text},
		{0, 4, "añ日𝄞" + fmt.Sprintf(more, 4)},
		{3, 2, "𝄞b" + fmt.Sprintf(more, 5)},
		{5, 5, "cdefg"},
		{9, 5, "g"},
		{10, 5, "<error>No more content available.</error>"},
		{999999, 1, "<error>No more content available.</error>"},
		{1<<62 + 5, 1 << 62, "<error>No more content available.</error>"},
	}
	for _, tt := range tests {
		if got := piece(text, tt.start, tt.max); got != tt.want {
			t.Errorf("piece(%d, %d) = %q, want %q", tt.start, tt.max, got, tt.want)
		}
	}
	if got := piece("", 0, 5); got != "<error>No more content available.</error>" {
		t.Errorf("empty: %q", got)
	}
}

func TestArguments(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{"/x": page("text/plain", "hello")})
	cs := open(t, nativetest.Modern, nil)
	u := s.URL + "/x"
	for _, bad := range []map[string]any{
		{}, {"url": ""}, {"url": 7}, {"url": "nope"}, {"url": "/x"}, {"url": "http://"}, {"url": "http:///x"}, {"url": "file:///etc/passwd"}, {"url": "ftp://example.com/"},
		{"url": "http://[::1"}, {"url": "http://a b/"}, {"url": "javascript:alert(1)"},
		{"url": u, "max_length": 0}, {"url": u, "max_length": 1000000}, {"url": u, "max_length": "5"}, {"url": u, "max_length": 1.5}, {"url": u, "start_index": -1}, {"url": u, "raw": "yes"},
	} {
		if text, isError := fetched(t, cs, bad); !isError {
			t.Errorf("%v is accepted: %q", bad, text)
		}
	}
	if text, isError := fetched(t, cs, map[string]any{"url": u, "max_length": 999999, "start_index": 1}); isError || !strings.HasSuffix(text, "\nello") {
		t.Errorf("%v %q", isError, text)
	}
}

func TestPrompt(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{"/robots.txt": page("text/plain", "User-agent: *\nDisallow: /\n"), "/x": page("text/plain", "for a person")})
	for _, era := range nativetest.Eras() {
		cs := open(t, era, nil)
		get := func(args map[string]string) (string, error) {
			res, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "fetch", Arguments: args})
			if err != nil {
				return "", err
			}
			if len(res.Messages) != 1 || res.Messages[0].Role != "user" {
				t.Fatalf("messages = %+v", res.Messages)
			}
			return res.Messages[0].Content.(*mcp.TextContent).Text, nil
		}
		// A person is not bound by robots.txt.
		if text, err := get(map[string]string{"url": s.URL + "/x"}); err != nil || !strings.HasSuffix(text, "raw content:\nfor a person") {
			t.Errorf("%q, %v", text, err)
		}
		if text, err := get(map[string]string{"url": s.URL + "/none"}); err != nil || !strings.Contains(text, "status code 404") {
			t.Errorf("%q, %v", text, err)
		}
		if text, err := get(map[string]string{"url": "nope"}); err != nil || !strings.Contains(text, "nope") {
			t.Errorf("%q, %v", text, err)
		}
		_, err := get(nil)
		var we *jsonrpc.Error
		if !errors.As(err, &we) || we.Code != jsonrpc.CodeInvalidParams {
			t.Errorf("err = %v", err)
		}
	}
}
