package session

import (
	"context"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// Network writes a connection of a server into the journal, among the calls of
// its session and as its owner's, as far as the server's journal mode says. It
// works also while the registry closes and after that, since connections end
// last. One of a server that no catalog has any more is left out: its mode is
// gone with it.
func (r *Registry) Network(ctx context.Context, n driver.Network) {
	w, s := r.catalogs.Governor(n.Server), r.Get(n.Session)
	member := catalog.MemberName(n.Server, n.Ordinal)
	catalogs := []*catalog.Catalog{r.Catalog()}
	owner := ""
	if s != nil {
		owner = s.Owner
		catalogs = append(catalogs, s.Catalog())
		if own := s.own.Governor(n.Server); own != nil {
			w = own
		}
	} else if n.Session != "" {
		// Connections end with their session, and are heard of a moment later.
		rec, ok, err := r.o.Shared.Session(ctx, n.Session)
		if err == nil && ok {
			owner = rec.Owner
		}
		if own := r.past.governor(n.Session, n.Server); own != nil {
			w = own
		}
	}
	for _, c := range catalogs {
		if e := c.Entry(n.Server); w == nil && e != nil {
			w = e.Governor
		}
	}
	if w != nil {
		w.Record.Network(member, owner, n)
	}
}
