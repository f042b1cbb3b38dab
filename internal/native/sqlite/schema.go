package sqlite

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// definition is a tool as it is listed, and how it is called.
type definition struct {
	tool  *mcp.Tool
	reads bool // the database, and changes nothing in it
	call  func(t *tools, ctx context.Context, args json.RawMessage) (*mcp.CallToolResult, error)
}

// A catalog is the tools of a kind of server.
type catalog struct {
	list   []*mcp.Tool
	byName map[string]definition
}

// The catalogs, with and without a workspace, and with only what reads, are made
// once: all servers of the process share them.
var catalogs = sync.OnceValue(func() (all [2][2]catalog) {
	for i, withFiles := range []bool{false, true} {
		for j, readOnly := range []bool{false, true} {
			c := catalog{byName: map[string]definition{}}
			for _, d := range define(withFiles) {
				if !readOnly || d.reads {
					c.list = append(c.list, d.tool)
					c.byName[d.tool.Name] = d
				}
			}
			all[i][j] = c
		}
	}
	return all
})

func catalogFor(withFiles, readOnly bool) *catalog {
	all := catalogs()
	i, j := 0, 0
	if withFiles {
		i = 1
	}
	if readOnly {
		j = 1
	}
	return &all[i][j]
}

func define(withFiles bool) []definition {
	var (
		no     = new(bool)
		yes    = new(bool)
		reads  = &mcp.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: no, IdempotentHint: true, OpenWorldHint: no}
		writes = &mcp.ToolAnnotations{DestructiveHint: yes, OpenWorldHint: no}
		adds   = &mcp.ToolAnnotations{DestructiveHint: no, OpenWorldHint: no}
		places = &mcp.ToolAnnotations{DestructiveHint: yes, IdempotentHint: true, OpenWorldHint: no}
	)
	*yes = true

	params := schema{
		"type":        []string{"array", "object", "null"},
		"description": `Values for the parameters of the statement: a list for ?, or an object for :name. Blobs are given as {"base64": "..."}.`,
	}
	importing := props{
		"table":  str("Table to put the rows into"),
		"csv":    str("The CSV text"),
		"header": flag("Whether the first line names the columns", true),
		"create": flag("Whether to make the table when it is missing, with types found from the values", true),
	}
	exporting := props{
		"sql":   str("A statement that reads; or give table"),
		"table": str("A table or view to write whole; or give sql"),
	}
	exportHints, importText, exportText := reads,
		"Imports CSV text into a table: all rows or none. An empty field is NULL, \"\" an empty string.",
		"Writes the result of a query, or a table, as CSV text with a header line."
	if withFiles {
		importing["path"] = str("A CSV file in the workspace, in place of csv")
		exporting["path"] = str("A file in the workspace to write, or replace, in place of giving the text back")
		exportHints = places
		importText = "Imports CSV, as text or a file of the workspace, into a table: all rows or none. An empty field is NULL, \"\" an empty string."
		exportText = "Writes the result of a query, or a table, as CSV with a header line: as text, or to a file of the workspace."
	}
	return []definition{
		{&mcp.Tool{
			Name:         "query",
			Title:        "Query",
			Description:  "Runs one SQL statement that reads (SELECT, WITH, EXPLAIN, PRAGMA table_info and the like) on the SQLite database and returns its rows. Rows beyond the limit are counted and left out.",
			Annotations:  reads,
			InputSchema:  object(props{"sql": str("The statement"), "params": params, "limit": schema{"type": "integer", "minimum": 1, "description": "How many rows to return at most"}}, "sql"),
			OutputSchema: object(rowProps(props{}), "columns", "rows", "row_count"),
		}, true, (*tools).query},
		{&mcp.Tool{
			Name:         "execute",
			Title:        "Execute",
			Description:  "Runs one or more SQL statements on the SQLite database as one transaction: when one fails, none has happened. Returns how many rows were changed, the id of the last inserted row, and the rows of the last statement that has some.",
			Annotations:  writes,
			InputSchema:  object(props{"sql": str("The statements, separated by semicolons"), "params": params}, "sql"),
			OutputSchema: object(rowProps(props{"statements": integer("How many were run"), "rows_changed": integer("Rows inserted, updated or deleted"), "last_insert_id": integer("Id of the last inserted row")}), "statements", "rows_changed"),
		}, false, (*tools).execute},
		{&mcp.Tool{
			Name:        "list_tables",
			Title:       "List tables",
			Description: "Lists the tables and views of the SQLite database.",
			Annotations: reads,
			InputSchema: object(nil),
			OutputSchema: object(props{
				"tables":   list(object(props{"name": str(""), "type": str("table, view or virtual")}, "name", "type")),
				"left_out": integer("How many more there are"),
			}, "tables"),
		}, true, (*tools).list},
		{&mcp.Tool{
			Name:        "describe_table",
			Title:       "Describe table",
			Description: "Describes a table or view: its columns, keys, indexes, triggers, and how many rows it has.",
			Annotations: reads,
			InputSchema: object(props{"table": str("Name of the table or view")}, "table"),
			OutputSchema: object(props{
				"name": str(""), "type": str("table, view or virtual"), "sql": str("The statement that made it"),
				"columns":            list(schema{"type": "object"}),
				"primary_key":        list(str("")),
				"foreign_keys":       list(schema{"type": "object"}),
				"indexes":            list(schema{"type": "object"}),
				"triggers":           list(str("")),
				"row_count":          integer("Counted up to a limit"),
				"row_count_at_least": flag("Whether there are more rows than were counted", nil),
			}, "name", "type", "sql", "columns", "primary_key", "foreign_keys", "indexes", "triggers"),
		}, true, (*tools).describe},
		{&mcp.Tool{
			Name:         "import_csv",
			Title:        "Import CSV",
			Description:  importText,
			Annotations:  adds,
			InputSchema:  object(importing, "table"),
			OutputSchema: object(props{"table": str(""), "columns": list(str("")), "rows_imported": integer(""), "created": flag("Whether the table was made", nil)}, "table", "columns", "rows_imported", "created"),
		}, false, (*tools).importCSV},
		{&mcp.Tool{
			Name:        "export_csv",
			Title:       "Export CSV",
			Description: exportText,
			Annotations: exportHints,
			InputSchema: object(exporting),
			OutputSchema: object(props{
				"csv": str("The text, where no file was written"), "path": str("The file that was written"), "bytes": integer("Size of the file"),
				"row_count": integer("Rows in it"), "left_out": integer("Rows that did not fit into the answer"),
				"left_out_at_least": flag("Whether more were left out than were counted", nil),
			}, "row_count"),
		}, true, (*tools).exportCSV},
	}
}

type (
	schema = map[string]any
	props  = map[string]any
)

func object(p props, required ...string) schema {
	s := schema{"type": "object"}
	if p != nil {
		s["properties"] = p
	}
	if required != nil {
		s["required"] = required
	}
	return s
}

func str(description string) schema { return described("string", description) }

func integer(description string) schema { return described("integer", description) }

func flag(description string, usual any) schema {
	s := described("boolean", description)
	if usual != nil {
		s["default"] = usual
	}
	return s
}

func described(kind, description string) schema {
	if description == "" {
		return schema{"type": kind}
	}
	return schema{"type": kind, "description": description}
}

func list(items schema) schema { return schema{"type": "array", "items": items} }

func rowProps(p props) props {
	p["columns"] = list(str(""))
	p["rows"] = list(schema{"type": "object"})
	p["row_count"] = integer("Rows in this answer")
	p["left_out"] = integer("Rows that did not fit")
	p["left_out_at_least"] = flag("Whether more were left out than were counted", nil)
	return p
}
