package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

const (
	runColumns      = "id, session, agent, owner, parent, state, claim, runner, until, created, changed, data"
	agentColumns    = "id, agent, owner, parent, state, created, changed, data"
	callbackColumns = "n, parent, child, run, carrier, at, data"

	endedStates = "'" + api.AgentFinished + "', '" + api.AgentFailed + "', '" + api.AgentStopped + "'"
)

// Run implements store.Agents.
func (d *DB) Run(ctx context.Context, id string) (store.Run, bool, error) {
	return oneOf(d, "read a run", scanRun, d.reader.QueryRowContext(ctx, readRun, id))
}

// Runs implements store.Agents.
func (d *DB) Runs(ctx context.Context, f store.RunFilter) ([]store.Run, error) {
	return d.runs(ctx, d.reader, f)
}

// AgentSession implements store.Agents.
func (d *DB) AgentSession(ctx context.Context, id string) (store.AgentSession, bool, error) {
	return oneOf(d, "read an agent's session", scanAgentSession, d.reader.QueryRowContext(ctx, readAgentSession, id))
}

// AgentSessions implements store.Agents.
func (d *DB) AgentSessions(ctx context.Context, f store.AgentFilter) ([]store.AgentSession, error) {
	const step = "list the agents' sessions"
	var c choice
	c.owner(f.Owner)
	c.parent(f.Parent)
	c.is("agent", f.Agent)
	c.oneOf("state", f.States)
	if !f.Unchanged.IsZero() {
		c.and("changed < ?", f.Unchanged.UnixNano())
	}
	query, err := c.query(ctx, d, d.reader, step, "agent_sessions", agentColumns, f.Before, f.Limit)
	if err != nil {
		return nil, err
	}
	rows, err := d.reader.QueryContext(ctx, query, c.args...)
	return allOf(d, step, scanAgentSession, rows, err)
}

// WaitingCallbacks implements store.Agents.
func (d *DB) WaitingCallbacks(ctx context.Context) ([]store.Callback, error) {
	rows, err := d.reader.QueryContext(ctx, "SELECT "+callbackColumns+" FROM callbacks WHERE carrier = '' ORDER BY n")
	return allOf(d, "list waiting callbacks", scanCallback, rows, err)
}

// A queryer is the reader, or a transaction.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func (d *DB) runs(ctx context.Context, from queryer, f store.RunFilter) ([]store.Run, error) {
	const step = "list the runs"
	var c choice
	c.owner(f.Owner)
	c.is("session", f.Session)
	c.parent(f.Parent)
	c.is("agent", f.Agent)
	c.is("runner", f.Runner)
	c.oneOf("state", f.States)
	query, err := c.query(ctx, d, from, step, "runs", runColumns, f.Before, f.Limit)
	if err != nil {
		return nil, err
	}
	rows, err := from.QueryContext(ctx, query, c.args...)
	return allOf(d, step, scanRun, rows, err)
}

// A choice is the condition of a list that is ordered by creation.
type choice struct {
	where []string
	args  []any
}

func (c *choice) and(condition string, args ...any) {
	c.where, c.args = append(c.where, condition), append(c.args, args...)
}

func (c *choice) is(column, value string) {
	if value != "" {
		c.and(column+" = ?", value)
	}
}

func (c *choice) owner(owner *string) {
	if owner != nil {
		c.and("owner = ?", *owner)
	}
}

// parent has a second condition, which lets the index of those with a parent be used.
func (c *choice) parent(parent string) {
	if parent != "" {
		c.and("parent = ? AND parent <> ''", parent)
	}
}

func (c *choice) oneOf(column string, values []string) {
	if len(values) == 0 {
		return
	}
	args := make([]any, len(values))
	for i, v := range values {
		args[i] = v
	}
	c.and(column+" IN (?"+strings.Repeat(", ?", len(values)-1)+")", args...)
}

func (c *choice) query(ctx context.Context, d *DB, from queryer, step, table, columns, before string, limit int) (string, error) {
	if before != "" {
		var created int64
		err := from.QueryRowContext(ctx, "SELECT created FROM "+table+" WHERE id = ?", before).Scan(&created)
		if errors.Is(err, sql.ErrNoRows) {
			return "", fmt.Errorf("%s after %q: %w", step, before, store.ErrUnknown)
		}
		if err != nil {
			return "", d.wrap(step, err)
		}
		// The first condition is what an index can begin at.
		c.and("created <= ? AND (created < ? OR id > ?)", created, created, before)
	}
	if limit <= 0 {
		limit = defaultLimit
	}
	c.args = append(c.args, limit)
	where := "TRUE"
	if len(c.where) > 0 {
		where = strings.Join(c.where, " AND ")
	}
	return "SELECT " + columns + " FROM " + table + " WHERE " + where + " ORDER BY created DESC, id LIMIT ?", nil
}

// A scanner is a row.
type scanner interface{ Scan(...any) error }

func scanRun(row scanner) (store.Run, error) {
	var r store.Run
	var until, created, changed int64
	err := row.Scan(&r.ID, &r.Session, &r.Agent, &r.Owner, &r.Parent, &r.State, &r.Claim, &r.Runner, &until, &created, &changed, (*[]byte)(&r.Data))
	r.Until, r.Created, r.Changed = fromNanos(until), fromNanos(created), fromNanos(changed)
	return r, err
}

func scanAgentSession(row scanner) (store.AgentSession, error) {
	var s store.AgentSession
	var created, changed int64
	err := row.Scan(&s.ID, &s.Agent, &s.Owner, &s.Parent, &s.State, &created, &changed, (*[]byte)(&s.Data))
	s.Created, s.Changed = fromNanos(created), fromNanos(changed)
	return s, err
}

func scanCallback(row scanner) (store.Callback, error) {
	var c store.Callback
	var at int64
	err := row.Scan(&c.N, &c.Parent, &c.Child, &c.Run, &c.Carrier, &at, (*[]byte)(&c.Data))
	c.At = fromNanos(at)
	return c, err
}

// oneOf reads a row; ok is false where there is none.
func oneOf[T any](d *DB, step string, scan func(scanner) (T, error), row *sql.Row) (one T, ok bool, err error) {
	one, err = scan(row)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		var none T
		return none, false, nil
	case err != nil:
		var none T
		return none, false, d.wrap(step, err)
	}
	return one, true, nil
}

// allOf reads the rows of a query, which may have failed.
func allOf[T any](d *DB, step string, scan func(scanner) (T, error), rows *sql.Rows, err error) ([]T, error) {
	if err != nil {
		return nil, d.wrap(step, err)
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		one, err := scan(rows)
		if err != nil {
			return nil, d.wrap(step, err)
		}
		all = append(all, one)
	}
	return all, d.wrap(step, rows.Err())
}
