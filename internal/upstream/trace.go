package upstream

import "github.com/tine-mcp/tine/internal/wire"

// traceMembers is what a request's _meta needs for the server to go on with
// the request's trace: members to add, with commas between them, and edits of
// those that the client's own _meta has.
func traceMembers(req *Request) (add []byte, replaced []wire.Edit) {
	if req.Trace == "" {
		return nil, nil
	}
	p := &req.Params
	set := func(key, value string) {
		if p.Meta.Ok() {
			meta := p.Meta.Of(p.Raw)
			if at, err := wire.Find(meta, key); err == nil && at.Ok() {
				// A tracestate belongs to its traceparent: without one of ours the
				// client's must not stay.
				replaced = append(replaced, wire.Edit{
					At:   wire.Span{Start: p.Meta.Start + at.Start, End: p.Meta.Start + at.End},
					With: wire.Quote(value),
				})
				return
			}
		}
		if value == "" {
			return
		}
		if len(add) > 0 {
			add = append(add, ',')
		}
		add = append(wire.AppendQuote(add, key), ':')
		add = wire.AppendQuote(add, value)
	}
	set(wire.MetaTraceparent, req.Trace)
	set(wire.MetaTracestate, req.TraceState)
	return add, replaced
}
