package gateway

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

// listTokens names the tokens; what they are is not known here.
func (g *Gateway) listTokens(a *ask, _ none) (api.TokenList, error) {
	kept, err := g.o.Store.Tokens(a.ctx())
	if err != nil {
		return api.TokenList{}, err
	}
	out := api.TokenList{Tokens: []api.Token{}}
	for _, t := range g.reg.Catalog().Config.Auth.Tokens {
		out.Tokens = append(out.Tokens, api.Token{Name: t.Name, Role: orUser(t.Role), Config: true})
	}
	for _, t := range kept {
		out.Tokens = append(out.Tokens, shownToken(t))
	}
	return out, nil
}

func shownToken(t store.Token) api.Token {
	return api.Token{Name: t.Name, Role: orUser(t.Role), Created: t.Created, Expires: t.Expires}
}

func orUser(role string) string {
	if role == "" {
		return api.RoleUser
	}
	return role
}

// newToken makes a token and shows it, this once.
func (g *Gateway) newToken(a *ask, in api.NewToken) (out api.CreatedToken, err error) {
	in.Role = orUser(in.Role)
	switch {
	case !identity.ValidName(in.Name):
		return out, invalid("name must be 1 to 64 letters, digits, dots, dashes, underscores and @")
	case in.Role != api.RoleUser && in.Role != api.RoleViewer && in.Role != api.RoleOperator:
		return out, invalid("role must be user, viewer or operator")
	case !in.Expires.IsZero() && in.Expires.Before(time.Now()):
		return out, invalid("expires is over already")
	}
	// Whoever asks may hang up: what is kept and who may come in must agree.
	ctx := context.WithoutCancel(a.ctx())
	g.reloading.Lock()
	defer g.reloading.Unlock()
	kept, err := g.o.Store.Tokens(ctx)
	if err != nil {
		return out, err
	}
	cfg := g.reg.Catalog().Config
	taken := false
	for _, t := range cfg.Auth.Tokens {
		taken = taken || t.Name == in.Name
	}
	for _, t := range kept {
		taken = taken || t.Name == in.Name
	}
	if taken {
		return out, &api.Error{Kind: api.KindInvalid, Status: http.StatusConflict, Message: "there is a token " + strconv.Quote(in.Name) + " already; revoke it first, or choose another name"}
	}
	secret := identity.NewToken()
	t := store.Token{Name: in.Name, Hash: identity.HashToken(secret), Role: in.Role, Created: time.Now(), Expires: in.Expires}
	if err := g.o.Store.PutToken(ctx, t); err != nil {
		return out, err
	}
	if err := g.admitted(ctx, cfg); err != nil {
		return out, err
	}
	g.log.Info("token made", "name", t.Name, "role", t.Role, "by", a.who.Name)
	return api.CreatedToken{Token: shownToken(t), Secret: secret}, nil
}

// revokeToken makes a token useless at once.
func (g *Gateway) revokeToken(a *ask, _ none) (out api.Token, err error) {
	name := a.args["token"]
	ctx := context.WithoutCancel(a.ctx())
	g.reloading.Lock()
	defer g.reloading.Unlock()
	kept, err := g.o.Store.Tokens(ctx)
	if err != nil {
		return out, err
	}
	cfg := g.reg.Catalog().Config
	for _, t := range kept {
		if t.Name != name {
			continue
		}
		err := g.o.Store.DeleteToken(ctx, name)
		// Also where that failed: it may have been deleted all the same.
		if err := errors.Join(err, g.admitted(ctx, cfg)); err != nil {
			return out, err
		}
		g.log.Info("token revoked", "name", name, "by", a.who.Name)
		return shownToken(t), nil
	}
	for _, t := range cfg.Auth.Tokens {
		if t.Name == name {
			return out, &api.Error{Kind: api.KindInvalid, Status: http.StatusConflict, Message: "token " + strconv.Quote(name) + " stands in the config; remove it from auth.tokens there"}
		}
	}
	return out, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no token " + strconv.Quote(name) + "; `tine token list` lists them"}
}
