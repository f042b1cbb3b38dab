// Package sqlite keeps the state of one gateway in one SQLite file.
//
// The file is in WAL mode with synchronous NORMAL: what was written survives
// the death of the gateway at any moment; a power cut may cost the last writes,
// and the processes those were about.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/ncruces/go-sqlite3"
	_ "github.com/ncruces/go-sqlite3/driver" // for database/sql

	"github.com/tine-mcp/tine/internal/store"
)

// DB is a store.Store in one file.
type DB struct {
	path   string
	access string // the folder of AccessFile; empty for a database that is not that of a state folder
	flag   string // that commands on the state folder need; see OpenState
	copied bool   // it is a copy, for whose damage there is no command
	// One connection: SQLite has one writer, and waiting for a turn in Go is
	// cheaper and fairer than in SQLite's busy loop. Reads here are at a start, or
	// small.
	db *sql.DB
	// The index of the journal is written all the time and read in long lists. In
	// WAL mode a separate reader waits for no writer and delays none.
	reader *sql.DB

	putterMu sync.Mutex
	putter   *putter // made when it is first needed

	preparedMu sync.Mutex
	prepared   map[string]*sql.Stmt // by their text
}

// readers is how many lists of calls are read at once.
const readers = 2

var _ store.Store = (*DB)(nil)

// Open opens the database at path, makes it if it is missing, and brings its schema
// up to date. The folder must exist. The caller must Close it.
func Open(ctx context.Context, path string) (*DB, error) {
	return open(ctx, path, schema)
}

// OpenState opens the database of a state folder, unless it is older than
// AccessFile beside it says. Flag is what commands in errors need to name this
// folder, such as "--state /srv/tine"; empty for nothing.
func OpenState(ctx context.Context, path, flag string) (*DB, error) {
	d := &DB{access: filepath.Dir(path), flag: flag}
	if err := d.open(ctx, path, schema); err != nil {
		return nil, err
	}
	if err := d.noteAccess(ctx); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

func open(ctx context.Context, path string, steps []string) (*DB, error) {
	d := &DB{}
	if err := d.open(ctx, path, steps); err != nil {
		return nil, err
	}
	return d, nil
}

func (d *DB) open(ctx context.Context, path string, steps []string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("find the state database: %w", err)
	}
	d.path = path
	// Before SQLite touches any of its files: it would take damage for the end of
	// the log, and remove the log of an empty database.
	if err := checkLog(path); err != nil {
		return d.damaged(err)
	}
	if err := makeFiles(path); err != nil {
		return fmt.Errorf("open the state database: %w", err)
	}
	if err := d.check(ctx); err != nil {
		return err
	}
	if d.access != "" {
		// Before the file is opened for writing, which moves the log into it.
		if err := d.checkAccess(ctx); err != nil {
			return err
		}
	}
	// WAL mode stays in the file, so only the writer asks for it.
	if d.db, err = sql.Open("sqlite3", dsn(path, "journal_mode(WAL)", "synchronous(NORMAL)", "foreign_keys(1)")); err != nil {
		return fmt.Errorf("open the state database %s: %w", path, err)
	}
	d.db.SetMaxOpenConns(1)
	if err := d.prepare(ctx, steps); err != nil {
		d.db.Close()
		return err
	}
	if d.reader, err = sql.Open("sqlite3", dsn(path, "query_only(1)")); err != nil {
		d.db.Close()
		return fmt.Errorf("open the state database %s: %w", path, err)
	}
	d.reader.SetMaxOpenConns(readers)
	d.reader.SetMaxIdleConns(readers)
	return nil
}

// makeFiles makes the database and its shared memory, which SQLite would make
// readable for others. Its log gets the mode of the database from SQLite.
func makeFiles(path string) error {
	mode := fs.FileMode(0o600)
	for _, name := range []string{path, path + "-shm"} {
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, mode)
		if err != nil {
			return err
		}
		info, err := f.Stat()
		if err == nil && name == path {
			mode = info.Mode().Perm()
		} else if err == nil && info.Mode().Perm() != mode {
			err = f.Chmod(mode)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (d *DB) prepare(ctx context.Context, steps []string) error {
	if err := d.migrate(ctx, steps); err != nil {
		return err
	}
	return d.dropDamaged(ctx)
}

// dsn makes a URI of the path, in which ?, # and % of folder names stay names.
func dsn(path string, pragmas ...string) string {
	q := url.Values{}
	// The timeout first: switching to WAL may have to wait for a reader.
	q["_pragma"] = append([]string{"busy_timeout(10000)"}, pragmas...)
	q.Set("_txlock", "immediate")
	q.Set("modeof", path) // for the log
	name := url.URL{Path: filepath.ToSlash(path)}
	// To SQLite + is no space.
	return "file:" + name.EscapedPath() + "?" + strings.ReplaceAll(q.Encode(), "+", "%20")
}

// Above this size the whole file is not read at every start.
const checkLimit = 64 << 20

// check finds damage before anything relies on the file. It only reads: the last
// writer that closes a database moves the log into it and removes the log.
func (d *DB) check(ctx context.Context) error {
	db, err := sql.Open("sqlite3", readOnly(d.path))
	if err != nil {
		return fmt.Errorf("open the state database %s: %w", d.path, err)
	}
	defer db.Close()
	if st, err := os.Stat(d.path); err == nil && st.Size() > checkLimit {
		return d.checkTables(ctx, db)
	}
	return d.verdict(ctx, db, "PRAGMA quick_check(1)")
}

func readOnly(path string) string { return dsn(path) + "&mode=ro" }

// checkTables leaves out the index of the journal, which is what makes a file
// large. Damage to it shows when the journal is opened.
func (d *DB) checkTables(ctx context.Context, db *sql.DB) error {
	var tables []string
	err := d.eachOf(ctx, db, "check", "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'calls'", func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		tables = append(tables, name)
		return err
	})
	for _, name := range tables {
		if err == nil {
			err = d.verdict(ctx, db, "SELECT quick_check FROM pragma_quick_check(?)", name)
		}
	}
	return err
}

// verdict runs a check of SQLite's and returns the first fault it finds.
func (d *DB) verdict(ctx context.Context, db *sql.DB, query string, args ...any) error {
	var verdict string
	err := db.QueryRowContext(ctx, query, args...).Scan(&verdict)
	if err != nil {
		return d.wrap("check", err)
	}
	if verdict != "ok" {
		return d.damaged(errors.New(verdict))
	}
	return nil
}

// wrap names the step that failed, and the mend where the file is to blame.
func (d *DB) wrap(step string, err error) error {
	if err == nil {
		return nil
	}
	switch {
	case errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB):
		return d.damaged(err)
	case errors.Is(err, sqlite3.FULL), errors.Is(err, sqlite3.IOERR) && full(d.path):
		return fmt.Errorf("%s: no space left for the state database %s; make room: %w", step, d.path, err)
	case errors.Is(err, sqlite3.READONLY), errors.Is(err, sqlite3.CANTOPEN), errors.Is(err, sqlite3.PERM):
		return fmt.Errorf("%s: the state database %s can't be written; check who owns it and its folder: %w", step, d.path, err)
	}
	return fmt.Errorf("%s: state database %s: %w", step, d.path, err)
}

// full reports whether there is no space beside a file, which SQLite reports as an I/O
// error here.
func full(path string) bool {
	f, err := os.CreateTemp(filepath.Dir(path), ".space-*")
	if err == nil {
		_, err = f.Write(make([]byte, 64<<10))
		f.Close()
		os.Remove(f.Name())
	}
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func (d *DB) damaged(err error) error {
	if d.copied {
		return fmt.Errorf("%w: %s (%w)", store.ErrDamaged, d.path, err)
	}
	return fmt.Errorf("%w: %s (%w); nothing was changed. Run `%s` to go back to a backup, or `%s` to move the state aside and begin anew",
		store.ErrDamaged, d.path, err, d.command("restore"), d.command("set-aside"))
}

// command is a command on the state folder, as an error advises it.
func (d *DB) command(args string) string {
	if d.flag == "" {
		return "tine state " + args
	}
	return "tine state " + args + " " + d.flag
}

// Close may be called twice.
func (d *DB) Close() error {
	// The writer last: the last to close moves the log into the file.
	if err := errors.Join(d.reader.Close(), d.db.Close()); err != nil {
		return fmt.Errorf("close the state database %s: %w", d.path, err)
	}
	return nil
}

func (d *DB) exec(ctx context.Context, step, query string, args ...any) error {
	_, err := d.db.ExecContext(ctx, query, args...)
	return d.wrap(step, err)
}
