package identity_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/identity/issuertest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClock() *testkit.Clock { return testkit.NewClock(time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)) }

const (
	public   = "https://tine.example/gw"
	resource = "https://tine.example/gw/mcp/github"
)

// world is a guard before an issuer, on one clock.
type world struct {
	*testkit.Clock
	iss   *issuertest.Issuer
	guard *identity.Guard
	opts  identity.Options
}

func newWorld(t testing.TB, change func(*identity.Options)) *world {
	t.Helper()
	w := &world{Clock: newClock()}
	w.iss = issuertest.New(t, issuertest.Options{Now: w.Now})
	w.opts = identity.Options{OIDC: &identity.OIDC{Issuer: w.iss.URL()}, PublicURL: public, Now: w.Now}
	if change != nil {
		change(&w.opts)
	}
	w.guard = identity.NewGuard(w.opts)
	t.Cleanup(func() { w.guard.Close() })
	return w
}

// token is a good one, but for what claims say.
func (w *world) token(claims map[string]any) string { return w.iss.Token(aud(claims)) }

// aud adds the audience unless there is one.
func aud(claims map[string]any) map[string]any {
	all := map[string]any{"aud": public}
	for k, v := range claims {
		all[k] = v
	}
	return all
}

// expect identifies a token and compares the principal's name, or the reason of
// the refusal.
func (w *world) expect(t *testing.T, token, want string) (identity.Principal, *identity.Refusal) {
	t.Helper()
	p, r := w.guard.Identify(t.Context(), "Bearer "+token, resource)
	got := p.Name
	if r != nil {
		got = r.Reason
		if p != (identity.Principal{}) {
			t.Errorf("refused, and %+v all the same", p)
		}
	}
	if got != want {
		t.Errorf("got %q, want %q (%+v)", got, want, r)
	}
	return p, r
}

func allOf(p identity.Principal) string { return p.Name + "/" + p.Role }
