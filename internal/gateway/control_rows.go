package gateway

import (
	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
)

func (g *Gateway) annotate(a *ask, in api.NewAnnotation) (api.Annotation, error) {
	r, err := a.request()
	if err != nil {
		return api.Annotation{}, err
	}
	return g.services.Sessions.Annotate(a.ctx(), r, a.args["session"], in)
}

func (g *Gateway) listLeases(a *ask, _ none) (api.LeaseList, error) {
	return g.services.Leases.List(a.who), nil
}

func (g *Gateway) newLease(a *ask, in api.NewLease) (api.Lease, error) {
	r, err := a.request()
	if err != nil {
		return api.Lease{}, err
	}
	return g.services.Leases.New(a.ctx(), r, in)
}

func (g *Gateway) renewLease(a *ask, _ none) (api.Lease, error) {
	return g.services.Leases.Renew(a.who, a.args["lease"])
}

func (g *Gateway) endLease(a *ask, _ none) (none, error) {
	return none{}, g.services.Leases.End(a.ctx(), a.who, a.args["lease"])
}

type trajectoryQuery struct {
	Owner  string   `query:"owner" doc:"only sessions of this principal; default the caller's own, or all for an operator"`
	Label  []string `query:"label" doc:"only sessions with this label, as key=value; all of them when repeated"`
	Closed bool     `query:"closed" doc:"closed sessions too"`
}

func (g *Gateway) trajectories(a *ask, q trajectoryQuery) (lines[api.Step], error) {
	labels, err := readLabels(q.Label)
	if err != nil {
		return nil, err
	}
	return g.services.Sessions.Trajectories(a.ctx(), a.who, control.SessionFilter{Owner: q.Owner, Labels: labels, Closed: q.Closed})
}
