package sqlite

import (
	"context"
	"database/sql"
	"encoding/hex"
	"strings"

	"github.com/tine-mcp/tine/internal/store"
)

const defaultLimit = 100

// Calls implements store.Calls. It goes through the blocks from the newest back,
// and reads those that may hold a matching call.
func (d *DB) Calls(ctx context.Context, f store.CallFilter) ([]store.Call, error) {
	const step = "list the calls"
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	query, args, some := blocksQuery(f)
	if !some {
		return nil, nil
	}
	rows, err := d.reader.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, d.wrap(step, err)
	}
	defer rows.Close()
	var all, calls []store.Call
	for rows.Next() {
		var first, segment int64
		var data sql.RawBytes
		if err := rows.Scan(&first, &segment, &data); err != nil {
			return nil, d.wrap(step, err)
		}
		if calls, err = readBlock(calls[:0], data, segment); err != nil {
			rows.Close()
			return nil, d.wrapCalls(step, &damagedBlock{first: first})
		}
		for i := len(calls) - 1; i >= 0; i-- {
			c := &calls[i]
			if !f.Chooses(c) {
				continue
			}
			c.ID = store.CallID(c.Seq)
			if all = append(all, *c); len(all) == f.Limit {
				return all, nil
			}
		}
	}
	return all, d.wrap(step, rows.Err())
}

// blocksQuery chooses the blocks that may hold matching calls; some is false if
// none can.
func blocksQuery(f store.CallFilter) (query string, args []any, some bool) {
	var where []string
	and := func(condition string, arg any) {
		where = append(where, condition)
		args = append(args, arg)
	}
	if f.ID != "" {
		seq, ok := store.CallSeq(f.ID)
		if !ok {
			return "", nil, false
		}
		and("first = (SELECT max(first) FROM calls WHERE first <= ?)", seq)
	}
	if f.Before > 0 {
		and("first < ?", f.Before)
	}
	// A time that does not fit a number is compared when the block is read.
	if y := f.Since.Year(); y >= 1970 && y <= 2261 {
		and("newest >= ?", atNumber(f.Since))
	}
	if f.Failed {
		where = append(where, "failed > 0")
	}
	if f.Server != "" {
		and("instr(servers, ?)", mark(f.Server))
	}
	if f.Principal != nil {
		and("instr(principals, ?)", mark(*f.Principal))
	}
	if f.Session != "" {
		and("instr(sessions, ?)", mark(f.Session))
	}
	if f.Run != "" {
		and("instr(runs, ?)", mark(f.Run))
	}
	if f.Servers != nil {
		if len(f.Servers) == 0 {
			return "", nil, false
		}
		marks := make([]string, len(f.Servers))
		for i, s := range f.Servers {
			marks[i] = `"` + hex.EncodeToString(mark(s)) + `"`
		}
		and("EXISTS (SELECT 1 FROM json_each(?) WHERE instr(servers, unhex(value)))", "["+strings.Join(marks, ",")+"]")
	}
	query = "SELECT first, segment, data FROM calls"
	if len(where) > 0 {
		query += " WHERE " + strings.Join(where, " AND ")
	}
	return query + " ORDER BY first DESC", args, true
}
