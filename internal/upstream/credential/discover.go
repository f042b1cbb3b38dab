package credential

import (
	"context"
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
	f, why := search(ctx, hc, set, server)
	if f == nil {
		return nil, why.error(ctx)
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

// search asks the server, and those it names. Without an authorization server it returns
// why there is none.
func search(ctx context.Context, hc *http.Client, set *Settings, server *url.URL) (*found, *missing) {
	header, why := provoke(ctx, hc, set)
	if why != nil {
		return nil, why
	}
	challenge := challengeOf(header)
	prm, why := resourceMetadata(ctx, hc, set, server, challenge["resource_metadata"])
	var issuers []string
	resource := server.String()
	scopes := strings.Fields(challenge["scope"])
	if prm != nil {
		issuers, resource = prm.AuthorizationServers, prm.Resource
		if len(scopes) == 0 {
			scopes = prm.ScopesSupported
		}
		if len(issuers) == 0 {
			why.add("the metadata of the server names no authorization server")
			return nil, why
		}
	} else {
		// Servers of the first revision with authorization are their own
		// authorization server.
		issuers = []string{(&url.URL{Scheme: server.Scheme, Host: server.Host}).String()}
	}
	for _, issuer := range issuers[:min(len(issuers), maxIssuers)] {
		meta := issuerMetadata(ctx, hc, set, server, issuer, why)
		if meta == nil {
			continue
		}
		proof, required, ok := proofWanted(header, prm, meta, why)
		if !ok {
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
	return nil, why
}

// proofWanted says whether a server's tokens are to be bound to a key, and by which
// algorithm: where the server demands it, or takes it and its authorization server
// does. That the latter does alone says nothing of the server. It is not ok where the
// server demands what Tine can't do.
func proofWanted(challenge http.Header, prm *oauthex.ProtectedResourceMetadata, meta *issuerMeta, why *missing) (alg string, required, ok bool) {
	taken, required := demands(challenge)
	var of []string
	if prm != nil {
		of = prm.DPOPSigningAlgValuesSupported
		required = required || prm.DPOPBoundAccessTokensRequired
	}
	if !required && !taken && len(of) == 0 {
		return "", false, true
	}
	alg = chooseProof(of, meta.ProofAlgorithms)
	switch {
	case required && alg == "":
		*why = missing{set: why.set} // what went before did not matter
		why.advise("the server demands tokens that are bound to a key (DPoP) by an algorithm that Tine has not ("+
			scrub(strings.Join(with(of, meta.ProofAlgorithms), ", "))+")",
			"the server and its authorization server must both take one of "+strings.Join(proofAlgorithms, ", "))
		return "", false, false
	case !required && len(meta.ProofAlgorithms) == 0:
		return "", false, true
	}
	return alg, required, true
}
