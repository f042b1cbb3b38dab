package session

import (
	"context"

	"github.com/tine-mcp/tine/internal/driver"
)

// Network writes a connection of a server into the journal, among the calls of
// its session and as its owner's, as far as the server's journal mode says. It
// works also while the registry closes and after that, since connections end
// last. One of a server that nobody has any more is left out: its mode is gone
// with it.
func (r *Registry) Network(ctx context.Context, n driver.Network) {
	r.mu.Lock()
	w, s := r.governors[n.Server], r.sessions[n.Session]
	r.mu.Unlock()
	member := MemberName(n.Server, n.Ordinal)
	catalogs := []*Catalog{r.Catalog()}
	owner := ""
	if s != nil {
		owner = s.Owner
		catalogs = append(catalogs, s.Catalog())
	} else if n.Session != "" {
		// Connections end with their session, and are heard of a moment later.
		rec, ok, err := r.o.Shared.Session(ctx, n.Session)
		if err == nil && ok {
			owner = rec.Owner
		}
	}
	for _, c := range catalogs {
		if e := c.Entry(n.Server); w == nil && e != nil {
			w = e.governor
		}
	}
	if w != nil {
		w.record.Network(member, owner, n)
	}
}
