package fetch

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

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

func TestMarkdown(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{"/page": page("text/html; charset=utf-8", article), "/bare": page("", article), "/wrong": page("application/octet-stream", article)})
	for _, era := range nativetest.Eras() {
		cs := open(t, era, nil)
		for _, path := range []string{"/page", "/bare", "/wrong"} {
			text, isError := fetched(t, cs, map[string]any{"url": s.URL + path})
			if isError {
				t.Fatal(text)
			}
			for _, want := range []string{"Contents of " + s.URL + path + ":\n", "## Second part", "[a link](https://example.com/x)", "**bold**", "*soft*", "`code`", "first item", "line one\nline two", "| one | two |", "Ünïcödé"} {
				if !strings.Contains(text, want) {
					t.Errorf("%s %s: no %q in %s", era, path, want, text)
				}
			}
			for _, not := range []string{"<p>", "hidden", "Nav one"} {
				if strings.Contains(text, not) {
					t.Errorf("%s %s: %q in %s", era, path, not, text)
				}
			}
		}
	}
}

func TestRawAndOtherTypes(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{"/page": page("text/html", article), "/data": page("application/json", `{"a":1}`), "/empty": page("text/html", ""), "/nothing": page("text/html", "<html><body></body></html>")})
	cs := open(t, nativetest.Modern, nil)
	text, _ := fetched(t, cs, map[string]any{"url": s.URL + "/page", "raw": true, "max_length": 100000})
	if want := "Content type text/html cannot be simplified to markdown, but here is the raw content:\nContents of " + s.URL + "/page:\n" + article; text != want {
		t.Errorf("raw: %q", text)
	}
	text, _ = fetched(t, cs, map[string]any{"url": s.URL + "/data"})
	if want := "Content type application/json cannot be simplified to markdown, but here is the raw content:\nContents of " + s.URL + "/data:\n{\"a\":1}"; text != want {
		t.Errorf("json: %q", text)
	}
	for _, path := range []string{"/empty", "/nothing"} {
		if text, isError := fetched(t, cs, map[string]any{"url": s.URL + path}); isError || !strings.HasSuffix(text, unreadable) {
			t.Errorf("%s: %v %q", path, isError, text)
		}
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

func TestCharsets(t *testing.T) {
	latin1 := "<html><head>%s</head><body><p>" + strings.Repeat("caf\xe9, ", 80) + "</p></body></html>"
	s := newSite(t, map[string]http.HandlerFunc{
		"/header":  page("text/html; charset=iso-8859-1", fmt.Sprintf(latin1, "")),
		"/meta":    page("text/html", fmt.Sprintf(latin1, `<meta charset="windows-1252">`)),
		"/unsaid":  page("text/html", fmt.Sprintf(latin1, "")),
		"/utf16":   page("text/plain", "\xff\xfec\x00a\x00f\x00\xe9\x00"),
		"/invalid": page("text/plain; charset=utf-8", "caf\xe9 \xff"),
	})
	cs := open(t, nativetest.Modern, nil)
	for _, path := range []string{"/header", "/meta", "/unsaid", "/utf16"} {
		if text, isError := fetched(t, cs, map[string]any{"url": s.URL + path}); isError || !strings.Contains(text, "café") {
			t.Errorf("%s: %v %.200q", path, isError, text)
		}
	}
	if text, isError := fetched(t, cs, map[string]any{"url": s.URL + "/invalid"}); isError || !strings.HasSuffix(text, "caf� �") {
		t.Errorf("invalid: %v %q", isError, text)
	}
}

func TestLimits(t *testing.T) {
	stop := make(chan struct{})
	endless := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		chunk := strings.Repeat("x", 1<<16)
		for r.Context().Err() == nil {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	}
	hang := func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		select {
		case <-stop:
		case <-r.Context().Done():
		}
	}
	s := newSite(t, map[string]http.HandlerFunc{
		"/fits":    page("text/plain", strings.Repeat("x", 1000)),
		"/over":    page("text/plain", strings.Repeat("x", 1001)),
		"/endless": endless,
		"/hang":    hang,
		"/loop":    redirect("/loop"),
		"/bomb": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			w.Header().Set("Content-Type", "text/plain")
			z := gzip.NewWriter(w)
			defer z.Close()
			for range 1 << 10 {
				if _, err := z.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		},
		"/header": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Big", strings.Repeat("x", 1<<20))
		},
		"/short": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "less")
		},
	})
	defer close(stop)
	cs := open(t, nativetest.Modern, map[string]any{"max_bytes": 1000})
	if text, isError := fetched(t, cs, map[string]any{"url": s.URL + "/fits"}); isError || !strings.Contains(text, strings.Repeat("x", 1000)) {
		t.Errorf("fits: %v %q", isError, text)
	}
	wantError(t, cs, s.URL+"/over", "larger than 1000 bytes")
	wantError(t, cs, s.URL+"/endless", "larger than 1000 bytes")
	wantError(t, cs, s.URL+"/bomb", "larger than 1000 bytes")
	wantError(t, cs, s.URL+"/loop", "redirects more than 10 times")
	wantError(t, cs, s.URL+"/header", "failed to fetch")
	wantError(t, cs, s.URL+"/short", "failed to fetch")

	quick := open(t, nativetest.Modern, map[string]any{"timeout": "100ms"})
	wantError(t, quick, s.URL+"/hang", "took longer than 100ms")
}

func TestCancel(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	s := newSite(t, map[string]http.HandlerFunc{"/hang": func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
		close(left)
	}})
	cs := open(t, nativetest.Modern, nil)
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := cs.CallTool(ctx, &mcp.CallToolParams{Name: "fetch", Arguments: map[string]any{"url": s.URL + "/hang"}})
		failed <- err
	}()
	<-entered
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
	<-left
}

func TestStatusAndRedirects(t *testing.T) {
	other := newSite(t, map[string]http.HandlerFunc{"/there": page("text/plain", "over there"), "/robots.txt": page("text/plain", "User-agent: *\nDisallow: /no\n"), "/no": page("text/plain", "secret")})
	s := newSite(t, map[string]http.HandlerFunc{
		"/gone":   status(410),
		"/broken": status(503),
		"/hop":    redirect(other.URL + "/there"),
		"/hopno":  redirect(other.URL + "/no"),
		"/ftp":    redirect("ftp://example.com/"),
		"/file":   redirect("file:///etc/passwd"),
	})
	cs := open(t, nativetest.Legacy, nil)
	wantError(t, cs, s.URL+"/gone", "status code 410")
	wantError(t, cs, s.URL+"/broken", "status code 503")
	wantError(t, cs, s.URL+"/ftp", "failed to fetch")
	wantError(t, cs, s.URL+"/file", "failed to fetch")
	if text, isError := fetched(t, cs, map[string]any{"url": s.URL + "/hop"}); isError || !strings.Contains(text, "over there") {
		t.Errorf("hop: %v %q", isError, text)
	}
	// A redirect is asked for at the robots.txt of where it leads.
	wantError(t, cs, s.URL+"/hopno", other.URL+"/robots.txt does not allow")
	if other.agent("/no") != "" {
		t.Error("the page was got all the same")
	}
	wantError(t, cs, "http://127.0.0.1:1/", "failed to fetch")
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

func TestUserAgents(t *testing.T) {
	s := newSite(t, map[string]http.HandlerFunc{"/x": page("text/plain", "x")})
	cs := open(t, nativetest.Modern, nil)
	fetched(t, cs, map[string]any{"url": s.URL + "/x"})
	if got := s.agent("/x"); got != agentAutonomous || s.agent("/robots.txt") != got {
		t.Errorf("tool: %q, robots %q", got, s.agent("/robots.txt"))
	}
	if _, err := cs.GetPrompt(t.Context(), &mcp.GetPromptParams{Name: "fetch", Arguments: map[string]string{"url": s.URL + "/x"}}); err != nil {
		t.Fatal(err)
	}
	if got := s.agent("/x"); got != agentManual {
		t.Errorf("prompt: %q", got)
	}
	fetched(t, open(t, nativetest.Modern, map[string]any{"user_agent": "mine/2"}), map[string]any{"url": s.URL + "/x"})
	if got := s.agent("/x"); got != "mine/2" {
		t.Errorf("custom: %q", got)
	}
}

func FuzzMarkdown(f *testing.F) {
	f.Add(article)
	f.Add("<table><tr><td>a<td>b</table><ol start=99999999999><li>x")
	f.Add("<a href='http://[::1'>x</a><img srcset=','><pre><code>```\n")
	f.Add("<base href='::'><p><b><i><u>a</b>c</i><svg><math><template><p>")
	at, err := url.Parse("http://example.com/x")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			t.Skip()
		}
		if out := markdown(s, at); !utf8.ValidString(out) || out == "" {
			t.Fatalf("%q becomes %q", s, out)
		}
	})
}
