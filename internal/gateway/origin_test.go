package gateway_test

import (
	"net/http"
	"strings"
	"testing"
)

// TestDNSRebinding makes the requests of a web page that points a name of its
// own at this machine.
func TestDNSRebinding(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, servers("a", up.URL))
	port := w.ts.URL[strings.LastIndex(w.ts.URL, ":"):]
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__one"}}`
	for _, tt := range []struct {
		host, origin string
		ok           bool
	}{
		{"", "", true},
		{"localhost" + port, "", true},
		{"LOCALHOST" + port, "", true},
		{"[::1]" + port, "", true},
		{"127.0.0.1", "", true},
		{"127.8.9.10" + port, "", true},
		{"evil.example" + port, "", false},
		{"evil.example", "", false},
		{"localhost.evil.example" + port, "", false},
		{"127.0.0.1.evil.example" + port, "", false},
		{"localhost.", "", false},
		{"10.0.0.1" + port, "", false},
		{"0.0.0.0" + port, "", false},
		{"", "http://evil.example", false},
		{"", "https://localhost.evil.example", false},
		{"", "http://127.0.0.1.evil.example", false},
		{"", "http://evil.example#localhost", false},
		{"", "http://localhost@evil.example", false},
		{"", "null", false},
		{"", "file://", false},
		{"", "not an origin", false},
		{"localhost" + port, "http://localhost" + port, true}, // the gateway itself
		{"localhost" + port, "http://LocalHost" + port, true},
		{"evil.example" + port, "http://localhost:3000", false},
	} {
		for _, path := range []string{"/mcp", "/v1/call", "/sse", "/v1/servers", "/healthz"} {
			method := "POST"
			if path != "/mcp" && path != "/v1/call" {
				method = "GET"
			}
			if tt.ok && path == "/sse" {
				continue // would be a stream
			}
			before := len(up.of("tools/call"))
			r := w.do(t, method, path, body, "Content-Type", "application/json", "Host", tt.host, "Origin", tt.origin)
			if forbidden := r.status == http.StatusForbidden; forbidden == tt.ok {
				t.Errorf("%s with Host %q, Origin %q: status %d", path, tt.host, tt.origin, r.status)
			}
			if !tt.ok && len(up.of("tools/call")) != before {
				t.Errorf("%s with Host %q, Origin %q reached the server", path, tt.host, tt.origin)
			}
			if allow := r.header.Get("Access-Control-Allow-Origin"); !tt.ok && allow != "" {
				t.Errorf("%s with Origin %q: allowed %q", path, tt.origin, allow)
			}
		}
	}
}

func TestPublicURLAndOrigins(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, "public_url: https://tine.example.org\ncors: {origins: [\"https://app.example.org\"]}\n"+twoPeople+servers("a", up.URL))
	for _, tt := range []struct {
		host, origin string
		ok           bool
	}{
		{"tine.example.org", "", true},
		{"TINE.example.org", "", true},
		{"other.example.org", "", false},
		{"tine.example.org:81", "", false},
		{"", "https://app.example.org", true},
		{"tine.example.org", "https://app.example.org", true},
		{"tine.example.org", "https://tine.example.org", true},
		{"tine.example.org", "http://app.example.org", false},
		{"tine.example.org", "https://app.example.org.evil", false},
		{"tine.example.org", "https://app.example.org:444", false},
	} {
		r := w.do(t, "GET", "/v1/servers", "", append([]string{"Host", tt.host, "Origin", tt.origin}, asAda...)...)
		if ok := r.status == http.StatusOK; ok != tt.ok {
			t.Errorf("Host %q, Origin %q: status %d", tt.host, tt.origin, r.status)
		}
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, "cors: {origins: [\"https://app.example.org\"]}\n"+twoPeople+servers("a", up.URL))
	preflight := func(origin string) *reply {
		return w.do(t, "OPTIONS", "/mcp", "", "Origin", origin, "Access-Control-Request-Method", "POST",
			"Access-Control-Request-Headers", "content-type,mcp-session-id,authorization,mcp-method")
	}
	r := preflight("https://app.example.org")
	if r.status != http.StatusNoContent || r.header.Get("Access-Control-Allow-Origin") != "https://app.example.org" {
		t.Fatalf("status %d, %v", r.status, r.header)
	}
	for _, method := range []string{"GET", "POST", "DELETE"} {
		if !strings.Contains(r.header.Get("Access-Control-Allow-Methods"), method) {
			t.Errorf("%s is not allowed: %v", method, r.header)
		}
	}
	for _, name := range []string{"content-type", "mcp-session-id", "authorization", "mcp-method"} {
		if !strings.Contains(strings.ToLower(r.header.Get("Access-Control-Allow-Headers")), name) {
			t.Errorf("%s is not allowed: %v", name, r.header)
		}
	}
	if !strings.Contains(r.header.Get("Vary"), "Origin") {
		t.Errorf("Vary is %q", r.header.Get("Vary"))
	}
	if r.header.Get("Access-Control-Allow-Credentials") != "" {
		t.Error("credentials are allowed, though Tine uses none that a browser has")
	}
	if r := preflight("https://evil.example"); r.status != http.StatusForbidden || r.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("another origin: status %d, %v", r.status, r.header)
	}
	// The real request says so too, and shows the page its session.
	real := w.do(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, append([]string{"Content-Type", "application/json", "Origin", "https://app.example.org"}, asAda...)...)
	if real.header.Get("Access-Control-Allow-Origin") != "https://app.example.org" || !strings.Contains(real.header.Get("Access-Control-Expose-Headers"), "Mcp-Session-Id") {
		t.Errorf("the request after it: %v", real.header)
	}
	// Without a token a page gets an answer it can read, and no more.
	if r := w.do(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Content-Type", "application/json", "Origin", "https://app.example.org"); r.status != http.StatusUnauthorized || r.header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("without a token: status %d, %v", r.status, r.header)
	}
}

// Pages of this machine are other programs' than the user's, and need a token, or
// to be named in the config. Then they reach MCP, and the APIs with a token only.
func TestPagesOfThisMachine(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	const (
		page   = "http://localhost:3000"
		listed = "cors: {origins: [\"" + page + "\"]}\n"
		ping   = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	)
	asOperator := []string{"Authorization", "Bearer " + operator}
	for name, tt := range map[string]struct {
		config, origin string
		header         []string
		mcp, api       int
	}{
		"open":                      {"", page, nil, http.StatusForbidden, http.StatusForbidden},
		"open, by address":          {"", "http://127.0.0.1:6274", nil, http.StatusForbidden, http.StatusForbidden},
		"open, no port":             {"", "http://[::1]", nil, http.StatusForbidden, http.StatusForbidden},
		"open, with a token":        {"", page, asOperator, http.StatusOK, http.StatusOK},
		"open, with a wrong one":    {"", page, []string{"Authorization", "Bearer x"}, http.StatusUnauthorized, http.StatusUnauthorized},
		"open, no page":             {"", "", nil, http.StatusOK, http.StatusOK},
		"listed":                    {listed, page, nil, http.StatusOK, http.StatusForbidden},
		"listed, with a token":      {listed, page, asOperator, http.StatusOK, http.StatusOK},
		"listed, another port":      {listed, "http://localhost:3001", nil, http.StatusForbidden, http.StatusForbidden},
		"listed, another name":      {listed, "http://127.0.0.1:3000", nil, http.StatusForbidden, http.StatusForbidden},
		"with auth":                 {twoPeople, page, nil, http.StatusUnauthorized, http.StatusUnauthorized},
		"with auth and a token":     {twoPeople, page, asAda, http.StatusOK, http.StatusOK},
		"with auth, a page of evil": {twoPeople, "https://evil.example", asAda, http.StatusForbidden, http.StatusForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			w := open(t, tt.config+servers("a", up.URL))
			header := append([]string{"Content-Type", "application/json", "Origin", tt.origin}, tt.header...)
			for _, r := range []struct {
				method, path, body string
				want               int
			}{
				{"POST", "/mcp", ping, tt.mcp}, {"POST", "/mcp/a", ping, tt.mcp},
				{"GET", "/v1/servers", "", tt.api}, {"GET", "/v1/sessions", "", tt.api},
			} {
				if got := w.do(t, r.method, r.path, r.body, header...); got.status != r.want {
					t.Errorf("%s: status %d, want %d: %s", r.path, got.status, r.want, got.body)
				} else if r.want == http.StatusForbidden && tt.origin == page && got.header.Get("Access-Control-Allow-Origin") != page {
					t.Errorf("%s: the page can't read why", r.path)
				}
			}
			if tt.api == http.StatusForbidden {
				for path, body := range map[string]string{"/v1/tokens": `{"name":"x","role":"operator"}`, "/v1/call": `{"tool":"a__one"}`, "/v1/sessions": `{}`} {
					if got := w.do(t, "POST", path, body, header...); got.status != http.StatusForbidden {
						t.Errorf("%s: status %d: %s", path, got.status, got.body)
					}
				}
				if got := w.do(t, "GET", "/metrics", "", header...); got.status != http.StatusForbidden {
					t.Errorf("metrics: status %d", got.status)
				}
			}
		})
	}
	if n := len(up.of("tools/call")); n != 0 {
		t.Errorf("%d calls reached the server", n)
	}
}
