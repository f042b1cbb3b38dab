package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	"github.com/tine-mcp/tine/internal/store"
)

const (
	callColumns  = "seq, id, at, principal, session, server, method, name, duration, outcome, segment, start, length"
	defaultLimit = 100
	// dropAtOnce bounds how long other writers wait while calls are forgotten.
	dropAtOnce = 1024
)

// PutCalls implements store.Calls.
func (d *DB) PutCalls(ctx context.Context, calls []store.Call) error {
	const step = "write to the index of calls"
	if len(calls) == 0 {
		return nil
	}
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return d.wrap(step, err)
	}
	defer tx.Rollback()
	insert, err := tx.PrepareContext(ctx, "INSERT INTO calls ("+callColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (seq) DO NOTHING")
	if err != nil {
		return d.wrap(step, err)
	}
	defer insert.Close()
	for i := range calls {
		c := &calls[i]
		if _, err := insert.ExecContext(ctx, c.Seq, c.ID, nanos(c.At), c.Principal, c.Session, c.Server, c.Method, c.Name,
			int64(c.Duration), c.Outcome, c.Segment, c.Offset, c.Length); err != nil {
			return d.wrap(step, err)
		}
	}
	return d.wrap(step, tx.Commit())
}

// Calls implements store.Calls.
func (d *DB) Calls(ctx context.Context, f store.CallFilter) ([]store.Call, error) {
	if f.Servers != nil && len(f.Servers) == 0 {
		return nil, nil
	}
	query, args := callsQuery(f)
	var all []store.Call
	err := d.eachOf(ctx, d.reader, "list the calls", query, func(rows *sql.Rows) error {
		c, err := scanCall(rows)
		all = append(all, c)
		return err
	}, args...)
	if err != nil {
		return nil, err
	}
	return all, nil
}

// callsQuery walks one index from the newest call backwards and looks at the
// other conditions row by row. Which index is decided here and not by SQLite,
// which has no statistics and would rather sort a million rows: a column with a
// plus before it is not looked up.
func callsQuery(f store.CallFilter) (string, []any) {
	var where []string
	var args []any
	looked := false
	and := func(column, rest string, arg any) {
		if looked {
			column = "+" + column
		}
		looked = true
		where = append(where, column+rest)
		args = append(args, arg)
	}
	if f.ID != "" {
		and("id", " = ?", f.ID)
	}
	if f.Session != "" {
		if !looked { // the index has no calls without a session
			where = append(where, "session <> ''")
		}
		and("session", " = ?", f.Session)
	}
	if f.Failed {
		// Its index is used for the server too, so it looks nothing up itself.
		outcome := "outcome"
		if looked {
			outcome = "+outcome"
		}
		where = append(where, outcome+" <> 'ok'")
	}
	if f.Server != "" {
		and("server", " = ?", f.Server)
	}
	if f.Principal != nil {
		if f.Failed {
			looked = true
		}
		and("principal", " = ?", *f.Principal)
	}
	looked = looked || f.Failed
	if !f.Since.IsZero() {
		where = append(where, "at >= ?")
		args = append(args, nanos(f.Since))
	}
	if f.Before > 0 {
		where = append(where, "seq < ?")
		args = append(args, f.Before)
	}
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	if f.Servers == nil || looked {
		if f.Servers != nil {
			where = append(where, "+server IN (SELECT value FROM json_each(?))")
			args = append(args, list(f.Servers))
		}
		query := "SELECT " + callColumns + " FROM calls"
		if len(where) > 0 {
			query += " WHERE " + strings.Join(where, " AND ")
		}
		return query + " ORDER BY seq DESC LIMIT ?", append(args, limit)
	}

	// The newest of each server, and of those the newest.
	where = append(where, "server = s.value")
	query := "SELECT " + callColumns + " FROM calls WHERE seq IN (SELECT c.value FROM json_each(?) s, json_each(" +
		"(SELECT json_group_array(seq) FROM (SELECT seq FROM calls WHERE " + strings.Join(where, " AND ") + " ORDER BY seq DESC LIMIT ?))) c)" +
		" ORDER BY seq DESC LIMIT ?"
	args = append([]any{list(f.Servers)}, args...)
	return query, append(args, limit, limit)
}

func list(servers []string) string {
	b, _ := json.Marshal(servers) // strings always marshal
	return string(b)
}

func scanCall(row interface{ Scan(...any) error }) (store.Call, error) {
	var c store.Call
	var at int64
	err := row.Scan(&c.Seq, &c.ID, &at, &c.Principal, &c.Session, &c.Server, &c.Method, &c.Name, (*int64)(&c.Duration), &c.Outcome, &c.Segment, &c.Offset, &c.Length)
	c.At = fromNanos(at)
	return c, err
}

// LastCall implements store.Calls.
func (d *DB) LastCall(ctx context.Context) (store.Call, bool, error) {
	c, err := scanCall(d.reader.QueryRowContext(ctx, "SELECT "+callColumns+" FROM calls ORDER BY seq DESC LIMIT 1"))
	if errors.Is(err, sql.ErrNoRows) {
		return store.Call{}, false, nil
	}
	return c, err == nil, d.wrap("read the newest call of the index", err)
}

// DropCalls implements store.Calls. Segments grow with seq, so the old calls are
// the first ones, and need no index to be found.
func (d *DB) DropCalls(ctx context.Context, below int64) error {
	for {
		r, err := d.db.ExecContext(ctx, "DELETE FROM calls WHERE seq IN (SELECT seq FROM (SELECT seq, segment FROM calls ORDER BY seq LIMIT ?) WHERE segment < ?)", dropAtOnce, below)
		if err != nil {
			return d.wrap("forget old calls", err)
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return d.wrap("forget old calls", err)
		}
	}
}
