package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/identity"
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
		if g.o.NotReloaded != nil {
			s.NotReloaded = g.o.NotReloaded()
		}
	}
	if n := s.NotReloaded; n != nil {
		s.NotReloaded = &api.NotReloaded{At: n.At.UTC(), Reason: g.o.Redact.Text(n.Reason)}
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

type toolQuery struct {
	Server  string `query:"server" doc:"only the tools of this server, which is waited for while it starts"`
	Session string `query:"session" doc:"as this session has them; default the caller's own"`
}

func (g *Gateway) tools(a *ask, q toolQuery) (api.ToolList, error) {
	who, only := a.who, q.Server
	sess, err := g.services.Sessions.Of(a.ctx(), who, q.Session)
	if err != nil {
		return api.ToolList{}, err
	}
	if only = strings.TrimSuffix(only, "~0"); only != "" {
		e, err := control.EntryIn(sess.Catalog(), who, only)
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
		wait = 0 // a list of one server is of no use without it
	}
	parts, missing := x.listSome(a.ctx(), t, wire.MethodListTools, wait, func(s *shape) bool {
		return only == "" && s.listed || s.entry.ID == only
	})
	out := api.ToolList{Tools: []api.Tool{}}
	var seen [][]byte
	for _, p := range parts {
		out.Missing = append(out.Missing, x.shadowed(t, p)...)
		for _, item := range p.items {
			if item = p.shape.editTool(item, t, true, who); item == nil {
				continue
			}
			seen = append(seen, item)
			tool := api.Tool{Name: wire.FindString(item, "name"), Server: p.shape.entry.ID, Description: wire.FindString(item, "description")}
			if at, err := wire.Find(item, "inputSchema"); err == nil && at.Ok() {
				tool.InputSchema = at.Of(item)
			}
			out.Tools = append(out.Tools, tool)
		}
	}
	out.Missing = append(out.Missing, missing...)
	if only == "" {
		x.saw(a.ctx(), "", fmt.Appendf(nil, `{"tools":[%s]}`, bytes.Join(seen, []byte(","))))
	}
	return out, nil
}

// call makes one tool call.
func (g *Gateway) call(a *ask, in api.CallRequest) (rawCall, error) {
	stream := g.wantsLines(a)
	out, err := g.makeCall(a.ctx(), a.who, a.r, in, stream, false)
	if err != nil && out.call != "" && !stream.begun() {
		a.w.Header().Set(wire.HeaderTineCall, out.call) // which an error has no room for
	}
	return stream.finish(out, err)
}

// makeCall makes a tool call for a principal, which may have a place among the running
// requests already. The stream hears of its progress; nil for none.
func (g *Gateway) makeCall(ctx context.Context, who identity.Principal, from *http.Request, in api.CallRequest, stream *callStream, placed bool) (out rawCall, err error) {
	ctx, cancel, err := callTime(ctx, in.Timeout)
	if err != nil {
		return out, err
	}
	defer cancel()
	defer func() { err = late(ctx, err) }()
	d := door{session: in.Session}
	sess, gone := g.services.Sessions.Of(ctx, who, d.session)
	var token []byte
	if stream != nil {
		token = []byte("1") // there is one call to report on
	}
	params, err := askedCall(in.Tool, in.Arguments, in.Meta, token)
	switch {
	case gone != nil && err != nil:
		return out, gone
	case gone != nil:
		return out, g.late(ctx, who, d, wire.MethodCallTool, &params, gone)
	case err != nil:
		return out, err
	}
	if !placed {
		if e := g.enter(who, 1); e != nil {
			return out, e
		}
		defer g.leave(who, 1)
	}
	x := &exchange{
		g: g, who: who, sess: sess, client: &upstream.Client{Key: newClientID()},
		wide: true, world: d.session != "" || who.Session != "",
		method: wire.MethodCallTool, params: params, trace: g.parentOf(from.Header, &params), from: from,
	}
	if stream != nil {
		x.peer = stream
	}
	out.result, err = x.answer(ctx)
	out.call = x.call
	return out, err
}

// maxCallTimeout bounds what a caller may ask for; servers have less.
const maxCallTimeout = 24 * time.Hour

// callTime bounds a call to the time that its caller gives it; empty for none.
func callTime(ctx context.Context, text string) (context.Context, context.CancelFunc, error) {
	if text == "" {
		return ctx, func() {}, nil
	}
	most, err := time.ParseDuration(text)
	if err != nil || most <= 0 || most > maxCallTimeout {
		return ctx, nil, invalid("timeout must be a duration like 500ms or 30s, up to %s; %q is none", maxCallTimeout, clip(text))
	}
	ctx, cancel := upstream.Within(ctx, most)
	return ctx, cancel, nil
}

// late is the error of a call that was given up because its time was over.
func late(ctx context.Context, err error) error {
	if over := upstream.Overdue(ctx); over != "" && err != nil && asError(err).Kind == api.KindRefused {
		return &api.Error{Kind: api.KindTimeout, Server: asError(err).Server, Message: over + ": " + asError(err).Message}
	}
	return err
}

// answer is a call's result for the control API, where failures are errors.
func (x *exchange) answer(ctx context.Context) ([]byte, error) {
	span := x.begin()
	res, err := x.route(ctx)
	x.end(ctx, span, res, err)
	if none := (*noTool)(nil); x.relays && errors.As(err, &none) {
		return none.result(), nil
	}
	if err != nil {
		if e := (*wire.Error)(nil); errors.As(err, &e) {
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
	return res.Result, nil
}
