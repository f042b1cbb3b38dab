package control

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
)

// Worlds are the sessions of agents. There is no caller: what is done is done for the
// owner, of whom there is a note, with the rules as they are by now.
type Worlds struct {
	*core
	snapshots *Snapshots
	entries   config.Options // for reading inline servers
}

// A World is the session of an agent.
type World struct {
	Session string
	Owner   string
	Pinned  json.RawMessage // see identity.Pin
	Labels  map[string]string
	// From is the snapshot that it begins with; empty for none.
	From string
	// Servers are references to servers of the config, and Inline servers of its own, as
	// entries of a config by their names. There may be none of both.
	Servers []string
	Inline  map[string]json.RawMessage
	Made    string // who defined Inline; see access.MadeByFile
	// Parent is the session of the agent that started this one, which is told as a label:
	// it is no fork of that.
	Parent string
}

// labelParent is the label of a world that was started from another one.
const labelParent = "agent/parent"

// none is the time to live of worlds, and how long they may be unused: the coordinator
// closes them.
const none = -1

// Open opens the session of a world, or brings the servers of one that is open to those
// of the world. The same again changes nothing.
func (c *Worlds) Open(ctx context.Context, w World) error {
	if !c.host.Admits(w.Owner, w.Pinned) {
		return &api.Error{Kind: api.KindRefused, Status: http.StatusForbidden, Message: "the owner of session " + w.Session + " is refused: its token was revoked, has expired or is unconfirmed"}
	}
	who, l, err := c.list(w)
	if err != nil {
		return err
	}
	labels := maps.Clone(w.Labels)
	if w.Parent != "" {
		if labels == nil {
			labels = make(map[string]string, 1)
		}
		labels[labelParent] = w.Parent
	}
	if err := api.ValidLabels(labels); err != nil {
		return err
	}
	o := session.OpenOptions{
		ID: w.Session, Owner: session.Owner{Name: w.Owner, Pinned: w.Pinned}, Labels: labels,
		List: &l, TTL: none, Idle: none, Secrets: c.host.Secrets,
	}
	if w.From != "" && c.reg.Get(w.Session) == nil {
		snap, err := c.snapshots.Usable(who, w.From)
		if err != nil {
			return err
		}
		o.From = snap.ID
	}
	s, opened, err := c.reg.OpenAs(ctx, o)
	if err != nil {
		return access.Unnamed(who, err)
	}
	if opened {
		c.log.Info("session of an agent opened", "session", s.ID, "owner", w.Owner)
		return nil
	}
	return c.adapt(ctx, who, s, l)
}

// Adapt brings the servers of a world that is open to its list.
func (c *Worlds) Adapt(ctx context.Context, w World) error {
	who, l, err := c.list(w)
	if err != nil {
		return err
	}
	s, err := c.find(ctx, w.Session, w.Owner)
	if err != nil {
		return err
	}
	if s == nil {
		return NoSession(w.Session)
	}
	return c.adapt(ctx, who, s, l)
}

func (c *Worlds) adapt(ctx context.Context, who identity.Principal, s *session.Session, l catalog.List) error {
	_, err := c.reg.Adapt(ctx, s, session.AdaptOptions{List: l, Secrets: c.host.Secrets})
	return access.Unnamed(who, err)
}

// Close closes the session of a world, unless that is done.
func (c *Worlds) Close(ctx context.Context, id, owner string) error {
	s, err := c.find(ctx, id, owner)
	var e *api.Error
	switch {
	case errors.As(err, &e) && (e.Status == http.StatusGone || e.Status == http.StatusNotFound):
		return nil
	case err != nil || s == nil:
		return err
	}
	if err := c.host.EndSession(context.WithoutCancel(ctx), s); err != nil {
		return err
	}
	c.log.Info("session of an agent closed", "session", id)
	return nil
}

// Exists reports whether the session of a world is open. One that is not served for now
// is an error that says why.
func (c *Worlds) Exists(ctx context.Context, id, owner string) (bool, error) {
	s, err := c.find(ctx, id, owner)
	var e *api.Error
	if errors.As(err, &e) && (e.Status == http.StatusGone || e.Status == http.StatusNotFound) {
		return false, nil
	}
	return s != nil, err
}

// Mint makes a token for a run in a world, which reaches these servers of it and no
// others. With a ttl of zero it lasts as long as the session.
func (c *Worlds) Mint(ctx context.Context, id, run string, servers []string, ttl time.Duration) (string, error) {
	s := c.reg.Get(id)
	if s == nil {
		return "", NoSession(id)
	}
	only := sortedOnce(servers)
	if only == nil {
		only = []string{} // nil would be all
	}
	_, token, err := c.reg.MintToken(ctx, s, session.MintOptions{Run: run, Servers: only, TTL: ttl})
	return token, err
}

// Revoke makes the tokens of a run worthless at once.
func (c *Worlds) Revoke(ctx context.Context, id, run string) error {
	s := c.reg.Get(id)
	if s == nil {
		return nil // they went with it
	}
	n, err := c.reg.RevokeTokens(ctx, s, func(t store.SessionToken) bool { return t.Run == run })
	if n > 0 {
		c.host.Readmit() // who came in by them is out
	}
	return err
}

// find finds the open session of an owner. One that was closed, and one that there never
// was, is an error that says so.
func (c *Worlds) find(ctx context.Context, id, owner string) (*session.Session, error) {
	if s := c.reg.Get(id); s != nil {
		if s.Owner != owner {
			return nil, &api.Error{Kind: api.KindRefused, Status: http.StatusForbidden, Message: "session " + Clip(id) + " is another owner's"}
		}
		return s, nil
	}
	if u, ok := c.reg.Unserved(id); ok {
		return nil, &api.Error{Kind: api.KindRefused, Status: http.StatusConflict, Message: "session " + id + " is not served: " + u.Why + "; " + u.Mend}
	}
	was, ok, err := c.reg.Closed(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case ok:
		return nil, ended(was)
	}
	return nil, NoSession(id)
}

// list checks what a world is to have, for its owner, and reads its inline servers.
func (c *Worlds) list(w World) (who identity.Principal, l catalog.List, err error) {
	cfg := c.reg.Catalog().Config
	who = access.Owner(cfg, w.Owner, w.Pinned)
	for _, id := range w.Servers {
		if !access.Starts(who, id) || c.reg.Catalog().Entry(id) == nil {
			return who, l, NoServer(Clip(id))
		}
	}
	l.Servers = w.Servers
	for _, id := range slices.Sorted(maps.Keys(w.Inline)) {
		public, err := access.Defines(w.Made, Clip(id), w.Inline[id])
		if err != nil {
			return who, l, err
		}
		s, warnings, err := cfg.Inline(id, w.Inline[id], c.entries)
		if err != nil {
			return who, l, &api.Error{Kind: api.KindInvalid, Server: Clip(id), Message: err.Error()}
		}
		if c.reg.Catalog().Entry(id) == nil && !access.Starts(who, id) {
			return who, l, &api.Error{
				Kind: api.KindRefused, Server: id, Status: http.StatusForbidden,
				Message: config.InlineKey + "." + id + ": no rule gives its owner a server of this name; have it named in the servers of a rule (auth.rules)",
			}
		}
		for _, text := range warnings {
			c.log.Warn("an inline server of an agent", "session", w.Session, "warning", text)
		}
		s.Public = public
		l.Inline = append(l.Inline, s)
	}
	return who, l, nil
}
