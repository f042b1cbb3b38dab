package upstream

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/wire"
)

// A client of the handshake era on a server of the stateless era: the request
// gets the metadata the server wants, and where the server answers that it
// needs input, the client is asked the old way and the request sent again.

// maxRounds bounds how often a server may ask for more input in one call.
const maxRounds = 10

var inputRequired = []byte(`"input_required"`)

// modernize adds the metadata that a modern server wants in every request.
func (c *Conn) modernize(req *Request, params []byte, edits []wire.Edit) ([]byte, []wire.Edit) {
	meta := make([]byte, 0, 256)
	own, replaced := ownMembers(req)
	meta, edits = append(meta, own...), append(edits, replaced...)
	add := func(has bool, key string, value []byte) {
		if has {
			return
		}
		if len(meta) > 0 {
			meta = append(meta, ',')
		}
		meta = append(wire.AppendQuote(meta, key), ':')
		meta = append(meta, value...)
	}
	p := &req.Params
	info := req.Client.Info
	if info == nil {
		info = clientInfo
	}
	add(p.Version.Ok(), wire.MetaVersion, wire.Quote(c.hello.Load().Version))
	add(p.ClientInfo.Ok(), wire.MetaClientInfo, info)
	add(p.ClientCaps.Ok(), wire.MetaClientCaps, filterCaps(req.Client.Caps, c.allowed))
	add(p.LogLevel.Ok() || req.Client.LogLevel == "", wire.MetaLogLevel, wire.Quote(req.Client.LogLevel))
	return addMeta(p, params, edits, meta)
}

// addMeta puts members into a request's _meta, which may not be there yet.
func addMeta(p *wire.Params, params []byte, edits []wire.Edit, meta []byte) ([]byte, []wire.Edit) {
	switch {
	case len(meta) == 0:
	case len(params) == 0:
		params = append(append([]byte(`{"_meta":{`), meta...), "}}"...)
	case p.Meta.Ok():
		if inner := p.Meta.Of(params); len(inner) > 2 && !blankObject(inner) {
			meta = append(meta, ',')
		}
		edits = append(edits, wire.Edit{At: wire.Span{Start: p.Meta.Start + 1, End: p.Meta.Start + 1}, With: meta})
	case p.NullMeta.Ok():
		edits = append(edits, wire.Edit{At: p.NullMeta, With: append(append([]byte{'{'}, meta...), '}')})
	default:
		edits = append(edits, wire.InsertMember(params, 0, "_meta", append(append([]byte{'{'}, meta...), '}')))
	}
	return params, edits
}

// legacyMeta takes the metadata out that only modern servers know: some legacy
// ones refuse a request that has it.
func legacyMeta(req *Request, k *call, edits []wire.Edit) []wire.Edit {
	p := &req.Params
	meta := p.Meta.Of(p.Raw)
	own, replaced := ownMembers(req)
	out := append([]byte{'{'}, own...)
	_ = wire.Members(meta, func(key string, val wire.Span) error {
		value := val.Of(meta)
		switch key {
		case wire.MetaVersion, wire.MetaClientInfo, wire.MetaClientCaps, wire.MetaLogLevel:
			return nil
		case wire.MetaProgressToken:
			value = quoted(k.id)
		case wire.MetaTraceparent, wire.MetaTracestate, wire.MetaTineCaller, wire.MetaTineCall, wire.MetaTurn:
			for _, e := range replaced {
				if e.At.Start == p.Meta.Start+val.Start {
					value = e.With
				}
			}
		}
		if len(value) == 0 {
			return nil
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(wire.AppendQuote(out, key), ':')
		out = append(out, value...)
		return nil
	})
	edits = slices.DeleteFunc(edits, func(e wire.Edit) bool { return e.At == p.ProgressToken })
	return append(edits, wire.Edit{At: p.Meta, With: append(out, '}')})
}

func blankObject(b []byte) bool {
	for _, c := range b[1 : len(b)-1] {
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return false
		}
	}
	return true
}

// filterCaps keeps the capabilities that may be claimed for a client.
func filterCaps(caps []byte, allowed []string) []byte {
	out := []byte{'{'}
	_ = wire.Members(caps, func(key string, val wire.Span) error {
		for _, a := range allowed {
			if a == key {
				if len(out) > 1 {
					out = append(out, ',')
				}
				out = append(wire.AppendQuote(out, key), ':')
				out = append(out, val.Of(caps)...)
			}
		}
		return nil
	})
	return append(out, '}')
}

// mayAsk reports whether a server may answer a method with a wish for input.
func mayAsk(method string) bool {
	return method == wire.MethodCallTool || method == wire.MethodGetPrompt || method == wire.MethodReadResource
}

type inputResult struct {
	ResultType    string                     `json:"resultType"`
	InputRequests map[string]json.RawMessage `json:"inputRequests"`
	RequestState  json.RawMessage            `json:"requestState"`
}

// fulfil answers a modern server's input requests through a legacy client.
func (c *Conn) fulfil(ctx context.Context, req *Request, res *Result) (*Result, error) {
	for range maxRounds {
		var in inputResult
		if err := json.Unmarshal(res.Result, &in); err != nil || in.ResultType != wire.ResultInput {
			return res, nil
		}
		answered := req.deadline.question()
		responses, refusal, err := c.askAll(ctx, req, in.InputRequests)
		answered()
		if err != nil {
			return nil, err
		}
		if refusal != nil {
			return &Result{Error: refusal}, nil
		}
		next := *req
		next.Edits = append([]wire.Edit(nil), req.Edits...)
		if len(next.Params.Raw) == 0 {
			next.Params.Raw = []byte("{}")
		}
		next.Edits = append(next.Edits, retryMembers(next.Params, responses, in.RequestState))
		if res, err = c.exchange(ctx, &next); err != nil || res.Result == nil {
			return res, err
		}
	}
	return nil, failure(api.KindTool, c.server, false, "asked for input more than %d times in one call", maxRounds)
}

// retryMembers is the edit that adds the client's answers to a request.
func retryMembers(p wire.Params, responses, state []byte) wire.Edit {
	e := wire.InsertMember(p.Raw, 0, "inputResponses", responses)
	if len(state) > 0 {
		with := append([]byte(`"requestState":`), state...)
		e.With = append(append(with, ','), e.With...)
	}
	return e
}

// askAll puts every input request to the client at once.
func (c *Conn) askAll(ctx context.Context, req *Request, requests map[string]json.RawMessage) (responses, refusal []byte, err error) {
	if len(requests) > maxAsks {
		return nil, nil, failure(api.KindTool, c.server, false, "asked for %d inputs at once", len(requests))
	}
	type result struct {
		key   string
		reply Reply
	}
	var wg sync.WaitGroup
	results := make(chan result, len(requests))
	for key, raw := range requests {
		var in struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params"`
		}
		if err := json.Unmarshal(raw, &in); err != nil || in.Method == "" {
			return nil, nil, failure(api.KindTool, c.server, false, "sent an unreadable input request %q", key)
		}
		wg.Go(func() {
			defer telemetry.Contain(c.log, telemetry.InUpstream, c.server, func(error) {
				results <- result{key, Refuse(in.Method, "the gateway failed inside")}
			})
			reply := Refuse(in.Method, "there is no client to answer")
			if req.Peer != nil {
				reply = req.Peer.Ask(ctx, in.Method, in.Params)
			}
			results <- result{key, reply}
		})
	}
	wg.Wait()
	close(results)
	out := make(map[string]json.RawMessage, len(requests))
	for r := range results {
		if r.reply.Error != nil {
			return nil, r.reply.Error, nil
		}
		out[r.key] = r.reply.Result
	}
	if err := context.Cause(ctx); err != nil {
		return nil, nil, c.explain(ctx, err)
	}
	// By hand: the encoder would escape and compact the answers.
	b := []byte{'{'}
	for i, key := range slices.Sorted(maps.Keys(out)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(wire.AppendQuote(b, key), ':'), out[key]...)
	}
	return append(b, '}'), nil, nil
}
