package credential

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// identify returns who Tine is at an authorization server: the client of the
// config, the one that its metadata document describes, the one that was
// registered for the same redirect, or a new one.
func (w *Wallet) identify(ctx context.Context, hc *http.Client, set *Settings, f *found, old *record, redirect string) (client, *registration, error) {
	if set.ClientID != "" {
		c, err := set.signs(client{id: set.ClientID, secret: set.ClientSecret, style: styleOf(f.methods)}, f)
		return c, nil, err
	}
	if set.ClientMetadataURL != "" && f.documents {
		c, err := set.signs(client{id: set.ClientMetadataURL, document: true}, f)
		return c, nil, err
	}
	if old != nil && old.Registered != nil && old.Registered.Redirect == redirect && old.TokenURL == f.tokenURL && old.Issuer == f.issuer && old.Key == set.thumbprint &&
		(old.Registered.Expires.IsZero() || w.now().Add(flowLife).Before(old.Registered.Expires)) {
		c, err := old.client(set)
		return c, old.Registered, err
	}
	if f.registration == "" {
		more := ""
		if f.documents {
			more = ", or set client_metadata_url there, which it supports"
		}
		return client{}, nil, problem(api.KindInvalid, set.Server, false,
			"its authorization server %s registers no clients by itself; register one there and set servers.%s.auth.client_id%s", shown(f.tokenURL), set.Server, more)
	}
	return register(ctx, hc, set, f, redirect)
}

// A registering is the request for a client (RFC 7591). The library has the keys of the
// client as a string, where they are an object.
type registering struct {
	oauthex.ClientRegistrationMetadata
	SigningAlgorithm string              `json:"token_endpoint_auth_signing_alg,omitempty"`
	JWKS             *jose.JSONWebKeySet `json:"jwks,omitempty"`
}

// registered is what of the answer matters.
type registered struct {
	ID          string `json:"client_id"`
	Secret      string `json:"client_secret"`
	Expires     int64  `json:"client_secret_expires_at"`
	Method      string `json:"token_endpoint_auth_method"`
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

// register makes a client at the authorization server. One that has a key of the config
// signs who it is, or there is none: it shows itself in no other way.
func register(ctx context.Context, hc *http.Client, set *Settings, f *found, redirect string) (client, *registration, error) {
	ask := &registering{ClientRegistrationMetadata: oauthex.ClientRegistrationMetadata{
		ClientName:              "Tine",
		RedirectURIs:            []string{redirect},
		GrantTypes:              []string{"authorization_code", "refresh_token"},
		ResponseTypes:           []string{"code"},
		Scope:                   joinScopes(f.scopes),
		ApplicationType:         "web",
		TokenEndpointAuthMethod: "none", // PKCE does what a secret would
	}}
	if u, err := url.Parse(redirect); err == nil && loopback(u.Hostname()) {
		ask.ApplicationType = "native"
	}
	if len(f.methods) > 0 && !slices.Contains(f.methods, "none") {
		ask.TokenEndpointAuthMethod = "client_secret_basic"
		if styleOf(f.methods) == oauth2.AuthStyleInParams {
			ask.TokenEndpointAuthMethod = "client_secret_post"
		}
	}
	var c client
	if set.PrivateKey != "" {
		if !slices.Contains(f.methods, methodSigned) {
			return client{}, nil, problem(api.KindInvalid, set.Server, false,
				"the authorization server %s supports no client id metadata documents, and does not list %s for clients that register; "+
					"register one there that has the public key and set servers.%s.auth.client_id, or remove private_key",
				shown(f.issuer), methodSigned, set.Server)
		}
		var err error
		if c, err = set.signs(c, f); err != nil {
			return client{}, nil, err
		}
		key, err := config.SigningKey(set.PrivateKey)
		if err != nil {
			return client{}, nil, err
		}
		public := key.Public()
		public.Algorithm, public.Use = c.signature.alg, "sig"
		ask.TokenEndpointAuthMethod, ask.SigningAlgorithm = methodSigned, c.signature.alg
		ask.JWKS = &jose.JSONWebKeySet{Keys: []jose.JSONWebKey{public}}
	}
	got, err := ask.send(ctx, hc, set, f)
	if err != nil {
		return client{}, nil, err
	}
	c.id = got.ID
	made := &registration{Redirect: redirect}
	switch {
	case c.signature != nil && got.Method != methodSigned && got.Method != "":
		return client{}, nil, problem(api.KindInfrastructure, set.Server, false,
			"the registration endpoint %s made a client that shows itself by %s, where %s was asked for; "+
				"register one by hand that has the public key and set servers.%s.auth.client_id",
			shown(f.registration), scrub(got.Method), methodSigned, set.Server)
	case c.signature != nil, got.Method == "none":
		return c, made, nil
	}
	c.secret = got.Secret
	if got.Method == "client_secret_basic" || got.Method == "client_secret_post" {
		c.style = styleOf([]string{got.Method})
	}
	made.Secret = got.Secret
	if got.Expires != 0 {
		made.Expires = time.Unix(got.Expires, 0)
	}
	return c, made, nil
}

// send asks for the client. Errors hold nothing of an answer but its error code and
// description: the rest may be a secret.
func (ask *registering) send(ctx context.Context, hc *http.Client, set *Settings, f *found) (*registered, error) {
	name := "the registration endpoint " + shown(f.registration)
	body, err := json.Marshal(ask)
	if err != nil {
		return nil, problem(api.KindInfrastructure, set.Server, false, "the client can't be described: %v", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.registration, bytes.NewReader(body))
	if err != nil {
		return nil, problem(api.KindInfrastructure, set.Server, false, "%s can't be asked", name)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := hc.Do(req)
	if err != nil {
		text, again := unanswered(err)
		return nil, problem(api.KindInfrastructure, set.Server, again, "%s %s", name, text)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxMetadata))
	if err != nil {
		text, again := unanswered(err)
		return nil, problem(api.KindInfrastructure, set.Server, again, "%s %s", name, text)
	}
	var got registered
	err = json.Unmarshal(data, &got)
	switch ok := resp.StatusCode == http.StatusCreated || resp.StatusCode == http.StatusOK; {
	case err == nil && ok && got.ID != "":
		return &got, nil
	case err == nil && !ok && got.Error != "":
		return nil, problem(api.KindRefused, set.Server, false,
			"%s refused to register a client: %s; register one by hand and set servers.%s.auth.client_id",
			name, quoted(got.Error, got.Description), set.Server)
	}
	return nil, problem(api.KindInfrastructure, set.Server, false,
		"%s did not register a client; register one by hand and set servers.%s.auth.client_id", name, set.Server)
}

// styleOf chooses how a client shows its secret from what an endpoint takes.
// Unless that is told, it is found out.
func styleOf(methods []string) oauth2.AuthStyle {
	switch {
	case slices.Contains(methods, "client_secret_basic"):
		return oauth2.AuthStyleInHeader
	case slices.Contains(methods, "client_secret_post"):
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleAutoDetect
}
