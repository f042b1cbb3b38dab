package gateway

import (
	"net/http"
	"strconv"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
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
		if err := need(who, api.RoleOperator); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (g *Gateway) beginLogin(w http.ResponseWriter, r *http.Request, who identity.Principal, id string) (any, error) {
	e, err := g.loginEntry(who, id)
	if err != nil {
		return nil, err
	}
	var in api.LoginRequest
	if err := g.decode(w, r, &in); err != nil {
		return nil, err
	}
	return g.o.Wallet.Begin(r.Context(), e.Credentials(), who.Name, in.Redirect)
}

func (g *Gateway) finishLogin(w http.ResponseWriter, r *http.Request, who identity.Principal, id, flow string) (any, error) {
	e, err := g.loginEntry(who, id)
	if err != nil {
		return nil, err
	}
	var in api.LoginFinish
	if err := g.decode(w, r, &in); err != nil {
		return nil, err
	}
	if err := g.o.Wallet.Finish(r.Context(), e.Credentials(), flow, who.Name, in.Query); err != nil {
		return nil, err
	}
	g.reg.Forget(id)
	g.reg.Retry(id)
	return g.server(r, who, id)
}

func (g *Gateway) logout(r *http.Request, who identity.Principal, id string) (any, error) {
	e, err := g.loginEntry(who, id)
	if err != nil {
		return nil, err
	}
	if err := g.o.Wallet.Logout(r.Context(), e.Credentials(), who.Name); err != nil {
		return nil, err
	}
	g.reg.Forget(id)
	return g.server(r, who, id)
}
