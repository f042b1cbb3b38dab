package config

import (
	"net/url"
	"regexp"
)

var serverAuthKeys = []string{
	"type", "token_url", "auth_url", "client_id", "client_secret", "scopes", "audience", "resource", "redirect",
}

// scopePattern is what OAuth allows in the name of a scope.
var scopePattern = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]+$`)

// serverAuth reads how Tine gets tokens for a server, over what is there, and
// checks that the whole goes together.
func (d *decoder) serverAuth(o object, s *Server) {
	a, ok := o.child("auth", serverAuthKeys)
	if ok {
		d.authKeys(a, &s.Auth)
		d.authType(a, &s.Auth, s.Remote != nil)
	}
	if s.Auth.Type == AuthLogin && s.Remote != nil {
		d.fail(o.keyPos("auth"), "%s.auth: type login goes with url; an orchestrator is asked by Tine itself, so use client_credentials or headers", o.path)
	}
	if s.Auth.Type != "" && hasHeader(s.Headers, "Authorization") {
		d.fail(o.keyPos("auth"), "%s.auth: gets the token that headers.Authorization would set too; remove headers.Authorization, or auth", o.path)
	}
	// Beside a report about auth itself this would only repeat it.
	unread := !ok && o.n.get("auth") != nil || s.Auth.Type == "" && a.n.get("type") != nil
	if s.Credential == CredentialPerPrincipal && s.Auth.Type != AuthLogin && !unread {
		d.fail(o.keyPos("credential"), "%s.credential: per-principal goes with auth: {type: login}, as only a person can log in as somebody; add that, or write credential: shared", o.path)
	}
}

func (d *decoder) authKeys(a object, to *ServerAuth) {
	a.oneOf("type", &to.Type, authTypes...)
	a.secretURL("token_url", &to.TokenURL, "https://login.example.org/oauth/token")
	a.secretURL("auth_url", &to.AuthURL, "https://login.example.org/oauth/authorize")
	a.text("client_id", &to.ClientID, "tine")
	a.text("client_secret", &to.ClientSecret, `"${CLIENT_SECRET}"`)
	a.scopes("scopes", &to.Scopes)
	a.text("audience", &to.Audience, "https://mcp.example.org")
	if a.text("resource", &to.Resource, "https://mcp.example.org/mcp") {
		n := a.n.get("resource")
		if u, err := url.Parse(to.Resource); err != nil || u.Scheme == "" || u.Fragment != "" {
			a.wrong("resource", n, "%s is not an absolute URL without a fragment; write it like https://mcp.example.org/mcp", n.quoted())
		}
	}
	if a.text("redirect", &to.Redirect, "http://127.0.0.1:8765/callback") {
		n := a.n.get("redirect")
		u, err := url.Parse(to.Redirect)
		if err != nil || u.Scheme != "http" || !loopbackHost(u.Hostname()) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			a.wrong("redirect", n, "%s is not an http URL on a loopback address, where Tine waits for the person; write it like http://127.0.0.1:8765/callback", n.quoted())
		}
	}
}

// authType checks what each type needs and what it has no use for.
func (d *decoder) authType(a object, s *ServerAuth, remote bool) {
	switch s.Type {
	case "":
		if len(a.n.pairs) > 0 && a.n.get("type") == nil {
			d.fail(a.n.pos, "%s: type is missing; write type: %s or type: %s", a.path, AuthClientCredentials, AuthLogin)
		}
	case AuthClientCredentials:
		for _, need := range []struct{ key, value string }{
			{"token_url", s.TokenURL}, {"client_id", s.ClientID}, {"client_secret", s.ClientSecret},
		} {
			if need.key == "token_url" && !remote {
				continue // the server says where, as it does for a login
			}
			if need.value == "" && !a.lacks(need.key) {
				d.fail(a.n.pos, "%s: %s is missing, which type %s needs", a.path, need.key, s.Type)
			}
		}
		for _, none := range []struct{ key, value string }{{"auth_url", s.AuthURL}, {"redirect", s.Redirect}} {
			if none.value != "" {
				d.fail(a.keyPos(none.key), "%s.%s: goes with type %s, but this is %s", a.path, none.key, AuthLogin, s.Type)
			}
		}
	case AuthLogin:
		if (s.AuthURL == "") != (s.TokenURL == "") && !a.lacks("auth_url") && !a.lacks("token_url") {
			d.fail(a.n.pos, "%s: auth_url and token_url belong together; give both, or none to have them found", a.path)
		}
		if s.ClientSecret != "" && s.ClientID == "" && !a.lacks("client_id") {
			d.fail(a.n.pos, "%s: client_secret without client_id; give both or none", a.path)
		}
	}
}

// lacks reports whether a key was complained about already: it is there, and
// its value is of no use.
func (o object) lacks(key string) bool {
	n := o.n.get(key)
	return n != nil && (n.missing || n.kind != kindString)
}

// scopes reads the names of scopes: a list, or one text with spaces between as
// OAuth writes them.
func (o object) scopes(key string, dst *[]string) {
	if !o.oneOrMore(key, dst, true, "[read, write]") {
		return
	}
	seen := map[string]bool{}
	for _, it := range o.items(key, true) {
		switch {
		case !scopePattern.MatchString(it.text):
			o.d.fail(it.pos, "%s: %s is not a scope; scopes are visible ASCII characters without spaces, quotes and backslashes", it.path, it.shown)
		case seen[it.text]:
			o.d.fail(it.pos, "%s: %s stands twice", it.path, it.shown)
		}
		seen[it.text] = true
	}
}
