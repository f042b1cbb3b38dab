package fetch

import (
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

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
			for range 1 << 6 {
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
