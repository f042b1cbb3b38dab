package gateway

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// late writes down a request that was refused because its session has ended, in the
// story of that session, and returns the error to answer it with. The request counts
// toward its principal's rate as any call does. Other errors are returned as they are.
func (g *Gateway) late(ctx context.Context, who identity.Principal, d door, method string, params *wire.Params, err error) error {
	if err == nil || asError(err).Status != http.StatusGone {
		return err
	}
	x := &exchange{g: g, who: who, view: d.view, method: method, params: *params, wide: true, world: true}
	t := g.tableOf(g.reg.Catalog())
	server, name := d.view.server, params.Name()
	s, own, _ := x.locate(t, name)
	if s == t.bare && x.view.merged() && strings.Contains(name, t.sep) {
		s = nil // the name of a server that is not there, as in strays
	}
	switch {
	case params.TargetURI:
		s = nil
		if rest, ok := strings.CutPrefix(name, uriScheme); ok && server == "" {
			if before, after, found := strings.Cut(rest, "/"); found {
				server, name = before, after
			}
		}
		if server != "" {
			s = x.seen(t, server)
		}
	case s != nil:
		server, name = s.entry.ID, own
		if inside, ok := s.inside(own); ok {
			name = inside
		}
	case server == "":
		if before, after, found := strings.Cut(name, t.sep); found {
			server, name = before, after
		}
	}
	req := &upstream.Request{Method: method, Name: name, Params: *params, Who: who.Name, Run: g.runOf(who)}
	id := cmp.Or(d.session, who.Session)
	if was, ok, _ := g.reg.Closed(ctx, id); ok && access.Uses(who, access.Thing{Owner: was.Owner, Session: id}) {
		req.Session = id // nothing is written into the story of another principal's session
	}
	if rateable(method) {
		if e := g.tooMany(who); e != nil {
			g.reg.Limited(server, req, e.Message)
			return e
		}
	}
	if s != nil {
		s.entry.NotMade(ctx, req, err)
	} else {
		g.reg.NotMade(server, req, asError(err))
	}
	return err
}
