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
func (d *decoder) serverAuth(o Object, s *Server) {
	a, ok := o.Child("auth", serverAuthKeys)
	if ok {
		d.authKeys(a, &s.Auth)
		d.authType(a, &s.Auth, s.Remote != nil)
	}
	if s.Auth.Type == AuthLogin && s.Remote != nil {
		d.fail(o.KeyPos("auth"), "%s.auth: type login goes with url; an orchestrator is asked by Tine itself, so use client_credentials or headers", o.Path)
	}
	if s.Auth.Type != "" && hasHeader(s.Headers, "Authorization") {
		d.fail(o.KeyPos("auth"), "%s.auth: gets the token that headers.Authorization would set too; remove headers.Authorization, or auth", o.Path)
	}
	// Beside a report about auth itself this would only repeat it.
	unread := !ok && o.n.Get("auth") != nil || s.Auth.Type == "" && a.n.Get("type") != nil
	if s.Credential == CredentialPerPrincipal && s.Auth.Type != AuthLogin && !unread {
		d.fail(o.KeyPos("credential"), "%s.credential: per-principal goes with auth: {type: login}, as only a person can log in as somebody; add that, or write credential: shared", o.Path)
	}
}

func (d *decoder) authKeys(a Object, to *ServerAuth) {
	a.OneOf("type", &to.Type, authTypes...)
	a.secretURL("token_url", &to.TokenURL, "https://login.example.org/oauth/token")
	a.secretURL("auth_url", &to.AuthURL, "https://login.example.org/oauth/authorize")
	a.Text("client_id", &to.ClientID, "tine")
	a.Text("client_secret", &to.ClientSecret, `"${CLIENT_SECRET}"`)
	a.scopes("scopes", &to.Scopes)
	a.Text("audience", &to.Audience, "https://mcp.example.org")
	if a.Text("resource", &to.Resource, "https://mcp.example.org/mcp") {
		n := a.n.Get("resource")
		if u, err := url.Parse(to.Resource); err != nil || u.Scheme == "" || u.Fragment != "" {
			a.Wrong("resource", n, "%s is not an absolute URL without a fragment; write it like https://mcp.example.org/mcp", n.Quoted())
		}
	}
	if a.Text("redirect", &to.Redirect, "http://127.0.0.1:8765/callback") {
		n := a.n.Get("redirect")
		u, err := url.Parse(to.Redirect)
		if err != nil || u.Scheme != "http" || !loopbackHost(u.Hostname()) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			a.Wrong("redirect", n, "%s is not an http URL on a loopback address, where Tine waits for the person; write it like http://127.0.0.1:8765/callback", n.Quoted())
		}
	}
}

// authType checks what each type needs and what it has no use for.
func (d *decoder) authType(a Object, s *ServerAuth, remote bool) {
	switch s.Type {
	case "":
		if len(a.n.Pairs) > 0 && a.n.Get("type") == nil {
			d.fail(a.n.Pos, "%s: type is missing; write type: %s or type: %s", a.Path, AuthClientCredentials, AuthLogin)
		}
	case AuthClientCredentials:
		for _, need := range []struct{ key, value string }{
			{"token_url", s.TokenURL}, {"client_id", s.ClientID}, {"client_secret", s.ClientSecret},
		} {
			if need.key == "token_url" && !remote {
				continue // the server says where, as it does for a login
			}
			if need.value == "" && !a.Lacks(need.key) {
				d.fail(a.n.Pos, "%s: %s is missing, which type %s needs", a.Path, need.key, s.Type)
			}
		}
		for _, none := range []struct{ key, value string }{{"auth_url", s.AuthURL}, {"redirect", s.Redirect}} {
			if none.value != "" {
				d.fail(a.KeyPos(none.key), "%s.%s: goes with type %s, but this is %s", a.Path, none.key, AuthLogin, s.Type)
			}
		}
	case AuthLogin:
		if (s.AuthURL == "") != (s.TokenURL == "") && !a.Lacks("auth_url") && !a.Lacks("token_url") {
			d.fail(a.n.Pos, "%s: auth_url and token_url belong together; give both, or none to have them found", a.Path)
		}
		if s.ClientSecret != "" && s.ClientID == "" && !a.Lacks("client_id") {
			d.fail(a.n.Pos, "%s: client_secret without client_id; give both or none", a.Path)
		}
	}
}

// lacks reports whether a key was complained about already: it is there, and
// its value is of no use.
func (o Object) Lacks(key string) bool {
	n := o.n.Get(key)
	return n != nil && (n.Missing || n.Shape != ShapeString)
}

// scopes reads the names of scopes: a list, or one text with spaces between as
// OAuth writes them.
func (o Object) scopes(key string, dst *[]string) {
	if !o.oneOrMore(key, dst, true, "[read, write]") {
		return
	}
	seen := map[string]bool{}
	for _, it := range o.Items(key, true) {
		switch {
		case !scopePattern.MatchString(it.Text):
			o.d.fail(it.Pos, "%s: %s is not a scope; scopes are visible ASCII characters without spaces, quotes and backslashes", it.Path, it.Shown)
		case seen[it.Text]:
			o.d.fail(it.Pos, "%s: %s stands twice", it.Path, it.Shown)
		}
		seen[it.Text] = true
	}
}
