package control

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
)

const (
	// usualTokenTTL is how long a further token of a session is good for, and maxTokenTTL the
	// most that may be asked for.
	usualTokenTTL = 24 * time.Hour
	maxTokenTTL   = 366 * 24 * time.Hour
)

// MintToken makes a further token of a session. It is for the session's owner and for
// operators: what a token limits, its holder can't undo with another one.
func (c *Sessions) MintToken(ctx context.Context, r Request, id string, in api.NewSessionToken) (api.MintedToken, error) {
	o, err := mintOptions(r.Who, in)
	if err != nil {
		return api.MintedToken{}, err
	}
	return once(ctx, c.core, r, in, func(ctx context.Context, _ string) (out api.MintedToken, undo func(context.Context), err error) {
		s, err := c.Usable(ctx, r.Who, id)
		if err != nil {
			return out, nil, err
		}
		for _, server := range o.Servers {
			if e := s.Catalog().Entry(server); e == nil || e.Base() != server || !access.Knows(r.Who, server) {
				return out, nil, NoServer(server)
			}
		}
		t, token, err := c.reg.MintToken(ctx, s, o)
		if err != nil {
			return out, nil, err
		}
		c.log.Info("session has a further token", "session", s.ID, "id", t.ID, "run", t.Run, "by", r.Who.Name)
		undo = func(ctx context.Context) {
			if err := c.reg.RevokeToken(ctx, s, t.ID); err != nil {
				c.log.Warn("a token that was not answered stays until it expires", "session", s.ID, "id", t.ID, "err", err)
			}
		}
		return api.MintedToken{SessionToken: shownMinted(t), Token: token}, undo, nil
	})
}

// mintOptions checks a request for a further token.
func mintOptions(who identity.Principal, in api.NewSessionToken) (o session.MintOptions, err error) {
	if who.Session != "" {
		return o, &api.Error{Kind: api.KindRefused, Status: http.StatusForbidden, Message: "a session's token makes no further ones; the session's owner does"}
	}
	ttl, err := duration("ttl", in.TTL)
	switch {
	case err != nil:
		return o, err
	case ttl > maxTokenTTL:
		return o, Invalid("ttl must be at most %s, or 0s for as long as the session; %q is more", maxTokenTTL, Clip(in.TTL))
	case ttl == 0:
		ttl = usualTokenTTL
	}
	if in.Run != "" && !identity.ValidName(in.Run) {
		return o, Invalid("run must be 1 to 64 letters, digits, dots, dashes, underscores and @; %q is none", Clip(in.Run))
	}
	o = session.MintOptions{Run: in.Run, TTL: max(ttl, 0)}
	if o.Servers, err = mintServers(in.Servers); err != nil {
		return o, err
	}
	for _, right := range in.Allow {
		switch {
		case !slices.Contains(api.Allows[:], right):
			return o, Invalid("allow: there is no right %q; there are %s", Clip(right), strings.Join(api.Allows[:], ", "))
		case in.Servers != nil && access.Whole(right):
			return o, Invalid("allow: %s reaches all servers of the session, and does not go with servers", right)
		}
	}
	o.Allow = sortedOnce(in.Allow)
	return o, nil
}

// mintServers are the servers of a request, in order, each once: nil for all.
func mintServers(in []string) ([]string, error) {
	for _, id := range in {
		if id == "" || access.Base(id) != id {
			return nil, Invalid("servers: %q is no name of a server; a token reaches all instances of a server, or none", Clip(id))
		}
	}
	return sortedOnce(in), nil
}

// sortedOnce keeps nil nil, and an empty list empty.
func sortedOnce(texts []string) []string {
	texts = slices.Clone(texts)
	slices.Sort(texts)
	return slices.Compact(texts)
}

func shownMinted(t store.SessionToken) api.SessionToken {
	return api.SessionToken{ID: t.ID, Session: t.Session, Run: t.Run, Servers: t.Servers, Allow: t.Allow, Created: t.Created, Expires: t.Expires}
}

// TokensOf lists the further tokens of a session that have not expired, the oldest first.
func (c *Sessions) TokensOf(ctx context.Context, who identity.Principal, id string) (api.SessionTokenList, error) {
	out := api.SessionTokenList{Tokens: []api.SessionToken{}}
	s, err := c.Usable(ctx, who, id)
	if err != nil {
		return out, err
	}
	for _, t := range c.reg.Minted(s) {
		shown := shownMinted(t)
		if shown.Servers != nil {
			shown.Servers = slices.DeleteFunc(slices.Clone(shown.Servers), func(server string) bool { return !access.Knows(who, server) })
		}
		out.Tokens = append(out.Tokens, shown)
	}
	return out, nil
}

// RevokeToken makes one further token of a session worthless at once.
func (c *Sessions) RevokeToken(ctx context.Context, who identity.Principal, id, token string) error {
	s, err := c.Usable(ctx, who, id)
	if err != nil {
		return err
	}
	if err := c.reg.RevokeToken(ctx, s, token); err != nil {
		return err
	}
	c.host.Readmit() // who came in by it is out
	c.log.Info("token of a session revoked", "session", s.ID, "id", token, "by", who.Name)
	return nil
}

// RevokeTokens makes all further tokens of a run worthless at once, and returns how many
// there were. A session that is closed has none.
func (c *Sessions) RevokeTokens(ctx context.Context, who identity.Principal, id, run string) (int, error) {
	if run == "" {
		return 0, Invalid("run must name the run whose tokens are revoked")
	}
	s, was, err := c.Seen(ctx, who, id)
	if err != nil {
		return 0, err
	}
	if !access.Uses(who, access.Thing{Owner: was.Owner, Session: id}) {
		return 0, access.Need(who, api.RoleOperator)
	}
	if s == nil {
		return 0, nil
	}
	n, err := c.reg.RevokeTokens(ctx, s, func(t store.SessionToken) bool { return t.Run == run })
	if err != nil {
		return 0, fmt.Errorf("revoking the tokens of run %s: %w", run, err)
	}
	if n > 0 {
		c.host.Readmit()
		c.log.Info("tokens of a run revoked", "session", s.ID, "run", run, "tokens", n, "by", who.Name)
	}
	return n, nil
}
