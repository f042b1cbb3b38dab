package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// What servers inside the gateway do with the members of sessions, for the caller
// behind a handle.

// Servers are those that the caller may have in a session, in the order of the
// config.
func (c *Control) Servers(ctx context.Context, caller string) ([]api.Server, error) {
	return act(c, caller, "listServers", "", func(d *callerAction) ([]api.Server, error) {
		return d.g.services.Servers.ForSessions(d.who), nil
	})
}

// Show is a session, open or closed, with its members.
func (c *Control) Show(ctx context.Context, caller, id string) (api.Session, error) {
	return act(c, caller, "getSession", id, func(d *callerAction) (api.Session, error) {
		s, err := d.g.services.Sessions.Get(ctx, d.who, d.session)
		d.g.setURL(d.call.from, &s)
		return s, err
	})
}

// Call calls a tool of a session's member and returns its result as the server
// sent it. It is a call like any other, in that session: it passes the gate there,
// not where the caller is, and is written down there.
func (c *Control) Call(ctx context.Context, caller, id, member, tool string, args json.RawMessage) (json.RawMessage, error) {
	return act(c, caller, "callTool", id, func(d *callerAction) (json.RawMessage, error) {
		x, err := d.within(ctx, member, wire.MethodCallTool, tool)
		if err != nil {
			return nil, err
		}
		x.relays = true
		if x.params, err = callParams(tool, args, nil, d.call.progress); err != nil {
			return nil, invalid("%v", err)
		}
		res, err := x.answer(ctx)
		return json.RawMessage(res), err
	})
}

// callParams makes the params of a tool call. What the server says of its progress
// goes to the caller that gave the token. The meta is an object, or empty.
func callParams(tool string, args, meta, progress []byte) (wire.Params, error) {
	raw := append(wire.AppendQuote([]byte(`{"name":`), tool), `,"arguments":`...)
	raw = append(raw, args...)
	if progress != nil {
		if len(meta) == 0 {
			meta = []byte("{}")
		}
		meta = wire.AppendSpliced(nil, meta, []wire.Edit{wire.InsertMember(meta, 0, wire.MetaProgressToken, progress)})
	}
	if len(meta) > 0 {
		raw = append(append(raw, `,"_meta":`...), meta...)
	}
	return wire.ScanParams(wire.MethodCallTool, append(raw, '}'))
}

// askedCall makes the params of a tool call that was asked for without MCP.
func askedCall(tool string, args, meta, progress []byte) (wire.Params, error) {
	if isNull(args) {
		args = []byte("{}")
	}
	if args[0] != '{' {
		return wire.Params{}, invalid("arguments must be an object")
	}
	if isNull(meta) {
		meta = nil
	} else if err := checkMeta(meta); err != nil {
		return wire.Params{}, err
	}
	params, err := callParams(tool, args, meta, progress)
	if err != nil {
		return params, invalid("%v", err)
	}
	return params, nil
}

// checkMeta refuses a caller's _meta that is no object, or that has what the gateway
// says itself.
func checkMeta(meta []byte) error {
	if meta[0] != '{' {
		return invalid("meta must be an object")
	}
	err := wire.Members(meta, func(key string, _ wire.Span) error {
		switch key {
		case wire.MetaTraceparent, wire.MetaTracestate:
			return nil
		}
		if wire.ReservedMeta(key) {
			return invalid("meta must not have the key %q, which the gateway writes itself", clip(key))
		}
		return nil
	})
	if e := (*api.Error)(nil); err != nil && !errors.As(err, &e) {
		return invalid("meta: %v", err)
	}
	return err
}

// Tools are the tools of a session's member, all of them, as MCP lists them.
func (c *Control) Tools(ctx context.Context, caller, id, member string) (json.RawMessage, error) {
	return act(c, caller, "listTools", id, func(d *callerAction) (json.RawMessage, error) {
		x, err := d.within(ctx, member, wire.MethodListTools, "")
		if err != nil {
			return nil, err
		}
		return x.ownTools(ctx)
	})
}

// within is a request to a member of a session that is made within another call,
// by the same client. That one is counted among the running ones, and this one
// is a part of it. The tool is the one that is to be called; empty for none.
func (d *callerAction) within(ctx context.Context, member, method, tool string) (*exchange, error) {
	sess, err := d.g.services.Sessions.Of(ctx, d.who, d.session)
	if err != nil {
		return nil, err
	}
	member = strings.TrimSuffix(member, "~0")
	e := sess.Catalog().Entry(member)
	x := &exchange{g: d.g, who: d.who, view: view{server: member}, sess: sess, method: method, trace: d.call.trace, from: d.call.from, peer: d.call.peer, inner: true}
	if e == nil || e.Controls() || !d.who.MaySee(e.Base()) {
		if err = noMember(d.who, sess, member); tool != "" {
			err = x.noServer(x.table(), member, tool, err)
		}
		return nil, err
	}
	// Whatever the client speaks: what the member asks on the way is answered here.
	client := *d.call.client
	client.Modern = false
	x.client = &client
	if p, ok := d.call.peer.(*peerOf); ok {
		x.peer = &peerOf{c: p.c, to: p.to, in: sess}
	}
	return x, nil
}

// noMember says what members a session has.
func noMember(who identity.Principal, s *session.Session, member string) error {
	var has []string
	for _, e := range s.Catalog().Entries {
		if !e.Controls() && who.MaySee(e.Base()) {
			has = append(has, e.ID)
		}
	}
	list := "none"
	if len(has) > 0 {
		list = strings.Join(has[:min(len(has), 20)], ", ")
	}
	if len(has) > 20 {
		list += fmt.Sprintf(" and %d more", len(has)-20)
	}
	return &api.Error{
		Kind: api.KindInvalid, Status: http.StatusNotFound, Server: access.Base(member),
		Message: fmt.Sprintf("session %s has no server %s; it has %s", s.ID, clip(member), list),
	}
}

// ownTools is the list of the tools of the one server of the view, all pages of
// it.
func (x *exchange) ownTools(ctx context.Context) ([]byte, error) {
	t := x.table()
	s := x.seen(t, x.view.server)
	if s == nil {
		return nil, control.NoServer(x.view.server)
	}
	up, _, err := x.upstream(s.entry.ID)
	if err != nil {
		return nil, err
	}
	_, items, err := up.ReadList(ctx, upstream.Request{
		Method: wire.MethodListTools, Client: x.client, Who: x.who.Name, Session: x.sess.ID,
		Trace: x.trace.Traceparent, TraceState: x.trace.Tracestate,
	})
	if err != nil {
		return nil, err
	}
	out := []byte(`{"tools":[`)
	for _, item := range items {
		if item = s.editTool(item, t, false, x.who); item == nil {
			continue
		}
		if out[len(out)-1] != '[' {
			out = append(out, ',')
		}
		out = append(out, item...)
	}
	return append(out, `]}`...), nil
}
