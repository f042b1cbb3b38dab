package gateway

import "github.com/tine-mcp/tine/api"

func (g *Gateway) servers(a *ask, _ none) (api.ServerList, error) {
	cat := g.services.Sessions.Catalog(a.who, a.who.Session)
	return api.ServerList{Servers: g.services.Servers.List(a.who, cat)}, nil
}

func (g *Gateway) server(a *ask, _ none) (api.Server, error) {
	return g.services.Servers.Get(a.ctx(), a.who, a.args["server"])
}

func (g *Gateway) patchServer(a *ask, p api.ServerPatch) (api.Server, error) {
	return g.services.Servers.Patch(a.ctx(), a.who, a.args["server"], p)
}

type logQuery struct {
	Bytes int64 `query:"bytes" min:"1" max:"4194304" default:"65536" doc:"how much of the end of each log"`
}

func (g *Gateway) logs(a *ask, q logQuery) (api.LogList, error) {
	return g.services.Servers.Logs(a.who, a.args["server"], q.Bytes)
}

func (g *Gateway) beginLogin(a *ask, in api.LoginRequest) (api.LoginStart, error) {
	return g.services.Servers.BeginLogin(a.ctx(), a.who, a.args["server"], in)
}

func (g *Gateway) finishLogin(a *ask, in api.LoginFinish) (api.Server, error) {
	return g.services.Servers.FinishLogin(a.ctx(), a.who, a.args["server"], a.args["flow"], in)
}

func (g *Gateway) logout(a *ask, _ none) (api.Server, error) {
	return g.services.Servers.Logout(a.ctx(), a.who, a.args["server"])
}
