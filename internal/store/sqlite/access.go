package sqlite

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/store"
)

// Changes of access are counted in the database, in the transaction that makes the
// change, and then in AccessFile. The database is written and synced first: a death
// between the two leaves a database that is ahead of the file, which is right: its
// change was not answered. A database that is behind the file has lost a change
// that was answered.

const (
	accessKey = "access_changes"
	lostKey   = "tokens_lost"
)

// querier is a connection or a transaction.
type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// accessOf reads what a database says about access.
func accessOf(ctx context.Context, q querier) (a Access, err error) {
	err = q.QueryRowContext(ctx, `SELECT
		coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?), 0),
		EXISTS (SELECT 1 FROM tokens) OR EXISTS (SELECT 1 FROM meta WHERE key = ?)`, accessKey, lostKey).Scan(&a.Changes, &a.Guarded)
	if err == nil {
		a.Content, err = contentOf(ctx, q, "SELECT * FROM tokens ORDER BY name", "SELECT * FROM overrides ORDER BY server")
	}
	return a, err
}

// Access is what the database says about access.
func (d *DB) Access(ctx context.Context) (Access, error) {
	a, err := accessOf(ctx, d.db)
	return a, d.wrap("count the changes of access", err)
}

// contentOf is a digest of the rows of queries, with all their columns.
func contentOf(ctx context.Context, q querier, queries ...string) (string, error) {
	sum := sha256.New()
	for _, query := range queries {
		rows, err := q.QueryContext(ctx, query)
		if err != nil {
			return "", err
		}
		columns, err := rows.Columns()
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		for err == nil && rows.Next() {
			if err = rows.Scan(into...); err == nil {
				fmt.Fprintf(sum, "%#v\n", row)
			}
		}
		if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(sum.Sum(nil)[:16]), nil
}

// refusal is an error of the caller's, which is no fault of the database.
type refusal struct{ error }

// changeAccess runs statements that change tokens or switches, counts the change
// and notes it in the file.
func (d *DB) changeAccess(ctx context.Context, step string, change func(tx *sql.Tx) error) error {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return d.wrap(step, err)
	}
	// It is held until the file is written, so that the files come in order.
	defer conn.Close()
	// The file must never be ahead of the database, also after a power cut.
	if _, err := conn.ExecContext(ctx, "PRAGMA synchronous = FULL"); err != nil {
		return d.wrap(step, err)
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), "PRAGMA synchronous = NORMAL")
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return d.wrap(step, err)
	}
	defer tx.Rollback()
	if err := change(tx); err != nil {
		if refused, ok := err.(refusal); ok {
			return refused.error
		}
		return d.wrap(step, err)
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO meta (key, value) VALUES (?, '1') ON CONFLICT DO UPDATE SET value = CAST(value AS INTEGER) + 1", accessKey); err != nil {
		return d.wrap(step, err)
	}
	now, err := accessOf(ctx, tx)
	if err != nil {
		return d.wrap(step, err)
	}
	finish := func() error { return nil }
	if d.access != "" {
		if finish, err = prepareAccess(d.access, now); err != nil {
			return fmt.Errorf("%s: %w", step, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return d.wrap(step, err)
	}
	if err := finish(); err != nil {
		return fmt.Errorf("%s: it is done, but could be lost unnoticed with the database's log: %w", step, err)
	}
	return nil
}

func execIn(ctx context.Context, query string, args ...any) func(*sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	}
}

// checkAccess refuses a database that is older than the file beside it says. It
// changes nothing.
func (d *DB) checkAccess(ctx context.Context) error {
	file, ok, err := ReadAccess(d.access)
	if errors.Is(err, ErrAccessFile) {
		return fmt.Errorf("%w; nothing was changed. %s", err, d.mendOlder())
	}
	if err != nil {
		return err
	}
	db, err := sql.Open("sqlite3", readOnly(d.path))
	if err != nil {
		return fmt.Errorf("open the state database %s: %w", d.path, err)
	}
	defer db.Close()
	var have Access
	var tables int
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE name IN ('meta', 'tokens', 'overrides')").Scan(&tables); err != nil {
		return d.wrap("check", err)
	}
	if tables == 3 { // else it is empty, or older than tokens
		if have, err = accessOf(ctx, db); err != nil {
			return d.wrap("check", err)
		}
	}
	if !ok && have.Changes > 0 { // a folder of an earlier version has neither
		return fmt.Errorf("%w: %s is missing, which counts the changes of tokens and switches, so it is not known whether %s has the last of them; nothing was changed. %s",
			store.ErrDamaged, filepath.Join(d.access, AccessFile), d.path, d.mendOlder())
	}
	if have.Changes < file.Changes {
		return fmt.Errorf("%w: %s is older than the state folder: changes of tokens and switches are counted, its count is %d, and that of %s is %d. "+
			"Its log %s-wal was removed, cut or damaged, or an older copy was put in its place; nothing was changed. %s",
			store.ErrDamaged, d.path, have.Changes, filepath.Join(d.access, AccessFile), file.Changes, filepath.Base(d.path), d.mendOlder())
	}
	if have.Changes == file.Changes && file.Content != "" && have.Content != file.Content {
		return fmt.Errorf("%w: the tokens or switches in %s are not those that were written last, by the digest in %s; nothing was changed. %s",
			store.ErrDamaged, d.path, filepath.Join(d.access, AccessFile), d.mendOlder())
	}
	return nil
}

func (d *DB) mendOlder() string {
	return "Restore the right files, run `" + d.command("restore --from "+filepath.Base(d.path)) +
		"` to continue with the database as it is, whose tokens must then be confirmed, or `" + d.command("set-aside") + "` to move the state aside and begin anew"
}

// noteAccess writes what the database says to the file, which is the same or newer.
func (d *DB) noteAccess(ctx context.Context) error {
	now, err := d.Access(ctx)
	if err != nil {
		return err
	}
	if file, ok, err := ReadAccess(d.access); err == nil && ok && file == now {
		return nil
	}
	return WriteAccess(d.access, now)
}

// RestoreAccess prepares a database to replace a newer one with the given file: its
// count is raised above the file's, and if it has no token and there were some, or
// that is not known, all callers are refused until an operator confirms. It returns
// what the file must say from then on.
func (d *DB) RestoreAccess(ctx context.Context, file Access, known bool) (Access, error) {
	err := d.changeAccess(ctx, "count the changes of access", func(tx *sql.Tx) error {
		now, err := accessOf(ctx, tx)
		if err == nil && !now.Guarded && (file.Guarded || !known) {
			_, err = tx.ExecContext(ctx, "INSERT INTO meta (key, value) VALUES (?, '1')", lostKey)
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", accessKey, fmt.Sprint(max(now.Changes, file.Changes)))
		}
		return err
	})
	if err != nil {
		return Access{}, err
	}
	return d.Access(ctx)
}

// TokensLost implements store.Tokens.
func (d *DB) TokensLost(ctx context.Context) (bool, error) {
	var lost bool
	err := d.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM meta WHERE key = ?)", lostKey).Scan(&lost)
	return lost, d.wrap("read whether tokens were lost", err)
}

// ConfirmLost implements store.Tokens.
func (d *DB) ConfirmLost(ctx context.Context) error {
	return d.changeAccess(ctx, "confirm that tokens were lost", execIn(ctx, "DELETE FROM meta WHERE key = ?", lostKey))
}
