package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream/record"
)

// Sessions is what can be done to sessions.
type Sessions struct {
	*core
	snapshots *Snapshots
}

// shown is a session as it is answered.
func (c *Sessions) shown(who identity.Principal, s api.Session) api.Session {
	s.Members = slices.DeleteFunc(s.Members, func(m api.Member) bool { return !access.Knows(who, access.Base(m.Server)) })
	this := access.Thing{Owner: s.Owner, Session: s.ID}
	for i := range s.Members {
		m := &s.Members[i]
		if !access.Hears(who, nil) && !(m.Own && access.Hears(who, &this)) {
			m.Words = ""
		}
		if !m.Own && !(who.Session == "" && who.Is(api.RoleViewer)) {
			m.Process = nil // others use it too
		}
		m.Reason, m.Words = c.redact.Text(m.Reason), c.redact.Text(m.Words)
	}
	s.Damaged = c.shownDamage(who, this, s.Damaged)
	if s.Workspace != nil && s.Workspace.Kind == "folder" && !who.Is(api.RoleViewer) {
		s.Workspace.Path = "" // where the gateway keeps things is not a user's business
	}
	return s
}

// shownDamage is the damage of a session or a snapshot as it is answered.
func (c *core) shownDamage(who identity.Principal, of access.Thing, all []api.Damage) []api.Damage {
	out := access.Damages(who, of, all)
	for i := range out {
		out[i].Why, out[i].Words = c.redact.Text(out[i].Why), c.redact.Text(out[i].Words)
	}
	return out
}

// A SessionFilter chooses sessions. Zero fields choose all.
type SessionFilter struct {
	Owner, Parent string
	Labels        map[string]string // all of them
	Closed        bool              // closed ones too
	// Choose is asked of each, where it is not nil.
	Choose func(api.Session) bool
	Page
}

// A Page is how many of a list there are to be at most, and after which.
type Page struct {
	Limit int
	After string // the next of an earlier answer
}

// List lists sessions, the newest first: the principal's own, or all with the role of a
// viewer.
func (c *Sessions) List(ctx context.Context, who identity.Principal, f SessionFilter) (api.SessionList, error) {
	in := store.SessionFilter{Parent: f.Parent, Closed: f.Closed, Before: f.After, Limit: f.Limit}
	if f.Owner != "" {
		in.Owner = &f.Owner
	}
	if !who.Is(api.RoleViewer) {
		if f.Owner != "" && f.Owner != who.Name {
			return api.SessionList{Sessions: []api.Session{}}, nil
		}
		in.Owner = &who.Name
	}
	choose := f.Choose
	if len(f.Labels) > 0 {
		choose = func(s api.Session) bool { return labelled(s.Labels, f.Labels) && (f.Choose == nil || f.Choose(s)) }
	}
	return c.pick(ctx, who, in, choose)
}

// Forks lists the sessions that were forked from one.
func (c *Sessions) Forks(ctx context.Context, who identity.Principal, id string, closed bool, page Page) (api.SessionList, error) {
	if _, _, err := c.Seen(ctx, who, id); err != nil {
		return api.SessionList{}, err
	}
	return c.pick(ctx, who, store.SessionFilter{Parent: id, Closed: closed, Before: page.After, Limit: page.Limit}, nil)
}

// mostLooked bounds how many sessions one page looks at for those with certain
// labels. The page may then be short, or empty, and not the last.
const mostLooked = 20000

// pick gives a page of the chosen ones; of all with a nil choose. It has a next
// where one more was found.
func (c *Sessions) pick(ctx context.Context, who identity.Principal, f store.SessionFilter, choose func(api.Session) bool) (api.SessionList, error) {
	out := api.SessionList{Sessions: []api.Session{}}
	limit := f.Limit
	if f.Limit = limit + 1; choose != nil {
		f.Limit = 1000
	}
	for looked := 0; looked < mostLooked; looked += f.Limit {
		page, more, err := c.reg.Find(ctx, f)
		if errors.Is(err, store.ErrUnknown) {
			err = Invalid("after must be the next of an earlier answer")
		}
		if err != nil {
			return out, err
		}
		for _, s := range page {
			f.Before = s.ID
			if choose != nil && !choose(s) {
				continue
			}
			if len(out.Sessions) == limit {
				out.Next = out.Sessions[limit-1].ID
				return out, nil
			}
			out.Sessions = append(out.Sessions, c.shown(who, s))
		}
		if !more {
			return out, nil
		}
	}
	out.Next = f.Before
	return out, nil
}

// Open opens a session.
func (c *Sessions) Open(ctx context.Context, r Request, in api.NewSession) (api.OpenedSession, error) {
	create, err := c.opening(r.Who, in)
	if err != nil {
		return api.OpenedSession{}, err
	}
	return once(ctx, c.core, r, in, create)
}

// OpenHeld opens a session that ends with this gateway at the latest: the caller closes it.
func (c *Sessions) OpenHeld(ctx context.Context, r Request, in api.NewSession) (api.OpenedSession, error) {
	create, err := c.openingOf(r.Who, in, true)
	if err != nil {
		return api.OpenedSession{}, err
	}
	return once(ctx, c.core, r, in, create)
}

// opening checks a request to open a session, and returns what does it.
func (c *Sessions) opening(who identity.Principal, in api.NewSession) (creation[api.OpenedSession], error) {
	return c.openingOf(who, in, false)
}

func (c *Sessions) openingOf(who identity.Principal, in api.NewSession, held bool) (creation[api.OpenedSession], error) {
	var spans spanReader
	o := session.OpenOptions{
		Owner:  session.Owner{Name: who.Name, Pinned: identity.Pin(who)},
		Labels: in.Labels, Servers: in.Servers, Eager: in.Eager, Lease: in.Lease, Held: held,
		TTL: spans.read("ttl", in.TTL), Idle: spans.read("idle", in.Idle), Wait: spans.read("wait", in.Wait),
	}
	if spans.err != nil {
		return nil, spans.err
	}
	if err := api.ValidLabels(in.Labels); err != nil {
		return nil, err
	}
	var err error
	if o.Auto, err = autosnapshot(in.Autosnapshot); err != nil {
		return nil, err
	}
	if err := c.checkServers(who, in.Servers, in.From == ""); err != nil {
		return nil, err
	}
	if err := c.checkMembers(who, in); err != nil {
		return nil, err
	}
	return func(ctx context.Context, mark string) (api.OpenedSession, func(context.Context), error) {
		o := o
		o.Creation = mark
		if in.From != "" {
			snap, err := c.snapshots.Usable(who, in.From)
			if err != nil {
				return api.OpenedSession{}, nil, err
			}
			o.From = snap.ID
		}
		var err error
		if o.Members, err = c.members(who, in.Members); err != nil {
			return api.OpenedSession{}, nil, err
		}
		s, token, err := c.reg.OpenSession(ctx, o)
		if err != nil {
			return api.OpenedSession{}, nil, access.Unnamed(who, err)
		}
		undo := func(ctx context.Context) { c.reg.CloseSession(ctx, s) }
		return api.OpenedSession{Session: c.shown(who, c.reg.Describe(s, true)), Token: token}, undo, nil
	}, nil
}

// checkServers refuses names of servers that are not there for the principal to
// use: those of the config, or any of a snapshot, which may have others.
func (c *Sessions) checkServers(who identity.Principal, servers []string, current bool) error {
	if servers != nil && len(servers) == 0 {
		return Invalid("servers must name at least one; leave it out for all")
	}
	for _, id := range servers {
		if !access.Starts(who, id) || current && c.reg.Catalog().Entry(id) == nil {
			return NoServer(id)
		}
	}
	return nil
}

// patched reads a duration that may be changed; nil where it stays.
func patched(field string, text *string) (*time.Duration, error) {
	if text == nil {
		return nil, nil
	}
	d, err := duration(field, *text)
	if err == nil && d == 0 {
		err = Invalid("%s must be a duration like 2h, or 0s for none", field)
	}
	return &d, err
}

// Get is a session, open or closed, with its members.
func (c *Sessions) Get(ctx context.Context, who identity.Principal, id string) (api.Session, error) {
	_, s, err := c.Seen(ctx, who, id)
	if err != nil {
		return s, err
	}
	return c.shown(who, s), nil
}

// Patch changes what a session is called and how long it lasts.
func (c *Sessions) Patch(ctx context.Context, who identity.Principal, id string, in api.SessionPatch) (api.Session, error) {
	if err := api.ValidLabels(in.Labels); err != nil {
		return api.Session{}, err
	}
	ttl, err := patched("ttl", in.TTL)
	if err != nil {
		return api.Session{}, err
	}
	idle, err := patched("idle", in.Idle)
	if err != nil {
		return api.Session{}, err
	}
	s, err := c.Usable(ctx, who, id)
	if err != nil {
		return api.Session{}, err
	}
	if in.Labels != nil || ttl != nil || idle != nil {
		if err := c.reg.Amend(ctx, s, in.Labels, ttl, idle); err != nil {
			return api.Session{}, err
		}
	}
	return c.shown(who, c.reg.Describe(s, true)), nil
}

// Close closes a session and what it owns, unless that is done. End is how, where it is
// not as the host does it.
func (c *Sessions) Close(ctx context.Context, r Request, id string, end func(context.Context, *session.Session) error) error {
	s, was, err := c.Seen(ctx, r.Who, id)
	if err != nil {
		return err
	}
	if !access.Uses(r.Who, access.Thing{Owner: was.Owner, Session: id}) {
		return access.Need(r.Who, api.RoleOperator)
	}
	if s == nil {
		return nil
	}
	if err := c.host.Alone(s, r.Conn, "closed"); err != nil {
		return err
	}
	if end == nil {
		end = c.host.EndSession
	}
	// The caller may hang up: a session is never left half closed.
	if err := end(context.WithoutCancel(ctx), s); err != nil {
		return err
	}
	c.log.Info("session closed", "session", id, "by", r.Who.Name)
	return nil
}

// NewToken gives a session another token in the place of the one it has.
func (c *Sessions) NewToken(ctx context.Context, r Request, id string) (api.OpenedSession, error) {
	return once(ctx, c.core, r, struct{}{}, func(ctx context.Context, _ string) (out api.OpenedSession, undo func(context.Context), err error) {
		s, err := c.Usable(ctx, r.Who, id)
		if err != nil {
			return out, nil, err
		}
		token, back, err := c.reg.NewToken(ctx, s)
		if err != nil {
			return out, nil, err
		}
		c.host.Readmit() // who came in by the old one is out
		c.log.Info("session has another token", "session", s.ID, "by", r.Who.Name)
		undo = func(ctx context.Context) {
			if err := back(ctx); err != nil {
				c.log.Warn("the token that a session had is not let in again", "session", s.ID, "err", err)
			}
		}
		return api.OpenedSession{Session: c.shown(r.Who, c.reg.Describe(s, true)), Token: token}, undo, nil
	})
}

// Trajectory tells the story of a session. It is full and not redacted: it is for
// principals who could have made the calls themselves. Of calls that were denied, and of
// annotations, it has what they may know.
func (c *Sessions) Trajectory(ctx context.Context, who identity.Principal, id string) (func(emit func(api.Step) error) error, error) {
	_, s, err := c.Seen(ctx, who, id)
	if err != nil {
		return nil, err
	}
	if !access.Uses(who, access.Thing{Owner: s.Owner, Session: id}) {
		return nil, access.Need(who, api.RoleOperator)
	}
	within := access.Thing{Owner: s.Owner, Session: id}
	return func(emit func(api.Step) error) error {
		return c.reg.Trajectory(ctx, id, func(step api.Step) error {
			if (step.Type == api.StepAnnotation || aside(step.Method)) && !access.At(who, access.Call{Thing: within, Aside: true}, &within).Row {
				return nil
			}
			if step.Journal == record.ModeDenied {
				look := access.At(who, access.Call{Thing: within, Server: step.Server, Denied: true}, &within)
				if !look.Row {
					return nil
				}
				if step.Journal = deniedMode(step.Result); !look.Reason {
					step.Error = ""
				}
			}
			if step.Kept != "" {
				all := access.Damages(who, within, []api.Damage{{Server: step.Server, Why: step.Reason, Words: step.Words}})
				if len(all) == 0 {
					return nil
				}
				step.Reason, step.Words = all[0].Why, all[0].Words
			}
			return emit(step)
		})
	}, nil
}

// Tree is the family of a session from its first ancestor on.
func (c *Sessions) Tree(ctx context.Context, who identity.Principal, id string) (api.Tree, error) {
	if _, _, err := c.Seen(ctx, who, id); err != nil {
		return api.Tree{}, err
	}
	t, err := c.reg.Family(ctx, id)
	if err != nil {
		return t, err
	}
	c.showTree(who, &t, maxTree)
	return t, nil
}

// maxTree is how many forks below its root a tree goes. Each is two levels of
// JSON, and Go's decoder, for one, gives up at 10,000.
const maxTree = 1000

func (c *Sessions) showTree(who identity.Principal, t *api.Tree, depth int) {
	t.Session = c.shown(who, t.Session)
	if depth == 0 {
		t.More, t.Children = below(t), nil
		return
	}
	for i := range t.Children {
		c.showTree(who, &t.Children[i], depth-1)
	}
}

// below counts the sessions below one.
func below(t *api.Tree) int {
	n := len(t.Children)
	for i := range t.Children {
		n += below(&t.Children[i])
	}
	return n
}
