package node

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A Node is a tool that can be called. Nodes don't change, and may be used by
// several goroutines at once.
type Node struct {
	tool mcp.Tool
	raw  json.RawMessage // the tool as the server listed it; nil if it was made here
	call func(context.Context, json.RawMessage) (*Result, error)
	sent bool // call sends its arguments, and then fails unless they are valid
	from *Server

	bound sync.Map // reflect.Type of an input to the error of its binding, or nil
}

// A Source has nodes, maybe others at another time: a [Node], a [Server], what
// [Merge] returns, or a type of your own. A type of your own is asked for its nodes
// when it begins to be served; one that embeds a *Server is asked again when the
// server's list changes.
type Source interface {
	Nodes() []*Node
}

// New makes a node of a tool and a function that is called with the arguments, a
// JSON object. The schemas of the tool may be anything that marshals to a JSON
// schema; New does not validate against them. An error of the function is an [ErrTool]
// unless it has another kind. New panics if there is no tool or no function, or the
// tool has no name or can't be written as JSON.
func New(tool *mcp.Tool, call func(ctx context.Context, args json.RawMessage) (*Result, error)) *Node {
	if tool == nil {
		panic("node.New: there is no tool")
	}
	n := &Node{tool: *tool, call: call}
	if n.tool.InputSchema == nil {
		n.tool.InputSchema = map[string]any{"type": "object"}
	}
	if n.tool.Name == "" {
		panic("node.New: the tool has no name")
	}
	if call == nil {
		panic(fmt.Sprintf("node.New: tool %q has no function", n.tool.Name))
	}
	if _, err := json.Marshal(&n.tool); err != nil {
		panic(fmt.Sprintf("node.New: tool %q: %v", n.tool.Name, err))
	}
	return n
}

// Tool describes the node. The schemas of a consumed node are maps, as the SDK
// decodes them; they are shared and must not be changed.
func (n *Node) Tool() *mcp.Tool {
	t := n.tool
	return &t
}

// Nodes makes a node a [Source] of itself.
func (n *Node) Nodes() []*Node { return []*Node{n} }

// Call calls the tool. Args is any value that marshals to a JSON object; nil is an
// empty one. A [json.RawMessage] is passed on as it is.
//
// A tool that fails says so in its result, see [Result.Err]. The kinds of errors
// are [ErrNotSent], [ErrOutcomeUnknown] and [ErrTool].
func (n *Node) Call(ctx context.Context, args any) (*Result, error) {
	raw, err := arguments(args)
	if _, given := args.(json.RawMessage); err == nil && given && !n.sent && !json.Valid(raw) {
		err = errNotJSON
	}
	if err != nil {
		return nil, n.failure(ErrNotSent, err)
	}
	res, err := n.call(ctx, raw)
	switch {
	case err == nil && res == nil:
		return nil, n.failure(ErrTool, errNoResult)
	case err != nil && kindOf(err) == nil:
		return nil, n.failure(ErrTool, err)
	}
	return res, err
}

// failure is an error of a call.
func (n *Node) failure(kind, cause error) error {
	server := ""
	if n.from != nil {
		server = n.from.place()
	}
	return &callError{kind, n.tool.Name, server, cause}
}

// Wrap makes a node with the same tool and another function, which usually calls
// n. It panics if there is no function.
func (n *Node) Wrap(call func(ctx context.Context, args json.RawMessage) (*Result, error)) *Node {
	if call == nil {
		panic(fmt.Sprintf("node.Wrap: tool %q has no function", n.tool.Name))
	}
	return &Node{tool: n.tool, raw: n.raw, call: call}
}

// arguments are args as JSON. A [json.RawMessage] may still not be valid.
func arguments(args any) (json.RawMessage, error) {
	raw, ok := args.(json.RawMessage)
	if !ok && args != nil {
		var err error
		if raw, err = json.Marshal(args); err != nil {
			return nil, fmt.Errorf("arguments: %w", err)
		}
	}
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage("{}"), nil
	}
	if raw[0] != '{' {
		return nil, errNoObject
	}
	return raw, nil
}

// listed is the tool as JSON, under its name.
func (n *Node) listed() (json.RawMessage, error) {
	if n.raw != nil {
		return n.raw, nil
	}
	return json.Marshal(&n.tool)
}

// renamed is n under another name, with a note before its description.
func (n *Node) renamed(name, note string) (*Node, error) {
	r := &Node{tool: n.tool, call: n.call, sent: n.sent, from: n.from}
	r.tool.Name = name
	if r.tool.Description != "" {
		r.tool.Description = note + r.tool.Description
	}
	if n.raw == nil {
		return r, nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(n.raw, &fields); err != nil {
		return nil, err
	}
	fields["name"], _ = json.Marshal(name)
	if r.tool.Description != "" {
		fields["description"], _ = json.Marshal(r.tool.Description)
	}
	var err error
	r.raw, err = json.Marshal(fields)
	return r, err
}

// Call calls a node with a Go value and decodes its result into another; see
// [Result.Decode]. A result that says that the tool failed is an [ErrTool]. An Out
// of *Result or *[mcp.CallToolResult] is the result itself, also of a tool that
// failed.
//
// The error of a result that can't be decoded has no kind: the tool did run.
//
// Before the first call with an In, the tool's input schema is compared with it:
// In must have every required property, with the same kind of JSON value.
// Otherwise the error is an [ErrNotSent]. An In that is not a struct is not
// compared.
func Call[In, Out any](ctx context.Context, n *Node, in In) (Out, error) {
	var out Out
	if err := n.bind(reflect.TypeFor[In]()); err != nil {
		return out, n.failure(ErrNotSent, err)
	}
	res, err := n.Call(ctx, in)
	if err != nil {
		return out, err
	}
	switch p := any(&out).(type) {
	case **Result:
		*p = res
		return out, nil
	case **mcp.CallToolResult:
		if *p, err = res.MCP(); err != nil {
			err = n.failure(nil, err)
		}
		return out, err
	}
	switch said, failed, err := res.failed(); {
	case err != nil:
		return out, n.failure(nil, err)
	case failed:
		return out, n.failure(ErrTool, said)
	}
	if err := res.Decode(&out); err != nil {
		return out, n.failure(nil, err)
	}
	return out, nil
}
