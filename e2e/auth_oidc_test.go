//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/identity/issuertest"
	"github.com/tine-mcp/tine/internal/torture"
)

const listTools = `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// challenge takes a WWW-Authenticate of the scheme Bearer apart, strictly: what
// a client's parser might not understand fails the test.
func challenge(t testing.TB, h http.Header) map[string]string {
	t.Helper()
	all := h.Values("WWW-Authenticate")
	if len(all) != 1 {
		t.Fatalf("WWW-Authenticate stands %d times: %q", len(all), all)
	}
	rest, ok := strings.CutPrefix(all[0], "Bearer")
	if !ok {
		t.Fatalf("WWW-Authenticate is %q", all[0])
	}
	got := map[string]string{}
	param := regexp.MustCompile(`^ ?([a-z_]+)="([\x20\x21\x23-\x5b\x5d-\x7e]*)"(?:,|$)`)
	for rest != "" {
		m := param.FindStringSubmatch(rest)
		if m == nil {
			t.Fatalf("WWW-Authenticate is unreadable at %q in %q", rest, all[0])
		}
		if _, twice := got[m[1]]; twice {
			t.Fatalf("%s stands twice in %q", m[1], all[0])
		}
		got[m[1]] = m[2]
		rest = rest[len(m[0]):]
	}
	return got
}

// names are those of a tools/list answer.
func names(t testing.TB, r reply) []string {
	t.Helper()
	m, err := r.answer()
	if err != nil || m.Error != nil {
		t.Fatalf("tools/list: %d %s %v %v", r.status, r.body, err, m.Error)
	}
	var list struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(m.Result, &list); err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, tool := range list.Tools {
		out = append(out, tool.Name)
	}
	slices.Sort(out)
	return out
}

// TestIssuerTokens shows a gateway every kind of token that an issuer or a
// forger can make.
func TestIssuerTokens(t *testing.T) {
	t.Parallel()
	iss, other := issuertest.New(t, issuertest.Options{Path: "/realms/work"}), issuertest.New(t, issuertest.Options{})
	g := startGateway(t, fmt.Sprintf("log: {level: debug}\nauth:\n  oidc: {issuer: %q, scopes: [mcp, tools]}\nservers:\n  clock: {builtin: time}\n", iss.URL()))
	root, mcp := g.url, g.url+"/mcp"
	claims := func(more map[string]any) map[string]any {
		all := map[string]any{"aud": mcp, "scope": "mcp tools"}
		for k, v := range more {
			all[k] = v
		}
		return all
	}
	const invalid = "invalid_token"
	for _, tt := range []struct {
		name   string
		header []string // of Authorization
		status int
		code   string // error of the challenge
	}{
		{"right", []string{"Bearer " + iss.Token(claims(nil))}, 200, ""},
		{"scheme in lower case", []string{"bearer " + iss.Token(claims(nil))}, 200, ""},
		{"among several audiences", []string{"Bearer " + iss.Token(claims(map[string]any{"aud": []string{"https://other.example", mcp}}))}, 200, ""},
		{"for the whole gateway", []string{"Bearer " + iss.Token(claims(map[string]any{"aud": root}))}, 200, ""},
		{"for the whole gateway, with a slash", []string{"Bearer " + iss.Token(claims(map[string]any{"aud": root + "/"}))}, 200, ""},
		{"scopes as a list", []string{"Bearer " + iss.Token(claims(map[string]any{"scope": nil, "scp": []string{"tools", "mcp"}}))}, 200, ""},
		{"without a kid", []string{"Bearer " + iss.Unnamed(claims(nil))}, 200, ""},
		{"none at all", nil, 401, ""},
		{"another scheme", []string{"Basic YWRhOnNlY3JldA=="}, 401, ""},
		{"twice", []string{"Bearer " + iss.Token(claims(nil)), "Bearer x"}, 400, ""},
		{"another audience", []string{"Bearer " + iss.Token(claims(map[string]any{"aud": "https://other.example/mcp"}))}, 401, invalid},
		{"an audience that only begins the same", []string{"Bearer " + iss.Token(claims(map[string]any{"aud": root + "/mc"}))}, 401, invalid},
		{"only for one server", []string{"Bearer " + iss.Token(claims(map[string]any{"aud": mcp + "/clock"}))}, 401, invalid},
		{"no audience", []string{"Bearer " + iss.Token(claims(map[string]any{"aud": nil}))}, 401, invalid},
		{"expired", []string{"Bearer " + iss.Expired(claims(nil))}, 401, invalid},
		{"without an end", []string{"Bearer " + iss.Token(claims(map[string]any{"exp": nil}))}, 401, invalid},
		{"not valid yet", []string{"Bearer " + iss.Token(claims(map[string]any{"nbf": time.Now().Add(time.Hour).Unix()}))}, 401, invalid},
		{"another issuer by name", []string{"Bearer " + iss.Token(claims(map[string]any{"iss": other.URL()}))}, 401, invalid},
		{"another issuer by key", []string{"Bearer " + other.Token(claims(map[string]any{"iss": iss.URL()}))}, 401, invalid},
		{"another issuer", []string{"Bearer " + other.Token(claims(nil))}, 401, invalid},
		{"alg none", []string{"Bearer " + iss.None(claims(nil))}, 401, invalid},
		{"HS256 with the public key", []string{"Bearer " + iss.HS256(claims(nil))}, 401, invalid},
		{"another key under the right kid", []string{"Bearer " + iss.WrongKey(claims(nil))}, 401, invalid},
		{"an unpublished key", []string{"Bearer " + iss.UnknownKey("nobodys", claims(nil))}, 401, invalid},
		{"cut short", []string{"Bearer " + strings.TrimRight(iss.Token(claims(nil)), "abcdefghijklmnopqrstuvwxyz")[:200]}, 401, invalid},
		{"no subject", []string{"Bearer " + iss.Token(claims(map[string]any{"sub": nil}))}, 401, invalid},
		{"one scope missing", []string{"Bearer " + iss.Token(claims(map[string]any{"scope": "mcp"}))}, 403, "insufficient_scope"},
		{"no scope", []string{"Bearer " + iss.Token(claims(map[string]any{"scope": nil}))}, 403, "insufficient_scope"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := post(t.Context(), mcp, http.Header{"Authorization": tt.header}, listTools)
			if err != nil {
				t.Fatal(err)
			}
			if r.status != tt.status {
				t.Fatalf("status %d, want %d: %s", r.status, tt.status, r.body)
			}
			for _, h := range tt.header {
				if _, token, _ := strings.Cut(h, " "); len(token) > 20 && strings.Contains(string(r.body)+r.header.Get("WWW-Authenticate"), token[:20]) {
					t.Errorf("the answer repeats the token: %s", r.body)
				}
			}
			switch tt.status {
			case 200:
				if got := names(t, r); !slices.Contains(got, "clock__get_current_time") {
					t.Errorf("lists %v", got)
				}
				return
			case 400:
				return
			}
			c := challenge(t, r.header)
			if want := root + "/.well-known/oauth-protected-resource/mcp"; c["resource_metadata"] != want {
				t.Errorf("resource_metadata %q, want %q", c["resource_metadata"], want)
			}
			if c["error"] != tt.code || (tt.code == "") != (c["error_description"] == "") {
				t.Errorf("error %q with the description %q, want %q", c["error"], c["error_description"], tt.code)
			}
			if c["scope"] != "mcp tools" {
				t.Errorf("scope %q", c["scope"])
			}
		})
	}
	log, err := os.ReadFile(g.logPath())
	if err != nil {
		t.Fatal(err)
	}
	if i := strings.Index(string(log), "eyJ"); i >= 0 {
		t.Errorf("a token is in the log: ...%s", log[max(0, i-100):min(len(log), i+60)])
	}
}

// TestKeyRotation follows an issuer that changes its keys: tokens of a new key
// come in, those of a key that is no longer published don't.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	for _, alg := range torture.Or([]string{"ES256"}, []string{"ES256", "RS256"}) {
		t.Run(alg, func(t *testing.T) {
			t.Parallel()
			iss := issuertest.New(t, issuertest.Options{Algorithm: alg})
			g := startGateway(t, fmt.Sprintf("auth:\n  oidc: {issuer: %q}\nservers: {}\n", iss.URL()))
			token := func() string { return iss.Token(map[string]any{"aud": g.url + "/mcp"}) }
			status := func(token string) int {
				r, err := post(t.Context(), g.url+"/mcp", bearer(token), listTools)
				if err != nil {
					t.Fatal(err)
				}
				return r.status
			}
			// The keys are not fetched for every token with a kid nobody knows,
			// so a new one may take a moment.
			admitted := func(token string) {
				t.Helper()
				if err := eventually(func() error {
					if s := status(token); s != http.StatusOK {
						return fmt.Errorf("status %d", s)
					}
					return nil
				}); err != nil {
					t.Fatalf("a token of the new key: %v", err)
				}
			}
			first := token()
			admitted(first)
			iss.Rotate()
			second := token()
			admitted(second)
			if s := status(first); s != http.StatusOK {
				t.Errorf("a token of the old key, which is still published: status %d", s)
			}
			iss.Rotate()
			iss.DropOld()
			admitted(token())
			for _, old := range []string{first, second} {
				if s := status(old); s != http.StatusUnauthorized {
					t.Errorf("a token of a key that is no longer published: status %d, want 401", s)
				}
			}
			if n := iss.Count(issuertest.JWKS); n > 12 {
				t.Errorf("the keys were fetched %d times", n)
			}
		})
	}
}

// TestGroupRules checks what claims give: servers, tools and roles.
func TestGroupRules(t *testing.T) {
	t.Parallel()
	iss := issuertest.New(t, issuertest.Options{})
	g := startGateway(t, fmt.Sprintf(`
auth:
  oidc: {issuer: %q, audience: tine}
  rules:
    - {claims: {groups: [platform]}, role: operator}
    - {claims: {groups: ["team-*"], email_verified: true}, servers: [clock]}
    - {claims: {groups: [echoers]}, tools: ["every__echo", "clock__convert_*"]}
    - {principals: ["oidc:watcher"], role: viewer, servers: [none]}
servers:
  clock: {builtin: time}
  every: {builtin: everything}
`, iss.URL()))
	for _, tt := range []struct {
		name    string
		claims  map[string]any
		tools   []string // nil for all
		metrics int
		patch   int
	}{
		{"operator", map[string]any{"groups": []string{"staff", "platform"}}, nil, 200, 200},
		{"operator by a text", map[string]any{"groups": "platform"}, nil, 200, 200},
		{"one server", map[string]any{"groups": []string{"team-a"}, "email_verified": true}, []string{"clock__convert_time", "clock__get_current_time"}, 403, 403},
		{"half of a rule", map[string]any{"groups": []string{"team-a"}, "email_verified": false}, []string{}, 403, 403},
		{"single tools", map[string]any{"groups": []string{"echoers"}}, []string{"clock__convert_time", "every__echo"}, 403, 403},
		{"two rules", map[string]any{"groups": []string{"echoers", "team-b"}, "email_verified": true}, []string{"clock__convert_time", "clock__get_current_time", "every__echo"}, 403, 403},
		{"viewer of nothing", map[string]any{"sub": "watcher"}, []string{}, 200, 403},
		{"a claim of another kind", map[string]any{"groups": map[string]any{"platform": true}}, []string{}, 403, 403},
		{"nothing", nil, []string{}, 403, 403},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			claims := map[string]any{"aud": "tine"}
			for k, v := range tt.claims {
				claims[k] = v
			}
			who := bearer(iss.Token(claims))
			r, err := post(t.Context(), g.url+"/mcp", who, listTools)
			if err != nil {
				t.Fatal(err)
			}
			got := names(t, r)
			if tt.tools == nil && len(got) < 5 || tt.tools != nil && !slices.Equal(got, tt.tools) {
				t.Errorf("lists %v, want %v", got, tt.tools)
			}
			if s, _ := do(t, "GET", g.url+"/metrics", who, ""); s.StatusCode != tt.metrics {
				t.Errorf("metrics: %s, want %d", s.Status, tt.metrics)
			}
			if s, body := do(t, "PATCH", g.url+"/v1/servers/clock", who, `{"set":{"timeout":"4m"}}`); s.StatusCode != tt.patch {
				t.Errorf("PATCH: %s, want %d: %s", s.Status, tt.patch, body)
			}
		})
	}
}

// do makes one HTTP request, with a Host header where there is one.
func do(t testing.TB, method, target string, header http.Header, body string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for k, v := range header {
		req.Header[k] = v
	}
	req.Host = header.Get("Host")
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req) // no redirect is followed
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(raw)
}

// TestProtectedResourceMetadata goes where a challenge points, for every URL
// that MCP is served at, and finds exactly the URL that was used. Then a token
// for that resource gets in there.
func TestProtectedResourceMetadata(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, public string }{
		{"loopback", ""},
		{"public", "https://tine.example.org"},
		{"port", "https://tine.example.org:8443"},
		{"prefix", "https://tools.example.org/gate/way"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			iss := issuertest.New(t, issuertest.Options{Path: "/realms/work"})
			public := ""
			if tt.public != "" {
				public = "public_url: " + tt.public + "\n"
			}
			g := startGateway(t, public+fmt.Sprintf("auth:\n  oidc: {issuer: %q, scopes: [mcp]}\nservers:\n  clock: {builtin: time}\n", iss.URL()))
			base, header := g.url, http.Header{}
			prefix := ""
			if tt.public != "" {
				u, err := url.Parse(tt.public)
				if err != nil {
					t.Fatal(err)
				}
				base, prefix = tt.public, u.Path
				header.Set("Host", u.Host) // as a proxy passes it on
			}
			origin := strings.TrimSuffix(base, prefix)
			for _, path := range []string{
				"/mcp", "/mcp/", "/mcp/clock", "/mcp/nosuch", "/s/ses_0123456789ab/mcp", "/s/ses_0123456789ab/mcp/clock",
				"/sse", "/streamable-http", "/mcp/clock/sse", "/mcp/a%20b",
			} {
				resp, _ := do(t, "POST", g.url+path, header, listTools)
				if resp.StatusCode != http.StatusUnauthorized {
					t.Errorf("%s: %s", path, resp.Status)
					continue
				}
				at := challenge(t, resp.Header)["resource_metadata"]
				if want := origin + "/.well-known/oauth-protected-resource" + prefix + path; at != want {
					t.Errorf("%s: resource_metadata %q, want %q", path, at, want)
				}
				// What comes through a proxy may have lost the prefix on the way.
				for _, inside := range []string{strings.TrimPrefix(at, origin), "/.well-known/oauth-protected-resource" + path} {
					resp, body := do(t, "GET", g.url+inside, header, "")
					if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
						t.Errorf("%s: %s of %s: %s", inside, resp.Status, resp.Header.Get("Content-Type"), body)
						continue
					}
					var doc struct {
						Resource string   `json:"resource"`
						Servers  []string `json:"authorization_servers"`
						Scopes   []string `json:"scopes_supported"`
						Methods  []string `json:"bearer_methods_supported"`
					}
					if err := json.Unmarshal([]byte(body), &doc); err != nil {
						t.Fatal(err)
					}
					if doc.Resource != base+path {
						t.Errorf("%s: the resource is %q, the client used %q", inside, doc.Resource, base+path)
					}
					if !slices.Equal(doc.Servers, []string{iss.URL()}) || !slices.Equal(doc.Scopes, []string{"mcp"}) || !slices.Equal(doc.Methods, []string{"header"}) {
						t.Errorf("%s: %s", inside, body)
					}
				}
				own := header.Clone()
				own.Set("Authorization", "Bearer "+iss.Token(map[string]any{"aud": base + path, "scope": "mcp"}))
				if resp, body := do(t, "POST", g.url+path, own, listTools); resp.StatusCode == http.StatusUnauthorized {
					t.Errorf("a token for %s does not get in there: %s", base+path, body)
				}
			}
			if resp, _ := do(t, "POST", g.url+"/.well-known/oauth-protected-resource/mcp", header, "{}"); resp.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("POST to the metadata: %s", resp.Status)
			}
		})
	}
}

// TestNoMetadataWithoutAnIssuer checks that static tokens send no client to log in.
func TestNoMetadataWithoutAnIssuer(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "auth:\n  tokens: [{name: ada, token: ada-ada-ada-ada-ada}]\nservers: {}\n")
	resp, _ := do(t, "POST", g.url+"/mcp", nil, listTools)
	if c := challenge(t, resp.Header); resp.StatusCode != http.StatusUnauthorized || len(c) != 0 {
		t.Errorf("%s with the challenge %v", resp.Status, c)
	}
	if resp, _ := do(t, "GET", g.url+"/.well-known/oauth-protected-resource/mcp", nil, ""); resp.StatusCode != http.StatusNotFound {
		t.Errorf("metadata: %s", resp.Status)
	}
}
