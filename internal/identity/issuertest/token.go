package issuertest

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

type refresh struct {
	grant
	used bool
}

// serveToken takes a code, a refresh token or a client's own credentials.
func (i *Issuer) serveToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 1<<16)
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request", "the form can't be read")
		return
	}
	form := r.PostForm
	kind := form.Get("grant_type")
	i.mu.Lock()
	i.counts[Token+":"+kind]++
	i.mu.Unlock()
	client, ok := i.authenticate(r)
	if !ok {
		w.Header().Set("WWW-Authenticate", `Basic realm="issuertest"`)
		refuse(w, http.StatusUnauthorized, "invalid_client", "the client is unknown or its secret is wrong")
		return
	}
	for _, resource := range form["resource"] {
		if !validResource(resource) {
			refuse(w, http.StatusBadRequest, "invalid_target", "a resource must be an absolute URL without a fragment")
			return
		}
	}
	var approved grant
	var code, why string
	switch kind {
	case "authorization_code":
		approved, code, why = i.takeCode(client, form)
	case "refresh_token":
		approved, code, why = i.takeRefresh(client, form)
	case "client_credentials":
		if client.Secret == "" {
			code, why = "unauthorized_client", "a client without a secret has no credentials of its own"
		}
		approved = grant{client: client.ID, subject: client.ID, scope: i.granted(form.Get("scope")), resources: form["resource"]}
		if a := form.Get("audience"); a != "" {
			approved.resources = append(approved.resources, a)
		}
	default:
		code, why = "unsupported_grant_type", "authorization_code, refresh_token and client_credentials are supported"
	}
	if code != "" {
		refuse(w, http.StatusBadRequest, code, why)
		return
	}
	i.issue(w, approved, narrow(approved, form), kind)
}

// issue answers with tokens: the access token is for the present request, a refresh
// token for all that was approved.
func (i *Issuer) issue(w http.ResponseWriter, approved, g grant, kind string) {
	claims := map[string]any{"sub": g.subject, "client_id": g.client, "scope": g.scope}
	switch {
	case len(g.resources) == 1:
		claims["aud"] = g.resources[0]
	case len(g.resources) > 1:
		claims["aud"] = g.resources
	case i.opts.Audience != "":
		claims["aud"] = i.opts.Audience
	default:
		claims["aud"] = g.client
	}
	i.mu.Lock()
	lifetime := i.lifetime
	answer := map[string]any{"token_type": "Bearer", "expires_in": int(lifetime.Seconds()), "scope": g.scope}
	if kind != "client_credentials" {
		next := rand.Text()
		i.refreshes[next] = refresh{grant: approved}
		answer["refresh_token"] = next
	}
	extra := maps.Clone(i.claims)
	i.mu.Unlock()
	if kind != "client_credentials" && slices.Contains(strings.Fields(g.scope), "openid") {
		answer["id_token"] = i.Token(map[string]any{"sub": g.subject, "aud": g.client})
	}
	maps.Copy(claims, extra)
	answer["access_token"] = i.Token(claims)
	writeJSON(w, http.StatusOK, answer)
}

// authenticate takes client_secret_basic, client_secret_post, and none from a
// public client.
func (i *Issuer) authenticate(r *http.Request) (Client, bool) {
	id, secret, basic := r.BasicAuth()
	if basic {
		// RFC 6749 2.3.1: both parts are form-encoded before they are joined.
		var err1, err2 error
		id, err1 = url.QueryUnescape(id)
		secret, err2 = url.QueryUnescape(secret)
		if err1 != nil || err2 != nil || r.PostForm.Has("client_secret") {
			return Client{}, false
		}
	} else {
		id, secret = r.PostForm.Get("client_id"), r.PostForm.Get("client_secret")
	}
	i.mu.Lock()
	c, known := i.clients[id]
	i.mu.Unlock()
	return c, known && subtle.ConstantTimeCompare([]byte(c.Secret), []byte(secret)) == 1
}

// takeCode takes a code once, with the verifier of its challenge.
func (i *Issuer) takeCode(c Client, form url.Values) (grant, string, string) {
	i.mu.Lock()
	g, ok := i.codes[form.Get("code")]
	if ok && g.client == c.ID {
		delete(i.codes, form.Get("code"))
	}
	i.mu.Unlock()
	sum := sha256.Sum256([]byte(form.Get("code_verifier")))
	switch {
	case !ok || g.client != c.ID || i.opts.Now().After(g.expires):
		return g, "invalid_grant", "the code is unknown, used, expired or another client's"
	case g.redirect != form.Get("redirect_uri"):
		return g, "invalid_grant", "the redirect is not the one the code was sent to"
	case base64.RawURLEncoding.EncodeToString(sum[:]) != g.challenge:
		return g, "invalid_grant", "the code_verifier does not fit the challenge"
	}
	code, why := within(g, form)
	return g, code, why
}

// takeRefresh takes a refresh token once. A token that comes back after its use was
// stolen or used twice at once: all its descendants are revoked.
func (i *Issuer) takeRefresh(c Client, form url.Values) (grant, string, string) {
	token := form.Get("refresh_token")
	i.mu.Lock()
	defer i.mu.Unlock()
	r, ok := i.refreshes[token]
	if !ok || r.client != c.ID || i.noRefresh {
		return grant{}, "invalid_grant", "the refresh token is unknown, revoked or another client's"
	}
	if r.used {
		maps.DeleteFunc(i.refreshes, func(_ string, other refresh) bool { return other.family == r.family })
		return grant{}, "invalid_grant", "the refresh token was used before"
	}
	code, why := within(r.grant, form)
	if code == "" {
		r.used = true
		i.refreshes[token] = r
	}
	return r.grant, code, why
}

// within returns an error for a request for more than was approved.
func within(g grant, form url.Values) (code, why string) {
	for _, resource := range form["resource"] {
		if len(g.resources) > 0 && !slices.Contains(g.resources, resource) {
			return "invalid_target", "the resource was not approved"
		}
	}
	have := strings.Fields(g.scope)
	for _, s := range strings.Fields(form.Get("scope")) {
		if !slices.Contains(have, s) {
			return "invalid_scope", "a scope was not approved"
		}
	}
	return "", ""
}

// narrow limits an access token to a part of what was approved.
func narrow(g grant, form url.Values) grant {
	if len(form["resource"]) > 0 && form.Get("grant_type") != "client_credentials" {
		g.resources = form["resource"]
	}
	if want := strings.Fields(form.Get("scope")); len(want) > 0 && form.Get("grant_type") != "client_credentials" {
		g.scope = strings.Join(want, " ")
	}
	return g
}
