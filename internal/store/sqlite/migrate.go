package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
)

// migrate brings the schema to the last of steps, all or none. A database that
// holds something is copied first.
func (d *DB) migrate(ctx context.Context, steps []string) error {
	have, err := d.version(ctx)
	if err != nil {
		return err
	}
	switch {
	case have == len(steps):
		return nil
	case have > len(steps):
		return fmt.Errorf("the state database %s was made by a newer Tine (its schema is %d, this one knows %d); run that version, or go back to what it was made from: %s",
			d.path, have, len(steps), d.command("restore --from "+d.backupPath(len(steps))))
	case have > 0:
		if err := d.backup(ctx, have); err != nil {
			return err
		}
	}

	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return d.wrap("begin the change of the schema", err)
	}
	defer tx.Rollback()
	for i := have; i < len(steps); i++ {
		if _, err := tx.ExecContext(ctx, steps[i]); err != nil {
			return d.wrap(fmt.Sprintf("bring the schema from %d to %d", i, i+1), err)
		}
	}
	if have == 0 {
		if _, err := tx.ExecContext(ctx, "CREATE TABLE schema_version (version INTEGER NOT NULL) STRICT; INSERT INTO schema_version VALUES (0)"); err != nil {
			return d.wrap("make the version table", err)
		}
	}
	if _, err := tx.ExecContext(ctx, "UPDATE schema_version SET version = ?", len(steps)); err != nil {
		return d.wrap("note the version of the schema", err)
	}
	if err := tx.Commit(); err != nil {
		return d.wrap("finish the change of the schema", err)
	}
	d.dropBackups(have)
	return nil
}

// version is 0 for a database that is empty.
func (d *DB) version(ctx context.Context) (int, error) {
	var tables, versioned int
	err := d.db.QueryRowContext(ctx, "SELECT count(*), count(*) FILTER (WHERE name = 'schema_version') FROM sqlite_schema WHERE type = 'table'").Scan(&tables, &versioned)
	if err != nil {
		return 0, d.wrap("read the schema", err)
	}
	if tables == 0 {
		return 0, nil
	}
	if versioned == 0 {
		return 0, fmt.Errorf("%s is a database of another program; move it away or choose another state folder", d.path)
	}
	var v int
	err = d.db.QueryRowContext(ctx, "SELECT version FROM schema_version").Scan(&v)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, d.damaged(errors.New("the version of its schema is missing"))
	}
	return v, d.wrap("read the version of the schema", err)
}

func (d *DB) backupPath(version int) string {
	return fmt.Sprintf("%s.v%d.backup", d.path, version)
}

// dropBackups deletes the copies of versions below this one, which a successful
// change of the schema has made useless. They hold secrets; a copy that can't be
// deleted now is deleted after the next change.
func (d *DB) dropBackups(below int) {
	for v := 1; v < below; v++ {
		os.Remove(d.backupPath(v))
	}
}

// backup copies the database as it is, under a name that says its version. The
// copy appears whole or not at all.
func (d *DB) backup(ctx context.Context, version int) error {
	path := d.backupPath(version)
	tmp := path + ".part"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("back up the state database: %w", err)
	}
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("back up the state database: %w", err)
	}
	defer os.Remove(tmp)
	defer f.Close()
	// An empty file may be vacuumed into, and keeps its mode.
	quoted := "'" + strings.ReplaceAll(tmp, "'", "''") + "'"
	if err := d.exec(ctx, "back up the state database", "VACUUM INTO "+quoted); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return fmt.Errorf("back up the state database: %w", err)
	}
	f.Close()
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("back up the state database: %w", err)
	}
	return nil
}
