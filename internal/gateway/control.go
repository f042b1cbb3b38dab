package gateway

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

func (g *Gateway) status(a *ask, _ none) (api.Status, error) {
	cfg := g.reg.Catalog().Config
	s := api.Status{
		Version: g.o.Version, Gateway: g.o.ID, Started: g.started,
		Sessions: len(g.reg.Sessions()), InFlight: g.InFlight(), Draining: g.draining.Load(),
		PID: os.Getpid(), Protocols: wire.Versions[:], URL: cfg.PublicURL, Listen: cfg.Listen,
	}
	if a.who.Is(api.RoleViewer) {
		s.Config, s.State = cfg.Path, g.o.StateDir
	}
	if addr, ok := a.ctx().Value(http.LocalAddrContextKey).(fmt.Stringer); ok {
		s.Listen = addr.String()
		if s.URL == "" {
			s.URL = "http://" + s.Listen
			if a.r.TLS != nil {
				s.URL = "https://" + s.Listen
			}
		}
	}
	return s, nil
}

// reloadConfig reads the config again, as a change of its file does.
func (g *Gateway) reloadConfig(a *ask, _ none) (none, error) {
	if g.o.Reload == nil {
		return none{}, invalid("this gateway has no config to read again")
	}
	if err := g.o.Reload(context.WithoutCancel(a.ctx())); err != nil {
		return none{}, invalid("the config is not reloaded; the old one stays: %v", err)
	}
	return none{}, nil
}

func (g *Gateway) servers(a *ask, _ none) (api.ServerList, error) {
	cat := g.do.Sessions.Catalog(a.who, a.who.Session)
	out := api.ServerList{Servers: make([]api.Server, 0, len(cat.Entries))}
	for _, e := range cat.Entries {
		if e.Ordinal == 0 && access.Knows(a.who, e.ID) {
			out.Servers = append(out.Servers, forUser(a.who, g.describe(e)))
		}
	}
	return out, nil
}

// forUser leaves out of a description what is about others: their calls, and
// how the server is run and reached. An error may repeat what a call said.
func forUser(who identity.Principal, s api.Server) api.Server {
	if s.LastError != nil && !who.Is(api.RoleOperator) {
		s.LastError = &api.LastError{At: s.LastError.At, Kind: s.LastError.Kind}
	}
	if !access.Hears(who, nil) { // they may be of anybody's instance
		s.Words = ""
	}
	if who.Is(api.RoleViewer) {
		return s
	}
	s.Target, s.Overridden, s.Overrides = "", false, nil
	if s.Fetch != nil {
		s.Fetch.Package = "" // which is part of the target
	}
	if s.State != api.StateDisabled {
		s.Reason = ""
	}
	return s
}

func (g *Gateway) entry(who identity.Principal, id string) (*session.Entry, error) {
	return entryIn(g.reg.Catalog(), who, id)
}

func entryIn(cat *session.Catalog, who identity.Principal, id string) (*session.Entry, error) {
	if e := cat.Entry(id); e != nil && access.Knows(who, e.Base()) {
		return e, nil
	}
	e := asError(control.NoServer(id))
	e.Status = http.StatusNotFound
	return nil, e
}

func (g *Gateway) server(a *ask, _ none) (s api.Server, err error) {
	e, err := g.entry(a.who, a.args["server"])
	if err != nil {
		return s, err
	}
	s = forUser(a.who, g.describe(e))
	s.Policy = policyOf(e)
	if e.Auth.Type == config.AuthLogin && g.o.Wallet != nil {
		state := g.o.Wallet.State(a.ctx(), e.Credentials(), a.who.Name)
		s.Login = &state
	}
	return s, nil
}

// rank orders states by how much they say about a server that several sessions
// use: one that answers anywhere answers.
var rank = map[string]int{api.StateIdle: 0, api.StateFailed: 1, api.StateFetching: 2, api.StateStarting: 3, api.StateReady: 4}

func (g *Gateway) describe(e *session.Entry) api.Server {
	on, why := e.On()
	s := api.Server{
		ID: e.ID, Title: e.Title, Driver: e.Driver, Scope: e.Scope, Enabled: on, Overrides: e.Overrides(),
		State: api.StateIdle, Target: e.Target(), Transport: transportOf(e),
	}
	s.Overridden = len(s.Overrides) > 0
	e.Describe(&s)
	if !on {
		s.State, s.Reason = api.StateDisabled, why
		return s
	}
	for _, up := range g.reg.Upstreams(e.ID) {
		st := up.Status()
		s.Restarts += st.Restarts
		if st.Instance {
			s.Instances++
		}
		if rank[st.State] < rank[s.State] || st.State == s.State && s.State == api.StateIdle {
			continue
		}
		s.State, s.Reason, s.Words, s.Since, s.Fetch = st.State, st.Reason, st.Words, st.Since, st.Fetch
		if st.Hello.Version != "" {
			s.Protocol = st.Hello.Version
			s.ServerName = wire.FindString(st.Hello.Info, "name")
			s.ServerVer = wire.FindString(st.Hello.Info, "version")
		}
	}
	s.Reason, s.Words = g.o.Redact.Text(s.Reason), g.o.Redact.Text(s.Words)
	return s
}

func (g *Gateway) patchServer(a *ask, p api.ServerPatch) (api.Server, error) {
	id := a.args["server"]
	if _, err := g.entry(a.who, id); err != nil {
		return api.Server{}, err
	}
	if p.Reset && (p.Enabled != nil || len(p.Set) > 0 || len(p.Unset) > 0) {
		return api.Server{}, invalid("reset goes back to the config in everything: nothing else can stand beside it")
	}
	if p.Reset || p.Enabled != nil || len(p.Set) > 0 || len(p.Unset) > 0 {
		change := session.Change{Enabled: p.Enabled, Set: p.Set, Unset: p.Unset, Reset: p.Reset}
		if err := g.reg.Change(a.ctx(), id, change); err != nil {
			return api.Server{}, err
		}
		g.Secrets()
		g.reg.Retry(id)
	}
	return g.server(a, none{})
}

type logQuery struct {
	Bytes int64 `query:"bytes" min:"1" max:"4194304" default:"65536" doc:"how much of the end of each log"`
}

func (g *Gateway) logs(a *ask, q logQuery) (api.LogList, error) {
	id := a.args["server"]
	if _, err := g.entry(a.who, id); err != nil {
		return api.LogList{}, err
	}
	out := api.LogList{Instances: []api.LogEntry{}}
	for _, e := range g.reg.Ended(id) {
		out.Instances = append(out.Instances, api.LogEntry{Instance: e.Instance, Session: e.Session, Ended: e.At.UTC(), Text: g.logEnd(e.Text, q.Bytes)})
	}
	for _, up := range g.reg.Upstreams(id) {
		text, err := g.logOf(up, q.Bytes)
		if err != nil {
			return api.LogList{}, err
		}
		if text == nil {
			continue
		}
		out.Instances = append(out.Instances, api.LogEntry{Instance: up.Name(), Session: up.Session(), Text: *text})
	}
	return out, nil
}

// logMargin is read before what is asked for of a log, since what begins within
// a secret does not show that it is one.
const logMargin = 64 << 10

// logOf is the end of an instance's log without secrets; nil without an instance.
func (g *Gateway) logOf(up *upstream.Upstream, max int64) (*string, error) {
	rd, err := up.Logs(max + logMargin)
	if rd == nil || err != nil {
		return nil, err
	}
	defer rd.Close()
	b, err := io.ReadAll(io.LimitReader(rd, max+logMargin))
	if err != nil {
		return nil, err
	}
	text := g.logEnd(string(b), max)
	return &text, nil
}

// logEnd is the end of a log without secrets.
func (g *Gateway) logEnd(text string, max int64) string {
	text = g.o.Redact.Text(text)
	if over := len(text) - int(max); over > 0 {
		text = strings.ToValidUTF8(text[over:], "")
	}
	return text
}

type toolQuery struct {
	Server  string `query:"server" doc:"only the tools of this server, which is waited for while it starts"`
	Session string `query:"session" doc:"as this session has them; default the caller's own"`
}

func (g *Gateway) tools(a *ask, q toolQuery) (api.ToolList, error) {
	who, only := a.who, q.Server
	sess, err := g.do.Sessions.Of(a.ctx(), who, q.Session)
	if err != nil {
		return api.ToolList{}, err
	}
	if only = strings.TrimSuffix(only, "~0"); only != "" {
		e, err := entryIn(sess.Catalog(), who, only)
		if err != nil {
			return api.ToolList{}, err
		}
		if on, why := e.On(); !on {
			return api.ToolList{Tools: []api.Tool{}, Missing: []api.Missing{{Server: only, Reason: why, Kind: api.KindRefused}}}, nil
		}
	}
	x := &exchange{g: g, who: who, sess: sess, client: &upstream.Client{Key: newClientID()}, method: wire.MethodListTools}
	t := x.table()
	wait := t.cat.Config.Limits.ListWait
	if only != "" {
		wait = 0 // whoever asks for one server has no use for a list without it
	}
	parts, missing := x.listSome(a.ctx(), t, wire.MethodListTools, wait, func(s *shape) bool {
		return only == "" && s.listed || s.entry.ID == only
	})
	out := api.ToolList{Tools: []api.Tool{}}
	for _, p := range parts {
		out.Missing = append(out.Missing, x.shadowed(t, p)...)
		for _, item := range p.items {
			if item = p.shape.editTool(item, t, true, who); item == nil {
				continue
			}
			tool := api.Tool{Name: wire.FindString(item, "name"), Server: p.shape.entry.ID, Description: wire.FindString(item, "description")}
			if at, err := wire.Find(item, "inputSchema"); err == nil && at.Ok() {
				tool.InputSchema = at.Of(item)
			}
			out.Tools = append(out.Tools, tool)
		}
	}
	out.Missing = append(out.Missing, missing...)
	return out, nil
}

// call makes one tool call.
func (g *Gateway) call(a *ask, in api.CallRequest) (rawCall, error) {
	d := door{session: in.Session}
	sess, gone := g.do.Sessions.Of(a.ctx(), a.who, d.session)
	stream := g.wantsLines(a)
	var token []byte
	if stream != nil {
		token = []byte("1") // there is one call to tell of
	}
	params, err := askedCall(in.Tool, in.Arguments, token)
	switch {
	case gone != nil && err != nil:
		return nil, gone
	case gone != nil:
		return nil, g.late(a.ctx(), a.who, d, wire.MethodCallTool, &params, gone)
	case err != nil:
		return nil, err
	}
	if e := g.enter(a.who, 1); e != nil {
		return nil, e
	}
	defer g.leave(a.who, 1)
	x := &exchange{
		g: g, who: a.who, sess: sess, client: &upstream.Client{Key: newClientID()}, wide: true,
		method: wire.MethodCallTool, params: params, trace: g.parentOf(a.r.Header, &params), from: a.r,
	}
	if stream != nil {
		x.peer = stream
	}
	return stream.finish(x.answer(a.ctx()))
}

// answer is a call's result for the control API, where failures are errors.
func (x *exchange) answer(ctx context.Context) (rawCall, error) {
	span := x.begin()
	res, err := x.route(ctx)
	x.end(ctx, span, res, err)
	if err != nil {
		if e, ok := err.(*wire.Error); ok {
			return nil, invalid("%s", e.Message)
		}
		return nil, err
	}
	if res.Error != nil {
		e := wire.ParseError(res.Error)
		if e.Mistake() {
			return nil, invalid("%s", e.Message)
		}
		return nil, &api.Error{Kind: api.KindTool, Message: e.Message}
	}
	return rawCall(res.Result), nil
}
