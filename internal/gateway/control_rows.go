package gateway

import "github.com/tine-mcp/tine/api"

func (g *Gateway) annotate(a *ask, in api.NewAnnotation) (api.Annotation, error) {
	r, err := a.request()
	if err != nil {
		return api.Annotation{}, err
	}
	return g.services.Sessions.Annotate(a.ctx(), r, a.args["session"], in)
}
