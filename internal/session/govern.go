package session

import (
	"net/http"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/wire"
)

// dropGovernors lets go of what is shared of servers that a catalog no longer
// has; of all of them with nil.
func (r *Registry) dropGovernors(c *catalog.Catalog) {
	pinned := make(map[string]bool)
	if c != nil {
		for _, s := range r.Sessions() {
			for _, e := range s.Catalog().Entries {
				pinned[e.Base()] = true
			}
		}
	}
	r.catalogs.DropGovernors(func(id string) bool { return c != nil && (c.Entry(id) != nil || pinned[id]) })
}

// govern makes an Upstream with the policies of its server around it. This is
// where they are put together: recorded is what the caller gets, whatever
// refuses or repeats the call further in.
func (r *Registry) govern(e *catalog.Entry, s *Session, o upstream.Options) *upstream.Upstream {
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
		chain = e.Governor.Policy.Chain(relay, policy.ChainOptions{
			// A program of one session fails for that session alone; a URL, or a
			// program that all share, for all of them.
			Own: s != nil && e.URL == "" || e.Credential == config.CredentialPerPrincipal,
			Of:  e.Hash,
			// What is kept of lists must be dropped when they change.
			Kept: func() { up.Listen() },
		})
		return e.Governor.Record.Wrap(e.ID, chain)
	}
	o.Heard = func(method string) { chain.Note(method) }
	o.Closed = func() { chain.Close() }
	up = upstream.New(o)
	return up
}

// Ended is what instances of a server that failed wrote to their standard error.
func (r *Registry) Ended(id string) []upstream.Ended {
	w := r.catalogs.Governor(id)
	if w == nil {
		return nil
	}
	return w.Health.Ended()
}

// Denied writes down a call of something that its principal can't see, and why: a
// rule hides it, or there is none. The server is as the caller names it. Its arguments and
// the answer are kept where those of all servers are: otherwise they would tell which
// servers there are.
func (r *Registry) Denied(server string, req *upstream.Request, why, answer string) {
	cfg := r.Catalog().Config
	full := cfg.Journal.Mode == config.JournalFull && !slices.ContainsFunc(cfg.Servers, func(s config.Server) bool { return s.Journal != "" && s.Journal != config.JournalFull })
	if !full {
		req.Params, answer = wire.Params{}, ""
	}
	r.o.Record.Denied(server, req, why, answer)
}

// Limited writes down such a call where it is one too many of its principal.
func (r *Registry) Limited(server string, req *upstream.Request, why string) {
	r.o.Record.Limited(server, req, why)
}

// NotMade does so where the server is not known.
func (r *Registry) NotMade(server string, req *upstream.Request, why *api.Error) {
	r.o.Record.NotMade(server, req, why)
}
