package credential

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// maxIssuers is how many of a resource's authorization servers are tried.
const maxIssuers = 3

// maxMetadata bounds what is read of an answer in JSON.
const maxMetadata = 1 << 20

// found is the authorization server of a server.
type found struct {
	issuer       string // empty when the config names the endpoints and no issuer
	authURL      string
	tokenURL     string
	registration string
	revocation   string
	sendsIssuer  bool     // it says who it is when it sends the person back
	methods      []string // how clients may show who they are
	algorithms   []string // how they may sign it
	documents    bool     // the URL of a client id metadata document is a client id
	proof        string   // the algorithm of proofs for bound tokens; empty for bearer tokens
	required     bool     // the server takes bound tokens alone
	resource     string
	scopes       []string
}

// discover finds a server's authorization server: what the config says, else
// what the server says, as the MCP authorization spec has it.
func (w *Wallet) discover(ctx context.Context, hc *http.Client, set *Settings) (*found, error) {
	server, err := serverURL(set.URL)
	if err != nil {
		return nil, problem(api.KindInvalid, set.Server, false, "%v; mend servers.%s.url", err, set.Server)
	}
	for key, endpoint := range map[string]string{"auth_url": set.AuthURL, "token_url": set.TokenURL} {
		if endpoint == "" {
			continue
		}
		if err := checkEndpoint(endpoint); err != nil {
			return nil, problem(api.KindInvalid, set.Server, false, "%s %v; mend servers.%s.auth.%s", shown(endpoint), err, set.Server, key)
		}
	}
	if set.AuthURL != "" && set.TokenURL != "" {
		f := &found{issuer: set.Issuer, authURL: set.AuthURL, tokenURL: set.TokenURL, resource: server.String(), scopes: set.Scopes}
		if set.Resource != "" {
			f.resource = set.Resource
		}
		return f, nil
	}
	f, err := search(ctx, hc, set, server)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("it took too long")
		}
		return nil, problem(api.KindInfrastructure, set.Server, true,
			"no authorization server was found: %s; set %s if it can't be found this way", explain(err), set.endpoints())
	}
	if set.AuthURL != "" {
		f.authURL = set.AuthURL
	}
	if set.TokenURL != "" {
		f.tokenURL = set.TokenURL
	}
	if set.Resource != "" {
		f.resource = set.Resource
	}
	return f, nil
}

// endpoints names the keys that say where tokens come from.
func (s *Settings) endpoints() string {
	if s.Type == config.AuthLogin {
		return "servers." + s.Server + ".auth.auth_url and token_url"
	}
	return "servers." + s.Server + ".auth.token_url"
}

// explain shows what was tried and why it did not do.
func explain(err error) string {
	return cut(oneLine(strings.ReplaceAll(err.Error(), "\n", "; ")), 4*maxQuoted)
}

// search asks the server, and those it names.
func search(ctx context.Context, hc *http.Client, set *Settings, server *url.URL) (*found, error) {
	header, err := provoke(ctx, hc, set.URL)
	if err != nil {
		return nil, err
	}
	challenge := challengeOf(header)
	prm, err := resourceMetadata(ctx, hc, set, server, challenge["resource_metadata"])
	var issuers []string
	resource := server.String()
	scopes := strings.Fields(challenge["scope"])
	if prm != nil {
		issuers, resource = prm.AuthorizationServers, prm.Resource
		if len(scopes) == 0 {
			scopes = prm.ScopesSupported
		}
		if len(issuers) == 0 {
			return nil, errors.New("the server's metadata names no authorization server")
		}
	} else {
		// Servers of the first revision with authorization are their own
		// authorization server.
		issuers = []string{(&url.URL{Scheme: server.Scheme, Host: server.Host}).String()}
	}
	for _, issuer := range issuers[:min(len(issuers), maxIssuers)] {
		meta, place, why := issuerMetadata(ctx, hc, set, server, issuer)
		var proof string
		var required bool
		if why == nil {
			proof, required, why = proofWanted(ctx, hc, header, prm, place)
		}
		if why != nil {
			err = errors.Join(err, why)
			continue
		}
		f := &found{
			issuer: meta.Issuer, authURL: meta.AuthorizationEndpoint, tokenURL: meta.TokenEndpoint,
			registration: meta.RegistrationEndpoint, revocation: meta.RevocationEndpoint,
			sendsIssuer: meta.AuthorizationResponseIssParameterSupported,
			methods:     meta.TokenEndpointAuthMethodsSupported,
			algorithms:  meta.TokenEndpointAuthSigningAlgValuesSupported,
			documents:   meta.ClientIDMetadataDocumentSupported,
			proof:       proof, required: required,
			resource: resource, scopes: set.Scopes,
		}
		if len(set.Scopes) == 0 {
			f.scopes = slices.Clone(scopes)
			if set.Type == config.AuthLogin && slices.Contains(meta.ScopesSupported, "offline_access") && !slices.Contains(scopes, "offline_access") {
				f.scopes = append(f.scopes, "offline_access") // or there is nothing to renew the login with
			}
		}
		return f, nil
	}
	return nil, err
}

// proofWanted says whether a server's tokens are to be bound to a key, and by which
// algorithm: where the server demands it, or takes it and its authorization server
// does. That the latter does alone says nothing of the server. place is where the
// authorization server's metadata is, of which the library leaves this out.
func proofWanted(ctx context.Context, hc *http.Client, challenge http.Header, prm *oauthex.ProtectedResourceMetadata, place string) (alg string, required bool, err error) {
	taken, required := demands(challenge)
	var of []string
	if prm != nil {
		of = prm.DPOPSigningAlgValuesSupported
		required = required || prm.DPOPBoundAccessTokensRequired
	}
	if !required && !taken && len(of) == 0 {
		return "", false, nil
	}
	listed, err := proofsListed(ctx, hc, place)
	if err != nil {
		return "", false, err
	}
	alg = chooseProof(of, listed)
	switch {
	case required && alg == "":
		return "", false, errors.New("the server demands tokens that are bound to a key (DPoP) by an algorithm that Tine has not: " + scrub(strings.Join(append(of, listed...), ", ")))
	case !required && len(listed) == 0:
		return "", false, nil
	}
	return alg, required, nil
}

// proofsListed reads which algorithms an authorization server lists for proofs.
func proofsListed(ctx context.Context, hc *http.Client, place string) ([]string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return nil, errors.New("the authorization server's metadata can't be asked for")
	}
	resp, err := hc.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s %s", shown(place), unanswered(err))
	}
	defer resp.Body.Close()
	var meta struct {
		Listed []string `json:"dpop_signing_alg_values_supported"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxMetadata)).Decode(&meta); err != nil || resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s holds no metadata", shown(place))
	}
	return meta.Listed, nil
}

// provoke asks the server without a credential, to be told what it wants. It
// returns the header of its refusal; nil when it does not refuse.
func provoke(ctx context.Context, hc *http.Client, server string) (http.Header, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, errors.New("the server's URL can't be read")
	}
	u.User = nil
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		body := ""
		if method == http.MethodPost {
			body = `{"jsonrpc":"2.0","id":"login","method":"ping"}`
		}
		req, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(body))
		if err != nil {
			return nil, errors.New("the server's URL can't be asked")
		}
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
		resp, err := hc.Do(req)
		if err != nil {
			return nil, fmt.Errorf("%s %s", shown(server), unanswered(err))
		}
		resp.Body.Close() // what is in it is of no use, and may be a stream
		if resp.StatusCode != http.StatusUnauthorized {
			continue
		}
		return resp.Header, nil // without a challenge the well-known places may do
	}
	return nil, nil
}

// resourceMetadata fetches the protected-resource metadata from where the
// challenge says, or else from the well-known places. Metadata about another
// resource is refused.
func resourceMetadata(ctx context.Context, hc *http.Client, set *Settings, server *url.URL, named string) (*oauthex.ProtectedResourceMetadata, error) {
	self := []string{server.String()}
	if server.Path == "" || server.Path == "/" { // the same resource, spelled in two ways
		bare, slash := *server, *server
		bare.Path, slash.Path = "", "/"
		self = []string{bare.String(), slash.String()}
	}
	root := append([]string{(&url.URL{Scheme: server.Scheme, Host: server.Host}).String()}, self...)
	if set.Resource != "" {
		self, root = []string{set.Resource}, []string{set.Resource}
	}
	const wellKnown = "/.well-known/oauth-protected-resource"
	places := []struct {
		at        string
		resources []string
	}{{named, self}, {at(server, wellKnown+"/"+strings.Trim(server.Path, "/")), self}, {at(server, wellKnown), root}}
	var failed error
	seen := map[string]bool{"": true}
	for _, p := range places {
		if err := checkNamed(server, p.at); p.at != "" && err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s %w", shown(p.at), err))
			continue
		}
		for _, resource := range p.resources {
			key := strings.TrimSuffix(p.at, "/")
			if key != "" {
				key += " " + resource
			}
			if seen[key] {
				continue
			}
			seen[key] = true
			prm, err := oauthex.GetProtectedResourceMetadata(ctx, p.at, resource, hc)
			if err == nil {
				return prm, nil
			}
			failed = errors.Join(failed, err)
		}
	}
	return nil, failed
}

// issuerMetadata fetches the metadata of an authorization server from the places
// of RFC 8414 and of OpenID Connect. A place that holds something else does not
// keep the next from being tried.
func issuerMetadata(ctx context.Context, hc *http.Client, set *Settings, server *url.URL, issuer string) (meta *oauthex.AuthServerMeta, place string, err error) {
	if err := checkNamed(server, issuer); err != nil {
		return nil, "", fmt.Errorf("the authorization server %s %w", shown(issuer), err)
	}
	u, err := url.Parse(issuer)
	if err != nil {
		return nil, "", errors.New("the authorization server's name is no URL")
	}
	const oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	places := []string{at(u, oauth), at(u, openid)}
	if path := strings.Trim(u.Path, "/"); path != "" {
		places = []string{at(u, oauth+"/"+path), at(u, openid+"/"+path), at(u, "/"+path+openid)}
	}
	var failed error
	for _, place := range places {
		meta, err := oauthex.GetAuthServerMeta(ctx, place, issuer, hc)
		if err == nil && meta == nil {
			continue
		}
		if err == nil {
			err = usable(set, server, meta)
		}
		if err == nil {
			return meta, place, nil
		}
		failed = errors.Join(failed, err)
	}
	if failed == nil {
		failed = fmt.Errorf("the authorization server %s has no metadata", shown(issuer))
	}
	return nil, "", failed
}

// usable refuses authorization servers that we can't get a token of safely.
func usable(set *Settings, server *url.URL, meta *oauthex.AuthServerMeta) error {
	login := set.Type == config.AuthLogin
	if login && !slices.Contains(meta.CodeChallengeMethodsSupported, "S256") {
		return fmt.Errorf("the authorization server %s does not take PKCE with S256", shown(meta.Issuer))
	}
	for _, e := range []struct {
		name, url string
		optional  bool
	}{
		{"authorization endpoint", meta.AuthorizationEndpoint, !login},
		{"token endpoint", meta.TokenEndpoint, false},
		{"registration endpoint", meta.RegistrationEndpoint, true},
		{"revocation endpoint", meta.RevocationEndpoint, true},
	} {
		if e.url == "" && e.optional {
			continue
		}
		if err := checkNamed(server, e.url); err != nil {
			return fmt.Errorf("the %s of %s %w", e.name, shown(meta.Issuer), err)
		}
	}
	return nil
}

// at is the URL of a path at u's origin.
func at(u *url.URL, path string) string {
	c := *u
	c.Path, c.RawPath, c.Fragment = path, "", ""
	return c.String()
}
