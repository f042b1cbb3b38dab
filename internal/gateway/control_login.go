package gateway

import (
	"strconv"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
)

// loginEntry finds a server that wants a person, which the principal may log
// in to: for itself, or, where all share one login, with the role for it.
func (g *Gateway) loginEntry(who identity.Principal, id string) (*session.Entry, error) {
	e, err := g.entry(who, id)
	if err != nil {
		return nil, err
	}
	if e.Auth.Type != config.AuthLogin || g.o.Wallet == nil {
		return nil, &api.Error{
			Kind: api.KindInvalid, Server: id,
			Message: "server " + strconv.Quote(id) + " wants no login; servers." + id + ".auth.type: login would say that it does",
		}
	}
	if e.Credential != config.CredentialPerPrincipal {
		if err := access.Need(who, api.RoleOperator); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (g *Gateway) beginLogin(a *ask, in api.LoginRequest) (out api.LoginStart, err error) {
	e, err := g.loginEntry(a.who, a.args["server"])
	if err != nil {
		return out, err
	}
	return g.o.Wallet.Begin(a.ctx(), e.Credentials(), a.who.Name, in.Redirect)
}

func (g *Gateway) finishLogin(a *ask, in api.LoginFinish) (api.Server, error) {
	id := a.args["server"]
	e, err := g.loginEntry(a.who, id)
	if err != nil {
		return api.Server{}, err
	}
	if err := g.o.Wallet.Finish(a.ctx(), e.Credentials(), a.args["flow"], a.who.Name, in.Query); err != nil {
		return api.Server{}, err
	}
	g.reg.Forget(id)
	g.reg.Retry(id)
	return g.server(a, none{})
}

func (g *Gateway) logout(a *ask, _ none) (api.Server, error) {
	id := a.args["server"]
	e, err := g.loginEntry(a.who, id)
	if err != nil {
		return api.Server{}, err
	}
	if err := g.o.Wallet.Logout(a.ctx(), e.Credentials(), a.who.Name); err != nil {
		return api.Server{}, err
	}
	g.reg.Forget(id)
	return g.server(a, none{})
}
