package identity_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/identity/issuertest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// redirected serves the inner issuer's keys at /moved, and the rest by next.
func redirected(inner *issuertest.Issuer, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/moved" {
			next.ServeHTTP(w, r)
			return
		}
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get(inner.URL() + "/jwks")
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer resp.Body.Close()
		_, _ = io.Copy(w, resp.Body)
	})
}

func (w *world) fetches(t *testing.T, discoveries, keys int) {
	t.Helper()
	if d, k := w.iss.Count(issuertest.Discovery), w.iss.Count(issuertest.JWKS); d != discoveries || k != keys {
		t.Errorf("%d discoveries and %d fetches of keys, want %d and %d", d, k, discoveries, keys)
	}
}

func TestLazy(t *testing.T) {
	w := newWorld(t, func(o *identity.Options) {
		o.Tokens = []identity.Token{{Name: "ada", Hash: identity.HashToken("s3cret")}}
	})
	w.expect(t, "s3cret", "ada")
	w.expect(t, "unknown", identity.ReasonUnknown)
	w.expect(t, w.iss.None(nil), identity.ReasonSignature)
	w.fetches(t, 0, 0)
	for range 10 {
		w.expect(t, w.token(nil), "oidc:ada")
	}
	w.fetches(t, 1, 1)
}

func TestRotation(t *testing.T) {
	w := newWorld(t, nil)
	old := w.token(nil)
	w.expect(t, old, "oidc:ada")
	w.Advance(time.Minute)
	w.iss.Rotate()
	w.expect(t, w.token(nil), "oidc:ada")
	w.expect(t, old, "oidc:ada")
	w.fetches(t, 1, 2)

	// Right after a fetch there is none; soon the token is good all the same.
	w.iss.Rotate()
	young := w.token(nil)
	w.expect(t, young, identity.ReasonSignature)
	w.fetches(t, 1, 2)
	w.Advance(5 * time.Second)
	w.expect(t, young, "oidc:ada")
	w.fetches(t, 1, 3)

	// A key that was withdrawn takes the tokens with it that were verified.
	w.Advance(time.Minute)
	w.iss.Rotate()
	w.iss.DropOld()
	w.expect(t, young, "oidc:ada")
	w.expect(t, w.token(nil), "oidc:ada")
	w.fetches(t, 1, 4)
	w.expect(t, young, identity.ReasonSignature)
	w.expect(t, old, identity.ReasonSignature)
}

// No caller shows a token of a new key, and the withdrawn one is still noticed.
func TestKeysGrowOld(t *testing.T) {
	w := newWorld(t, nil)
	old := w.token(map[string]any{"exp": w.Now().Add(24 * time.Hour).Unix()})
	w.expect(t, old, "oidc:ada")
	w.iss.Rotate()
	w.iss.DropOld()
	w.Advance(11 * time.Minute)
	release := w.iss.Hold(issuertest.JWKS)
	w.expect(t, old, "oidc:ada") // the fetch is begun, and not waited for
	testkit.Eventually(t, "the keys are fetched again", func() bool { return w.iss.Count(issuertest.JWKS) == 2 })
	w.expect(t, old, "oidc:ada")
	release()
	testkit.Eventually(t, "the old key is refused", func() bool {
		_, r := w.guard.Identify(t.Context(), "Bearer "+old, resource)
		return r != nil && r.Reason == identity.ReasonSignature
	})
}

// Keys are fetched once in five seconds, even for invented kids.
func TestUnknownKeyStorm(t *testing.T) {
	w := newWorld(t, nil)
	good := w.token(nil)
	w.expect(t, good, "oidc:ada")
	for round := range 4 {
		w.Advance(5 * time.Second)
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				for m := range 25 {
					w.expect(t, w.iss.UnknownKey(fmt.Sprint("kid", round, n, m), aud(nil)), identity.ReasonSignature)
					w.expect(t, good, "oidc:ada")
				}
			})
		}
		all.Wait()
		w.fetches(t, 1, round+2)
	}
}

// The same with signatures that are wrong under a kid that exists.
func TestWrongSignatureStorm(t *testing.T) {
	w := newWorld(t, nil)
	bad := w.iss.WrongKey(aud(nil))
	for range 100 {
		w.expect(t, bad, identity.ReasonSignature)
		w.expect(t, w.iss.WrongKey(aud(nil)), identity.ReasonSignature)
	}
	w.fetches(t, 1, 1)
	w.Advance(5 * time.Second)
	for range 100 {
		w.expect(t, bad, identity.ReasonSignature)
	}
	w.fetches(t, 1, 2)
}

func TestIssuerDownAtStart(t *testing.T) {
	w := newWorld(t, nil)
	w.iss.Down(true)
	token := w.token(nil)
	tries := 0
	for _, pause := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		tries++
		for range 5 {
			_, r := w.expect(t, token, identity.ReasonDown)
			if r.Status != http.StatusServiceUnavailable || r.RetryAfter != pause*time.Second || !strings.Contains(r.Message, w.iss.URL()) || r.Challenge("u") != "" {
				t.Errorf("%+v, want a pause of %d s", r, pause)
			}
		}
		w.fetches(t, tries, 0)
		w.Advance(pause * time.Second)
	}
	w.iss.Down(false)
	w.expect(t, token, "oidc:ada")
	w.fetches(t, tries+1, 1)
}

func TestIssuerHalfDownAtStart(t *testing.T) {
	w := newWorld(t, nil)
	token := w.token(nil)
	for _, endpoint := range []string{issuertest.Discovery, issuertest.JWKS} {
		w.iss.Fail(endpoint, http.StatusInternalServerError)
		w.expect(t, token, identity.ReasonDown)
		w.iss.Fail(endpoint, 0)
		w.Advance(time.Minute)
	}
	w.expect(t, token, "oidc:ada")
}

// Keys that are there go on to be used. Who has a token of a key that can't be
// fetched is told to come again.
func TestIssuerDownLater(t *testing.T) {
	w := newWorld(t, nil)
	w.expect(t, w.token(nil), "oidc:ada")
	before := w.token(map[string]any{"sub": "bob", "exp": w.Now().Add(24 * time.Hour).Unix()})
	w.iss.Rotate()
	after := w.token(map[string]any{"sub": "eve", "exp": w.Now().Add(24 * time.Hour).Unix()})
	w.iss.Down(true)
	w.Advance(time.Hour)
	w.expect(t, before, "oidc:bob")
	w.expect(t, w.iss.WrongKey(aud(nil)), identity.ReasonDown) // under the kid of the new key
	_, r := w.expect(t, after, identity.ReasonDown)
	if r.RetryAfter != 5*time.Second {
		t.Errorf("%+v", r)
	}
	w.iss.Down(false)
	w.Advance(time.Minute)
	w.expect(t, after, "oidc:eve")
	w.expect(t, before, "oidc:bob")
}

// One fetch for all who come at once; who gives up does not end it, and who has
// a token that is known does not wait.
func TestSlowIssuer(t *testing.T) {
	w := newWorld(t, nil)
	known := w.token(nil)
	w.expect(t, known, "oidc:ada")
	w.Advance(time.Minute)
	w.iss.Rotate()
	release := w.iss.Hold(issuertest.JWKS)
	token := w.token(nil)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan *identity.Refusal)
	go func() {
		_, r := w.guard.Identify(ctx, "Bearer "+token, resource)
		gone <- r
	}()
	testkit.Eventually(t, "the keys are fetched again", func() bool { return w.iss.Count(issuertest.JWKS) == 2 })
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { w.expect(t, token, "oidc:ada") })
	}
	cancel()
	if r := <-gone; r == nil || r.Reason != identity.ReasonDown {
		t.Errorf("who left got %+v", r)
	}
	w.expect(t, known, "oidc:ada")
	w.expect(t, w.iss.None(nil), identity.ReasonSignature)
	release()
	all.Wait()
	w.fetches(t, 1, 2)
}

// Close ends a fetch that hangs, and what is verified stays so.
func TestCloseDuringFetch(t *testing.T) {
	w := newWorld(t, nil)
	known := w.token(nil)
	w.expect(t, known, "oidc:ada")
	w.Advance(time.Minute)
	w.iss.Rotate()
	w.iss.Hold(issuertest.JWKS)
	token := w.token(nil)
	done := make(chan struct{})
	go func() {
		w.expect(t, token, identity.ReasonDown)
		close(done)
	}()
	testkit.Eventually(t, "the keys are fetched again", func() bool { return w.iss.Count(issuertest.JWKS) == 2 })
	w.guard.Close()
	<-done
	w.expect(t, known, "oidc:ada")
	w.expect(t, token, identity.ReasonDown)
}

// An answer of the issuer that is of no use is no reason to forget its keys.
func TestOddKeySets(t *testing.T) {
	body := ""
	iss := issuertest.New(t, issuertest.Options{})
	mux := http.NewServeMux()
	srv := newServer(t, mux)
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, srv, srv+"/keys")
	})
	good := redirected(iss, nil)
	mux.HandleFunc("/keys", func(w http.ResponseWriter, r *http.Request) {
		if body == "" {
			r.URL.Path = "/moved"
			good.ServeHTTP(w, r)
			return
		}
		_, _ = io.WriteString(w, body)
	})
	c := newClock()
	g := identity.NewGuard(identity.Options{PublicURL: public, OIDC: &identity.OIDC{Issuer: srv}, Now: c.Now})
	defer g.Close()
	w := world{guard: g, iss: iss}
	token := func() string {
		return iss.Token(aud(map[string]any{"iss": srv, "exp": c.Now().Add(time.Hour).Unix()}))
	}
	const symmetric = `{"keys":[{"kty":"oct","k":"c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LQ","kid":"k"},{"kty":"new","kid":"n"}]}`
	odd := []string{`{}`, `{"keys":[]}`, `no json`, `[]`, symmetric, `{"keys":[{"kty":"RSA","n":"sXch","e":"AQAB","kid":"short"}]}`, strings.Repeat(" ", 2<<20) + `{"keys":[]}`}
	for _, body = range odd {
		w.expect(t, token(), identity.ReasonDown)
		c.Advance(time.Minute)
	}
	body = ""
	w.expect(t, token(), "oidc:ada")
	for _, body = range odd {
		c.Advance(time.Minute)
		w.expect(t, iss.UnknownKey("other", aud(map[string]any{"iss": srv})), identity.ReasonDown)
		w.expect(t, token(), "oidc:ada")
	}
}

// Tokens, rotations and reloads, all at once.
func TestManyAtOnce(t *testing.T) {
	w := newWorld(t, nil)
	rules := func(tool string) identity.Options {
		o := w.opts
		o.Rules = []identity.Rule{{Claims: map[string][]string{"groups": {"dev"}}, Servers: []string{"git*"}, Tools: []string{"*__" + tool + "_*"}}}
		return o
	}
	var guard atomic.Pointer[identity.Guard]
	guard.Store(w.guard.With(rules("read")))
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for m := range 25 {
				if n == 0 && m%5 == 0 {
					w.iss.Rotate()
					w.Advance(10 * time.Second)
					guard.Store(guard.Load().With(rules([]string{"read", "list"}[m%2])))
				}
				name := fmt.Sprint("p", m%7)
				token := w.token(map[string]any{"sub": name, "groups": []string{"dev"}})
				for range 3 {
					p, r := guard.Load().Identify(t.Context(), "Bearer "+token, resource)
					if r != nil {
						continue // a rotation within the pause
					}
					if p.Name != "oidc:"+name || p.MayCall("github", "read_x") == p.MayCall("github", "list_x") || p.MaySee("fs") {
						t.Errorf("%+v", p)
					}
				}
				guard.Load().Identify(t.Context(), "Bearer "+w.iss.WrongKey(nil), resource)
			}
		})
	}
	all.Wait()
	guard.Load().Close()
}
