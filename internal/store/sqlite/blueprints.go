package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tine-mcp/tine/internal/store"
)

const (
	blueprintColumns = "name, owner, operator, body, changed"
	readBlueprint    = "SELECT " + blueprintColumns + " FROM blueprints WHERE name = ?"
)

// Blueprints implements store.Blueprints.
func (d *DB) Blueprints(ctx context.Context) ([]store.Blueprint, error) {
	var all []store.Blueprint
	err := d.each(ctx, "list the blueprints", "SELECT "+blueprintColumns+" FROM blueprints ORDER BY name", func(rows *sql.Rows) error {
		b, err := scanBlueprint(rows)
		if err == nil {
			all = append(all, *b)
		}
		return err
	})
	return all, err
}

// Blueprint implements store.Blueprints.
func (d *DB) Blueprint(ctx context.Context, name string) (store.Blueprint, bool, error) {
	b, err := scanBlueprint(d.reader.QueryRowContext(ctx, readBlueprint, name))
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return store.Blueprint{}, false, nil
	case err != nil:
		return store.Blueprint{}, false, d.wrap("read a blueprint", err)
	}
	return *b, true, nil
}

// ChangeBlueprint implements store.Blueprints.
func (d *DB) ChangeBlueprint(ctx context.Context, name string, change func(*store.Blueprint) (*store.Blueprint, error)) error {
	const step = "change a blueprint"
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return d.wrap(step, err)
	}
	defer tx.Rollback()
	before, err := scanBlueprint(tx.QueryRowContext(ctx, readBlueprint, name))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return d.wrap(step, err)
	}
	after, err := change(before)
	switch {
	case err != nil:
		return err
	case after == nil:
		_, err = tx.ExecContext(ctx, "DELETE FROM blueprints WHERE name = ?", name)
	default:
		_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO blueprints ("+blueprintColumns+") VALUES (?, ?, ?, ?, ?)",
			name, after.Owner, after.Operator, raw(after.Body), nanos(after.Changed))
	}
	if err == nil {
		err = tx.Commit()
	}
	return d.wrap(step, err)
}

// scanBlueprint reads a row of blueprints; nil where it fails.
func scanBlueprint(row interface{ Scan(...any) error }) (*store.Blueprint, error) {
	var b store.Blueprint
	var changed int64
	if err := row.Scan(&b.Name, &b.Owner, &b.Operator, (*[]byte)(&b.Body), &changed); err != nil {
		return nil, err
	}
	b.Changed = fromNanos(changed)
	return &b, nil
}
