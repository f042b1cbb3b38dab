package memory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/layer"
)

const resourceURI = "memory://knowledge-graph"

// server answers calls on one state.
type server struct {
	head   *layer.Head[*Graph]
	limits Settings
	mcp    *mcp.Server

	mu    sync.Mutex
	added map[string]struct{} // tools that the SDK knows of
}

// tools answers tools/list, and gives the SDK a tool when it is first called. The SDK
// reads all schemas of each tool that it has, several times, which is most of what
// starting a server would take, and the schemas are the same for all.
func (s *server) tools(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch req := req.(type) {
		case *mcp.ListToolsRequest:
			if req.Params != nil && req.Params.Cursor != "" {
				return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "unknown cursor: the list of tools has one page"}
			}
			return &mcp.ListToolsResult{Tools: toolbox().list, Cacheable: mcp.Cacheable{CacheScope: "public"}}, nil
		case *mcp.CallToolRequest:
			s.add(req.Params.Name)
		}
		return next(ctx, method, req)
	}
}

func (s *server) add(name string) {
	t, ok := toolbox().byName[name]
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.added[name]; ok {
		return
	}
	if s.added == nil {
		s.added = map[string]struct{}{}
	}
	s.added[name] = struct{}{}
	s.mcp.AddTool(&mcp.Tool{Name: name, InputSchema: json.RawMessage(`{"type":"object"}`)}, s.handler(t))
}

func (s *server) handler(t tool) mcp.ToolHandler {
	return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		var a args
		in := map[string]json.RawMessage{}
		if raw := json.RawMessage(req.Params.Arguments); len(raw) > 0 && kind(raw) != "null" {
			in = a.object(raw, "")
		}
		var res *mcp.CallToolResult
		err := a.err(t.tool.Name)
		if err == nil {
			res, err = t.call(ctx, s, in, &a)
		}
		var no refusal
		switch {
		case errors.As(err, &no):
			return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{&mcp.TextContent{Text: string(no)}}}, nil
		case err != nil && ctx.Err() == nil && !driver.HostFault(err):
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: fmt.Sprintf("%s: %v", t.tool.Name, err)}
		case err != nil:
			return nil, err
		}
		if !t.tool.Annotations.ReadOnlyHint {
			// The reference tells subscribers also when nothing has changed.
			if err := s.mcp.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: resourceURI}); err != nil {
				return nil, err
			}
		}
		return res, nil
	}
}

// change commits what plan makes of the graph. It is called with the graph as it is,
// which no other call changes meanwhile.
func (s *server) change(plan func(g *Graph) (*change, error)) error {
	_, err := s.head.Commit(commit(plan))
	return err
}

func createEntities(_ context.Context, s *server, in map[string]json.RawMessage, a *args) (*mcp.CallToolResult, error) {
	entities := each(a, in["entities"], "entities", a.entity)
	if err := a.err("create_entities"); err != nil {
		return nil, err
	}
	var added []*entity
	err := s.change(func(g *Graph) (*change, error) {
		added = nil
		for _, e := range entities {
			// Two of the same name in one call are both new, as in the reference.
			if _, _, ok := g.first(e.Name); !ok {
				added = append(added, e)
			}
		}
		return &change{Entities: added}, s.limits.entities(g, added)
	})
	if err != nil {
		return nil, err
	}
	var out answer
	list(&out, slices.Values(added), out.entity)
	return out.result("entities")
}

func createRelations(_ context.Context, s *server, in map[string]json.RawMessage, a *args) (*mcp.CallToolResult, error) {
	relations := each(a, in["relations"], "relations", a.relation)
	if err := a.err("create_relations"); err != nil {
		return nil, err
	}
	var added []relation
	err := s.change(func(g *Graph) (*change, error) {
		added = nil
		for _, r := range relations {
			if len(g.alike(r)) == 0 {
				added = append(added, r)
			}
		}
		return &change{Relations: added}, s.limits.relations(g, added)
	})
	if err != nil {
		return nil, err
	}
	var out answer
	list(&out, slices.Values(added), out.relation)
	return out.result("relations")
}

func addObservations(_ context.Context, s *server, in map[string]json.RawMessage, a *args) (*mcp.CallToolResult, error) {
	wanted := each(a, in["observations"], "observations", a.observed("contents"))
	if err := a.err("add_observations"); err != nil {
		return nil, err
	}
	var results []observed
	err := s.change(func(g *Graph) (*change, error) {
		results = nil
		c := &change{}
		d := g.edit()
		for _, o := range wanted {
			id, e, ok := d.first(o.Name)
			if !ok {
				return nil, refuse("Entity with name %s not found", o.Name)
			}
			added := observed{Name: o.Name, Observations: without(o.Observations, e.Observations)}
			results = append(results, added)
			if len(added.Observations) == 0 {
				continue
			}
			if err := s.limits.observations(d, e, added.Observations); err != nil {
				return nil, err
			}
			d.observe(id, e, slices.Concat(e.Observations, added.Observations))
			c.Added = append(c.Added, added)
		}
		return c, nil
	})
	if err != nil {
		return nil, err
	}
	var out answer
	list(&out, slices.Values(results), out.observed)
	return out.result("results")
}

func deleteEntities(_ context.Context, s *server, in map[string]json.RawMessage, a *args) (*mcp.CallToolResult, error) {
	names := a.strings(in["entityNames"], "entityNames")
	if err := a.err("delete_entities"); err != nil {
		return nil, err
	}
	err := s.change(func(g *Graph) (*change, error) {
		c := &change{}
		for _, name := range names {
			if _, _, ok := g.first(name); ok || len(g.leadingFrom(name)) > 0 || len(g.leadingTo(name)) > 0 {
				c.RemoveNames = append(c.RemoveNames, name)
			}
		}
		return c, nil
	})
	if err != nil {
		return nil, err
	}
	return done("Entities deleted successfully"), nil
}

func deleteObservations(_ context.Context, s *server, in map[string]json.RawMessage, a *args) (*mcp.CallToolResult, error) {
	deletions := each(a, in["deletions"], "deletions", a.observed("observations"))
	if err := a.err("delete_observations"); err != nil {
		return nil, err
	}
	err := s.change(func(g *Graph) (*change, error) {
		c := &change{}
		for _, o := range deletions {
			if _, e, ok := g.first(o.Name); ok && len(without(e.Observations, o.Observations)) < len(e.Observations) {
				c.Removed = append(c.Removed, o)
			}
		}
		return c, nil
	})
	if err != nil {
		return nil, err
	}
	return done("Observations deleted successfully"), nil
}

func deleteRelations(_ context.Context, s *server, in map[string]json.RawMessage, a *args) (*mcp.CallToolResult, error) {
	relations := each(a, in["relations"], "relations", a.relation)
	if err := a.err("delete_relations"); err != nil {
		return nil, err
	}
	err := s.change(func(g *Graph) (*change, error) {
		c := &change{}
		for _, r := range relations {
			if len(g.alike(r)) > 0 {
				c.RemoveRelations = append(c.RemoveRelations, r)
			}
		}
		return c, nil
	})
	if err != nil {
		return nil, err
	}
	return done("Relations deleted successfully"), nil
}

func readGraph(_ context.Context, s *server, _ map[string]json.RawMessage, _ *args) (*mcp.CallToolResult, error) {
	out, err := s.show(s.head.Value().all(), "read_graph would answer with")
	if err != nil {
		return nil, err
	}
	return out.result("")
}

func searchNodes(ctx context.Context, s *server, in map[string]json.RawMessage, a *args) (*mcp.CallToolResult, error) {
	query := a.string(in["query"], "query")
	if err := a.err("search_nodes"); err != nil {
		return nil, err
	}
	g := s.head.Value()
	ids, err := g.search(ctx, query)
	if err != nil {
		return nil, err
	}
	out, err := s.show(g.around(ids), fmt.Sprintf("%d entities match; with their relations they are", len(ids)))
	if err != nil {
		return nil, err
	}
	return out.result("")
}

func openNodes(_ context.Context, s *server, in map[string]json.RawMessage, a *args) (*mcp.CallToolResult, error) {
	names := a.strings(in["names"], "names")
	if err := a.err("open_nodes"); err != nil {
		return nil, err
	}
	g := s.head.Value()
	out, err := s.show(g.around(g.open(names)), "these entities and their relations are")
	if err != nil {
		return nil, err
	}
	return out.result("")
}

// read answers with the graph as a resource.
func (s *server) read(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	out, err := s.show(s.head.Value().all(), "the graph is")
	if err != nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: err.Error()}
	}
	text, err := out.text()
	if err != nil {
		return nil, err
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, MIMEType: "application/json", Text: text}}}, nil
}

// show writes a graph, or refuses where it is too large for one answer.
func (s *server) show(p parts, what string) (*answer, error) {
	out := &answer{limit: s.limits.MaxResultBytes}
	out.graph(p)
	if out.full() {
		return nil, refuse("%s more than the %d bytes that one answer may have (settings.max_result_bytes); ask for less with search_nodes or open_nodes", what, s.limits.MaxResultBytes)
	}
	return out, nil
}
