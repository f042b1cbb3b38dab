package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/store"
)

// putEvent writes one event, with eventArgs.
const putEvent = `INSERT INTO events (session, run, owner, at, kind, call, data)
	VALUES (?1, ?2, coalesce(nullif(?3, ''), (SELECT owner FROM sessions WHERE id = ?1), ''), ?4, ?5, ?6, ?7)`

func eventArgs(e store.Event) []any {
	return []any{e.Session, e.Run, e.Owner, nanos(e.At), e.Kind, e.Call, raw(e.Data)}
}

// PutEvents implements store.Sessions.
func (d *DB) PutEvents(ctx context.Context, all ...store.Event) error {
	const step = "write events of sessions"
	events := write{query: putEvent}
	for _, e := range all {
		if e.Session == "" {
			return fmt.Errorf("%s: one of %d has no session", step, len(all))
		}
		events.add(eventArgs(e)...)
	}
	ids, err := d.write(ctx, events)
	if err != nil {
		return d.wrap(step, err)
	}
	for i := range all {
		all[i].N = ids[i]
	}
	return nil
}

const eventColumns = "n, session, run, owner, at, kind, call, data"

// Events implements store.Sessions.
func (d *DB) Events(ctx context.Context, session string) ([]store.Event, error) {
	return d.events(ctx, d.db, "read the events of a session", "SELECT "+eventColumns+" FROM events WHERE session = ? AND run = '' ORDER BY n", session)
}

func (d *DB) events(ctx context.Context, from *sql.DB, step, query string, args ...any) ([]store.Event, error) {
	var all []store.Event
	err := d.eachOf(ctx, from, step, query, func(rows *sql.Rows) error {
		var e store.Event
		var at int64
		if err := rows.Scan(&e.N, &e.Session, &e.Run, &e.Owner, &at, &e.Kind, &e.Call, (*[]byte)(&e.Data)); err != nil {
			return err
		}
		e.At = fromNanos(at)
		all = append(all, e)
		return nil
	}, args...)
	return all, err
}

// lastEvent is the number of the last event that was written, also of one that was
// deleted since.
const lastEvent = "SELECT seq FROM sqlite_sequence WHERE name = 'events'"

// Feed implements store.Feed. The last number is read before the events, so that there
// are all up to it, and what was dropped after them, so that nothing is missed unseen.
func (d *DB) Feed(ctx context.Context, f store.FeedFilter) (store.FeedPage, error) {
	const step = "read the events"
	var page store.FeedPage
	err := d.reader.QueryRowContext(ctx, lastEvent).Scan(&page.Last)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return page, d.wrap(step, err)
	}
	query, args := feedQuery(f, page.Last)
	if page.Events, err = d.events(ctx, d.reader, step, query, args...); err != nil {
		return page, err
	}
	if f.Newest {
		slices.Reverse(page.Events)
	}
	err = d.reader.QueryRowContext(ctx, "SELECT coalesce(max(n), 0) FROM events_dropped WHERE ?1 IS NULL OR owner IN (?1, ?2)", f.Owner, anyOwner).Scan(&page.Dropped)
	return page, d.wrap(step, err)
}

// feedQuery reads the events that a filter chooses, up to the last one.
func feedQuery(f store.FeedFilter, last int64) (query string, args []any) {
	where, args := []string{"n > ?", "n <= ?"}, []any{f.After, last}
	and := func(condition string, arg any) { where, args = append(where, condition), append(args, arg) }
	// One index has all that is wanted in order, mostly. SQLite would choose another one
	// where several would do; the + keeps a column from being looked up by.
	switch {
	case f.Run != "":
		where = append(where, "run <> ''") // lets the index of those be used
		and("run = ?", f.Run)
		if f.Session != "" {
			and("+session = ?", f.Session)
		}
		if f.Owner != nil {
			and("+owner = ?", *f.Owner)
		}
	case f.Session != "":
		and("session = ?", f.Session)
		if f.Owner != nil {
			and("+owner = ?", *f.Owner)
		}
	case f.Owner != nil:
		and("owner = ?", *f.Owner)
	}
	if f.Kinds != nil {
		where = append(where, "kind IN (NULL"+strings.Repeat(", ?", len(f.Kinds))+")")
		for _, k := range f.Kinds {
			args = append(args, k)
		}
	}
	order := ""
	if f.Newest {
		order = " DESC"
	}
	args = append(args, cmp.Or(max(f.Limit, 0), defaultLimit))
	return "SELECT " + eventColumns + " FROM events WHERE " + strings.Join(where, " AND ") + " ORDER BY n" + order + " LIMIT ?", args
}

// skippedEvents is more than the events that a newer database can have had which a
// restored one replaces.
const skippedEvents = 1 << 32

// anyOwner stands for all owners in the table of what was dropped. No principal has this
// name.
const anyOwner = "\x00"

// RestoreEvents prepares a database to replace a newer one: new events get numbers that
// the newer one did not give, and those that the newer one had count as dropped.
func (d *DB) RestoreEvents(ctx context.Context) error {
	const step = "number the events anew"
	var last int64
	if err := d.db.QueryRowContext(ctx, lastEvent).Scan(&last); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return d.wrap(step, err)
	}
	last += skippedEvents
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return d.wrap(step, err)
	}
	defer tx.Rollback()
	_, err = tx.ExecContext(ctx, "DELETE FROM sqlite_sequence WHERE name = 'events'") // it has no key to conflict with
	if err == nil {
		_, err = tx.ExecContext(ctx, "INSERT INTO sqlite_sequence (name, seq) VALUES ('events', ?)", last)
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO events_dropped (owner, n) VALUES (?, ?)", anyOwner, last)
	}
	if err == nil {
		err = tx.Commit()
	}
	return d.wrap(step, err)
}
