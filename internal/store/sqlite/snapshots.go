package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"

	"github.com/tine-mcp/tine/internal/store"
)

// PutSnapshot implements store.Snapshots. The row of an id is changed in place:
// replacing it would also replace another snapshot with its name.
func (d *DB) PutSnapshot(ctx context.Context, s store.Snapshot) error {
	const step = "write a snapshot"
	if s.ID == "" {
		return fmt.Errorf("%s: it has no id", step)
	}
	catalog, snapshot := write{query: putCatalog}, write{query: `
		INSERT INTO snapshots (id, name, owner, session, created, temporary, auto, size, call, catalog, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET name = excluded.name, owner = excluded.owner, session = excluded.session, created = excluded.created, temporary = excluded.temporary,
			auto = excluded.auto, size = excluded.size, call = excluded.call, catalog = excluded.catalog, data = excluded.data`}
	if len(s.Servers) > 0 {
		catalog.add(s.Catalog, raw(s.Servers))
	}
	snapshot.add(s.ID, s.Name, s.Owner, s.Session, nanos(s.Created), s.Temporary, s.Auto, s.Size, s.Call, s.Catalog, raw(s.Data))
	_, err := d.write(ctx, catalog, snapshot)
	if errors.Is(err, sqlite3.CONSTRAINT_UNIQUE) {
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

// putCatalog writes the servers behind a key. The same again is no write.
const putCatalog = "INSERT INTO catalogs (key, servers) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET servers = excluded.servers WHERE servers IS NOT excluded.servers"

// usedCatalogs are the keys that an open session or a snapshot has.
const usedCatalogs = "(SELECT catalog FROM sessions WHERE closed = 0 UNION SELECT catalog FROM snapshots)"

// MendCatalog implements store.Catalogs.
func (d *DB) MendCatalog(ctx context.Context, key string, servers json.RawMessage) error {
	return d.exec(ctx, "write a catalog anew", "INSERT INTO catalogs (key, servers) SELECT ?1, ?2 WHERE ?1 IN "+usedCatalogs+
		" ON CONFLICT (key) DO UPDATE SET servers = excluded.servers", key, raw(servers))
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
	return d.exec(ctx, "forget catalogs without a use", "DELETE FROM catalogs WHERE key NOT IN "+usedCatalogs)
}
