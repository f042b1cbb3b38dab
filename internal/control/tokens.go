package control

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
)

// Tokens is what can be done to bearer tokens. The caller may hang up: what is kept and
// who may come in agree in the end.
type Tokens struct {
	*core
	store store.Tokens
}

// List names the tokens; what they are is not known here.
func (c *Tokens) List(ctx context.Context) (api.TokenList, error) {
	kept, err := c.store.Tokens(ctx)
	if err != nil {
		return api.TokenList{}, err
	}
	lost, err := c.store.TokensLost(ctx)
	if err != nil {
		return api.TokenList{}, err
	}
	out := api.TokenList{Tokens: []api.Token{}, Lost: lost}
	for _, t := range c.reg.Catalog().Config.Auth.Tokens {
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

// New makes a token and shows it, this once.
func (c *Tokens) New(ctx context.Context, who identity.Principal, in api.NewToken) (out api.CreatedToken, err error) {
	in.Role = orUser(in.Role)
	switch {
	case !identity.ValidName(in.Name):
		return out, Invalid("name must be 1 to 64 letters, digits, dots, dashes, underscores and @")
	case in.Role != api.RoleUser && in.Role != api.RoleViewer && in.Role != api.RoleOperator:
		return out, Invalid("role must be user, viewer or operator")
	case !in.Expires.IsZero() && in.Expires.Before(time.Now()):
		return out, Invalid("expires is over already")
	case in.Expires.Year() > identity.LastYear:
		return out, Invalid("expires is after the year %d, which can't be kept; leave it out for never", identity.LastYear)
	}
	secret := identity.NewToken()
	t := store.Token{Name: in.Name, Hash: identity.HashToken(secret), Role: in.Role, Created: time.Now(), Expires: in.Expires}
	err = c.host.Admit(ctx, func(ctx context.Context) error {
		return c.store.ChangeToken(ctx, in.Name, func(kept *store.Token) (*store.Token, error) {
			if kept != nil || inConfig(c.reg.Catalog().Config, in.Name) {
				return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusConflict, Message: "there is a token " + strconv.Quote(in.Name) + " already; replace it with `tine token rotate " + in.Name + "`, revoke it, or choose another name"}
			}
			return &t, nil
		})
	})
	if err != nil {
		return out, err
	}
	c.log.Info("token made", "name", t.Name, "role", t.Role, "by", who.Name)
	return api.CreatedToken{Token: shownToken(t), Secret: secret}, nil
}

// Confirm accepts a token that came back with a backup. Confirming a token that was never
// unconfirmed changes nothing.
func (c *Tokens) Confirm(ctx context.Context, who identity.Principal, name string) (api.Token, error) {
	t, err := c.change(ctx, name, "it needs no confirmation", func(t *store.Token) (*store.Token, error) {
		t.Unconfirmed = false
		return t, nil
	})
	if err != nil {
		return api.Token{}, err
	}
	c.log.Info("token confirmed", "name", t.Name, "by", who.Name)
	return shownToken(t), nil
}

// ConfirmLost lets callers in again after a restore that found no tokens.
func (c *Tokens) ConfirmLost(ctx context.Context, who identity.Principal) (api.TokenList, error) {
	if err := c.host.Admit(ctx, c.store.ConfirmLost); err != nil {
		return api.TokenList{}, err
	}
	c.log.Info("confirmed that tokens were lost", "by", who.Name)
	return c.List(ctx)
}

// Rotate changes the secret of a principal. The principal keeps its sessions, and the
// tokens of those sessions stay valid.
func (c *Tokens) Rotate(ctx context.Context, who identity.Principal, name string) (api.CreatedToken, error) {
	secret := identity.NewToken()
	t, err := c.change(ctx, name, "change it there", func(t *store.Token) (*store.Token, error) {
		if !t.Expires.IsZero() && !time.Now().Before(t.Expires) {
			return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusConflict, Message: "token " + strconv.Quote(t.Name) + " has expired; revoke it and make a new one of that name, which has the same sessions"}
		}
		t.Hash, t.Created, t.Unconfirmed = identity.HashToken(secret), time.Now(), false
		return t, nil
	})
	if err != nil {
		return api.CreatedToken{}, err
	}
	c.log.Info("token rotated", "name", t.Name, "by", who.Name)
	return api.CreatedToken{Token: shownToken(t), Secret: secret}, nil
}

// Revoke makes a token useless at once.
func (c *Tokens) Revoke(ctx context.Context, who identity.Principal, name string) (api.Token, error) {
	t, err := c.change(ctx, name, "remove it from auth.tokens there", func(*store.Token) (*store.Token, error) { return nil, nil })
	if err != nil {
		return api.Token{}, err
	}
	c.log.Info("token revoked", "name", name, "by", who.Name)
	return shownToken(t), nil
}

// change changes a token of the state folder, lets the change take effect, and returns the
// token. Mend says what to do about a token that the config has.
func (c *Tokens) change(ctx context.Context, name, mend string, change func(*store.Token) (*store.Token, error)) (t store.Token, err error) {
	err = c.host.Admit(ctx, func(ctx context.Context) error {
		return c.store.ChangeToken(ctx, name, func(kept *store.Token) (*store.Token, error) {
			switch {
			case kept != nil:
				next, err := change(kept)
				t = *kept
				return next, err
			case inConfig(c.reg.Catalog().Config, name):
				return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusConflict, Message: "token " + strconv.Quote(name) + " stands in the config; " + mend}
			}
			return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no token " + strconv.Quote(name) + "; `tine token list` lists them"}
		})
	})
	return t, err
}

func inConfig(cfg *config.Config, name string) bool {
	return slices.ContainsFunc(cfg.Auth.Tokens, func(t config.Token) bool { return t.Name == name })
}
