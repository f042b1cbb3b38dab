package memory

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// tool is a tool and what it does with its arguments, which are a JSON object.
type tool struct {
	tool *mcp.Tool
	call func(ctx context.Context, s *server, in map[string]json.RawMessage, a *args) (*mcp.CallToolResult, error)
}

const (
	text      = `{"type":"string","description":"`
	entityOf  = `{"type":"object","properties":{"name":` + text + `What the entity is called"},"entityType":` + text + `What kind of thing it is"},"observations":{"type":"array","items":{"type":"string"},"description":"What is known about it, a fact each"}},"required":["name","entityType","observations"]}`
	relatedBy = `{"type":"object","properties":{"from":` + text + `Name of the entity that the relation starts at"},"to":` + text + `Name of the entity that it leads to"},"relationType":` + text + `What the one is to the other"}},"required":["from","to","relationType"]}`
	names     = `{"type":"array","items":{"type":"string"},"description":"`

	success = `{"type":"object","properties":{"success":{"type":"boolean"},"message":{"type":"string"}},"required":["success","message"]}`
	graphOf = `{"type":"object","properties":{"entities":{"type":"array","items":` + entityOf + `},"relations":{"type":"array","items":` + relatedBy + `}},"required":["entities","relations"]}`
)

// object is the schema of an object with one property, which it must have.
func object(property, schema string) json.RawMessage {
	return json.RawMessage(`{"type":"object","properties":{"` + property + `":` + schema + `},"required":["` + property + `"]}`)
}

func listOf(schema string) string { return `{"type":"array","items":` + schema + `}` }

func hints(readOnly, destructive, idempotent bool) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{ReadOnlyHint: readOnly, DestructiveHint: &destructive, IdempotentHint: idempotent, OpenWorldHint: new(bool)}
}

// box holds the tools, which are the same for every server.
type box struct {
	list   []*mcp.Tool
	byName map[string]tool
}

// toolbox is made once, since many servers are started.
var toolbox = sync.OnceValue(func() *box {
	b := &box{byName: map[string]tool{}}
	for _, t := range tools() {
		b.list = append(b.list, t.tool)
		b.byName[t.tool.Name] = t
	}
	return b
})

func tools() []tool {
	adds, removes, reads := hints(false, false, false), hints(false, true, true), hints(true, false, true)
	return []tool{
		{&mcp.Tool{
			Name: "create_entities", Title: "Create Entities", Annotations: adds,
			Description:  "Adds new entities to the knowledge graph. Those with a name that is there already are left out",
			InputSchema:  object("entities", listOf(entityOf)),
			OutputSchema: object("entities", listOf(entityOf)),
		}, createEntities},
		{&mcp.Tool{
			Name: "create_relations", Title: "Create Relations", Annotations: adds,
			Description:  "Adds new relations between entities to the knowledge graph. Word them in the active voice",
			InputSchema:  object("relations", listOf(relatedBy)),
			OutputSchema: object("relations", listOf(relatedBy)),
		}, createRelations},
		{&mcp.Tool{
			Name: "add_observations", Title: "Add Observations", Annotations: adds,
			Description: "Adds observations to entities that are in the knowledge graph",
			InputSchema: object("observations", listOf(`{"type":"object","properties":{"entityName":`+text+`Name of the entity"},"contents":`+
				names+`What to add to it"}},"required":["entityName","contents"]}`)),
			OutputSchema: object("results", listOf(`{"type":"object","properties":{"entityName":{"type":"string"},"addedObservations":{"type":"array","items":{"type":"string"}}},"required":["entityName","addedObservations"]}`)),
		}, addObservations},
		{&mcp.Tool{
			Name: "delete_entities", Title: "Delete Entities", Annotations: removes,
			Description:  "Removes entities from the knowledge graph, with their relations",
			InputSchema:  object("entityNames", names+`Names of the entities"}`),
			OutputSchema: json.RawMessage(success),
		}, deleteEntities},
		{&mcp.Tool{
			Name: "delete_observations", Title: "Delete Observations", Annotations: removes,
			Description: "Removes observations from entities of the knowledge graph",
			InputSchema: object("deletions", listOf(`{"type":"object","properties":{"entityName":`+text+`Name of the entity"},"observations":`+
				names+`What to remove from it"}},"required":["entityName","observations"]}`)),
			OutputSchema: json.RawMessage(success),
		}, deleteObservations},
		{&mcp.Tool{
			Name: "delete_relations", Title: "Delete Relations", Annotations: removes,
			Description:  "Removes relations from the knowledge graph",
			InputSchema:  object("relations", `{"type":"array","items":`+relatedBy+`,"description":"The relations"}`),
			OutputSchema: json.RawMessage(success),
		}, deleteRelations},
		{&mcp.Tool{
			Name: "read_graph", Title: "Read Graph", Annotations: reads,
			Description:  "Returns the whole knowledge graph",
			InputSchema:  json.RawMessage(`{"type":"object","properties":{}}`),
			OutputSchema: json.RawMessage(graphOf),
		}, readGraph},
		{&mcp.Tool{
			Name: "search_nodes", Title: "Search Nodes", Annotations: reads,
			Description:  "Finds entities of the knowledge graph by a text, and their relations",
			InputSchema:  object("query", text+`What a name, a type or an observation contains"}`),
			OutputSchema: json.RawMessage(graphOf),
		}, searchNodes},
		{&mcp.Tool{
			Name: "open_nodes", Title: "Open Nodes", Annotations: reads,
			Description:  "Returns entities of the knowledge graph by their names, and their relations",
			InputSchema:  object("names", names+`Names of the entities"}`),
			OutputSchema: json.RawMessage(graphOf),
		}, openNodes},
	}
}
