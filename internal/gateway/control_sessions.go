package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream/record"
)

// urlOf is where a session's MCP endpoint is, as the caller knows the gateway;
// empty for one that came in by no URL.
func (g *Gateway) urlOf(r *http.Request, id string) string {
	e := g.edge.Load()
	if r.Host == "" && e.public == "" {
		return ""
	}
	return e.base(r) + "/s/" + id + "/mcp"
}

// shown is a session as it is answered.
func (g *Gateway) shown(a *ask, s api.Session) api.Session {
	if s.Closed.IsZero() {
		s.URL = g.urlOf(a.r, s.ID)
	}
	s.Members = slices.DeleteFunc(s.Members, func(m api.Member) bool { return !access.Knows(a.who, access.Base(m.Server)) })
	this := access.Thing{Owner: s.Owner, Session: s.ID}
	for i := range s.Members {
		m := &s.Members[i]
		if !access.Hears(a.who, nil) && !(m.Own && access.Hears(a.who, &this)) {
			m.Words = ""
		}
		m.Reason, m.Words = g.o.Redact.Text(m.Reason), g.o.Redact.Text(m.Words)
	}
	s.Damaged = g.shownDamage(a.who, this, s.Damaged)
	if s.Workspace != nil && s.Workspace.Kind == "folder" && !a.who.Is(api.RoleViewer) {
		s.Workspace.Path = "" // where the gateway keeps things is not a user's business
	}
	return s
}

// shownDamage is the damage of a session or a snapshot as it is answered.
func (g *Gateway) shownDamage(who identity.Principal, of access.Thing, all []api.Damage) []api.Damage {
	out := access.Damages(who, of, all)
	for i := range out {
		out[i].Why, out[i].Words = g.o.Redact.Text(out[i].Why), g.o.Redact.Text(out[i].Words)
	}
	return out
}

type sessionQuery struct {
	Owner  string   `query:"owner" doc:"only sessions of this principal"`
	Parent string   `query:"parent" doc:"only sessions that were forked from this one"`
	Label  []string `query:"label" doc:"only sessions with this label, as key=value; all of them when repeated"`
	Closed bool     `query:"closed" doc:"closed sessions too"`
	Limit  int64    `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	After  string   `query:"after" doc:"the next of an earlier answer"`
}

func (g *Gateway) listSessions(a *ask, q sessionQuery) (api.SessionList, error) {
	f := store.SessionFilter{Parent: q.Parent, Closed: q.Closed, Before: q.After, Limit: int(q.Limit)}
	if q.Owner != "" {
		f.Owner = &q.Owner
	}
	if !a.who.Is(api.RoleViewer) {
		if q.Owner != "" && q.Owner != a.who.Name {
			return api.SessionList{Sessions: []api.Session{}}, nil
		}
		f.Owner = &a.who.Name
	}
	return g.findSessions(a, f, q.Label)
}

type forkQuery struct {
	Closed bool   `query:"closed" doc:"closed sessions too"`
	Limit  int64  `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	After  string `query:"after" doc:"the next of an earlier answer"`
}

func (g *Gateway) listForks(a *ask, q forkQuery) (api.SessionList, error) {
	id := a.args["session"]
	if _, _, err := g.seen(a.ctx(), a.who, id); err != nil {
		return api.SessionList{}, err
	}
	return g.findSessions(a, store.SessionFilter{Parent: id, Closed: q.Closed, Before: q.After, Limit: int(q.Limit)}, nil)
}

// mostLooked bounds how many sessions one page looks at for those with certain
// labels. The page may then be short, or empty, and not the last.
const mostLooked = 20000

func (g *Gateway) findSessions(a *ask, f store.SessionFilter, labels []string) (api.SessionList, error) {
	want, err := readLabels(labels)
	if err != nil {
		return api.SessionList{}, err
	}
	if len(want) == 0 {
		return g.pickSessions(a, f, nil)
	}
	return g.pickSessions(a, f, func(s api.Session) bool { return labelled(s.Labels, want) })
}

// pickSessions gives a page of those that are chosen; of all with a nil choose. It
// has a next where one more was found.
func (g *Gateway) pickSessions(a *ask, f store.SessionFilter, choose func(api.Session) bool) (api.SessionList, error) {
	out := api.SessionList{Sessions: []api.Session{}}
	limit := f.Limit
	if f.Limit = limit + 1; choose != nil {
		f.Limit = 1000
	}
	for looked := 0; looked < mostLooked; looked += f.Limit {
		page, more, err := g.reg.Find(a.ctx(), f)
		if errors.Is(err, store.ErrUnknown) {
			err = invalid("after must be the next of an earlier answer")
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
			out.Sessions = append(out.Sessions, g.shown(a, s))
		}
		if !more {
			return out, nil
		}
	}
	out.Next = f.Before
	return out, nil
}

func (g *Gateway) openSession(a *ask, in api.NewSession) (api.OpenedSession, error) {
	var spans spanReader
	o := session.OpenOptions{
		Owner:  session.Owner{Name: a.who.Name, Pinned: identity.Pin(a.who)},
		Labels: in.Labels, Servers: in.Servers, Eager: in.Eager,
		TTL: spans.read("ttl", in.TTL), Idle: spans.read("idle", in.Idle), Wait: spans.read("wait", in.Wait),
	}
	if spans.err != nil {
		return api.OpenedSession{}, spans.err
	}
	if err := api.ValidLabels(in.Labels); err != nil {
		return api.OpenedSession{}, err
	}
	var err error
	if o.Auto, err = autosnapshot(in.Autosnapshot); err != nil {
		return api.OpenedSession{}, err
	}
	if err := g.checkServers(a.who, in.Servers, in.From == ""); err != nil {
		return api.OpenedSession{}, err
	}
	if err := g.checkMembers(a.who, in); err != nil {
		return api.OpenedSession{}, err
	}
	return once(g, a, in, func(ctx context.Context, mark string) (api.OpenedSession, func(context.Context), error) {
		o.Creation = mark
		if in.From != "" {
			snap, err := g.usableSnapshot(a.who, in.From)
			if err != nil {
				return api.OpenedSession{}, nil, err
			}
			o.From = snap.ID
		}
		if o.Members, err = g.members(a.who, in.Members); err != nil {
			return api.OpenedSession{}, nil, err
		}
		s, token, err := g.reg.OpenSession(ctx, o)
		if err != nil {
			return api.OpenedSession{}, nil, access.Unnamed(a.who, err)
		}
		undo := func(ctx context.Context) { g.reg.CloseSession(ctx, s) }
		return api.OpenedSession{Session: g.shown(a, g.reg.Describe(s, true)), Token: token}, undo, nil
	})
}

// checkServers refuses names of servers that are not there for the principal to
// use: those of the config, or any of a snapshot, which may have others.
func (g *Gateway) checkServers(who identity.Principal, servers []string, current bool) error {
	if servers != nil && len(servers) == 0 {
		return invalid("servers must name at least one; leave it out for all")
	}
	for _, id := range servers {
		if !access.Starts(who, id) || current && g.reg.Catalog().Entry(id) == nil {
			return noServer(id)
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
		err = invalid("%s must be a duration like 2h, or 0s for none", field)
	}
	return &d, err
}

func (g *Gateway) getSession(a *ask, _ none) (api.Session, error) {
	_, s, err := g.seen(a.ctx(), a.who, a.args["session"])
	if err != nil {
		return s, err
	}
	return g.shown(a, s), nil
}

func (g *Gateway) patchSession(a *ask, in api.SessionPatch) (api.Session, error) {
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
	s, err := g.usable(a.ctx(), a.who, a.args["session"])
	if err != nil {
		return api.Session{}, err
	}
	if in.Labels != nil || ttl != nil || idle != nil {
		if err := g.reg.Amend(a.ctx(), s, in.Labels, ttl, idle); err != nil {
			return api.Session{}, err
		}
	}
	return g.shown(a, g.reg.Describe(s, true)), nil
}

func (g *Gateway) closeSession(a *ask, _ none) (none, error) {
	return none{}, g.closeWith(a, g.endSession)
}

// closeWith closes a session in some way, unless it is closed already.
func (g *Gateway) closeWith(a *ask, end func(context.Context, *session.Session) error) error {
	id := a.args["session"]
	s, was, err := g.seen(a.ctx(), a.who, id)
	if err != nil {
		return err
	}
	if !mayUse(a.who, was.Owner, id) {
		return access.Need(a.who, api.RoleOperator)
	}
	if s != nil {
		if err := g.alone(a, s, "closed"); err != nil {
			return err
		}
		// Whoever asked may hang up: a session is never left half closed.
		if err := end(context.WithoutCancel(a.ctx()), s); err != nil {
			return err
		}
		g.log.Info("session closed", "session", id, "by", a.who.Name)
	}
	return nil
}

type sessionCallQuery struct {
	Server string `query:"server" doc:"only calls to this server"`
	Failed bool   `query:"failed" doc:"only calls whose outcome is not ok"`
	Before string `query:"before" doc:"the next of an earlier answer"`
	Limit  int64  `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	Follow bool   `query:"follow" doc:"a stream of what is called from now on, oldest first"`
}

func (g *Gateway) sessionCalls(a *ask, q sessionCallQuery) (callPage, error) {
	id := a.args["session"]
	_, s, err := g.seen(a.ctx(), a.who, id)
	if err != nil {
		return callPage{}, err
	}
	within := &access.Thing{Owner: s.Owner, Session: id}
	return g.listCalls(a, store.CallFilter{Server: q.Server, Session: id, Failed: q.Failed}, within, q.Before, q.Limit, q.Follow)
}

// trajectory is full and not redacted: it is for those who could have made the
// calls themselves. Of calls that were denied it has what they may know.
func (g *Gateway) trajectory(a *ask, _ none) (lines[api.Step], error) {
	id := a.args["session"]
	_, s, err := g.seen(a.ctx(), a.who, id)
	if err != nil {
		return nil, err
	}
	if !mayUse(a.who, s.Owner, id) {
		return nil, access.Need(a.who, api.RoleOperator)
	}
	within := access.Thing{Owner: s.Owner, Session: id}
	return func(tell func(api.Step) error) error {
		return g.reg.Trajectory(a.ctx(), id, func(step api.Step) error {
			if step.Journal == record.ModeDenied {
				look := access.At(a.who, access.Call{Thing: within, Server: step.Server, Denied: true}, &within)
				if !look.Row {
					return nil
				}
				if step.Journal = config.JournalMeta; !look.Reason {
					step.Error = ""
				}
			}
			if step.Kept != "" {
				all := access.Damages(a.who, within, []api.Damage{{Server: step.Server, Why: step.Reason, Words: step.Words}})
				if len(all) == 0 {
					return nil
				}
				step.Reason, step.Words = all[0].Why, all[0].Words
			}
			return tell(step)
		})
	}, nil
}

func (g *Gateway) sessionTree(a *ask, _ none) (api.Tree, error) {
	id := a.args["session"]
	if _, _, err := g.seen(a.ctx(), a.who, id); err != nil {
		return api.Tree{}, err
	}
	t, err := g.reg.Family(a.ctx(), id)
	if err != nil {
		return t, err
	}
	g.showTree(a, &t, maxTree)
	return t, nil
}

// maxTree is how many forks below its root a tree goes. Each is two levels of
// JSON, and Go's decoder, for one, gives up at 10,000.
const maxTree = 1000

func (g *Gateway) showTree(a *ask, t *api.Tree, depth int) {
	t.Session = g.shown(a, t.Session)
	if depth == 0 {
		t.More, t.Children = below(t), nil
		return
	}
	for i := range t.Children {
		g.showTree(a, &t.Children[i], depth-1)
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
