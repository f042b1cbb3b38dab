package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/identity/issuertest"
	"github.com/tine-mcp/tine/internal/testkit"
)

// oidcWorld is a gateway that takes the tokens of an issuer, and one static one.
func oidcWorld(t *testing.T, more string) (*world, *issuertest.Issuer, *scripted) {
	iss := issuertest.New(t, issuertest.Options{})
	up := echoServer(t, true, "one")
	w := open(t, fmt.Sprintf("auth:\n  tokens: [{name: bob, token: bob-bob-bob-bob-bob}]\n  oidc: {issuer: %q}\n%s", iss.URL(), more)+servers("a", up.URL))
	return w, iss, up
}

// tokenFor is the header of a client that has a token for one URL.
func (w *world) tokenFor(iss *issuertest.Issuer, sub, path string) []string {
	return []string{"Authorization", "Bearer " + iss.Token(map[string]any{"sub": sub, "aud": w.at(path)})}
}

// TestEventStreamOfAnIssuersToken uses the transport of revision 2024-11-05 with
// a token for the URL of its stream, as a client gets one by the metadata. Where
// it posts must be a part of that.
func TestEventStreamOfAnIssuersToken(t *testing.T) {
	t.Parallel()
	w, iss, _ := oidcWorld(t, "")
	for path, tool := range map[string]string{"/sse": "a__one", "/sse/a": "one", "/mcp/a/sse": "one"} {
		who := w.tokenFor(iss, "ada", path)
		s, post := openEvents(t, w, path, who...)
		send := func(body string) *reply {
			return w.do(t, "POST", post, body, append([]string{"Content-Type", "application/json"}, who...)...)
		}
		hello := send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`)
		if hello.status != http.StatusAccepted {
			t.Errorf("%s: a message at %s is answered %d %s %s", path, post, hello.status, hello.header.Get("WWW-Authenticate"), hello.body)
			continue
		}
		s.next()
		send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool + `"}}`)
		if got := resultText(t, s.next()); got != "done" {
			t.Errorf("%s: %q", path, got)
		}
	}
}

// TestRenewedTokensGoOn has a client come with a new token, as one does whose
// old one is about to expire: it is the same principal and goes on. Another
// principal's token is not, even with the same name in a static one.
func TestRenewedTokensGoOn(t *testing.T) {
	t.Parallel()
	w, iss, up := oidcWorld(t, "")
	c := w.dial(t, "/mcp", `{}`, w.tokenFor(iss, "bob", "/mcp")...)
	for range 3 {
		c.more = w.tokenFor(iss, "bob", "/mcp")
		c.get("tools/call", `{"name":"a__one"}`)
	}
	for what, who := range map[string][]string{"another": w.tokenFor(iss, "eve", "/mcp"), "the static token of the same name": asBob} {
		c.more = who
		if r := c.request("tools/call", `{"name":"a__one"}`); r.status != http.StatusNotFound {
			t.Errorf("%s: status %d %s", what, r.status, r.body)
		}
	}
	if n := len(up.of("tools/call")); n != 3 {
		t.Errorf("the server was called %d times", n)
	}
	owners := map[string]bool{}
	for _, s := range w.rg.Sessions() {
		owners[s.Owner] = true
	}
	if !owners["oidc:bob"] || owners["eve"] || owners["bob"] && len(owners) == 1 {
		t.Errorf("sessions of %v", owners)
	}
	for _, in := range up.of("tools/call") {
		for name, values := range in.header {
			if strings.Contains(strings.Join(values, " "), "eyJ") {
				t.Errorf("the caller's token went to the server in %s", name)
			}
		}
	}
}

// TestIssuerDown checks that a caller whose token can't be checked is told to
// come back, and not to log in again; and that static tokens don't need the
// issuer.
func TestIssuerDown(t *testing.T) {
	t.Parallel()
	w, iss, _ := oidcWorld(t, "")
	who := w.tokenFor(iss, "ada", "/mcp")
	iss.Down(true)
	list := func(who []string) *reply {
		return w.do(t, "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, append([]string{"Content-Type", "application/json"}, who...)...)
	}
	r := list(who)
	if r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") == "" || r.header.Get("WWW-Authenticate") != "" {
		t.Errorf("status %d, %v", r.status, r.header)
	}
	if r := list(asBob); r.status != http.StatusOK {
		t.Errorf("a static token: status %d %s", r.status, r.body)
	}
	iss.Down(false)
	testkit.Eventually(t, "the issuer is asked again", func() bool { return list(who).status == http.StatusOK })
	iss.Down(true) // what was checked stays checked
	if r := list(who); r.status != http.StatusOK {
		t.Errorf("a token that was checked before: status %d", r.status)
	}
}

// TestControlAPIOfAnIssuersToken uses the control API with tokens for all of the
// gateway, for it, and for something else.
func TestControlAPIOfAnIssuersToken(t *testing.T) {
	t.Parallel()
	w, iss, _ := oidcWorld(t, "  rules: [{claims: {groups: [ops]}, role: operator}, {principals: [bob]}]\n")
	for path, want := range map[string]int{"": 200, "/": 200, "/v1": 200, "/v1/servers": 200, "/mcp": 401, "/v": 401} {
		ops := iss.Token(map[string]any{"aud": w.at(path), "groups": []string{"ops"}})
		if r := w.do(t, "GET", "/v1/servers", "", "Authorization", "Bearer "+ops); r.status != want {
			t.Errorf("a token for %q: status %d, want %d: %s", path, r.status, want, r.body)
		}
	}
}
