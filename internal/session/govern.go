package session

import (
	"context"
	"net/http"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/credential"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/upstream/record"
)

// A governor is what all holds on one server share, whatever session has them and
// however often the config was read again: its limits and breaker, the figures of its
// calls, and how it is doing.
type governor struct {
	policy *policy.Server
	record *record.Server
	health *upstream.Health
}

// governor returns what the holds on a server share, with the entry's settings
// from now on. r.mu must not be held.
func (r *Registry) governor(s *config.Server) *governor {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.governors[s.ID]
	if w == nil {
		w = &governor{record: record.NewServer(s.ID, s.Journal, r.o.Record)}
		w.health = &upstream.Health{Log: r.o.Log, Mask: r.o.Record.Redact.Text}
		w.policy = policy.NewServer(s.ID, s.Policy, w.record.Metrics(), r.o.Log)
		r.governors[s.ID] = w
	} else {
		w.record.SetMode(s.Journal)
		w.policy.Set(s.Policy)
	}
	w.health.Begin(s.SpecHash(), s.Credential == config.CredentialPerPrincipal)
	return w
}

// dropGovernors lets go of what is shared of servers that a catalog no longer
// has; of all of them with nil.
func (r *Registry) dropGovernors(c *Catalog) {
	pinned := make(map[string]bool)
	if c != nil {
		for _, s := range r.Sessions() {
			for _, e := range s.Catalog().Entries {
				pinned[e.Base()] = true
			}
		}
	}
	r.mu.Lock()
	var gone []*governor
	for id, w := range r.governors {
		if c == nil || c.Entry(id) == nil && !pinned[id] {
			gone = append(gone, w)
			delete(r.governors, id)
			r.o.Record.Metrics.Forget(id)
		}
	}
	r.mu.Unlock()
	for _, w := range gone {
		w.policy.Close()
	}
}

// govern makes an Upstream with the policies of its server around it. This is
// where they are put together: recorded is what the caller gets, whatever
// refuses or repeats the call further in.
func (r *Registry) govern(e *Entry, s *Session, o upstream.Options) *upstream.Upstream {
	if e.Auth.Type != "" && r.o.Wallet != nil {
		owner := ""
		if s != nil {
			owner = s.Owner
		}
		settings := e.Credentials()
		o.Spec.Authorize = func(next http.RoundTripper) http.RoundTripper {
			return r.o.Wallet.Wrap(settings, owner, next)
		}
	}
	var up *upstream.Upstream
	var chain *policy.Chain
	o.Wrap = func(relay upstream.Caller) upstream.Caller {
		chain = e.governor.policy.Chain(relay, policy.ChainOptions{
			// A program of one session fails for itself; a URL, or a program that all
			// share, for everybody.
			Own: s != nil && e.URL == "" || e.Credential == config.CredentialPerPrincipal,
			Of:  e.hash,
			// What is kept of lists must be dropped when they change.
			Kept: func() { up.Listen() },
		})
		return e.governor.record.Wrap(e.ID, chain)
	}
	o.Heard = func(method string) { chain.Note(method) }
	o.Closed = func() { chain.Close() }
	up = upstream.New(o)
	return up
}

// Ended is what instances of a server that failed wrote to their standard error.
func (r *Registry) Ended(id string) []upstream.Ended {
	r.mu.Lock()
	w := r.governors[id]
	r.mu.Unlock()
	if w == nil {
		return nil
	}
	return w.health.Ended()
}

// Credentials is what the server's auth asks for.
func (e *Entry) Credentials() credential.Settings {
	a, url := e.Auth, e.URL
	if e.Remote != nil {
		url = e.Remote.URL
	}
	return credential.Settings{
		Server: e.Base(), URL: url, Type: a.Type, TokenURL: a.TokenURL, AuthURL: a.AuthURL,
		ClientID: a.ClientID, ClientSecret: a.ClientSecret, Scopes: a.Scopes, Audience: a.Audience,
		Resource: a.Resource, Redirect: a.Redirect, CAFile: e.CAFile,
		PerPrincipal: e.Credential == config.CredentialPerPrincipal,
	}
}

// Denied counts a call that its principal may not make.
func (e *Entry) Denied() { e.governor.record.Denied() }

// Denied writes down a call of what is not there for its principal, and why: a rule
// hides it, or there is none. The server is as the caller names it.
func (r *Registry) Denied(server string, req *upstream.Request, why string) {
	r.o.Record.Denied(server, req, why)
}

// Limited writes down such a call where it is one too many of its principal.
func (r *Registry) Limited(server string, req *upstream.Request, why string) {
	r.o.Record.Limited(server, req, why)
}

// Limited writes down a call that is one too many of its principal.
func (e *Entry) Limited(req *upstream.Request, why *api.Error) {
	e.governor.record.Limited(req, why)
}

// NotMade writes down a call that its session did not let in, or that came after the
// session's end.
func (e *Entry) NotMade(ctx context.Context, req *upstream.Request, why error) {
	e.governor.record.NotMade(ctx, e.ID, req, why)
}

// NotMade does so where the server is not known.
func (r *Registry) NotMade(server string, req *upstream.Request, why *api.Error) {
	r.o.Record.NotMade(server, req, why)
}

// Describe adds to a server's description since when it is there and how its calls go.
func (e *Entry) Describe(s *api.Server) {
	p, f := e.governor.policy.Figures(), e.governor.record.Figures()
	s.Breaker, s.InFlight, s.Queue = p.Breaker, p.InFlight, p.Queue
	s.Since, s.Calls, s.Failures, s.Latency, s.LastError = f.Since.UTC(), f.Calls, f.Failures, f.Latency, f.Last
}
