// Package memory is the built-in MCP server "memory": a knowledge graph of
// entities, what was observed about them, and relations between them. It has
// the tools, the resource, the schemas and the results of the reference server
// @modelcontextprotocol/server-memory, and reads its files.
//
// The graph is a persistent value that a state of package layer folds from
// small changes: a call costs what it touches, whatever the graph holds, a fork
// shares all of it, and what was answered is in the log.
package memory

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/settings"
)

// Settings of the server: how much a graph may hold. What is over a limit is
// refused with an error that names it; what is there already stays.
type Settings struct {
	MaxEntities     int64 `json:"max_entities"`     // default 100,000
	MaxRelations    int64 `json:"max_relations"`    // default 1,000,000
	MaxObservations int64 `json:"max_observations"` // of one entity; default 10,000
	MaxValueBytes   int64 `json:"max_value_bytes"`  // of one name, type or observation; default 1 MiB
	MaxGraphBytes   int64 `json:"max_graph_bytes"`  // default 256 MiB
	MaxResultBytes  int64 `json:"max_result_bytes"` // of the graph in one answer; default 8 MiB
}

// CheckSettings says what is wrong with settings.
func CheckSettings(from map[string]any) error {
	_, err := decode(from)
	return err
}

func decode(from map[string]any) (Settings, error) {
	s := Settings{
		MaxEntities:     100_000,
		MaxRelations:    1_000_000,
		MaxObservations: 10_000,
		MaxValueBytes:   1 << 20,
		MaxGraphBytes:   256 << 20,
		MaxResultBytes:  8 << 20,
	}
	if err := settings.Decode(from, &s); err != nil {
		return s, err
	}
	for _, l := range []struct {
		name  string
		value int64
	}{
		{"max_entities", s.MaxEntities}, {"max_relations", s.MaxRelations}, {"max_observations", s.MaxObservations},
		{"max_value_bytes", s.MaxValueBytes}, {"max_graph_bytes", s.MaxGraphBytes}, {"max_result_bytes", s.MaxResultBytes},
	} {
		if l.value < 1 {
			return s, fmt.Errorf("settings.%s must be 1 or more, not %d", l.name, l.value)
		}
	}
	return s, nil
}

// New returns a server on the graph of a state, which stays the caller's to
// close when the server's last session has ended.
func New(from map[string]any, h *layer.Head[*Graph]) (*mcp.Server, error) {
	limits, err := decode(from)
	if err != nil {
		return nil, err
	}
	srv := mcp.NewServer(
		&mcp.Implementation{Name: "memory", Title: "Memory", Version: "1.0.0"},
		&mcp.ServerOptions{
			// The lists never change, so no change is announced.
			Capabilities: &mcp.ServerCapabilities{
				Tools:     &mcp.ToolCapabilities{},
				Resources: &mcp.ResourceCapabilities{Subscribe: true},
			},
			SubscribeHandler:   func(context.Context, *mcp.SubscribeRequest) error { return nil },
			UnsubscribeHandler: func(context.Context, *mcp.UnsubscribeRequest) error { return nil },
		},
	)
	s := &server{head: h, limits: limits, mcp: srv}
	srv.AddReceivingMiddleware(s.tools)
	srv.AddResource(&mcp.Resource{
		URI:         resourceURI,
		Name:        "knowledge-graph",
		Title:       "Knowledge Graph",
		Description: "All entities and relations of the knowledge graph",
		MIMEType:    "application/json",
	}, s.read)
	return srv, nil
}
