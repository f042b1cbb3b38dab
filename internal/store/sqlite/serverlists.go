package sqlite

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"

	"github.com/tine-mcp/tine/internal/store"
)

// PutServerList implements store.ServerLists.
func (d *DB) PutServerList(ctx context.Context, l store.ServerList) error {
	const step = "write the list of a server"
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return d.wrap(step, err)
	}
	defer tx.Rollback()
	sum := sha256.Sum256(l.Data)
	if _, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO server_lists (key, principal, data, sum, changed) VALUES (?, ?, ?, ?, ?)",
		l.Key, l.Principal, raw(l.Data), sum[:], nanos(l.Changed)); err != nil {
		return d.wrap(step, err)
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM server_lists WHERE rowid IN (SELECT rowid FROM (
		SELECT rowid, row_number() OVER newest AS n, sum(length(data)) OVER newest AS size FROM server_lists
		WINDOW newest AS (ORDER BY changed DESC, rowid DESC)) WHERE n > ? OR size > ?)`,
		store.MostServerLists, store.MostServerListBytes); err != nil {
		return d.wrap(step, err)
	}
	return d.wrap(step, tx.Commit())
}

// DeleteServerList implements store.ServerLists.
func (d *DB) DeleteServerList(ctx context.Context, key, principal string) error {
	return d.exec(ctx, "delete the list of a server", "DELETE FROM server_lists WHERE key = ? AND principal = ?", key, principal)
}

// ServerList implements store.ServerLists.
func (d *DB) ServerList(ctx context.Context, key, principal string) (store.ServerList, bool, error) {
	l := store.ServerList{Key: key, Principal: principal}
	var sum []byte
	var changed int64
	err := d.db.QueryRowContext(ctx, "SELECT data, sum, changed FROM server_lists WHERE key = ? AND principal = ?", key, principal).
		Scan((*[]byte)(&l.Data), &sum, &changed)
	if errors.Is(err, sql.ErrNoRows) {
		return store.ServerList{}, false, nil
	}
	if err != nil {
		return store.ServerList{}, false, d.wrap("read the list of a server", err)
	}
	if now := sha256.Sum256(l.Data); !bytes.Equal(now[:], sum) {
		return store.ServerList{}, false, fmt.Errorf("read the list of a server: %w: its checksum is wrong", store.ErrDamaged)
	}
	l.Changed = fromNanos(changed)
	return l, true, nil
}
