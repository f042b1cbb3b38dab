package catalog

import (
	"context"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/credential"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/upstream/record"
)

// A Governor is what all holds on one server share, whatever session has them and
// however often the config was read again: its limits and breaker, the figures of its
// calls, and how it is doing.
type Governor struct {
	Policy *policy.Server
	Record *record.Server
	Health *upstream.Health
}

// Governor returns what the holds on a server share; nil where nothing has a hold
// on it.
func (all *Catalogs) Governor(server string) *Governor {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.governors[server]
}

// govern returns what the holds on a server share, with the entry's settings
// from now on.
func (all *Catalogs) govern(s *config.Server) *Governor {
	all.mu.Lock()
	defer all.mu.Unlock()
	w := all.governors[s.ID]
	if w == nil {
		w = &Governor{Record: record.NewServer(s.ID, s.Journal, all.o.Record)}
		w.Health = &upstream.Health{Log: all.o.Log, Mask: all.o.Record.Redact.Text, Changed: all.o.Changed}
		w.Policy = policy.NewServer(s.ID, s.Policy, w.Record.Metrics(), all.o.Log)
		all.governors[s.ID] = w
	} else {
		w.Record.SetMode(s.Journal)
		w.Policy.Set(s.Policy)
	}
	w.Health.Begin(s.SpecHash(), s.Credential == config.CredentialPerPrincipal)
	return w
}

// DropGovernors lets go of what is shared of servers that are not to be kept.
func (all *Catalogs) DropGovernors(keep func(server string) bool) {
	all.mu.Lock()
	var gone []*Governor
	for id, w := range all.governors {
		if !keep(id) {
			gone = append(gone, w)
			delete(all.governors, id)
			all.o.Record.Metrics.Forget(id)
		}
	}
	all.mu.Unlock()
	for _, w := range gone {
		w.Policy.Close()
	}
}

// Credentials is what the server's auth asks for.
func (e *Entry) Credentials() credential.Settings {
	a, url := e.Auth, ""
	if address := e.Info().Address; address != nil {
		url = address(e.Spec())
	}
	return credential.Settings{
		Server: e.Base(), URL: url, Type: a.Type, TokenURL: a.TokenURL, AuthURL: a.AuthURL,
		ClientID: a.ClientID, ClientSecret: a.ClientSecret, PrivateKey: a.PrivateKey, Issuer: a.Issuer,
		ClientMetadataURL: a.ClientMetadataURL, Scopes: a.Scopes, Audience: a.Audience,
		Resource: a.Resource, Redirect: a.Redirect, CAFile: e.CAFile,
		PerPrincipal: e.Credential == config.CredentialPerPrincipal,
	}
}

// Denied counts a call that its principal may not make.
func (e *Entry) Denied() { e.Governor.Record.Denied() }

// Limited writes down a call that is one too many of its principal.
func (e *Entry) Limited(req *upstream.Request, why *api.Error) {
	e.Governor.Record.Limited(req, why)
}

// NotMade writes down a call that its session did not let in, or that came after the
// session's end.
func (e *Entry) NotMade(ctx context.Context, req *upstream.Request, why error) {
	e.Governor.Record.NotMade(ctx, e.ID, req, why)
}

// Describe adds to a server's description since when it is there and how its calls go.
func (e *Entry) Describe(s *api.Server) {
	p, f := e.Governor.Policy.Figures(), e.Governor.Record.Figures()
	s.Breaker, s.InFlight, s.Queue = p.Breaker, p.InFlight, p.Queue
	s.Since, s.Calls, s.Failures, s.Latency, s.LastError = f.Since.UTC(), f.Calls, f.Failures, f.Latency, f.Last
}
