package gateway

import "github.com/tine-mcp/tine/api"

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
