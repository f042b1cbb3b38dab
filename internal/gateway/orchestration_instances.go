package gateway

import (
	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// setInstanceURL says where an instance speaks MCP.
func (g *Gateway) setInstanceURL(a *ask, i *api.Instance) {
	s := api.Session{ID: i.ID}
	g.setURL(a.r, &s)
	i.URL = s.URL + "/" + i.Details.Server
}

func (g *Gateway) withInstanceURLs(a *ask, all []api.Instance, err error) ([]api.Instance, error) {
	for i := range all {
		g.setInstanceURL(a, &all[i])
	}
	return all, err
}

func (g *Gateway) createInstances(a *ask, in api.NewInstances) ([]api.Instance, error) {
	r, err := a.request()
	if err != nil {
		return nil, err
	}
	all, err := g.services.Instances.Create(a.ctx(), r, in)
	return g.withInstanceURLs(a, all, err)
}

func (g *Gateway) forkInstance(a *ask, in api.ForkInstance) ([]api.Instance, error) {
	r, err := a.request()
	if err != nil {
		return nil, err
	}
	all, err := g.services.Instances.Fork(a.ctx(), r, a.args["instance"], in)
	return g.withInstanceURLs(a, all, err)
}

func (g *Gateway) snapshotInstance(a *ask, in api.SnapshotInstance) (api.InstanceSnapshot, error) {
	r, err := a.request()
	if err != nil {
		return api.InstanceSnapshot{}, err
	}
	return g.services.Instances.Snapshot(a.ctx(), r, a.args["instance"], in)
}

func (g *Gateway) getInstance(a *ask, _ none) (api.Instance, error) {
	i, err := g.services.Instances.Get(a.ctx(), a.who, a.args["instance"])
	if err == nil {
		g.setInstanceURL(a, &i)
	}
	return i, err
}

type instanceQuery struct {
	Session  string `query:"session_id" doc:"only those that were made with this session_id"`
	Resource string `query:"resource_type_identifier" doc:"only those of this server"`
	Limit    int64  `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most; a page may be short and not the last"`
	After    string `query:"after" doc:"the next of an earlier answer"`
}

func (g *Gateway) listInstances(a *ask, q instanceQuery) (api.InstanceList, error) {
	out, err := g.services.Instances.List(a.ctx(), a.who, control.InstanceFilter{
		Session: q.Session, Server: q.Resource, Page: control.Page{Limit: int(q.Limit), After: q.After},
	})
	out.Instances, err = g.withInstanceURLs(a, out.Instances, err)
	return out, err
}

func (g *Gateway) deleteInstance(a *ask, _ none) (none, error) {
	return none{}, g.services.Instances.Delete(a.ctx(), control.Request{Who: a.who, Conn: a.conn}, a.args["instance"])
}

func (g *Gateway) callInstance(a *ask, in api.InstanceCall) (rawJSON, error) {
	s, server, err := g.services.Instances.Find(a.ctx(), a.who, a.args["instance"])
	if err != nil {
		return nil, err
	}
	params, err := askedCall(in.Tool, in.Arguments, nil, nil)
	if err != nil {
		return nil, err
	}
	if e := g.enter(a.who, 1); e != nil {
		return nil, e
	}
	defer g.leave(a.who, 1)
	s.Touch()
	x := g.exchangeWith(a, s, server, wire.MethodCallTool)
	x.params, x.trace, x.relays = params, g.parentOf(a.r.Header, &params), true
	res, err := x.answer(a.ctx())
	return rawJSON(res), err
}

// isNull reports whether an optional value was left out, or is null, as some
// write it.
func isNull(raw []byte) bool { return len(raw) == 0 || string(raw) == "null" }

// exchangeWith is a request to an instance by a caller without a connection.
func (g *Gateway) exchangeWith(a *ask, s *session.Session, server, method string) *exchange {
	return &exchange{
		g: g, who: a.who, view: view{server: server}, sess: s, client: &upstream.Client{Key: newClientID()}, method: method, from: a.r,
	}
}

func (g *Gateway) listInstanceTools(a *ask, _ none) (rawJSON, error) {
	s, server, err := g.services.Instances.Find(a.ctx(), a.who, a.args["instance"])
	if err != nil {
		return nil, err
	}
	s.Touch()
	out, err := g.exchangeWith(a, s, server, wire.MethodListTools).ownTools(a.ctx())
	return rawJSON(out), err
}
