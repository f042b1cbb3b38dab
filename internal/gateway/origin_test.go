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
		{"", "http://localhost:3000", true},
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
