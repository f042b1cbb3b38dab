package credential

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
	"golang.org/x/oauth2"

	"github.com/tine-mcp/tine/api"
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
	if old != nil && old.Registered != nil && old.Registered.Redirect == redirect && old.TokenURL == f.tokenURL && old.Issuer == f.issuer &&
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

// register makes a client at the authorization server (RFC 7591).
func register(ctx context.Context, hc *http.Client, set *Settings, f *found, redirect string) (client, *registration, error) {
	ask := &oauthex.ClientRegistrationMetadata{
		ClientName:              "Tine",
		RedirectURIs:            []string{redirect},
		GrantTypes:              []string{"authorization_code", "refresh_token"},
		ResponseTypes:           []string{"code"},
		Scope:                   joinScopes(f.scopes),
		ApplicationType:         "web",
		TokenEndpointAuthMethod: "none", // PKCE does what a secret would
	}
	if u, err := url.Parse(redirect); err == nil && loopback(u.Hostname()) {
		ask.ApplicationType = "native"
	}
	if len(f.methods) > 0 && !slices.Contains(f.methods, "none") {
		ask.TokenEndpointAuthMethod = "client_secret_basic"
		if styleOf(f.methods) == oauth2.AuthStyleInParams {
			ask.TokenEndpointAuthMethod = "client_secret_post"
		}
	}
	got, err := oauthex.RegisterClient(ctx, f.registration, ask, hc)
	if err != nil {
		return client{}, nil, registrationError(set, f, err)
	}
	c := client{id: got.ClientID, secret: got.ClientSecret}
	switch got.TokenEndpointAuthMethod {
	case "none":
		c.secret = ""
	case "client_secret_basic", "client_secret_post":
		c.style = styleOf([]string{got.TokenEndpointAuthMethod})
	}
	return c, &registration{Secret: c.secret, Expires: got.ClientSecretExpiresAt, Redirect: redirect}, nil
}

// registrationError keeps the library's own texts back: they hold the answer,
// which may hold a secret.
func registrationError(set *Settings, f *found, err error) error {
	name := "the registration endpoint " + shown(f.registration)
	var said *oauthex.ClientRegistrationError
	var sent *url.Error
	switch {
	case errors.As(err, &said):
		return problem(api.KindRefused, set.Server, false,
			"%s refused to register a client: %s; register one by hand and set servers.%s.auth.client_id",
			name, quoted(said.ErrorCode, said.ErrorDescription), set.Server)
	case errors.As(err, &sent):
		return problem(api.KindInfrastructure, set.Server, true, "%s %s", name, unanswered(err))
	}
	return problem(api.KindInfrastructure, set.Server, false,
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
