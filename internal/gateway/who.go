package gateway

import (
	"cmp"
	"context"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/gateway/openenv"
	"github.com/tine-mcp/tine/internal/identity"
)

// Reload takes over what of a config concerns the edge, and who may come in.
// The registry has its own.
func (g *Gateway) Reload(ctx context.Context, cfg *config.Config) error {
	g.reloading.Lock()
	defer g.reloading.Unlock()
	if err := checkMerged(cfg); err != nil {
		return err
	}
	if err := g.admitted(ctx, cfg); err != nil {
		return err
	}
	g.edge.Store(newEdge(cfg))
	return nil
}

// admitted makes anew who may come in: the tokens of the config and those of
// the state folder, the issuer, and the rules. g.reloading is held.
func (g *Gateway) admitted(ctx context.Context, cfg *config.Config) error {
	kept, err := g.o.Tokens.Tokens(ctx)
	if err != nil {
		return err
	}
	lost, err := g.o.Tokens.TokensLost(ctx)
	if err != nil {
		return err
	}
	o := identity.Options{
		Operator: identity.HashToken(g.o.Operator), Separator: cfg.Separator, PublicURL: cfg.PublicURL, Log: g.log, Rules: access.Rules(cfg),
		// It did not start so, but the last token may have been revoked since.
		Shut:  cfg.CheckExposure(len(kept) > 0) != nil,
		Lost:  lost,
		Bound: g.boundTo,
	}
	for _, t := range cfg.Auth.Tokens {
		hash := t.Hash
		if hash == "" {
			hash = identity.HashToken(t.Token)
		}
		o.Tokens = append(o.Tokens, identity.Token{Name: t.Name, Hash: hash, Role: t.Role})
	}
	for _, t := range kept {
		o.Tokens = append(o.Tokens, identity.Token{Name: t.Name, Hash: t.Hash, Role: t.Role, Expires: t.Expires, Unconfirmed: t.Unconfirmed})
	}
	if c := cfg.Auth.OIDC; c != nil {
		o.OIDC = &identity.OIDC{
			Issuer: c.Issuer, Audience: c.Audience, Scopes: c.Scopes, Algorithms: c.Algorithms,
			Principal: c.Principal, CAFile: c.CAFile,
		}
	}
	old := g.guard.Load()
	if old == nil {
		g.guard.Store(identity.NewGuard(o))
		g.guarded.Store(newSignal())
		return nil
	}
	g.guard.Store(old.With(o))
	g.guarded.Swap(newSignal()).raise() // connected principals are checked again
	if g.o.Readmitted != nil {
		g.o.Readmitted()
	}
	return nil
}

// Admits reports whether the owner of a session may come in now; see identity.Pin.
func (g *Gateway) Admits(owner string, pinned []byte) bool {
	return g.guard.Load().Admits(owner, pinned)
}

// boundTo finds what a token with a hash binds its holder to.
func (g *Gateway) boundTo(hash string) (identity.Binding, bool) {
	s, owner, limit := g.reg.ByToken(hash)
	if s == nil {
		return identity.Binding{}, false
	}
	return identity.Binding{Session: s.ID, Pinned: owner.Pinned, Limit: limit}, true
}

// Open reports whether callers come in without a token.
func (g *Gateway) Open() bool { return g.guard.Load().Open() }

// identify tells who sent a request, or answers that it must say so.
func (g *Gateway) identify(w http.ResponseWriter, r *http.Request, e *edge) (identity.Principal, bool) {
	guard := g.guard.Load()
	authorization := ""
	switch all := r.Header["Authorization"]; len(all) {
	case 0:
	case 1:
		authorization = asBearer(r.URL.Path, all[0])
	default:
		refuse(w, http.StatusBadRequest, api.KindInvalid, "the Authorization header stands more than once")
		return identity.Principal{}, false
	}
	who, no := guard.Identify(r.Context(), authorization, e.resource(r))
	if no == nil {
		return who, true
	}
	g.o.Metrics.AuthFailure(no.Reason)
	if no.Status == http.StatusUnauthorized || no.Status == http.StatusForbidden {
		metadata := ""
		if guard.Metadata("") != nil {
			metadata = e.metadataURL(r)
		}
		w.Header().Set("WWW-Authenticate", no.Challenge(metadata))
	}
	refusal := &api.Error{Kind: api.KindRefused, Status: no.Status, Message: no.Message}
	if no.RetryAfter > 0 {
		refusal.Retryable, refusal.RetryAfter = true, max(1, int(no.RetryAfter.Seconds()))
	}
	refuseError(w, refusal)
	return identity.Principal{}, false
}

// runOf is the run that the calls of a principal belong to: the one that goes on in the
// session, since a program may do several with the token of the first.
func (g *Gateway) runOf(who identity.Principal) string {
	if g.o.Agents == nil || !agent.IsRun(who.Run) {
		return who.Run
	}
	now, _ := g.o.Agents.Going(who.Session)
	return cmp.Or(now, who.Run)
}

// isBasic reports whether a request has a password and not a bearer token.
func isBasic(authorization string) bool {
	scheme, _, _ := strings.Cut(authorization, " ")
	return strings.EqualFold(scheme, "Basic")
}

// asBearer is what a request shows, as a bearer token: clients that take only a URL
// have the token as its password, at the endpoints of sessions and of OpenEnv's
// environments, and in the control API.
// The user's name is not looked at. What can't be read stays, and is refused.
func asBearer(path, authorization string) string {
	if !isBasic(authorization) || !strings.HasPrefix(path, "/s/") && !strings.HasPrefix(path, openenv.Prefix) && !strings.HasPrefix(path, api.Version+"/") {
		return authorization
	}
	_, coded, _ := strings.Cut(authorization, " ")
	plain, err := base64.StdEncoding.DecodeString(strings.TrimSpace(coded))
	_, token, ok := strings.Cut(string(plain), ":")
	if err != nil || !ok || token == "" {
		return authorization
	}
	return "Bearer " + token
}

// base is the gateway's own URL as the caller knows it.
func (e *edge) base(r *http.Request) string {
	if e.public != "" {
		return e.public
	}
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// path is the path that a request's sender wrote, where that can be told: a
// proxy that serves the gateway below a path takes that off.
func (e *edge) path(r *http.Request) string {
	if e.prefix != "" && strings.EqualFold(r.Host, e.host) {
		return e.prefix + r.URL.EscapedPath()
	}
	return r.URL.EscapedPath()
}

// resource is the URL that a request is for, as its sender wrote it.
func (e *edge) resource(r *http.Request) string { return e.base(r) + r.URL.EscapedPath() }

// wellKnown is where the metadata of a protected resource stands: this, and
// then the resource's own path.
const wellKnown = "/.well-known/oauth-protected-resource"

func (e *edge) metadataURL(r *http.Request) string {
	return strings.TrimSuffix(e.base(r), e.prefix) + wellKnown + e.prefix + r.URL.EscapedPath()
}

// serveMetadata says which issuer's tokens let in at one URL. It says the same
// of URLs that don't exist: the caller is not known yet.
func (g *Gateway) serveMetadata(w http.ResponseWriter, r *http.Request, e *edge) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, api.KindInvalid, "this can only be read")
		return
	}
	path := strings.TrimPrefix(strings.TrimPrefix(r.URL.EscapedPath(), wellKnown), e.prefix)
	doc := g.guard.Load().Metadata(e.base(r) + path)
	if doc == nil || len(path) > 1024 {
		refuse(w, http.StatusNotFound, api.KindInvalid, "no issuer is configured here; a bearer token of this gateway lets in")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "max-age=300")
	w.Header().Set("Access-Control-Allow-Origin", "*") // it is public
	_, _ = w.Write(doc)
}

// serveMetrics answers Prometheus.
func (g *Gateway) serveMetrics(w http.ResponseWriter, r *http.Request, who identity.Principal) {
	if err := access.Need(who, api.RoleViewer); err != nil {
		refuseError(w, err)
		return
	}
	if g.o.Metrics == nil {
		refuse(w, http.StatusNotFound, api.KindInvalid, "this gateway keeps no metrics")
		return
	}
	g.o.Metrics.Handler().ServeHTTP(w, r)
}
