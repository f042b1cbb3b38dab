package credential

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// A server may want more of a token than it asked for at first. It answers 403 then and
// names the scopes, and the next login asks for them too.

// maxScopes and maxScope bound what a server can have a login ask for.
const (
	maxScopes = 64
	maxScope  = 256
)

const schemeBearer = "bearer"

// challengesOf returns the challenges of an answer; nil when they can't be read.
func challengesOf(h http.Header) []oauthex.Challenge {
	all, err := oauthex.ParseWWWAuthenticate(h.Values("WWW-Authenticate"))
	if err != nil {
		return nil
	}
	return all
}

// challengeOf returns the parameters of a challenge for a bearer token, else of one for
// a bound token; empty when there is none.
func challengeOf(h http.Header) map[string]string {
	all := challengesOf(h)
	for _, scheme := range []string{schemeBearer, schemeDPoP} {
		for _, c := range all {
			if c.Scheme == scheme {
				return c.Params
			}
		}
	}
	return nil
}

// enough passes an answer on, unless it names a scope that the token lacks.
func (t *transport) enough(resp *http.Response) (*http.Response, error) {
	if resp.StatusCode != http.StatusForbidden {
		return resp, nil
	}
	challenge := challengeOf(resp.Header)
	scopes := strings.Fields(challenge["scope"])
	if challenge["error"] != "insufficient_scope" || len(scopes) == 0 {
		return resp, nil
	}
	drain(resp.Body)
	if t.set.Type != config.AuthLogin {
		return nil, t.set.lacks(scopes)
	}
	p, letGo := t.w.person(t.set, t.principal)
	defer letGo()
	return nil, p.lacks(t.set, scopes)
}

// lacks says which scopes client credentials should have.
func (s *Settings) lacks(scopes []string) *api.Error {
	asked := !slices.ContainsFunc(scopes, func(scope string) bool { return !slices.Contains(s.Scopes, scope) })
	wanted := scrub(joinScopes(scopes))
	if asked {
		return problem(api.KindRefused, s.Server, false,
			"the server wants the scope %q, which the client has asked for and not been given; grant it to the client at the authorization server", wanted)
	}
	return problem(api.KindRefused, s.Server, false,
		"the server wants the scope %q; add it to servers.%s.auth.scopes, and grant it to the client at the authorization server", wanted, s.Server)
}

// lacks notes which scopes a login should have.
func (p *person) lacks(set *Settings, scopes []string) *api.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := set.Scopes
	if len(asked) == 0 && p.rec != nil {
		asked = p.rec.Scopes
	}
	var missing []string
	for _, s := range scopes {
		if len(s) <= maxScope && !slices.Contains(asked, s) && !slices.Contains(missing, s) && len(missing) < maxScopes {
			missing = append(missing, s)
		}
	}
	shown := fmt.Sprintf("%q", scrub(joinScopes(missing)))
	switch {
	case len(missing) == 0:
		return problem(api.KindRefused, set.Server, false,
			"the server wants the scope %q, which the login has asked for and not been given; ask for it where the login was made", scrub(joinScopes(scopes)))
	case len(set.Scopes) > 0:
		return wantsLogin(set, fmt.Sprintf("the login lacks the scope %s; add it to servers.%s.auth.scopes", shown, set.Server)).error(0)
	}
	p.wants = with(p.wants, missing)
	return wantsLogin(set, "the login lacks the scope "+shown).error(0)
}

// more returns what the next login asks for beside what the server wants at first; nil
// for nothing.
func (p *person) more() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.wants) == 0 {
		return nil
	}
	if p.rec == nil {
		return p.wants
	}
	return with(p.rec.Scopes, p.wants)
}

// with returns scopes and those of others that are not among them.
func with(scopes, others []string) []string {
	all := slices.Clone(scopes)
	for _, s := range others {
		if !slices.Contains(all, s) && len(all) < maxScopes {
			all = append(all, s)
		}
	}
	return all
}
