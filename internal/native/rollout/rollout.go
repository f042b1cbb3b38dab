// Package rollout is the native MCP server "rollout": sessions as tools. A client that
// drives rollouts over MCP alone opens worlds with it, forks them, freezes and rewinds
// them and closes them.
//
// It has two sets of tools for that. Those called *_session, for sessions as Tine
// has them: without a session_id such a tool means the session that it is called
// in. And those of RewardKit, where a session is made of backends and their tools
// are called through this server: without a session they mean the one of the
// token, of the request, or the one that the connection has opened.
//
// The server knows no principals. With every call comes a handle on the caller and its
// session, which the gateway made for this one call; it goes back to the gateway with
// what is to be done, and the gateway decides as it does for its control API.
package rollout

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/native/settings"
	"github.com/tine-mcp/tine/internal/wire"
)

// Sessions acts on sessions. The caller is the handle that came with the call, and an
// empty session the one that the call is made in. With a key, what was made by an
// earlier call with it is answered, and nothing is made twice. Errors are
// [api.Error]s. All of them may run at once.
type Sessions interface {
	Open(ctx context.Context, caller, key string, in api.NewSession) (api.OpenedSession, error)
	Fork(ctx context.Context, caller, session, key string, in api.ForkRequest) (api.Forks, error)
	Snapshot(ctx context.Context, caller, session string, in api.SnapshotRequest) (api.Snapshot, error)
	Rewind(ctx context.Context, caller, session string, in api.RewindRequest) (api.Session, error)
	Close(ctx context.Context, caller, session string) error
	// List gives a page of those sessions that have all of the labels, and with
	// a parent are forks of it. A limit of zero is the usual one.
	List(ctx context.Context, caller, parent string, labels map[string]string, limit int, after string) (api.SessionList, error)
	Backends
}

// Backends knows what sessions are made of.
type Backends interface {
	// Servers are those that the caller may have in a session.
	Servers(ctx context.Context, caller string) ([]api.Server, error)
	// Which is the session that a call means: the one it names, or that of the
	// caller's token, of the request, or of what the caller's connection used last;
	// empty where there is none.
	Which(ctx context.Context, caller, named string) (string, error)
	// Use has the caller's connection mean a session from now on.
	Use(ctx context.Context, caller, session string) error
	// Show is a session, open or closed, with its members.
	Show(ctx context.Context, caller, session string) (api.Session, error)
	// Call calls a tool of a member and returns its CallToolResult, raw. A tool that
	// does not exist is such a result, too.
	Call(ctx context.Context, caller, session, member, tool string, args json.RawMessage) (json.RawMessage, error)
	// Tools returns the ListToolsResult of a member, raw and whole.
	Tools(ctx context.Context, caller, session, member string) (json.RawMessage, error)
}

// server is one rollout server.
type server struct{ sessions Sessions }

// New returns a server. It holds nothing that would need closing.
func New(from map[string]any, s Sessions) (*mcp.Server, error) {
	if err := settings.Decode(from, &struct{}{}); err != nil {
		return nil, err
	}
	srv := mcp.NewServer(
		&mcp.Implementation{Name: "rollout", Title: "Rollout", Version: "1.0.0"},
		// The tools never change, so no change is announced.
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}},
	)
	srv.AddReceivingMiddleware((&server{s}).receive)
	return srv, nil
}

// receive answers what concerns tools from the one list of this process, with
// arguments as they came: the SDK would hold them against the schema, in which
// the form that some clients wrap them in has no place.
func (s *server) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.ListToolsRequest:
			if r.Params != nil && r.Params.Cursor != "" {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown cursor: the list of tools has one page"}
			}
			return &mcp.ListToolsResult{Tools: catalog().list, Cacheable: mcp.Cacheable{CacheScope: "public"}}, nil
		case *mcp.CallToolRequest:
			if t, ok := catalog().byName[r.Params.Name]; ok {
				return s.call(ctx, t, r.Params)
			}
		}
		return next(ctx, method, req)
	}
}

func (s *server) call(ctx context.Context, t *tool, params *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
	caller, _ := params.Meta[wire.MetaTineCaller].(string)
	raw, err := unwrap(params.Arguments)
	var out any
	if err == nil {
		out, err = t.run(ctx, s.sessions, caller, raw)
	}
	switch {
	case err == nil:
		return answer(out)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", params.Name, err)
	}
	return failure(err)
}
