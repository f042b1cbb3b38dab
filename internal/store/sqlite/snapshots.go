package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tine-mcp/tine/internal/store"
	driver "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// PutSnapshot implements store.Snapshots. The row of an id is changed in place:
// to replace it would also replace another one with its name.
func (d *DB) PutSnapshot(ctx context.Context, s store.Snapshot) error {
	const step = "write a snapshot"
	if s.ID == "" {
		return fmt.Errorf("%s: it has no id", step)
	}
	_, err := d.execEach(ctx, `
		INSERT INTO snapshots (id, name, owner, session, created, temporary, auto, size, call, catalog, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, owner = excluded.owner, session = excluded.session, created = excluded.created, temporary = excluded.temporary,
			auto = excluded.auto, size = excluded.size, call = excluded.call, catalog = excluded.catalog, data = excluded.data`, 1, func(int) []any {
		return []any{s.ID, s.Name, s.Owner, s.Session, nanos(s.Created), s.Temporary, s.Auto, s.Size, s.Call, s.Catalog, raw(s.Data)}
	})
	var e *driver.Error
	if errors.As(err, &e) && e.Code() == lib.SQLITE_CONSTRAINT_UNIQUE {
		return fmt.Errorf("a snapshot named %q %w; choose another name, or delete that one first", s.Name, store.ErrExists)
	}
	return d.wrap(step, err)
}

// DeleteSnapshot implements store.Snapshots.
func (d *DB) DeleteSnapshot(ctx context.Context, id string) error {
	return d.exec(ctx, "delete a snapshot", "DELETE FROM snapshots WHERE id = ?", id)
}

// Snapshots implements store.Snapshots.
func (d *DB) Snapshots(ctx context.Context) ([]store.Snapshot, error) {
	var all []store.Snapshot
	err := d.eachOf(ctx, d.reader, "list the snapshots", "SELECT id, name, owner, session, created, temporary, auto, size, call, catalog, data FROM snapshots ORDER BY id", func(rows *sql.Rows) error {
		var s store.Snapshot
		var created int64
		if err := rows.Scan(&s.ID, &s.Name, &s.Owner, &s.Session, &created, &s.Temporary, &s.Auto, &s.Size, &s.Call, &s.Catalog, (*[]byte)(&s.Data)); err != nil {
			return err
		}
		s.Created = fromNanos(created)
		all = append(all, s)
		return nil
	})
	return all, err
}

// PutCatalog implements store.Catalogs. The same again is no write.
func (d *DB) PutCatalog(ctx context.Context, key string, servers json.RawMessage) error {
	return d.exec(ctx, "write a catalog",
		"INSERT INTO catalogs (key, servers) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET servers = excluded.servers WHERE servers IS NOT excluded.servers", key, raw(servers))
}

// Catalog implements store.Catalogs.
func (d *DB) Catalog(ctx context.Context, key string) (json.RawMessage, bool, error) {
	var servers json.RawMessage
	err := d.reader.QueryRowContext(ctx, "SELECT servers FROM catalogs WHERE key = ?", key).Scan((*[]byte)(&servers))
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, d.wrap("read a catalog", err)
	}
	return servers, true, nil
}

// DropCatalogs implements store.Catalogs.
func (d *DB) DropCatalogs(ctx context.Context) error {
	return d.exec(ctx, "forget catalogs without a use",
		"DELETE FROM catalogs WHERE key NOT IN (SELECT catalog FROM sessions WHERE closed = 0 UNION SELECT catalog FROM snapshots)")
}

// BeginCreation implements store.Creations.
func (d *DB) BeginCreation(ctx context.Context, c store.Creation, since time.Time) (store.Creation, bool, error) {
	const step = "note a creation"
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return store.Creation{}, false, d.wrap(step, err)
	}
	defer tx.Rollback()
	old := store.Creation{Owner: c.Owner, Key: c.Key}
	var at int64
	err = tx.QueryRowContext(ctx, "SELECT request, answer, at FROM creations WHERE owner = ? AND key = ? AND at >= ?", c.Owner, c.Key, nanos(since)).
		Scan(&old.Request, (*[]byte)(&old.Answer), &at)
	if err == nil {
		old.At = fromNanos(at)
		return old, false, nil
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return store.Creation{}, false, d.wrap(step, err)
	}
	if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO creations (owner, key, request, answer, at) VALUES (?, ?, ?, NULL, ?)", c.Owner, c.Key, c.Request, nanos(c.At)); err != nil {
		return store.Creation{}, false, d.wrap(step, err)
	}
	if err := tx.Commit(); err != nil {
		return store.Creation{}, false, d.wrap(step, err)
	}
	return store.Creation{}, true, nil
}

// EndCreation implements store.Creations.
func (d *DB) EndCreation(ctx context.Context, owner, key string, answer json.RawMessage) error {
	if len(answer) == 0 {
		return d.exec(ctx, "forget a creation", "DELETE FROM creations WHERE owner = ? AND key = ?", owner, key)
	}
	return d.exec(ctx, "note the answer of a creation", "UPDATE creations SET answer = ? WHERE owner = ? AND key = ?", raw(answer), owner, key)
}

// Unanswered implements store.Creations.
func (d *DB) Unanswered(ctx context.Context) ([]store.Creation, error) {
	const step = "list creations under way"
	rows, err := d.db.QueryContext(ctx, "SELECT owner, key, request, at FROM creations WHERE answer IS NULL ORDER BY owner, key")
	if err != nil {
		return nil, d.wrap(step, err)
	}
	defer rows.Close()
	var all []store.Creation
	for rows.Next() {
		var c store.Creation
		var at int64
		if err := rows.Scan(&c.Owner, &c.Key, &c.Request, &at); err != nil {
			return nil, d.wrap(step, err)
		}
		c.At = fromNanos(at)
		all = append(all, c)
	}
	return all, d.wrap(step, rows.Err())
}

// DropCreations implements store.Creations.
func (d *DB) DropCreations(ctx context.Context, before time.Time, underWay bool) error {
	return d.exec(ctx, "forget old creations", "DELETE FROM creations WHERE at < ? OR (? AND answer IS NULL)", nanos(before), underWay)
}
