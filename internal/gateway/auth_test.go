package gateway_test

import (
	"net/http"
	"strings"
	"testing"
)

func TestBearerTokens(t *testing.T) {
	t.Parallel()
	up := echoServer(t, true, "one")
	w := open(t, twoPeople+servers("a", up.URL))
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a__one"}}`
	for _, tt := range []struct {
		header string
		ok     bool
	}{
		{"", false},
		{"Bearer", false},
		{"Bearer ", false},
		{"Bearer wrong-wrong-wrong-wrong", false},
		{"Bearer ada-ada-ada-ada-ad", false},
		{"Bearer ada-ada-ada-ada-ada2", false},
		{"Bearer ADA-ADA-ADA-ADA-ADA", false},
		{"Basic ada-ada-ada-ada-ada", false},
		{"ada-ada-ada-ada-ada", false},
		{"Bearer ada-ada-ada-ada-ada bob-bob-bob-bob-bob", false},
		{"Bearer ada-ada-ada-ada-ada", true},
		{"bearer ada-ada-ada-ada-ada", true},
		{"Bearer bob-bob-bob-bob-bob", true},
	} {
		for _, path := range []string{"/mcp", "/mcp/a", "/mcp/nosuch", "/v1/call", "/nowhere", "/sse?channel=x"} {
			r := w.do(t, "POST", path, body, "Content-Type", "application/json", "Authorization", tt.header)
			if refused := r.status == http.StatusUnauthorized; refused == tt.ok {
				t.Errorf("%s with %q: status %d", path, tt.header, r.status)
			}
			if tt.ok {
				continue
			}
			if !strings.HasPrefix(r.header.Get("WWW-Authenticate"), "Bearer") {
				t.Errorf("%s with %q: WWW-Authenticate %q", path, tt.header, r.header.Get("WWW-Authenticate"))
			}
			if token := strings.TrimPrefix(tt.header, "Bearer "); len(token) > 8 && strings.Contains(string(r.body), token) {
				t.Errorf("the answer repeats the token: %s", r.body)
			}
		}
		for _, path := range []string{"/mcp", "/sse", "/v1/servers", "/v1/status"} {
			if r := w.do(t, "GET", path, "", "Accept", "text/event-stream", "Authorization", tt.header, "Mcp-Session-Id", "x"); r.status == http.StatusUnauthorized == tt.ok {
				t.Errorf("GET %s with %q: status %d", path, tt.header, r.status)
			}
		}
		// Probes know no principals.
		if r := w.do(t, "GET", "/healthz", "", "Authorization", tt.header); r.status != http.StatusOK {
			t.Errorf("healthz with %q: status %d", tt.header, r.status)
		}
	}
	for _, in := range up.of("tools/call") {
		for name, values := range in.header {
			if strings.Contains(strings.Join(values, " "), "ada-ada") {
				t.Errorf("the caller's token went to the server in %s", name)
			}
		}
	}
	if log := w.log.String(); strings.Contains(log, "ada-ada-ada") || strings.Contains(log, "wrong-wrong") {
		t.Error("a token is in the log")
	}
}

// TestWrongTokenWhereNoneIsNeeded checks that a gateway open to everyone still
// refuses a token it does not know: a client that sends one thinks it counts.
func TestWrongTokenWhereNoneIsNeeded(t *testing.T) {
	t.Parallel()
	w := open(t, servers("a", echoServer(t, true, "one").URL))
	if r := w.do(t, "GET", "/v1/servers", "", "Authorization", "Bearer wrong-wrong-wrong"); r.status != http.StatusUnauthorized {
		t.Errorf("status %d, want 401", r.status)
	}
}

// TestSecretsStayInside has servers fail in every way with a secret in their
// URL and headers, and looks for it in what clients are told and in the log.
func TestSecretsStayInside(t *testing.T) {
	t.Parallel()
	const secret = "hunter2hunter2"
	broken := script(t, true, nil)
	for _, method := range []string{"server/discover", "initialize"} {
		broken.on(method, func(w http.ResponseWriter, r *http.Request, _ received) {
			if r.Header.Get("X-Api-Key") != secret {
				t.Error("the server was not sent its key")
			}
			http.Error(w, "no entry", http.StatusForbidden)
		})
	}
	entry := func(url string) string {
		return `{url: "` + url + `/mcp?key=` + secret + `", headers: {X-Api-Key: ` + secret + `}, connect_timeout: 2s}`
	}
	dead := "http://127.0.0.1:1"
	w := open(t, servers("dead", entry(dead), "shut", entry(broken.URL), "user", `{url: "http://me:`+secret+`@127.0.0.1:1/"}`))
	c := w.dial(t, "/mcp", `{}`)
	var seen strings.Builder
	for _, id := range []string{"dead", "shut", "user"} {
		for _, m := range calls(t, w, "/mcp", id+"__x") {
			seen.Write(m.raw)
		}
		one := w.do(t, "POST", "/mcp/"+id, `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, "Content-Type", "application/json")
		seen.Write(one.body)
	}
	seen.Write(c.ask("tools/list", `{}`).raw)
	for _, path := range []string{"/v1/servers", "/v1/tools", "/v1/status", "/v1/servers/dead", "/v1/servers/dead/logs", "/v1/servers/user"} {
		seen.Write(w.do(t, "GET", path, "").body)
	}
	seen.Write(w.do(t, "POST", "/v1/call", `{"tool":"dead__x"}`, "Content-Type", "application/json").body)
	if i := strings.Index(seen.String(), secret); i >= 0 {
		t.Errorf("a client is told a secret: ...%s", seen.String()[max(0, i-200):i+len(secret)])
	}
	if log := w.log.String(); strings.Contains(log, secret) {
		t.Errorf("a secret is in the log: %s", log)
	}
}
