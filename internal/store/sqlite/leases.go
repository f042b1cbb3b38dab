package sqlite

import (
	"context"
	"database/sql"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// PutLease implements store.Leases.
func (d *DB) PutLease(ctx context.Context, l store.Lease) error {
	return d.exec(ctx, "write a lease", "INSERT OR REPLACE INTO leases (id, owner, ttl, created, data) VALUES (?, ?, ?, ?, ?)",
		l.ID, l.Owner, int64(l.TTL), nanos(l.Created), raw(l.Data))
}

// DeleteLease implements store.Leases.
func (d *DB) DeleteLease(ctx context.Context, id string) error {
	return d.exec(ctx, "delete a lease", "DELETE FROM leases WHERE id = ?", id)
}

// Leases implements store.Leases.
func (d *DB) Leases(ctx context.Context) ([]store.Lease, error) {
	var all []store.Lease
	err := d.each(ctx, "list the leases", "SELECT id, owner, ttl, created, data FROM leases ORDER BY id", func(rows *sql.Rows) error {
		var l store.Lease
		var ttl, created int64
		if err := rows.Scan(&l.ID, &l.Owner, &ttl, &created, (*[]byte)(&l.Data)); err != nil {
			return err
		}
		l.TTL, l.Created = time.Duration(ttl), fromNanos(created)
		all = append(all, l)
		return nil
	})
	return all, err
}
