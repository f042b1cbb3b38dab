package identity

import (
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/identity/issuertest"
)

// What was verified or refused once is not checked again: it stays as it was
// when there is no key left to check it with.
func TestSignaturesAreCheckedOnce(t *testing.T) {
	iss := issuertest.New(t, issuertest.Options{})
	g := NewGuard(Options{OIDC: &OIDC{Issuer: iss.URL(), Audience: []string{"tine"}}})
	defer g.Close()
	claims := map[string]any{"aud": "tine"}
	tokens := map[string]string{
		iss.Token(claims):    "",
		iss.WrongKey(claims): "the token's signature is wrong",
		iss.Expired(claims):  "the token has expired",
		iss.Token(map[string]any{"aud": "tine", "iss": "https://other.test"}): "the token is of another issuer than " + iss.URL(),
	}
	check := func() {
		t.Helper()
		for token, want := range tokens {
			got := ""
			if _, r := g.Identify(t.Context(), "Bearer "+token, ""); r != nil {
				got = r.Message
			}
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
	}
	check()
	keys := g.issuer.keys.current.Load()
	g.issuer.keys.current.Store(&keySet{fetched: time.Now(), change: keys.change, dropped: keys.dropped})
	check()
	if _, r := g.Identify(t.Context(), "Bearer "+iss.Token(claims), ""); r == nil {
		t.Error("a new token was taken without a key")
	}
}
