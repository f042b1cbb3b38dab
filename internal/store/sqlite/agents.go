package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// The statements of a transaction, which are prepared before it begins.
const (
	readRun          = "SELECT " + runColumns + " FROM runs WHERE id = ?"
	readAgentSession = "SELECT " + agentColumns + " FROM agent_sessions WHERE id = ?"
	listCallbacks    = "SELECT " + callbackColumns + " FROM callbacks WHERE parent = ? ORDER BY n"
	putRun           = "INSERT INTO runs (" + runColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET session = excluded.session, agent = excluded.agent, owner = excluded.owner, parent = excluded.parent, state = excluded.state,
			claim = excluded.claim, runner = excluded.runner, until = excluded.until, created = excluded.created, changed = excluded.changed, data = excluded.data`
	putAgentSession = "INSERT INTO agent_sessions (" + agentColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET agent = excluded.agent, owner = excluded.owner, parent = excluded.parent, state = excluded.state,
			created = excluded.created, changed = excluded.changed, data = excluded.data`
	addCallback    = "INSERT INTO callbacks (parent, child, run, carrier, at, data) VALUES (?, ?, ?, ?, ?, ?)"
	changeCallback = "UPDATE callbacks SET parent = ?, child = ?, run = ?, carrier = ?, at = ?, data = ? WHERE n = ?"
	dropCallback   = "DELETE FROM callbacks WHERE n = ?"
)

var agentStatements = []string{readRun, readAgentSession, listCallbacks, putRun, putAgentSession, addCallback, changeCallback, dropCallback, putEvent}

// agentTx is a store.AgentTx.
type agentTx struct {
	ctx      context.Context
	d        *DB
	tx       *sql.Tx
	prepared map[string]*sql.Stmt
}

// ChangeAgents implements store.Agents.
func (d *DB) ChangeAgents(ctx context.Context, change func(store.AgentTx) error) error {
	const step = "change agents"
	t := &agentTx{ctx: ctx, d: d, prepared: make(map[string]*sql.Stmt, len(agentStatements))}
	for _, query := range agentStatements {
		s, err := d.statement(ctx, query)
		if err != nil {
			return d.wrap(step, err)
		}
		t.prepared[query] = s
	}
	var err error
	if t.tx, err = d.db.BeginTx(ctx, nil); err != nil {
		return d.wrap(step, err)
	}
	defer t.tx.Rollback()
	if err := change(t); err != nil {
		return err
	}
	return d.wrap(step, t.tx.Commit())
}

func (t *agentTx) statement(query string) *sql.Stmt {
	return t.tx.StmtContext(t.ctx, t.prepared[query])
}

func (t *agentTx) exec(step, query string, args ...any) (sql.Result, error) {
	r, err := t.statement(query).ExecContext(t.ctx, args...)
	return r, t.d.wrap(step, err)
}

// Run implements store.AgentTx.
func (t *agentTx) Run(id string) (store.Run, bool, error) {
	return oneOf(t.d, "read a run", scanRun, t.statement(readRun).QueryRowContext(t.ctx, id))
}

// AgentSession implements store.AgentTx.
func (t *agentTx) AgentSession(id string) (store.AgentSession, bool, error) {
	return oneOf(t.d, "read an agent's session", scanAgentSession, t.statement(readAgentSession).QueryRowContext(t.ctx, id))
}

// Runs implements store.AgentTx.
func (t *agentTx) Runs(f store.RunFilter) ([]store.Run, error) {
	return t.d.runs(t.ctx, t.tx, f)
}

// Callbacks implements store.AgentTx.
func (t *agentTx) Callbacks(parent string) ([]store.Callback, error) {
	rows, err := t.statement(listCallbacks).QueryContext(t.ctx, parent)
	return allOf(t.d, "list callbacks", scanCallback, rows, err)
}

// PutRun implements store.AgentTx.
func (t *agentTx) PutRun(r store.Run) error {
	const step = "write a run"
	if r.ID == "" || r.Session == "" {
		return fmt.Errorf("%s: run %q of session %q: both need an id", step, r.ID, r.Session)
	}
	_, err := t.exec(step, putRun, r.ID, r.Session, r.Agent, r.Owner, r.Parent, r.State, r.Claim, r.Runner, nanos(r.Until), nanos(r.Created), nanos(r.Changed), raw(r.Data))
	return err
}

// PutAgentSession implements store.AgentTx.
func (t *agentTx) PutAgentSession(s store.AgentSession) error {
	const step = "write an agent's session"
	if s.ID == "" {
		return fmt.Errorf("%s: it has no id", step)
	}
	_, err := t.exec(step, putAgentSession, s.ID, s.Agent, s.Owner, s.Parent, s.State, nanos(s.Created), nanos(s.Changed), raw(s.Data))
	return err
}

// PutCallback implements store.AgentTx.
func (t *agentTx) PutCallback(c store.Callback) error {
	const step = "write a callback"
	args := []any{c.Parent, c.Child, c.Run, c.Carrier, nanos(c.At), raw(c.Data)}
	if c.N == 0 {
		_, err := t.exec(step, addCallback, args...)
		return err
	}
	r, err := t.exec(step, changeCallback, append(args, c.N)...)
	if err != nil {
		return err
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		return errors.Join(fmt.Errorf("%s: there is none with the number %d", step, c.N), err)
	}
	return nil
}

// DeleteCallback implements store.AgentTx.
func (t *agentTx) DeleteCallback(n int64) error {
	_, err := t.exec("delete a callback", dropCallback, n)
	return err
}

// PutEvents implements store.AgentTx.
func (t *agentTx) PutEvents(all ...store.Event) error {
	const step = "write events of runs"
	for i := range all {
		if all[i].Session == "" {
			return fmt.Errorf("%s: one of %d has no session", step, len(all))
		}
		r, err := t.exec(step, putEvent, eventArgs(all[i])...)
		if err != nil {
			return err
		}
		if all[i].N, err = r.LastInsertId(); err != nil {
			return t.d.wrap(step, err)
		}
	}
	return nil
}

// DropAgents implements store.Agents. It works in steps, so that other writers get their
// turn: the rest may be forgotten later.
func (d *DB) DropAgents(ctx context.Context, before time.Time) ([]string, error) {
	const step = "forget ended agents"
	// The ancestors of a session that stays are followed to the first.
	rows, err := d.reader.QueryContext(ctx, `
		WITH RECURSIVE kept (id, parent) AS (
			SELECT id, parent FROM agent_sessions WHERE state NOT IN (`+endedStates+`) OR changed >= ?1
			UNION
			SELECT s.id, s.parent FROM kept JOIN agent_sessions s ON s.id = kept.parent WHERE kept.parent <> ''
		)
		SELECT id FROM agent_sessions WHERE state IN (`+endedStates+`) AND changed < ?1 AND id NOT IN (SELECT id FROM kept) ORDER BY id`, nanos(before))
	ids, err := allOf(d, step, func(row scanner) (string, error) {
		var id string
		err := row.Scan(&id)
		return id, err
	}, rows, err)
	if err != nil {
		return nil, err
	}
	var dropped []string
	for some := range slices.Chunk(ids, dropAtOnce) {
		events := write{query: "DELETE FROM events WHERE session = ? AND run <> ''"}
		runs := write{query: "DELETE FROM runs WHERE session = ?"}
		callbacks := write{query: "DELETE FROM callbacks WHERE parent = ?"}
		sessions := write{query: "DELETE FROM agent_sessions WHERE id = ?"}
		for _, id := range some {
			events.add(id)
			runs.add(id)
			callbacks.add(id)
			sessions.add(id)
		}
		if _, err := d.write(ctx, events, runs, callbacks, sessions); err != nil {
			return dropped, d.wrap(step, err)
		}
		dropped = append(dropped, some...)
	}
	return dropped, nil
}
