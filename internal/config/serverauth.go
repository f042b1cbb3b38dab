package config

import (
	"net/url"
	"path"
	"regexp"
)

// serverAuthTable are the keys of a server's auth.
var serverAuthTable = Table[ServerAuth]{
	Put("type", func(a *ServerAuth) *string { return &a.Type }, OneOf(authTypes...), "machine to machine, or a person logs in with `tine login SERVER`"),
	Put("token_url", func(a *ServerAuth) *string { return &a.TokenURL }, secretURL("https://login.example.org/oauth/token").Unless("found"), "where tokens come from; of a `remote` it is needed"),
	Put("auth_url", func(a *ServerAuth) *string { return &a.AuthURL }, secretURL("https://login.example.org/oauth/authorize").Unless("found"), "`login`: where the person goes; together with `auth.token_url` or not at all"),
	Put("client_id", func(a *ServerAuth) *string { return &a.ClientID }, Text("tine").Unless("registered for `login`"), "Tine's client id"),
	Put("client_secret", func(a *ServerAuth) *string { return &a.ClientSecret }, Secret(`"${CLIENT_SECRET}"`), "its secret"),
	Put("private_key", func(a *ServerAuth) *string { return &a.PrivateKey }, signingKey(), "instead of `auth.client_secret`: Tine signs who it is with this key (`private_key_jwt`)"),
	Put("issuer", func(a *ServerAuth) *string { return &a.Issuer }, secretURL("https://login.example.org").Unless("found"), "`auth.private_key`: the authorization server's issuer, exactly as its metadata says; needed with `auth.token_url`"),
	Put("client_metadata_url", func(a *ServerAuth) *string { return &a.ClientMetadataURL }, Text("https://tine.example.org/client.json").As("https URL").Then(documentURL),
		"`login`: a client id metadata document of yours; its URL is the client id where the authorization server supports that, else a client is registered"),
	Put("scopes", func(a *ServerAuth) *[]string { return &a.Scopes }, scopeList.Unless("what the server wants"), "scopes to request"),
	Put("audience", func(a *ServerAuth) *string { return &a.Audience }, Text("https://mcp.example.org"), "audience to request, where the issuer wants one"),
	Put("resource", func(a *ServerAuth) *string { return &a.Resource }, Text("https://mcp.example.org/mcp").As("URL").Unless("what the server says").Then(resourceURL), "the same by RFC 8707"),
	Put("redirect", func(a *ServerAuth) *string { return &a.Redirect }, Text("http://127.0.0.1:8765/callback").As("http URL on loopback").Unless("a free port").Then(redirectURL),
		"`login`: the redirect URL, for a client id that was registered with one"),
}

// scopeList is a list of scopes, or one text with spaces between as OAuth writes them.
var scopeList = func() Value[[]string] {
	v := Texts("[read, write]").As("list, or words in one string").By(readScopes)
	v.About.Schema = v.About.Schema.orOne()
	return v
}()

// oneOrList is a list of texts, or the one that it holds.
func oneOrList(example string) Value[[]string] {
	v := Texts(example).As("string or list").By(func(o Object, key string, dst *[]string) bool { return o.oneOrMore(key, dst, false, example) })
	v.About.Schema = v.About.Schema.orOne()
	return v
}

// scopePattern is what OAuth allows in the name of a scope.
var scopePattern = regexp.MustCompile(`^[\x21\x23-\x5b\x5d-\x7e]+$`)

// authFits checks that how Tine gets tokens for a server goes together.
func (d *decoder) authFits(o Object, s *Server) {
	n := o.Get("auth")
	ok := n != nil && (n.Shape == ShapeMap || n.Shape == ShapeNull)
	a := o.Below("auth")
	if ok {
		d.authType(a, &s.Auth, s.kind != nil && s.kind.Remote)
	}
	if s.Auth.Type == AuthLogin && s.kind != nil && s.kind.Remote {
		d.fail(o.KeyPos("auth"), "%s.auth: type login goes with url; an orchestrator is asked by Tine itself, so use client_credentials or headers", o.Path)
	}
	if s.Auth.Type != "" && hasHeader(s.Headers, "Authorization") {
		d.fail(o.KeyPos("auth"), "%s.auth: gets the token that headers.Authorization would set too; remove headers.Authorization, or auth", o.Path)
	}
	// Beside a report about auth itself this would only repeat it.
	unread := !ok && n != nil || s.Auth.Type == "" && a.n.Get("type") != nil
	if s.Credential == CredentialPerPrincipal && s.Auth.Type != AuthLogin && !unread {
		d.fail(o.KeyPos("credential"), "%s.credential: per-principal goes with auth: {type: login}, as only a person can log in; add that, or write credential: shared", o.Path)
	}
}

func resourceURL(a Object, key string, dst *string) {
	if u, err := url.Parse(*dst); err != nil || u.Scheme == "" || u.Fragment != "" {
		a.Wrong(key, a.Get(key), "%s is not an absolute URL without a fragment; write it like https://mcp.example.org/mcp", a.Get(key).Shown())
	}
}

// documentURL checks what may name a client id metadata document.
func documentURL(a Object, key string, dst *string) {
	u, err := url.Parse(*dst)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" ||
		len(u.Path) < 2 || u.Path != path.Clean(u.Path) && u.Path != path.Clean(u.Path)+"/" {
		a.Wrong(key, a.Get(key), "%s is not an https URL with a path and without user, query and fragment; write it like https://tine.example.org/client.json", a.Get(key).Shown())
	}
}

func redirectURL(a Object, key string, dst *string) {
	u, err := url.Parse(*dst)
	if err != nil || u.Scheme != "http" || !LoopbackHost(u.Hostname()) || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		a.Wrong(key, a.Get(key), "%s is not an http URL on a loopback address, where Tine waits for the person; write it like http://127.0.0.1:8765/callback", a.Get(key).Shown())
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
		for _, need := range []struct{ key, value, says string }{
			{"token_url", s.TokenURL, "token_url"}, {"client_id", s.ClientID, "client_id"}, {"client_secret", s.ClientSecret, "client_secret or private_key"},
		} {
			if need.key == "token_url" && !remote {
				continue // the server says where, as it does for a login
			}
			if need.key == "client_secret" && (s.PrivateKey != "" || a.Lacks("private_key")) {
				continue
			}
			if need.value == "" && !a.Lacks(need.key) && !a.HasUnknown(serverAuthTable.Names()) {
				d.fail(a.n.Pos, "%s: %s is missing, which type %s needs", a.Path, need.says, s.Type)
			}
		}
		for _, none := range []struct{ key, value string }{{"auth_url", s.AuthURL}, {"redirect", s.Redirect}, {"client_metadata_url", s.ClientMetadataURL}} {
			if none.value != "" {
				d.fail(a.KeyPos(none.key), "%s.%s: goes with type %s, but this is %s", a.Path, none.key, AuthLogin, s.Type)
			}
		}
	case AuthLogin:
		if (s.AuthURL == "") != (s.TokenURL == "") && !a.Lacks("auth_url") && !a.Lacks("token_url") {
			d.fail(a.n.Pos, "%s: auth_url and token_url belong together; give both, or none to have them found", a.Path)
		}
		for _, of := range []struct{ key, value string }{{"client_secret", s.ClientSecret}, {"private_key", s.PrivateKey}} {
			document := of.key == "private_key" && (s.ClientMetadataURL != "" || a.Lacks("client_metadata_url"))
			if of.value == "" || s.ClientID != "" || a.Lacks("client_id") || document {
				continue
			}
			if of.key == "private_key" {
				d.fail(a.n.Pos, "%s: private_key without client_id or client_metadata_url; add one of them, or remove private_key", a.Path)
			} else {
				d.fail(a.n.Pos, "%s: %s without client_id; give both or none", a.Path, of.key)
			}
		}
		switch {
		case s.ClientMetadataURL == "":
		case s.ClientID != "":
			d.fail(a.KeyPos("client_metadata_url"), "%s.client_metadata_url: is not used where client_id is given; remove one", a.Path)
		case s.TokenURL != "":
			d.fail(a.KeyPos("client_metadata_url"), "%s.client_metadata_url: is used where the authorization server's metadata says that it can be, which is not read where token_url is given; write client_id with this URL instead", a.Path)
		}
	}
	d.signingFits(a, s)
}

// signingFits checks what goes with a key that Tine signs with. What it signs is for
// one issuer, which the config must name where it gives the endpoints itself.
func (d *decoder) signingFits(a Object, s *ServerAuth) {
	if s.PrivateKey == "" {
		if s.Issuer != "" && !a.Lacks("private_key") {
			d.fail(a.n.Pos, "%s: issuer goes with private_key; add that, or remove issuer", a.Path)
		}
		return
	}
	if s.ClientSecret != "" {
		d.fail(a.n.Pos, "%s: private_key and client_secret exclude each other; remove one", a.Path)
	}
	switch {
	case s.TokenURL != "" && s.Issuer == "" && !a.Lacks("issuer"):
		d.fail(a.n.Pos, "%s: issuer is missing, which private_key needs beside token_url", a.Path)
	case s.TokenURL == "" && s.Issuer != "" && !a.Lacks("token_url"):
		d.fail(a.n.Pos, "%s: issuer goes with token_url, without which the server's metadata names it; add that, or remove issuer", a.Path)
	}
}

// Lacks reports whether a key was complained about already: it is there, and
// its value is of no use.
func (o Object) Lacks(key string) bool {
	n := o.n.Get(key)
	return n != nil && (n.Missing || n.Shape != ShapeString)
}

func readScopes(o Object, key string, dst *[]string) bool {
	if !o.oneOrMore(key, dst, true, "[read, write]") {
		return false
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
	return true
}
