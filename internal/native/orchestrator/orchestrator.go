// Package orchestrator is the native MCP server "orchestrator": tools by which agents
// start other agents, wait for them, and are told of their results.
//
// The server knows no principals. With every call comes a handle on the caller, which
// the gateway made for this one call; it goes back with what is to be done, so that the
// agents decide as they do for the control API: who the caller is, which run it does,
// and what it may start.
package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/native/settings"
	"github.com/tine-mcp/tine/internal/wire"
)

// Agents starts agents and knows of their work. The caller is the handle that came with
// the call. Errors are [api.Error]s. All methods may run at once.
type Agents interface {
	// Blueprints are the agents that the caller may start.
	Blueprints(ctx context.Context, caller string) ([]api.Agent, error)
	// Start begins a run, of a new session or of one that is there.
	Start(ctx context.Context, caller string, in api.NewRun) (api.Run, error)
	// Run is a run as it is now or, with wait, when it has ended. If ctx ends first it is
	// as it is then, without an error.
	Run(ctx context.Context, caller, id string, wait bool) (api.Run, error)
	Sessions
}

// Sessions are the sessions of agents that the caller has started.
type Sessions interface {
	Sessions(ctx context.Context, caller string) ([]api.AgentSession, error)
	Session(ctx context.Context, caller, id string) (api.AgentSession, error)
	// CloseAgent ends the work of a session and closes it.
	CloseAgent(ctx context.Context, caller, id string) error
}

// options are the settings of the server.
type options struct {
	// Wait is how many seconds a call in the mode sync waits for the result.
	Wait int `json:"wait"`
}

// New returns a server. It holds nothing that would need closing.
func New(from map[string]any, agents Agents) (*mcp.Server, error) {
	o := options{Wait: 600}
	if err := settings.Decode(from, &o); err != nil {
		return nil, err
	}
	if o.Wait < 1 || o.Wait > 24*3600 {
		return nil, errors.New("settings.wait must be 1 to 86400 seconds")
	}
	srv := mcp.NewServer(
		&mcp.Implementation{Name: "orchestrator", Title: "Orchestrator", Version: "1.0.0"},
		// The tools never change, so no change is announced.
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}},
	)
	s := &server{agents: agents, wait: time.Duration(o.Wait) * time.Second}
	s.addTools(srv)
	return srv, nil
}

// server is one orchestrator.
type server struct {
	agents Agents
	wait   time.Duration
}

// call is one call of a tool.
type call struct {
	req    *mcp.CallToolRequest
	caller string
}

// add adds a tool. What goes wrong is said in the same place as for every other call:
// whose failure it is, and what the mend is.
func add[In, Out any](srv *mcp.Server, tool *mcp.Tool, do func(ctx context.Context, c call, in In) (Out, error)) {
	mcp.AddTool(srv, tool, func(ctx context.Context, req *mcp.CallToolRequest, in In) (*mcp.CallToolResult, any, error) {
		caller, _ := req.Params.Meta[wire.MetaTineCaller].(string)
		// The SDK has looked at the arguments, and rounded the numbers in them.
		if raw := req.Params.Arguments; len(raw) > 0 {
			in = *new(In)
			if err := json.Unmarshal(raw, &in); err != nil {
				return nil, nil, err
			}
		}
		out, err := do(ctx, call{req, caller}, in)
		if err == nil {
			return nil, out, nil
		}
		e := &api.Error{Kind: api.KindInfrastructure, Message: err.Error()}
		errors.As(err, &e)
		return &mcp.CallToolResult{
			IsError: true,
			Meta:    mcp.Meta{wire.MetaTineError: e},
			Content: []mcp.Content{&mcp.TextContent{Text: e.Message}},
		}, nil, nil
	})
}
