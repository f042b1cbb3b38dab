package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/tine-mcp/tine/internal/store"
)

// A Summary is what a database holds.
type Summary struct {
	Gateway   string // its id; empty for none
	Sessions  int    // open ones
	Snapshots int
	Tokens    int
}

// Inspect reads the whole of a database without changing anything, and says what
// it holds. It fails where the database is damaged or of a newer Tine.
func Inspect(ctx context.Context, path string) (Summary, error) {
	var s Summary
	d := &DB{path: path, copied: true}
	if err := checkLog(path); err != nil {
		return s, d.damaged(err)
	}
	if b, ok := parseBackup(path); ok {
		if sum, err := sumOf(path); err != nil {
			return s, fmt.Errorf("read %s: %w", path, err)
		} else if sum != b.sum {
			return s, fmt.Errorf("%w: %s: its content does not match the hash in its name", store.ErrDamaged, path)
		}
	}
	if info, err := os.Stat(path); err != nil {
		return s, fmt.Errorf("read a state database: %w", err)
	} else if info.Size() == 0 {
		return s, fmt.Errorf("%w: %s is empty", store.ErrDamaged, path)
	}
	var err error
	if d.db, err = sql.Open("sqlite3", readOnly(path)); err != nil {
		return s, err
	}
	defer d.db.Close()
	if err := d.verdict(ctx, d.db, "PRAGMA integrity_check(1)"); err != nil {
		return s, err
	}
	version, err := d.version(ctx)
	if err != nil {
		return s, err
	}
	if version == 0 || version > len(schema) {
		return s, fmt.Errorf("%s: its schema is %d, and this Tine knows 1 to %d", path, version, len(schema))
	}
	count := func(to *int, table, where string) {
		if err == nil {
			err = d.db.QueryRowContext(ctx, "SELECT count(*) FROM "+table+" "+where).Scan(to)
		}
	}
	open := ""
	if version >= 3 {
		open = "WHERE closed = 0"
		count(&s.Snapshots, "snapshots", "WHERE temporary = 0")
	}
	if version >= 2 {
		count(&s.Tokens, "tokens", "")
	}
	count(&s.Sessions, "sessions", open)
	if err != nil {
		return s, d.wrap("read", err)
	}
	err = d.db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'gateway_id'").Scan(&s.Gateway)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return s, d.wrap("read", err)
	}
	return s, nil
}

// CopyTo writes all that can be read of a database to a new file, which appears
// whole or not at all. The database itself stays as it is.
func CopyTo(ctx context.Context, from, to string) error {
	db, err := sql.Open("sqlite3", readOnly(from))
	if err != nil {
		return err
	}
	defer db.Close()
	part := to + PartSuffix
	if err := os.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// An empty file may be vacuumed into, and keeps its mode.
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	f.Close()
	defer os.Remove(part)
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", part); err != nil {
		return (&DB{path: from, copied: true}).wrap("copy", err)
	}
	if err := SyncFile(part); err != nil {
		return err
	}
	return os.Rename(part, to)
}

// SyncFile has the content of a file on the disk.
func SyncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// sumOf hashes a file.
func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)[:8]), nil
}

// SyncDir has the names in a folder on the disk.
func SyncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && os.PathSeparator == '/' {
		return err
	}
	return nil
}

// Missing reports why there is no database at path: there is no file, or it is
// empty. It returns an empty text for any other file, sound or not. It changes
// nothing.
func Missing(ctx context.Context, path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is missing", nil
	case err != nil:
		return "", fmt.Errorf("open the state database: %w", err)
	case info.Size() == 0:
		return "is empty", nil
	case checkLog(path) != nil:
		return "", nil // opening it reports that
	}
	db, err := sql.Open("sqlite3", readOnly(path))
	if err != nil {
		return "", err
	}
	defer db.Close()
	var tables int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&tables); err == nil && tables == 0 {
		return "is empty", nil
	}
	return "", nil
}
