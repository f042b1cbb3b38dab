// Package files is the built-in MCP server "files": reading, writing, listing and
// searching a directory tree that no path leads out of. It has the tools, schemas
// and results of the reference server @modelcontextprotocol/server-filesystem;
// docs/servers/files.md lists where they differ.
//
// The tree is a [workspace.FS], which guards names and links at every access.
// What is here decides which names are meant and how errors read.
package files

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/native/settings"
	"github.com/tine-mcp/tine/internal/workspace"
)

// Settings of the server.
type Settings struct {
	// ReadOnly hides the tools that change something, and refuses them.
	ReadOnly bool `json:"readonly"`
	// MaxRead is how many bytes of files or lists a call returns at most.
	MaxRead int64 `json:"max_read"`
}

// Bounds of Settings.MaxRead.
const (
	defaultMaxRead = 16 << 20
	mostMaxRead    = 1 << 30
)

// server is one files server.
type server struct {
	tree       workspace.FS
	readOnly   bool
	maxRead    int64
	maxEntries int // that one call looks at

	// Changes happen one at a time: an edit must find what it read. It is a
	// channel so that a waiting call can be cancelled.
	change chan struct{}
}

// New returns a server of a tree. It holds nothing that would need closing, and
// costs little: thousands of sessions have one each.
func New(from map[string]any, tree workspace.FS) (*mcp.Server, error) {
	s, err := newServer(from, tree)
	if err != nil {
		return nil, err
	}
	srv := mcp.NewServer(
		&mcp.Implementation{Name: "files", Title: "Files", Version: "1.0.0"},
		// The tools never change, so no change is announced.
		&mcp.ServerOptions{Capabilities: &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{}}},
	)
	srv.AddReceivingMiddleware(s.receive)
	return srv, nil
}

func newServer(from map[string]any, tree workspace.FS) (*server, error) {
	set := Settings{MaxRead: defaultMaxRead}
	if err := settings.Decode(from, &set); err != nil {
		return nil, err
	}
	if set.MaxRead < 1 || set.MaxRead > mostMaxRead {
		return nil, fmt.Errorf("settings.max_read is %d; give a number of bytes from 1 to %d", set.MaxRead, mostMaxRead)
	}
	return &server{
		tree:       tree,
		readOnly:   set.ReadOnly,
		maxRead:    set.MaxRead,
		maxEntries: 1_000_000,
		change:     make(chan struct{}, 1),
	}, nil
}

// receive answers what concerns tools from the one list of this process. Adding
// them to each server would check every schema again, which takes a hundred
// times as long as all else that [New] does.
func (s *server) receive(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.ListToolsRequest:
			list := catalog().all
			if s.readOnly {
				list = catalog().reading
			}
			return &mcp.ListToolsResult{Tools: list, Cacheable: mcp.Cacheable{CacheScope: "public"}}, nil
		case *mcp.CallToolRequest:
			if t, ok := catalog().byName[r.Params.Name]; ok {
				return s.call(ctx, t, r.Params)
			}
		}
		return next(ctx, method, req)
	}
}

func (s *server) call(ctx context.Context, t *tool, params *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
	res, err := s.run(ctx, t, params)
	if err == nil {
		return res, nil
	}
	if ctx.Err() != nil || driver.HostFault(err) {
		return nil, err
	}
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: err.Error()}}}, nil
}

func (s *server) run(ctx context.Context, t *tool, params *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
	if s.readOnly && t.changes {
		return nil, fmt.Errorf("%s is refused: this server is read-only; set settings.readonly to false to change files", params.Name)
	}
	a, err := newArgs(params.Arguments)
	if err != nil {
		return nil, toolErrorf("Invalid arguments for tool %s: %s", params.Name, err)
	}
	if t.changes {
		select {
		case s.change <- struct{}{}:
			defer func() { <-s.change }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	res, err := t.run(s, ctx, a)
	if a.err != nil {
		return nil, toolErrorf("Invalid arguments for tool %s: %s", params.Name, a.err)
	}
	return res, err
}

// text is what most tools return: a text, and the same as structured content.
func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{
		Content:           []mcp.Content{&mcp.TextContent{Text: s}},
		StructuredContent: content{s},
	}
}

type content struct {
	Content string `json:"content"`
}
