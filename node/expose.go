package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"runtime/debug"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Expose adds nodes to a server of the SDK, which may have tools, prompts and
// resources of its own. When a connected [Server] among the sources changes its
// list, the tools change too, and clients are told.
//
// Two nodes with one name are an error; [Merge] keeps them apart. Of two that get
// one name later, that of the earlier source is served.
//
// A panic in a node's function is logged, as net/http does; the caller gets an error
// without its text, and other calls go on. Of an error of a consumed node the log has
// all, and the caller is told neither where the server is nor what it printed.
func Expose(server *mcp.Server, sources ...Source) error {
	_, err := expose(server, sources)
	return err
}

func expose(server *mcp.Server, sources []Source) (stop func(), _ error) {
	e := &exposer{server: server, sources: sources}
	names := map[string]bool{}
	for i, s := range sources {
		if missing(s) {
			return nil, fmt.Errorf("source %d of %d is nil", i+1, len(sources))
		}
		for _, n := range s.Nodes() {
			if names[n.tool.Name] {
				return nil, fmt.Errorf("two nodes are named %q; give them different names, or use Merge", n.tool.Name)
			}
			names[n.tool.Name] = true
		}
	}
	server.AddReceivingMiddleware(e.middleware)
	var stops []func()
	for _, s := range sources {
		if s, ok := s.(live); ok {
			stops = append(stops, s.onChange(e.sync))
		}
	}
	e.sync()
	return func() {
		for _, stop := range stops {
			stop()
		}
	}, nil
}

// An exposer answers for the nodes of its sources. The tools are added to the
// server, too, which pages the list and announces changes.
type exposer struct {
	server  *mcp.Server
	sources []Source

	change sync.Mutex // one change at a time
	mu     sync.Mutex
	nodes  map[string]*Node
}

func (e *exposer) node(name string) *Node {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.nodes[name]
}

// sync takes over the nodes that the sources have now.
func (e *exposer) sync() {
	e.change.Lock()
	defer e.change.Unlock()
	now := map[string]*Node{}
	for _, s := range e.sources {
		for _, n := range s.Nodes() {
			if now[n.tool.Name] == nil {
				now[n.tool.Name] = n
			}
		}
	}
	e.mu.Lock()
	before := e.nodes
	e.nodes = now
	e.mu.Unlock()
	var removed []string
	for name := range before {
		if now[name] == nil {
			removed = append(removed, name)
		}
	}
	if len(removed) > 0 {
		e.server.RemoveTools(removed...)
	}
	for name, n := range now {
		if before[name] != n {
			e.add(n)
		}
	}
}

// add registers a tool. The SDK panics at schemas that it does not take, which other
// servers list nevertheless; it then gets another one, that nobody sees.
func (e *exposer) add(n *Node) {
	tool := n.Tool()
	defer func() {
		if recover() != nil {
			e.server.AddTool(&mcp.Tool{Name: tool.Name, InputSchema: map[string]any{"type": "object"}}, e.handle)
		}
	}()
	e.server.AddTool(tool, e.handle)
}

// An answer is a result on its way past the SDK, which would decode it.
type answer struct{ raw json.RawMessage }

type answerKey struct{}

// handle calls a node for the SDK. Its result goes to the middleware below as it is,
// unless it asks the client for input, which is the SDK's business.
func (e *exposer) handle(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	n, to := e.node(req.Params.Name), ctx.Value(answerKey{})
	if n == nil || to == nil {
		return nil, fmt.Errorf("tool %q was removed", req.Params.Name)
	}
	res, err := serve(ctx, n, req)
	if err != nil {
		return nil, err
	}
	if bytes.Contains(res.Raw, []byte(`"inputRequests"`)) {
		if r, err := res.MCP(); err == nil && r.InputRequests != nil {
			return r, nil
		}
	}
	to.(*answer).raw = res.Raw
	return new(mcp.CallToolResult), nil
}

func (e *exposer) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch req := req.(type) {
		case *mcp.CallToolRequest:
			var got answer
			res, err := next(context.WithValue(ctx, answerKey{}, &got), method, req)
			if err == nil && got.raw != nil {
				return &toolResult{raw: got.raw, complete: stateless(req.Params)}, nil
			}
			return res, err
		case *mcp.ListToolsRequest:
			res, err := next(ctx, method, req)
			if page, ok := res.(*mcp.ListToolsResult); ok && err == nil {
				return e.list(page, stateless(req.Params))
			}
			return res, err
		}
		return next(ctx, method, req)
	}
}

// stateless reports whether a request is one of the stateless era.
func stateless(p mcp.Params) bool {
	switch p := p.(type) {
	case *mcp.ListToolsParams:
		return p != nil && p.Meta[mcp.MetaKeyProtocolVersion] != nil
	case *mcp.CallToolParamsRaw:
		return p != nil && p.Meta[mcp.MetaKeyProtocolVersion] != nil
	}
	return false
}

func serve(ctx context.Context, n *Node, req *mcp.CallToolRequest) (_ *Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			log.Printf("node: tool %q panicked: %v\n%s", n.tool.Name, v, debug.Stack())
			err = &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("tool %q panicked", n.tool.Name)}
		}
	}()
	args, err := arguments(req.Params.Arguments)
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("tool %q: %v", n.tool.Name, err)}
	}
	if carrier, ok := ctx.Value(carrierKey{}).(context.Context); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(carrier, cancel)()
	}
	res, err := n.call(withRequest(ctx, req), args)
	if err == nil {
		if err = res.sendable(); err == nil {
			return res, nil
		}
		err = n.failure(ErrTool, err)
	}
	if isProtocol(err) {
		var wire *jsonrpc.Error
		errors.As(err, &wire)
		return nil, wire
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: tell(n.tool.Name, err), Data: kindData(err)}
}

// A toolResult is answered as the bytes that it has.
type toolResult struct {
	mcp.ResultBase
	raw      json.RawMessage
	complete bool // the stateless era wants a result to say that it is complete
}

func (r *toolResult) MarshalJSON() ([]byte, error) {
	if !r.complete {
		return r.raw, nil
	}
	var has struct {
		Type json.RawMessage `json:"resultType"`
		Meta json.RawMessage `json:"_meta"`
	}
	if err := json.Unmarshal(r.raw, &has); err != nil {
		return nil, fmt.Errorf("result: %w", err)
	}
	var b bytes.Buffer
	b.WriteByte('{')
	if has.Type == nil {
		b.WriteString(`"resultType":"complete",`)
	}
	if has.Meta == nil && len(r.Meta) > 0 {
		meta, err := json.Marshal(r.Meta)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, `"_meta":%s,`, meta)
	}
	rest := bytes.TrimSpace(r.raw)[1:]
	if bytes.HasPrefix(bytes.TrimSpace(rest), []byte("}")) {
		b.Truncate(b.Len() - 1) // the comma, or the brace of an empty result
		if b.Len() == 0 {
			b.WriteByte('{')
		}
	}
	b.Write(rest)
	return b.Bytes(), nil
}

// A toolList is a page of tools as the bytes that they were listed as.
type toolList struct {
	mcp.ResultBase
	mcp.Cacheable
	ResultType string            `json:"resultType,omitempty"`
	NextCursor string            `json:"nextCursor,omitempty"`
	Tools      []json.RawMessage `json:"tools"`
}

func (e *exposer) list(page *mcp.ListToolsResult, complete bool) (mcp.Result, error) {
	l := &toolList{Cacheable: page.Cacheable, NextCursor: page.NextCursor, Tools: []json.RawMessage{}}
	l.Meta = page.Meta
	if complete {
		l.ResultType = "complete"
	}
	for _, t := range page.Tools {
		var raw json.RawMessage
		var err error
		if n := e.node(t.Name); n != nil {
			raw, err = n.listed()
		} else {
			raw, err = json.Marshal(t)
		}
		if err != nil {
			return nil, fmt.Errorf("tool %q: %w", t.Name, err)
		}
		l.Tools = append(l.Tools, raw)
	}
	return l, nil
}
