package identity_test

import (
	"testing"

	"github.com/tine-mcp/tine/internal/identity"
)

func TestChallenge(t *testing.T) {
	const meta = "https://tine.example/.well-known/oauth-protected-resource/mcp"
	for _, tt := range []struct {
		refusal identity.Refusal
		url     string
		want    string
	}{
		{identity.Refusal{Status: 401, Message: "a token is needed"}, "", `Bearer`},
		{identity.Refusal{Status: 401, Message: "a token is needed"}, meta, `Bearer resource_metadata="` + meta + `"`},
		{identity.Refusal{Status: 401, Scopes: []string{"a", "b:c"}}, meta, `Bearer resource_metadata="` + meta + `", scope="a b:c"`},
		{identity.Refusal{Status: 401, Code: "invalid_token", Message: "it expired"}, meta,
			`Bearer resource_metadata="` + meta + `", error="invalid_token", error_description="it expired"`},
		{identity.Refusal{Status: 401, Code: "invalid_token"}, "", `Bearer error="invalid_token"`},
		{identity.Refusal{Status: 403, Code: "insufficient_scope", Message: "more", Scopes: []string{"a"}}, meta,
			`Bearer resource_metadata="` + meta + `", error="insufficient_scope", error_description="more", scope="a"`},
		{identity.Refusal{Status: 401, Code: "invalid_token", Message: "say \"x\\y\"\r\nSet-Cookie: é"}, `https://h/"\` + "\n",
			`Bearer resource_metadata="https://h/\"\\?", error="invalid_token", error_description="say 'x/y'??Set-Cookie: ?"`},
		{identity.Refusal{Status: 401, Scopes: []string{`a"b`, "c d", "", "é", `x\y`, "ok"}}, "", `Bearer scope="ok"`},
		{identity.Refusal{Status: 503, Message: "later"}, meta, ``},
	} {
		if got := tt.refusal.Challenge(tt.url); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}
