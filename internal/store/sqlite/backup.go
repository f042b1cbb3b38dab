package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A backup is a database with everything but the index of the journal, which is
// what makes a database large and is made again from the journal's own files. It
// lies in a folder of backups under a name that says when it was made and what
// its content hashes to, so that a changed byte is noticed:
//
//	tine-20261116T101112.345Z-0123456789abcdef.db
//	tine-20261116T101112.345Z-0123456789abcdef-faulty.db
//
// The second is of a database with a known fault. It never replaces a sound one.
const (
	faultySuffix = "-faulty"
	keptFaulty   = 1
	backupPrefix = "tine-"
	backupSuffix = ".db"
	backupTime   = "20060102T150405.000Z"
	// PartSuffix ends the name of an unfinished file. One that is found is left
	// over.
	PartSuffix = ".part"
)

// Backup writes a backup into the folder dir, verifies it, and then removes the
// oldest ones over keep. A backup that fails leaves the others as they are. Faults
// says what is wrong in a database that can be read; with any, the backup is kept as
// a faulty one, besides those that are sound, and returned with an error.
func (d *DB) Backup(ctx context.Context, dir string, now time.Time, keep int, faults func(context.Context, *DB) ([]string, error)) (path string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("back up the state database %s: %w", d.path, err)
		}
	}()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	if err := removeParts(dir); err != nil {
		return "", err
	}
	stamp := backupPrefix + now.UTC().Format(backupTime)
	part := filepath.Join(dir, stamp+PartSuffix)
	defer os.Remove(part)
	if err := d.copyTables(ctx, part); err != nil {
		return "", err
	}
	if err := SyncFile(part); err != nil {
		return "", err
	}
	sum, err := sumOf(part)
	if err != nil {
		return "", err
	}
	if _, err := Inspect(ctx, part); err != nil {
		return "", fmt.Errorf("the new backup is not sound: %w", err)
	}
	wrong, err := faultsIn(ctx, part, faults)
	if err != nil {
		return "", err
	}
	if len(wrong) > 0 {
		sum += faultySuffix
	}
	path = filepath.Join(dir, stamp+"-"+sum+backupSuffix)
	if err := os.Rename(part, path); err != nil {
		return "", err
	}
	if err := SyncDir(dir); err != nil {
		return "", err
	}
	all, err := Backups(dir)
	if err != nil {
		return "", err
	}
	left := map[bool]int{false: keep, true: keptFaulty}
	for _, b := range all {
		if left[b.Faulty]--; left[b.Faulty] >= 0 {
			continue
		}
		if err := os.Remove(b.Path); err != nil {
			return path, fmt.Errorf("remove an old one: %w", err)
		}
	}
	if len(wrong) > 0 {
		return path, fmt.Errorf("%s is faulty, and the sound ones before it stay: %s", path, strings.Join(wrong, "; "))
	}
	return path, nil
}

// faultsIn runs faults on a database without changing it.
func faultsIn(ctx context.Context, path string, faults func(context.Context, *DB) ([]string, error)) ([]string, error) {
	if faults == nil {
		return nil, nil
	}
	db, err := sql.Open("sqlite3", readOnly(path))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return faults(ctx, &DB{path: path, db: db, reader: db})
}

// removeParts removes unfinished files of earlier backups.
func removeParts(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), backupPrefix) && strings.Contains(e.Name(), PartSuffix) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// copyTables writes all tables but the index of calls into a new database. Its
// reader sees one moment of the database and holds no writer up.
func (d *DB) copyTables(ctx context.Context, to string) error {
	fresh, err := open(ctx, to, schema)
	if err != nil {
		return err
	}
	// As one file: a backup is read where nothing may be written beside it.
	_, err = fresh.db.ExecContext(ctx, "PRAGMA journal_mode = DELETE")
	if err := errors.Join(err, fresh.Close()); err != nil {
		return err
	}
	db, err := sql.Open("sqlite3", readOnly(d.path))
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, "ATTACH DATABASE ? AS backup", to); err != nil {
		return err
	}
	var tables []string
	rows, err := db.QueryContext(ctx, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('calls', 'schema_version') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
	if err != nil {
		return err
	}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return errors.Join(err, rows.Close())
		}
		tables = append(tables, name)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	copies := []string{"BEGIN"}
	for _, name := range tables {
		copies = append(copies, fmt.Sprintf("INSERT INTO backup.%q SELECT * FROM main.%q", name, name))
	}
	copies = append(copies,
		"DELETE FROM backup.sqlite_sequence", "INSERT INTO backup.sqlite_sequence SELECT * FROM main.sqlite_sequence",
		"DELETE FROM backup.meta WHERE key = '"+damagedKey+"'", "COMMIT")
	for _, q := range copies {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// A BackupFile is one that can perhaps be restored.
type BackupFile struct {
	Path string
	Made time.Time
	// Faulty is set if a fault was known when it was made.
	Faulty bool
	sum    string // that its content must have; empty where its name has none
}

// Backups lists the backups in a folder, the newest first.
func Backups(dir string) ([]BackupFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the backups: %w", err)
	}
	var all []BackupFile
	for _, e := range entries {
		if b, ok := parseBackup(filepath.Join(dir, e.Name())); ok {
			all = append(all, b)
		}
	}
	slices.SortFunc(all, func(a, b BackupFile) int { return b.Made.Compare(a.Made) })
	return all, nil
}

func parseBackup(path string) (BackupFile, bool) {
	name, ok := strings.CutPrefix(filepath.Base(path), backupPrefix)
	if !ok {
		return BackupFile{}, false
	}
	if name, ok = strings.CutSuffix(name, backupSuffix); !ok {
		return BackupFile{}, false
	}
	stamp, sum, ok := strings.Cut(name, "-")
	sum, faulty := strings.CutSuffix(sum, faultySuffix)
	made, err := time.Parse(backupTime, stamp)
	return BackupFile{path, made, faulty, sum}, ok && err == nil
}

// Upgrades lists the copies of a database that were made before its schema was
// changed.
func Upgrades(database string) ([]BackupFile, error) {
	dir, base := filepath.Split(database)
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the backups: %w", err)
	}
	var all []BackupFile
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), base+".v") || !strings.HasSuffix(e.Name(), ".backup") {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, fmt.Errorf("list the backups: %w", err)
		}
		all = append(all, BackupFile{Path: filepath.Join(dir, e.Name()), Made: info.ModTime()})
	}
	slices.SortFunc(all, func(a, b BackupFile) int { return b.Made.Compare(a.Made) })
	return all, nil
}
