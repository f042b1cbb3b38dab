package upstream

import "github.com/tine-mcp/tine/internal/wire"

// ownMembers is what the gateway adds to a request's _meta: the trace, for the server to
// continue, who calls, and how to name the call. It returns members to add, with commas
// between them, and edits of those that the client's own _meta has, among them one that
// keeps what a model said from servers.
func ownMembers(req *Request) (add []byte, replaced []wire.Edit) {
	set := func(key, value string) {
		// All of them: a server may take the last of several equal keys.
		found := replaceMembers(&req.Params, key, value)
		if replaced = append(replaced, found...); len(found) > 0 || value == "" {
			return
		}
		if len(add) > 0 {
			add = append(add, ',')
		}
		add = append(wire.AppendQuote(add, key), ':')
		add = wire.AppendQuote(add, value)
	}
	if req.Trace != "" {
		set(wire.MetaTraceparent, req.Trace)
		// A tracestate belongs to its traceparent: without one of ours the client's
		// must not stay.
		set(wire.MetaTracestate, req.TraceState)
	}
	if req.Caller != "" {
		set(wire.MetaTineCaller, req.Caller)
	}
	if req.Within != "" {
		set(wire.MetaTineCall, req.Within)
	}
	set(wire.MetaTurn, "") // which is for the trajectory
	return add, replaced
}

// replaceMembers are the edits that give a key of _meta another value, wherever
// it stands there.
func replaceMembers(p *wire.Params, key, value string) (edits []wire.Edit) {
	if !p.Meta.Ok() {
		return nil
	}
	_ = wire.Members(p.Meta.Of(p.Raw), func(k string, at wire.Span) error {
		if k == key {
			edits = append(edits, wire.Edit{
				At:   wire.Span{Start: p.Meta.Start + at.Start, End: p.Meta.Start + at.End},
				With: wire.Quote(value),
			})
		}
		return nil
	})
	return edits
}
