package credential

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/tine-mcp/tine/api"
)

// A client is who Tine is to an authorization server.
type client struct {
	id, secret string
	style      oauth2.AuthStyle // how it shows its secret; the zero value tries basic, then post
	signature  *signature       // instead of a secret; nil for none
	document   bool             // its id is the URL of its metadata document
	prover     *prover          // what its tokens are bound to; nil for none, until an endpoint wants it
	nonces     *nonces          // for proofs
}

// algorithm is how the client signs; empty where it does not.
func (c *client) algorithm() string {
	if c.signature == nil {
		return ""
	}
	return c.signature.alg
}

// keys names the keys that say who the client is.
func (c *client) keys(set *Settings) string {
	switch {
	case c.signature != nil && set.Issuer != "":
		return "client_id, private_key and issuer"
	case c.signature != nil:
		return "client_id and private_key"
	}
	return "client_id and client_secret"
}

// A grant is what a token endpoint gave.
type grant struct {
	access, refresh string
	expires         time.Time // zero when the endpoint did not say
	bound           bool      // to the client's key
}

// ask makes one token request. The client's style is set when it was found out, and its
// prover when the endpoint wanted one.
func (w *Wallet) ask(ctx context.Context, set *Settings, endpoint string, c *client, params url.Values) (*grant, *fault) {
	if err := checkEndpoint(endpoint); err != nil {
		return nil, &fault{local: true, err: *problem(api.KindInvalid, set.Server, false,
			"the token endpoint %s %v; mend servers.%s.auth.token_url", shown(endpoint), err, set.Server)}
	}
	hc, err := w.clients.get(set.CAFile)
	if err != nil {
		return nil, &fault{err: *problem(api.KindInfrastructure, set.Server, false, "%v; mend servers.%s.ca_file", err, set.Server)}
	}
	// The first is what stands in a basic header, which is escaped before it is
	// encoded.
	secrets := []string{url.QueryEscape(c.id) + ":" + url.QueryEscape(c.secret), c.secret, params.Get("code"), params.Get("code_verifier"), params.Get("refresh_token")}
	style := c.style
	switch {
	case c.secret == "":
		secrets[0] = ""
		style = oauth2.AuthStyleInParams
	case style == oauth2.AuthStyleAutoDetect:
		// Not the library's own detection: it sends twice whatever the error was.
		style = oauth2.AuthStyleInHeader
	}
	retrieve := func() (*oauth2.Token, error) {
		send := params
		if c.signature != nil {
			send = maps.Clone(params)
			assertion, err := c.signature.assert(c.id, w.now(), send)
			if err != nil {
				return nil, err
			}
			secrets = append(secrets, assertion)
		}
		to := *hc
		if c.prover != nil {
			to.Transport = &proving{next: hc.Transport, c: c, now: w.now}
		}
		return retrieve(ctx, &to, endpoint, c, style, send)
	}
	try := func() (*oauth2.Token, error) {
		tok, err := retrieve()
		if c.style == oauth2.AuthStyleAutoDetect && style == oauth2.AuthStyleInHeader && wantsPost(err) {
			style = oauth2.AuthStyleInParams
			tok, err = retrieve()
		}
		return tok, err
	}
	tok, err := try()
	for range 2 { // for a proof, and for a nonce in it
		if !c.wantsProof(err) {
			break
		}
		tok, err = try()
	}
	if err != nil {
		return nil, endpointFault(set, endpoint, c, err, secrets...)
	}
	g := &grant{access: tok.AccessToken, refresh: tok.RefreshToken, bound: strings.EqualFold(tok.TokenType, schemeDPoP)}
	life := time.Until(tok.Expiry) // by the clock that the library read
	if why := unfit(tok, life, c.prover); why != "" {
		return nil, &fault{err: *problem(api.KindInfrastructure, set.Server, false, "the token endpoint %s gave a token that %s", shown(endpoint), why)}
	}
	if !tok.Expiry.IsZero() {
		g.expires = w.now().Add(life)
	}
	c.style = style
	return g, nil
}

// retrieve makes a token request of any grant: the library's other ways can't
// send a resource with a refresh.
func retrieve(ctx context.Context, hc *http.Client, endpoint string, c *client, style oauth2.AuthStyle, params url.Values) (*oauth2.Token, error) {
	conf := clientcredentials.Config{
		ClientID: c.id, ClientSecret: c.secret, TokenURL: endpoint, AuthStyle: style, EndpointParams: params,
	}
	return conf.Token(context.WithValue(ctx, oauth2.HTTPClient, hc))
}

// wantsPost reports whether an endpoint did not take the client's word in the
// header, which some only take in the body.
func wantsPost(err error) bool {
	var answer *oauth2.RetrieveError
	if !errors.As(err, &answer) {
		return false
	}
	return answer.ErrorCode == codeInvalidClient ||
		answer.ErrorCode == "" && answer.Response != nil && answer.Response.StatusCode == http.StatusUnauthorized
}

// unfit says what is wrong with a token; empty when nothing is.
func unfit(tok *oauth2.Token, life time.Duration, p *prover) string {
	bound := p != nil && strings.EqualFold(tok.TokenType, schemeDPoP)
	switch {
	case !bound && p != nil && p.required:
		return "is not bound to Tine's key (DPoP), as the server demands"
	case !bound && tok.TokenType != "" && !strings.EqualFold(tok.TokenType, schemeBearer):
		return "is no bearer token"
	case !tok.Expiry.IsZero() && life <= 0:
		return "has expired already"
	case strings.ContainsFunc(tok.AccessToken, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return "can't stand in a header"
	}
	return ""
}

func joinScopes(scopes []string) string { return strings.Join(scopes, " ") }
