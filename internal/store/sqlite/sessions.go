package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

const sessionColumns = "id, owner, kind, created, used, closed, parent, token, catalog, data"

// PutSessions implements store.Sessions.
func (d *DB) PutSessions(ctx context.Context, all ...store.Session) error {
	const step = "write sessions"
	catalogs, sessions := write{query: putCatalog}, write{query: "INSERT INTO sessions (" + sessionColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, kind = excluded.kind, created = excluded.created, used = excluded.used, closed = excluded.closed,
			parent = excluded.parent, token = excluded.token, catalog = excluded.catalog, data = excluded.data`}
	ended := write{query: deleteTokensOf}
	written := make(map[string]bool)
	for _, s := range all {
		if s.ID == "" {
			return fmt.Errorf("%s: one of %d has no id", step, len(all))
		}
		if len(s.Servers) > 0 && !written[s.Catalog] {
			written[s.Catalog] = true
			catalogs.add(s.Catalog, raw(s.Servers))
		}
		sessions.add(s.ID, s.Owner, s.Kind, nanos(s.Created), nanos(s.Used), nanos(s.Closed), s.Parent, s.Token, s.Catalog, raw(s.Data))
		if !s.Closed.IsZero() {
			ended.add(s.ID)
		}
	}
	_, err := d.write(ctx, catalogs, sessions, ended)
	return d.wrap(step, err)
}

// DeleteSession implements store.Sessions.
func (d *DB) DeleteSession(ctx context.Context, id string) error {
	return d.wrap("delete a session", d.deleteSessions(ctx, id))
}

// dropEvents drops those of a session. Those of its runs are its agent's, as long as that is
// kept.
const dropEvents = "DELETE FROM events WHERE session = ?1 AND (run = '' OR NOT EXISTS (SELECT 1 FROM agent_sessions WHERE id = ?1))"

func (d *DB) deleteSessions(ctx context.Context, ids ...string) error {
	sessions, events := write{query: "DELETE FROM sessions WHERE id = ?"}, write{query: dropEvents}
	tokens := write{query: deleteTokensOf}
	for _, id := range ids {
		sessions.add(id)
		events.add(id)
		tokens.add(id)
	}
	_, err := d.write(ctx, sessions, events, tokens)
	return err
}

// Sessions implements store.Sessions.
func (d *DB) Sessions(ctx context.Context) ([]store.Session, error) {
	return d.sessions(ctx, "list the sessions", "SELECT "+sessionColumns+" FROM sessions WHERE closed = 0 ORDER BY id")
}

// Session implements store.Sessions.
func (d *DB) Session(ctx context.Context, id string) (store.Session, bool, error) {
	all, err := d.sessions(ctx, "read a session", "SELECT "+sessionColumns+" FROM sessions WHERE id = ?", id)
	if err != nil || len(all) == 0 {
		return store.Session{}, false, err
	}
	return all[0], true, nil
}

// FindSessions implements store.Sessions.
func (d *DB) FindSessions(ctx context.Context, f store.SessionFilter) ([]store.Session, error) {
	const step = "list the sessions"
	where, args := []string{"TRUE"}, []any(nil)
	if !f.Closed {
		where = append(where, "closed = 0")
	}
	if f.Owner != nil {
		where, args = append(where, "owner = ?"), append(args, *f.Owner)
	}
	if f.Parent != "" {
		// The second condition lets the index of those with a parent be used.
		where, args = append(where, "parent = ?", "parent <> ''"), append(args, f.Parent)
	}
	if f.Before != "" {
		var created int64
		err := d.reader.QueryRowContext(ctx, "SELECT created FROM sessions WHERE id = ?", f.Before).Scan(&created)
		if errors.Is(err, sql.ErrNoRows) {
			return nil, fmt.Errorf("%s after %q: %w", step, f.Before, store.ErrUnknown)
		}
		if err != nil {
			return nil, d.wrap(step, err)
		}
		// The first condition is what an index can begin at.
		where = append(where, "created <= ?", "(created < ? OR id > ?)")
		args = append(args, created, created, f.Before)
	}
	if f.Limit <= 0 {
		f.Limit = defaultLimit
	}
	args = append(args, f.Limit)
	return d.sessions(ctx, step, "SELECT "+sessionColumns+" FROM sessions WHERE "+strings.Join(where, " AND ")+" ORDER BY created DESC, id LIMIT ?", args...)
}

// sessions reads beside the writer, which a long list would delay.
func (d *DB) sessions(ctx context.Context, step, query string, args ...any) ([]store.Session, error) {
	var all []store.Session
	err := d.eachOf(ctx, d.reader, step, query, func(rows *sql.Rows) error {
		var s store.Session
		var created, used, closed int64
		if err := rows.Scan(&s.ID, &s.Owner, &s.Kind, &created, &used, &closed, &s.Parent, &s.Token, &s.Catalog, (*[]byte)(&s.Data)); err != nil {
			return err
		}
		s.Created, s.Used, s.Closed = fromNanos(created), fromNanos(used), fromNanos(closed)
		all = append(all, s)
		return nil
	}, args...)
	return all, err
}

// TouchSessions implements store.Sessions.
func (d *DB) TouchSessions(ctx context.Context, used map[string]time.Time) error {
	return d.touch(ctx, "note the use of sessions", "UPDATE sessions SET used = max(used, ?) WHERE id = ?", used)
}

// DropSessions implements store.Sessions. It works in steps, so that other writers
// get their turn: the rest may be forgotten later.
func (d *DB) DropSessions(ctx context.Context, before time.Time) ([]string, error) {
	const step = "forget closed sessions"
	var ids, dropped []string
	// The ancestors of a session that stays are followed to the first.
	err := d.eachOf(ctx, d.reader, step, `
		WITH RECURSIVE kept (id, parent) AS (
			SELECT id, parent FROM sessions WHERE closed = 0 OR closed >= ?1
			UNION
			SELECT s.id, s.parent FROM kept JOIN sessions s ON s.id = kept.parent WHERE kept.parent <> ''
		)
		SELECT id FROM sessions WHERE closed <> 0 AND closed < ?1 AND id NOT IN (SELECT id FROM kept) ORDER BY id`,
		func(rows *sql.Rows) error {
			var id string
			err := rows.Scan(&id)
			ids = append(ids, id)
			return err
		}, nanos(before))
	if err != nil {
		return nil, err
	}
	for some := range slices.Chunk(ids, dropAtOnce) {
		if err := d.deleteSessions(ctx, some...); err != nil {
			return dropped, d.wrap(step, err)
		}
		dropped = append(dropped, some...)
	}
	return dropped, nil
}
