package credential

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

const (
	drainBytes = 64 << 10
	drainTime  = 2 * time.Second
)

// Wrap returns a transport that shows what s says to the server, on behalf of a
// principal. It talks to the origin of s.URL alone. A request that the server
// answers with 401 is sent once more with a fresh token, where its body can be
// had again. When there is no token, RoundTrip returns an *api.Error and nothing
// was sent.
func (w *Wallet) Wrap(s Settings, principal string, next http.RoundTripper) http.RoundTripper {
	if s.Type == "" {
		return next
	}
	s = s.prepared()
	t := &transport{w: w, set: &s, principal: principal, next: next}
	if u, err := serverURL(s.URL); err == nil {
		t.url, t.origin = u, driver.Origin(u)
	}
	if s.Type == config.AuthClientCredentials {
		t.src.Store(w.machine(t.set))
	}
	return t
}

type transport struct {
	w         *Wallet
	set       *Settings
	principal string
	url       *url.URL // nil when it can't be read
	origin    string
	src       atomic.Pointer[source] // of a person: the one that was last used; nil before
	next      http.RoundTripper
}

// source returns where the tokens come from. A person without a login is
// forgotten in time, and may be another one when it has logged in.
func (t *transport) source() *source {
	src := t.src.Load()
	if t.set.Type != config.AuthLogin || src != nil && src.current.Load() != nil {
		return src
	}
	p, letGo := t.w.person(t.set, t.principal)
	defer letGo()
	t.src.Store(p.src)
	return p.src
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	src := t.source()
	tok, err := t.token(r, src)
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, ofServer(err)
	}
	resp, err := t.send(r, src, tok)
	if err != nil || tok.prover != nil && wantsNonce(resp) {
		return resp, err // a nonce says nothing of the token
	}
	tok.answered(resp.StatusCode != http.StatusUnauthorized)
	if resp.StatusCode != http.StatusUnauthorized {
		return t.enough(resp)
	}
	return t.again(r, resp, src, tok)
}

// ofServer is the error of a credential as that of a call: a config that gets no token is
// no mistake of the one who calls.
func ofServer(err error) error {
	var e *api.Error
	if !errors.As(err, &e) || e.Kind != api.KindInvalid {
		return err
	}
	c := *e
	c.Kind = api.KindInfrastructure
	return &c
}

// again sends a request once more after a 401.
func (t *transport) again(r *http.Request, refused *http.Response, src *source, old *token) (*http.Response, error) {
	if _, only := demands(refused.Header); only && old.prover == nil {
		src.bound.Store(true)
	}
	if !repeatable(r) {
		// This one is lost, but the next need not meet a 401 too.
		if src.worthwhile(old) {
			src.renewBehind(t.set, old, true)
		}
		return refused, nil
	}
	tok, err := src.replace(r.Context(), t.set, old)
	if err == nil && tok == nil {
		return refused, nil
	}
	drain(refused.Body)
	if err == nil {
		err = t.fits(tok)
	}
	if err != nil {
		return nil, ofServer(err)
	}
	repeat, err := repeated(r)
	if err != nil {
		return nil, err
	}
	resp, err := t.send(repeat, src, tok)
	if err != nil || tok.prover != nil && wantsNonce(resp) {
		return resp, err
	}
	ok := resp.StatusCode != http.StatusUnauthorized
	tok.answered(ok)
	src.resent(tok, ok)
	return t.enough(resp)
}

// send sends a request with a token, and with a proof where the token is bound: each
// time another, and once more where the server wants its nonce in it.
func (t *transport) send(r *http.Request, src *source, tok *token) (*http.Response, error) {
	if tok.prover == nil {
		return t.next.RoundTrip(signed(r, tok, ""))
	}
	for first := true; ; first = false {
		nonce := src.nonces.at(atServer(r.URL))
		proof, err := tok.prover.prove(r, tok.access, nonce, t.w.now())
		if err != nil {
			if r.Body != nil {
				r.Body.Close()
			}
			return nil, problem(api.KindInfrastructure, t.set.Server, false, "%v", err)
		}
		resp, err := t.next.RoundTrip(signed(r, tok, proof))
		if err != nil {
			return nil, err
		}
		fresh := src.nonces.learn(atServer(r.URL), resp.Header)
		if !first || fresh == "" || fresh == nonce || !wantsNonce(resp) || !repeatable(r) {
			return resp, nil
		}
		drain(resp.Body)
		if r, err = repeated(r); err != nil {
			return nil, err
		}
	}
}

// repeatable reports whether a request's body can be had again.
func repeatable(r *http.Request) bool {
	return r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
}

// repeated is r with its body anew.
func repeated(r *http.Request) (*http.Request, error) {
	c := r.WithContext(r.Context())
	if r.GetBody == nil {
		return c, nil
	}
	var err error
	c.Body, err = r.GetBody()
	return c, err
}

// token returns what to show with a request, or why it can't be sent.
func (t *transport) token(r *http.Request, src *source) (*token, error) {
	switch {
	case src == nil:
		return nil, problem(api.KindInvalid, t.set.Server, false, "auth type %q is unknown; set servers.%s.auth.type to %s or %s",
			t.set.Type, t.set.Server, config.AuthClientCredentials, config.AuthLogin)
	case t.url == nil:
		return nil, problem(api.KindInvalid, t.set.Server, false, "the URL can't be read; mend servers.%s.url", t.set.Server)
	case !(r.URL.Scheme == t.url.Scheme && r.URL.Host == t.url.Host) && driver.Origin(r.URL) != t.origin:
		return nil, problem(api.KindRefused, t.set.Server, false, "credentials for %s are not sent to %s", t.origin, driver.Origin(r.URL))
	}
	if err := r.Context().Err(); err != nil {
		return nil, context.Cause(r.Context())
	}
	tok, err := src.get(r.Context(), t.set)
	if err != nil {
		return nil, err
	}
	return tok, t.fits(tok)
}

// fits refuses a login that was made for something else than what is configured
// now under the same name.
func (t *transport) fits(tok *token) error {
	tok.told.Do(func() { t.w.learn(tok.access) })
	if tok.login == nil {
		return nil
	}
	if why := tok.login.misfit(t.set, t.origin); why != "" {
		return wantsLogin(t.set, why).error(0)
	}
	return nil
}

// signed is r with the token's header, and a proof unless it is empty. A RoundTripper leaves requests alone, so
// it is a copy, as deep as needed.
func signed(r *http.Request, tok *token, proof string) *http.Request {
	header := make(http.Header, len(r.Header)+1)
	maps.Copy(header, r.Header)
	header["Authorization"] = tok.header
	if proof != "" {
		header["Dpop"] = []string{proof}
	}
	c := r.WithContext(r.Context())
	c.Header = header
	return c
}

// drain reads the rest of a refusal, so that its connection can be used again.
// It is not worth waiting for.
func drain(body io.ReadCloser) {
	cut := time.AfterFunc(drainTime, func() { body.Close() })
	io.Copy(io.Discard, io.LimitReader(body, drainBytes))
	cut.Stop()
	body.Close()
}
