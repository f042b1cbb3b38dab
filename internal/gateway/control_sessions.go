package gateway

import (
	"net/http"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
)

// setURL says where a session's MCP endpoint is, as the caller knows the gateway; nothing
// of one that is closed, or to a caller that came in by no URL.
func (g *Gateway) setURL(r *http.Request, s *api.Session) {
	e := g.edge.Load()
	if s.URL = ""; s.ID != "" && s.Closed.IsZero() && (e.public != "" || r != nil && r.Host != "") {
		s.URL = e.base(r) + "/s/" + s.ID + "/mcp"
	}
}

// withURL has an answer about a session say where that is.
func (g *Gateway) withURL(a *ask, s api.Session, err error) (api.Session, error) {
	if err == nil {
		g.setURL(a.r, &s)
	}
	return s, err
}

func (g *Gateway) withURLs(a *ask, list api.SessionList, err error) (api.SessionList, error) {
	for i := range list.Sessions {
		g.setURL(a.r, &list.Sessions[i])
	}
	return list, err
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
	labels, err := readLabels(q.Label)
	if err != nil {
		return api.SessionList{}, err
	}
	list, err := g.services.Sessions.List(a.ctx(), a.who, control.SessionFilter{
		Owner: q.Owner, Parent: q.Parent, Labels: labels, Closed: q.Closed, Page: control.Page{Limit: int(q.Limit), After: q.After},
	})
	return g.withURLs(a, list, err)
}

type forkQuery struct {
	Closed bool   `query:"closed" doc:"closed sessions too"`
	Limit  int64  `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	After  string `query:"after" doc:"the next of an earlier answer"`
}

func (g *Gateway) listForks(a *ask, q forkQuery) (api.SessionList, error) {
	list, err := g.services.Sessions.Forks(a.ctx(), a.who, a.args["session"], q.Closed, control.Page{Limit: int(q.Limit), After: q.After})
	return g.withURLs(a, list, err)
}

func (g *Gateway) openSession(a *ask, in api.NewSession) (api.OpenedSession, error) {
	r, err := a.request()
	if err != nil {
		return api.OpenedSession{}, err
	}
	out, err := g.services.Sessions.Open(a.ctx(), r, in)
	out.Session, err = g.withURL(a, out.Session, err)
	return out, err
}

func (g *Gateway) getSession(a *ask, _ none) (api.Session, error) {
	s, err := g.services.Sessions.Get(a.ctx(), a.who, a.args["session"])
	return g.withURL(a, s, err)
}

func (g *Gateway) patchSession(a *ask, in api.SessionPatch) (api.Session, error) {
	s, err := g.services.Sessions.Patch(a.ctx(), a.who, a.args["session"], in)
	return g.withURL(a, s, err)
}

func (g *Gateway) closeSession(a *ask, _ none) (none, error) {
	return none{}, g.services.Sessions.Close(a.ctx(), control.Request{Who: a.who, Conn: a.conn}, a.args["session"], nil)
}

func (g *Gateway) newSessionToken(a *ask, _ none) (api.OpenedSession, error) {
	r, err := a.request()
	if err != nil {
		return api.OpenedSession{}, err
	}
	out, err := g.services.Sessions.NewToken(a.ctx(), r, a.args["session"])
	out.Session, err = g.withURL(a, out.Session, err)
	return out, err
}

func (g *Gateway) mintSessionToken(a *ask, in api.NewSessionToken) (api.MintedToken, error) {
	r, err := a.request()
	if err != nil {
		return api.MintedToken{}, err
	}
	return g.services.Sessions.MintToken(a.ctx(), r, a.args["session"], in)
}

func (g *Gateway) listSessionTokens(a *ask, _ none) (api.SessionTokenList, error) {
	return g.services.Sessions.TokensOf(a.ctx(), a.who, a.args["session"])
}

type revokeQuery struct {
	Run string `query:"run" doc:"the run whose tokens are revoked; needed"`
}

func (g *Gateway) revokeSessionTokens(a *ask, q revokeQuery) (api.RevokedTokens, error) {
	n, err := g.services.Sessions.RevokeTokens(a.ctx(), a.who, a.args["session"], q.Run)
	return api.RevokedTokens{Revoked: n}, err
}

func (g *Gateway) revokeSessionToken(a *ask, _ none) (none, error) {
	return none{}, g.services.Sessions.RevokeToken(a.ctx(), a.who, a.args["session"], a.args["token"])
}

func (g *Gateway) forkSession(a *ask, in api.ForkRequest) (api.Forks, error) {
	r, err := a.request()
	if err != nil {
		return api.Forks{}, err
	}
	out, err := g.services.Sessions.Fork(a.ctx(), r, a.args["session"], in)
	for i := range out.Sessions {
		g.setURL(a.r, &out.Sessions[i].Session)
	}
	return out, err
}

func (g *Gateway) rewindSession(a *ask, in api.RewindRequest) (api.Session, error) {
	s, err := g.services.Sessions.Rewind(a.ctx(), control.Request{Who: a.who, Conn: a.conn}, a.args["session"], in)
	return g.withURL(a, s, err)
}

type sessionCallQuery struct {
	Run    string `query:"run" doc:"only calls that were made with a token of this run"`
	Server string `query:"server" doc:"only calls to this server"`
	Failed bool   `query:"failed" doc:"only calls whose outcome is not ok"`
	Before string `query:"before" doc:"the next of an earlier answer"`
	Limit  int64  `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	Follow bool   `query:"follow" doc:"a stream of what is called from now on, oldest first"`
}

func (g *Gateway) sessionCalls(a *ask, q sessionCallQuery) (callPage, error) {
	_, s, err := g.services.Sessions.Seen(a.ctx(), a.who, a.args["session"])
	if err != nil {
		return callPage{}, err
	}
	calls, err := g.services.Journal.SelectIn(a.who, s, control.CallFilter{Run: q.Run, Server: q.Server, Failed: q.Failed, Before: q.Before, Limit: int(q.Limit)})
	if err != nil {
		return callPage{}, err
	}
	return g.listCalls(a, calls, q.Follow)
}

func (g *Gateway) trajectory(a *ask, _ none) (lines[api.Step], error) {
	return g.services.Sessions.Trajectory(a.ctx(), a.who, a.args["session"])
}

func (g *Gateway) sessionTree(a *ask, _ none) (api.Tree, error) {
	t, err := g.services.Sessions.Tree(a.ctx(), a.who, a.args["session"])
	if err == nil {
		g.setTreeURLs(a.r, &t)
	}
	return t, err
}

func (g *Gateway) setTreeURLs(r *http.Request, t *api.Tree) {
	g.setURL(r, &t.Session)
	for i := range t.Children {
		g.setTreeURLs(r, &t.Children[i])
	}
}
