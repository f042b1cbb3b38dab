package credential

import (
	"context"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// maxQuery bounds what comes back with the person.
const maxQuery = 16 << 10

// Begin starts the login of a person: it finds the authorization server, gets a
// client there, and returns the URL to open. redirect is where the caller
// listens, on loopback; a fixed one of the settings wins. The flow is good for
// one Finish by the same principal, for ten minutes.
func (w *Wallet) Begin(ctx context.Context, s Settings, principal, redirect string) (api.LoginStart, error) {
	leave, ok := w.enter()
	if !ok {
		return api.LoginStart{}, errClosed(s.Server)
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	defer context.AfterFunc(w.life, cancel)()
	s = s.prepared()
	if err := wantsPerson(&s); err != nil {
		return api.LoginStart{}, err
	}
	redirect, err := chooseRedirect(&s, redirect)
	if err != nil {
		return api.LoginStart{}, err
	}
	hc, err := w.clients.get(s.CAFile)
	if err != nil {
		return api.LoginStart{}, problem(api.KindInfrastructure, s.Server, false, "%v; mend servers.%s.ca_file", err, s.Server)
	}
	f, err := w.discover(ctx, hc, &s)
	if err != nil {
		return api.LoginStart{}, err
	}
	p, letGo := w.person(&s, principal)
	defer letGo()
	old, err := p.kept(ctx)
	if err != nil {
		return api.LoginStart{}, problem(api.KindInfrastructure, s.Server, true, "the login before this one could not be read: %v", err)
	}
	if more := p.more(); len(more) > 0 && len(s.Scopes) == 0 {
		f.scopes = with(f.scopes, more)
		old = nil // its client may have been registered for fewer scopes
	}
	c, made, err := w.identify(ctx, hc, &s, f, old, redirect)
	if err != nil {
		return api.LoginStart{}, err
	}
	c.prover = nil // each login has a key of its own
	if f := c.bind(&s, f, p.src); f != nil {
		return api.LoginStart{}, f.error(0)
	}
	fl := &flow{principal: principal, set: s, found: f, client: c, made: made, redirect: redirect, verifier: oauth2.GenerateVerifier()}
	if !w.flows.add(fl, w.now()) {
		return api.LoginStart{}, problem(api.KindRefused, s.Server, true, "too many logins are under way; try again in some minutes")
	}
	return api.LoginStart{Flow: fl.id, URL: fl.url(), Redirect: redirect, Expires: fl.expires}, nil
}

// url is where the person goes.
func (fl *flow) url() string {
	conf := oauth2.Config{
		ClientID: fl.client.id, RedirectURL: fl.redirect, Scopes: fl.found.scopes,
		Endpoint: oauth2.Endpoint{AuthURL: fl.found.authURL},
	}
	opts := []oauth2.AuthCodeOption{oauth2.S256ChallengeOption(fl.verifier), oauth2.SetAuthURLParam("resource", fl.found.resource)}
	if fl.client.prover != nil { // the code is bound to the key too
		if name, err := fl.client.prover.thumbprint(); err == nil {
			opts = append(opts, oauth2.SetAuthURLParam("dpop_jkt", name))
		}
	}
	if fl.set.Audience != "" {
		opts = append(opts, oauth2.SetAuthURLParam("audience", fl.set.Audience))
	}
	return conf.AuthCodeURL(fl.id, opts...)
}

// Finish ends a login that the same principal began, with the query that came to
// the redirect. The login is kept in the store before it is used.
func (w *Wallet) Finish(ctx context.Context, s Settings, flow, principal, query string) error {
	leave, ok := w.enter()
	if !ok {
		return errClosed(s.Server)
	}
	defer leave()
	// A code can be used once, so what has begun is not given up with the caller.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	defer context.AfterFunc(w.grace, cancel)()
	s = s.prepared()
	if err := wantsPerson(&s); err != nil {
		return err
	}
	answer, err := readAnswer(&s, query)
	if err != nil {
		return err
	}
	fl := w.flows.take(flow, answer.Get("state"), s.Server, principal, w.now())
	if fl == nil {
		return problem(api.KindRefused, s.Server, false,
			"this is not the answer to a login of yours that is under way; run: tine login %s", s.Server)
	}
	if err := fl.accepts(&s, answer); err != nil {
		return err
	}
	params := url.Values{
		"grant_type": {"authorization_code"}, "code": {answer.Get("code")},
		"redirect_uri": {fl.redirect}, "code_verifier": {fl.verifier}, "resource": {fl.found.resource},
	}
	p, letGo := w.person(&s, principal)
	defer letGo()
	c := fl.client
	c.nonces = &p.src.nonces
	g, f := w.ask(ctx, &s, fl.found.tokenURL, &c, params)
	if f != nil {
		if fl.made != nil && (f.code == codeInvalidClient || f.code == codeUnauthorized) {
			p.forgetClient(ctx, fl.client.id)
		}
		return f.error(f.after)
	}
	_, origin := originOfServer(&s)
	rec := &record{
		binding: binding{Origin: origin, TokenURL: fl.found.tokenURL, ClientID: c.id, PerPrincipal: s.PerPrincipal, Document: c.document},
		Issuer:  fl.found.issuer, Revocation: fl.found.revocation, Resource: fl.found.resource, Scopes: fl.found.scopes,
		Registered: fl.made, Style: c.style, Signing: c.algorithm(),
		Access: g.access, Refresh: g.refresh, Got: w.now(), Expires: g.expires,
	}
	if fl.made != nil {
		rec.Key = s.thumbprint
	}
	rec.proves(&c, g)
	if _, err := p.replaceBy(ctx, rec); err != nil {
		return problem(api.KindInfrastructure, s.Server, true, "the login could not be kept: %v; run: tine login %s", err, s.Server)
	}
	return nil
}

// readAnswer reads the query of a redirect. A parameter that is there twice is
// an attempt to have it read in two ways.
func readAnswer(s *Settings, query string) (url.Values, error) {
	bad := problem(api.KindInvalid, s.Server, false, "the answer of the login can't be read; run: tine login %s", s.Server)
	if len(query) > maxQuery {
		return nil, bad
	}
	answer, err := url.ParseQuery(strings.TrimPrefix(query, "?"))
	if err != nil {
		return nil, bad
	}
	for _, name := range []string{"state", "code", "iss", "error"} {
		if len(answer[name]) > 1 {
			return nil, bad
		}
	}
	return answer, nil
}

// accepts checks an answer whose state was right.
func (fl *flow) accepts(s *Settings, answer url.Values) error {
	if !fl.set.same(s) {
		return problem(api.KindRefused, s.Server, false, "servers.%s was changed while the login was under way; run: tine login %s", s.Server, s.Server)
	}
	iss := answer.Get("iss")
	if fl.found.issuer != "" && (iss != "" || fl.found.sendsIssuer) && iss != fl.found.issuer {
		return problem(api.KindRefused, s.Server, false,
			"the login was answered by another authorization server than %s; run: tine login %s", shown(fl.found.issuer), s.Server)
	}
	if code := answer.Get("error"); code != "" {
		return problem(api.KindRefused, s.Server, false, "the login was refused: %s",
			quoted(code, answer.Get("error_description"), s.ClientSecret, fl.client.secret))
	}
	if answer.Get("code") == "" {
		return problem(api.KindInvalid, s.Server, false, "the answer of the login holds no code; run: tine login %s", s.Server)
	}
	return nil
}

func wantsPerson(s *Settings) error {
	if s.Type == config.AuthLogin {
		return nil
	}
	return problem(api.KindInvalid, s.Server, false, "it wants no login; set servers.%s.auth.type to %s if it does", s.Server, config.AuthLogin)
}

// chooseRedirect returns where the person comes back to.
func chooseRedirect(s *Settings, asked string) (string, error) {
	if s.Redirect == "" {
		if u, err := url.Parse(asked); err != nil || !local(u) {
			return "", problem(api.KindInvalid, s.Server, false, "the redirect must be an http URL on loopback, such as http://127.0.0.1:PORT/callback")
		}
		return asked, nil
	}
	fixed, err := url.Parse(s.Redirect)
	if err != nil || !local(fixed) && fixed.Scheme != "https" {
		return "", problem(api.KindInvalid, s.Server, false, "the redirect must be https, or http on loopback; mend servers.%s.auth.redirect", s.Server)
	}
	// A client that was registered with a loopback address without a port may
	// come back to any.
	if u, err := url.Parse(asked); err == nil && local(u) && local(fixed) && fixed.Port() == "" &&
		u.Hostname() == fixed.Hostname() && u.Path == fixed.Path && u.RawQuery == fixed.RawQuery {
		return asked, nil
	}
	return s.Redirect, nil
}

// local reports whether u is a plain http URL on loopback.
func local(u *url.URL) bool {
	return u.Scheme == "http" && loopback(u.Hostname()) && u.User == nil && u.Fragment == ""
}

// kept returns the record of the login, that of one that has ended too.
func (p *person) kept(ctx context.Context) (*record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := p.load(ctx)
	return p.rec, err
}

// forgetClient drops a registration that the authorization server no longer
// knows, so that the next login makes another.
func (p *person) forgetClient(ctx context.Context, id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rec == nil || p.rec.Registered == nil || p.rec.ClientID != id {
		return
	}
	next := p.rec.without("the login has ended: its client is no longer known", false)
	if err := p.w.put(ctx, p.who, next); err != nil {
		p.w.log.Warn("the end of a login could not be kept", "server", p.who.server, "err", err)
	}
	p.gen++
	p.rec, p.over = next, p.w.now()
	p.src.current.Store(nil)
}

// Logout forgets a login: in the store, then in memory. Where the authorization
// server takes tokens back, it is told, but whether it listens changes nothing.
func (w *Wallet) Logout(ctx context.Context, s Settings, principal string) error {
	leave, ok := w.enter()
	if !ok {
		return errClosed(s.Server)
	}
	defer leave()
	p, letGo := w.person(&s, principal)
	defer letGo()
	old, err := p.replaceBy(ctx, nil)
	if err != nil {
		return problem(api.KindInfrastructure, s.Server, true, "the login could not be forgotten: %v", err)
	}
	if old != nil && old.Revocation != "" && old.Access+old.Refresh != "" {
		ctx, cancel := context.WithTimeout(ctx, revokeTimeout)
		defer cancel()
		defer context.AfterFunc(w.life, cancel)()
		if err := w.revoke(ctx, &s, old); err != nil {
			w.log.Warn("tokens of a login that is forgotten here could not be taken back", "server", s.Server, "err", err)
		}
	}
	return nil
}

const revokeTimeout = 5 * time.Second
