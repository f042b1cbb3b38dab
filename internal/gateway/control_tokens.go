package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

// listTokens names the tokens; what they are is not known here.
func (g *Gateway) listTokens(a *ask, _ none) (api.TokenList, error) {
	kept, err := g.o.Tokens.Tokens(a.ctx())
	if err != nil {
		return api.TokenList{}, err
	}
	lost, err := g.o.Tokens.TokensLost(a.ctx())
	if err != nil {
		return api.TokenList{}, err
	}
	out := api.TokenList{Tokens: []api.Token{}, Lost: lost}
	for _, t := range g.reg.Catalog().Config.Auth.Tokens {
		out.Tokens = append(out.Tokens, api.Token{Name: t.Name, Role: orUser(t.Role), Config: true})
	}
	for _, t := range kept {
		out.Tokens = append(out.Tokens, shownToken(t))
	}
	return out, nil
}

func shownToken(t store.Token) api.Token {
	return api.Token{Name: t.Name, Role: orUser(t.Role), Created: t.Created, Expires: t.Expires, Unconfirmed: t.Unconfirmed}
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
	case in.Expires.Year() > identity.LastYear:
		return out, invalid("expires is after the year %d, which can't be kept; leave it out for never", identity.LastYear)
	}
	// Whoever asks may hang up: what is kept and who may come in must agree.
	ctx := context.WithoutCancel(a.ctx())
	g.reloading.Lock()
	defer g.reloading.Unlock()
	kept, err := g.o.Tokens.Tokens(ctx)
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
	if err := g.o.Tokens.PutToken(ctx, t); err != nil {
		return out, err
	}
	if err := g.admitted(ctx, cfg); err != nil {
		return out, err
	}
	g.log.Info("token made", "name", t.Name, "role", t.Role, "by", a.who.Name)
	return api.CreatedToken{Token: shownToken(t), Secret: secret}, nil
}

// confirmToken accepts a token that came back with a backup. Confirming a token
// that was never unconfirmed changes nothing.
func (g *Gateway) confirmToken(a *ask, _ none) (api.Token, error) {
	t, err := g.changeToken(a, "it needs no confirmation", func(t *store.Token) error {
		t.Unconfirmed = false
		return nil
	})
	if err != nil {
		return api.Token{}, err
	}
	g.log.Info("token confirmed", "name", t.Name, "by", a.who.Name)
	return shownToken(t), nil
}

// confirmLost lets everybody in again after a restore that found no tokens.
func (g *Gateway) confirmLost(a *ask, _ none) (api.TokenList, error) {
	ctx := context.WithoutCancel(a.ctx())
	g.reloading.Lock()
	defer g.reloading.Unlock()
	if err := errors.Join(g.o.Tokens.ConfirmLost(ctx), g.admitted(ctx, g.reg.Catalog().Config)); err != nil {
		return api.TokenList{}, err
	}
	g.log.Info("confirmed that tokens were lost", "by", a.who.Name)
	return g.listTokens(a, none{})
}

// rotateToken changes the secret of a principal. The principal keeps its sessions,
// and the tokens of those sessions stay valid.
func (g *Gateway) rotateToken(a *ask, _ none) (api.CreatedToken, error) {
	secret := identity.NewToken()
	t, err := g.changeToken(a, "change it there", func(t *store.Token) error {
		if !t.Expires.IsZero() && !time.Now().Before(t.Expires) {
			return &api.Error{Kind: api.KindInvalid, Status: http.StatusConflict, Message: "token " + strconv.Quote(t.Name) + " has expired; revoke it and make a new one of that name, which has the same sessions"}
		}
		t.Hash, t.Created, t.Unconfirmed = identity.HashToken(secret), time.Now(), false
		return nil
	})
	if err != nil {
		return api.CreatedToken{}, err
	}
	g.log.Info("token rotated", "name", t.Name, "by", a.who.Name)
	return api.CreatedToken{Token: shownToken(t), Secret: secret}, nil
}

// changeToken edits the token of the state folder that a request names, stores it
// and lets the change take effect. inConfig says what to do about a token that the
// config has.
func (g *Gateway) changeToken(a *ask, inConfig string, edit func(*store.Token) error) (t store.Token, err error) {
	ctx := context.WithoutCancel(a.ctx())
	g.reloading.Lock()
	defer g.reloading.Unlock()
	kept, err := g.o.Tokens.Tokens(ctx)
	if err != nil {
		return t, err
	}
	cfg, name := g.reg.Catalog().Config, a.args["token"]
	at := slices.IndexFunc(kept, func(t store.Token) bool { return t.Name == name })
	if at < 0 {
		return t, noToken(cfg, name, inConfig)
	}
	t = kept[at]
	if err := edit(&t); err != nil {
		return t, err
	}
	if err := g.o.Tokens.PutToken(ctx, t); err != nil {
		return t, err
	}
	return t, g.admitted(ctx, cfg)
}

// noToken is the error for a name that no token of the state folder has.
func noToken(cfg *config.Config, name, mend string) error {
	for _, t := range cfg.Auth.Tokens {
		if t.Name == name {
			return &api.Error{Kind: api.KindInvalid, Status: http.StatusConflict, Message: "token " + strconv.Quote(name) + " stands in the config; " + mend}
		}
	}
	return &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no token " + strconv.Quote(name) + "; `tine token list` lists them"}
}

// newSessionToken gives a session another token.
func (g *Gateway) newSessionToken(a *ask, _ none) (out api.OpenedSession, err error) {
	s, err := g.usable(a.ctx(), a.who, a.args["session"])
	if err != nil {
		return out, err
	}
	token, err := g.reg.NewToken(a.ctx(), s)
	if err != nil {
		return out, err
	}
	g.guarded.Swap(newSignal()).raise() // who came in by the old one is out
	g.log.Info("session has another token", "session", s.ID, "by", a.who.Name)
	return api.OpenedSession{Session: g.shown(a, g.reg.Describe(s, true)), Token: token}, nil
}

// revokeToken makes a token useless at once.
func (g *Gateway) revokeToken(a *ask, _ none) (out api.Token, err error) {
	name := a.args["token"]
	ctx := context.WithoutCancel(a.ctx())
	g.reloading.Lock()
	defer g.reloading.Unlock()
	kept, err := g.o.Tokens.Tokens(ctx)
	if err != nil {
		return out, err
	}
	cfg := g.reg.Catalog().Config
	for _, t := range kept {
		if t.Name != name {
			continue
		}
		err := g.o.Tokens.DeleteToken(ctx, name)
		// Also where that failed: it may have been deleted all the same.
		if err := errors.Join(err, g.admitted(ctx, cfg)); err != nil {
			return out, err
		}
		g.log.Info("token revoked", "name", name, "by", a.who.Name)
		return shownToken(t), nil
	}
	return out, noToken(cfg, name, "remove it from auth.tokens there")
}
