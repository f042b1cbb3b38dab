// Package everything is the built-in MCP server "everything": it uses every
// part of the protocol once, so that clients and gateways can be tried against
// it. It has the tools, schemas, prompts, resources and completions of the
// reference server @modelcontextprotocol/server-everything.
//
// It serves both protocol eras. Where a tool asks its client something
// (elicitation, sampling, roots) it sends a request in the older one and
// returns an input-required result in the newer one; see [ask].
//
// It differs from the reference server where it must:
//   - The SDK has no tasks. simulate-research-query does its work within the
//     call, with progress notifications, and the two tools that hand a task to
//     the client are never listed.
//   - It runs inside the gateway's process. get-env shows the variables that
//     the settings give and never the gateway's own, and
//     gzip-file-as-resource reaches public addresses only.
//   - A stream of log messages that belongs to no call exists in the older era
//     only, so in the newer one toggle-simulated-logging sends one message.
package everything

//lint:file-ignore SA1019 roots, sampling and logging are deprecated and still part of the protocol.

import (
	"context"
	"embed"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/native/settings"
	"github.com/tine-mcp/tine/internal/publicnet"
)

// Settings of the server.
type Settings struct {
	Env          map[string]string `json:"env"`           // what get-env shows
	AllowPrivate bool              `json:"allow_private"` // let gzip-file-as-resource reach private addresses
}

//go:embed docs/*.md
var docs embed.FS

// server is one everything server and what its handlers share.
type server struct {
	*mcp.Server
	env      map[string]string
	net      publicnet.Options
	pace     time.Duration // between two simulated messages or updates
	stage    time.Duration // of simulated research
	image    []byte
	sessions sessions
	zipped   zipped
}

// New returns a server. What runs in its background belongs to a session and
// ends with it.
func New(from map[string]any) (*mcp.Server, error) {
	s, err := newServer(from, 5*time.Second, time.Second)
	if err != nil {
		return nil, err
	}
	return s.Server, nil
}

func newServer(from map[string]any, pace, stage time.Duration) (*server, error) {
	set := Settings{Env: map[string]string{}}
	if err := settings.Decode(from, &set); err != nil {
		return nil, err
	}
	instructions, err := docs.ReadFile("docs/instructions.md")
	if err != nil {
		return nil, fmt.Errorf("read the instructions: %w", err)
	}
	image, err := drawImage()
	if err != nil {
		return nil, err
	}
	s := &server{
		env:   set.Env,
		net:   publicnet.Options{AllowPrivate: set.AllowPrivate},
		pace:  pace,
		stage: stage,
		image: image,
	}
	s.Server = mcp.NewServer(
		&mcp.Implementation{Name: "everything", Title: "Everything", Version: "1.0.0"},
		&mcp.ServerOptions{
			Instructions:            string(instructions),
			InitializedHandler:      s.initialized,
			RootsListChangedHandler: s.rootsChanged,
			SubscribeHandler:        s.subscribe,
			UnsubscribeHandler:      s.unsubscribe,
			CompletionHandler:       complete,
			// What is listed depends on the client and on what it did before.
			SetCacheable: func(_ context.Context, _ mcp.Request, c *mcp.Cacheable) { c.CacheScope = "private" },
		},
	)
	s.AddReceivingMiddleware(s.receive)
	s.addPlainTools()
	s.addResourceTools()
	s.addBackgroundTools()
	s.addClientTools()
	s.addResearchTool()
	s.addPrompts()
	if err := s.addResources(); err != nil {
		return nil, err
	}
	return s, nil
}

// needs maps the tools that only some clients can use to what they take.
var needs = map[string]func(*mcp.ClientCapabilities) bool{
	"get-roots-list":              func(c *mcp.ClientCapabilities) bool { return c.RootsV2 != nil },
	"trigger-elicitation-request": func(c *mcp.ClientCapabilities) bool { return c.Elicitation != nil },
	"trigger-url-elicitation": func(c *mcp.ClientCapabilities) bool {
		return c.Elicitation != nil && c.Elicitation.URL != nil
	},
	"trigger-sampling-request": func(c *mcp.ClientCapabilities) bool { return c.Sampling != nil },
}

func offered(tool string, c *mcp.ClientCapabilities) bool {
	able := needs[tool]
	return able == nil || c != nil && able(c)
}

// receive shows each client the tools it can use, by the capabilities of the
// very request, and makes logging start at the lowest level until the client
// sets one, as the reference server does; the SDK's default is to send nothing.
func (s *server) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.CallToolRequest:
			if !offered(r.Params.Name, r.ClientCapabilities()) {
				return nil, &jsonrpc.Error{
					Code:    jsonrpc.CodeInvalidParams,
					Message: fmt.Sprintf("tool %q needs a capability that the client does not declare", r.Params.Name),
				}
			}
		case *mcp.ListToolsRequest:
			res, err := next(ctx, method, req)
			if list, ok := res.(*mcp.ListToolsResult); ok && err == nil {
				caps := r.ClientCapabilities()
				tools := make([]*mcp.Tool, 0, len(list.Tools))
				for _, t := range list.Tools {
					if offered(t.Name, caps) {
						tools = append(tools, t)
					}
				}
				list.Tools = tools
			}
			return res, err
		case *mcp.ServerRequest[*mcp.InitializeParams]:
			// A handshake means the older era, whatever revision it asks for; the
			// SDK remembers the one asked for and not the one agreed on.
			if r.Params.ProtocolVersion >= newerEra {
				r.Params.ProtocolVersion = "2025-11-25"
			}
			res, err := next(ctx, method, req)
			if err == nil {
				_, err = next(ctx, "logging/setLevel", &mcp.ServerRequest[*mcp.SetLoggingLevelParams]{
					Session: r.Session,
					Params:  &mcp.SetLoggingLevelParams{Level: "debug"},
				})
			}
			if err != nil {
				return nil, err
			}
			return res, nil
		}
		return next(ctx, method, req)
	}
}

// newerEra is the first revision without sessions and handshake.
const newerEra = "2026-07-28"

// modern reports whether the session speaks the newer era, in which a server
// sends no requests of its own.
func modern(ss *mcp.ServerSession) bool {
	p := ss.InitializeParams()
	return p != nil && p.ProtocolVersion >= newerEra
}
