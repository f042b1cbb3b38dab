package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/tine-mcp/tine/internal/store"
)

// PutToolList implements store.ToolLists.
func (d *DB) PutToolList(ctx context.Context, digest string, tools json.RawMessage, e store.Event) error {
	lists := write{query: "INSERT INTO tool_lists (digest, tools) VALUES (?, ?) ON CONFLICT DO NOTHING"}
	lists.add(digest, []byte(tools))
	events := write{query: putEvent}
	events.add(eventArgs(e)...)
	_, err := d.write(ctx, lists, events)
	return d.wrap("write a list of tools", err)
}

// ToolList implements store.ToolLists.
func (d *DB) ToolList(ctx context.Context, digest string) (tools json.RawMessage, ok bool, err error) {
	err = d.reader.QueryRowContext(ctx, "SELECT tools FROM tool_lists WHERE digest = ?", digest).Scan((*[]byte)(&tools))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	return tools, err == nil, d.wrap("read a list of tools", err)
}

// DropToolLists implements store.ToolLists.
func (d *DB) DropToolLists(ctx context.Context) error {
	return d.exec(ctx, "forget lists of tools", `DELETE FROM tool_lists WHERE digest NOT IN (
		SELECT coalesce(json_extract(CAST(data AS TEXT), '$.tools'), '') FROM events WHERE kind = ?)`, store.EventTools)
}
