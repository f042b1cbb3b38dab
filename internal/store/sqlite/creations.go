package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// UnansweredFolder lies beside the database and has an empty file for each pending
// creation, named like its mark. The file is removed after the answer is in the
// database and before the answer is given. A start removes what a creation made only
// if the file is still there: a database that lost its last transaction in a power
// cut would have an answered creation as a pending one.
const UnansweredFolder = "unanswered"

func (d *DB) unansweredFile(c store.Creation) string {
	return filepath.Join(filepath.Dir(d.path), UnansweredFolder, c.Mark())
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
	if err := d.markUnanswered(c); err != nil {
		return store.Creation{}, false, fmt.Errorf("%s: %w", step, err)
	}
	if err := tx.Commit(); err != nil {
		return store.Creation{}, false, d.wrap(step, err)
	}
	return store.Creation{}, true, nil
}

func (d *DB) markUnanswered(c store.Creation) error {
	path := d.unansweredFile(c)
	err := os.WriteFile(path, nil, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = os.WriteFile(path, nil, 0o600)
		}
	}
	return err
}

// EndCreation implements store.Creations.
func (d *DB) EndCreation(ctx context.Context, owner, key string, answer json.RawMessage) error {
	step, query, args := "note the answer of a creation", "UPDATE creations SET answer = ? WHERE owner = ? AND key = ?", []any{raw(answer), owner, key}
	if len(answer) == 0 {
		step, query, args = "forget a creation", "DELETE FROM creations WHERE owner = ? AND key = ?", args[1:]
	}
	if err := d.exec(ctx, step, query, args...); err != nil {
		return err
	}
	err := os.Remove(d.unansweredFile(store.Creation{Owner: owner, Key: key}))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}

// Unanswered implements store.Creations.
func (d *DB) Unanswered(ctx context.Context) ([]store.Creation, error) {
	const step = "list pending creations"
	var all []store.Creation
	err := d.each(ctx, step, "SELECT owner, key, request, at FROM creations WHERE answer IS NULL ORDER BY owner, key", func(rows *sql.Rows) error {
		var c store.Creation
		var at int64
		if err := rows.Scan(&c.Owner, &c.Key, &c.Request, &at); err != nil {
			return err
		}
		c.At = fromNanos(at)
		if _, err := os.Lstat(d.unansweredFile(c)); err == nil {
			all = append(all, c)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	return all, err
}

// DropCreations implements store.Creations.
func (d *DB) DropCreations(ctx context.Context, before time.Time, pending bool) error {
	const step = "forget old creations"
	err := d.exec(ctx, step, "DELETE FROM creations WHERE at < ? OR (? AND answer IS NULL)", nanos(before), pending)
	if err != nil || !pending {
		return err
	}
	if err := os.RemoveAll(filepath.Join(filepath.Dir(d.path), UnansweredFolder)); err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}
