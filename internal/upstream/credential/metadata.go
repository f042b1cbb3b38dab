package credential

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/tine-mcp/tine/internal/config"
)

// maxMetadata bounds what is read of an answer in JSON.
const maxMetadata = 1 << 20

// issuerMeta is the metadata of an authorization server.
type issuerMeta struct {
	oauthex.AuthServerMeta
	ProofAlgorithms []string `json:"dpop_signing_alg_values_supported"`
}

// provoke asks the server without a credential, to be told what it wants. It
// returns the header of its refusal; nil when it does not refuse.
func provoke(ctx context.Context, hc *http.Client, set *Settings) (http.Header, *missing) {
	why := &missing{set: set}
	u, err := url.Parse(set.URL)
	if err != nil {
		why.add("the server's URL can't be read")
		return nil, why
	}
	u.User = nil
	for _, method := range []string{http.MethodPost, http.MethodGet} {
		body := ""
		if method == http.MethodPost {
			body = `{"jsonrpc":"2.0","id":"login","method":"ping"}`
		}
		req, err := http.NewRequestWithContext(ctx, method, u.String(), strings.NewReader(body))
		if err != nil {
			why.add("the server's URL can't be asked")
			return nil, why
		}
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
		resp, err := hc.Do(req)
		if err != nil {
			why.fails(set.URL, err)
			return nil, why
		}
		resp.Body.Close() // what is in it is of no use, and may be a stream
		if resp.StatusCode != http.StatusUnauthorized {
			continue
		}
		return resp.Header, nil // without a challenge the well-known places may do
	}
	return nil, nil
}

// fetch reads the metadata at a place into v. Where it can't, it tells why and reports
// false.
func fetch(ctx context.Context, hc *http.Client, place string, v any, why *missing) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		why.add(shown(place) + " can't be asked for metadata")
		return false
	}
	resp, err := hc.Do(req)
	if err != nil {
		why.fails(place, err)
		return false
	}
	defer resp.Body.Close()
	switch status := resp.StatusCode; {
	case status == http.StatusOK:
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusGone:
		why.nothing(place)
		return false
	default:
		why.add(fmt.Sprintf("%s answered HTTP %d", shown(place), status))
		why.again = why.again || status >= 500 || status == http.StatusTooManyRequests
		return false
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" || json.NewDecoder(io.LimitReader(resp.Body, maxMetadata)).Decode(v) != nil {
		why.add("what is at " + shown(place) + " is no metadata")
		return false
	}
	return true
}

// resourceMetadata fetches the protected-resource metadata from where the
// challenge says, or else from the well-known places. Metadata about another
// resource is refused. Without any it returns nil, and why.
func resourceMetadata(ctx context.Context, hc *http.Client, set *Settings, server *url.URL, named string) (*oauthex.ProtectedResourceMetadata, *missing) {
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
	why := &missing{set: set}
	not := "the server"
	if set.Resource != "" {
		not = "what servers." + set.Server + ".auth.resource says"
	}
	seen := map[string]bool{"": true}
	for _, p := range places {
		key := strings.TrimSuffix(p.at, "/")
		if seen[key] {
			continue
		}
		seen[key] = true
		if err := checkNamed(server, p.at); err != nil {
			why.add(shown(p.at) + " " + err.Error())
			continue
		}
		prm := new(oauthex.ProtectedResourceMetadata)
		switch ok := fetch(ctx, hc, p.at, prm, why); {
		case ok && slices.Contains(p.resources, prm.Resource):
			return prm, &missing{set: set}
		case ok:
			why.advise(fmt.Sprintf("the metadata at %s is about the resource %s, which is not %s", shown(p.at), scrub(prm.Resource), not),
				"set servers."+set.Server+".auth.resource to it if that is right, or else "+set.endpoints())
		}
	}
	return nil, why
}

// issuerMetadata fetches the metadata of an authorization server from the places
// of RFC 8414 and of OpenID Connect. A place that holds something else does not
// keep the next from being tried. Without any it returns nil, and adds why.
func issuerMetadata(ctx context.Context, hc *http.Client, set *Settings, server *url.URL, issuer string, why *missing) *issuerMeta {
	if err := checkNamed(server, issuer); err != nil {
		why.add("the authorization server " + shown(issuer) + " " + err.Error())
		return nil
	}
	u, err := url.Parse(issuer)
	if err != nil {
		why.add("the authorization server's name is no URL")
		return nil
	}
	const oauth, openid = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
	places := []string{at(u, oauth), at(u, openid)}
	if path := strings.Trim(u.Path, "/"); path != "" {
		places = []string{at(u, oauth+"/"+path), at(u, openid+"/"+path), at(u, "/"+path+openid)}
	}
	var others []string // places
	var other string    // the issuer there
	for _, place := range places {
		meta := new(issuerMeta)
		if !fetch(ctx, hc, place, meta, why) {
			continue
		}
		if strings.TrimSuffix(meta.Issuer, "/") != strings.TrimSuffix(issuer, "/") {
			others, other = append(others, shown(place)), meta.Issuer
		} else if wrong := unsafe(set, server, meta); wrong != "" {
			why.add(wrong)
		} else {
			return meta
		}
	}
	if others != nil {
		why.add(fmt.Sprintf("the metadata at %s is of the issuer %s, and not of %s", strings.Join(others, " and "), scrub(other), shown(issuer)))
	}
	return nil
}

// unsafe says why we can't get a token of an authorization server safely; empty where we
// can.
func unsafe(set *Settings, server *url.URL, meta *issuerMeta) string {
	login := set.Type == config.AuthLogin
	if login && !slices.Contains(meta.CodeChallengeMethodsSupported, "S256") {
		return "the authorization server " + shown(meta.Issuer) + " does not take PKCE with S256"
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
			return fmt.Sprintf("the %s of %s %v", e.name, shown(meta.Issuer), err)
		}
	}
	return ""
}

// at is the URL of a path at u's origin.
func at(u *url.URL, path string) string {
	c := *u
	c.Path, c.RawPath, c.Fragment = path, "", ""
	return c.String()
}
