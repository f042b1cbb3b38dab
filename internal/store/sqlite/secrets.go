package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tine-mcp/tine/internal/store"
)

const tokenColumns = "name, hash, role, created, expires, unconfirmed"

// ChangeToken implements store.Tokens.
func (d *DB) ChangeToken(ctx context.Context, name string, change func(*store.Token) (*store.Token, error)) error {
	return d.changeAccess(ctx, "change a token", func(tx *sql.Tx) error {
		before, err := scanToken(tx.QueryRowContext(ctx, "SELECT "+tokenColumns+" FROM tokens WHERE name = ?", name))
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		after, err := change(before)
		if err != nil {
			return refusal{err}
		}
		if after == nil {
			_, err = tx.ExecContext(ctx, "DELETE FROM tokens WHERE name = ?", name)
			return err
		}
		_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO tokens ("+tokenColumns+") VALUES (?, ?, ?, ?, ?, ?)",
			name, after.Hash, after.Role, nanos(after.Created), nanos(after.Expires), after.Unconfirmed)
		if err == nil && !after.Unconfirmed {
			_, err = tx.ExecContext(ctx, "DELETE FROM meta WHERE key = ?", lostKey)
		}
		return err
	})
}

// scanToken reads a row of tokens; nil where it fails.
func scanToken(row interface{ Scan(...any) error }) (*store.Token, error) {
	var t store.Token
	var created, expires int64
	if err := row.Scan(&t.Name, &t.Hash, &t.Role, &created, &expires, &t.Unconfirmed); err != nil {
		return nil, err
	}
	t.Created, t.Expires = fromNanos(created), fromNanos(expires)
	return &t, nil
}

// Tokens implements store.Tokens.
func (d *DB) Tokens(ctx context.Context) ([]store.Token, error) {
	var all []store.Token
	err := d.each(ctx, "list the tokens", "SELECT "+tokenColumns+" FROM tokens ORDER BY name", func(rows *sql.Rows) error {
		t, err := scanToken(rows)
		if err == nil {
			all = append(all, *t)
		}
		return err
	})
	return all, err
}

// PutCredential implements store.Credentials.
func (d *DB) PutCredential(ctx context.Context, c store.Credential) error {
	return d.exec(ctx, "write a credential",
		"INSERT OR REPLACE INTO credentials (server, principal, data, changed) VALUES (?, ?, ?, ?)",
		c.Server, c.Principal, raw(c.Data), nanos(c.Changed))
}

// DeleteCredential implements store.Credentials.
func (d *DB) DeleteCredential(ctx context.Context, server, principal string) error {
	return d.exec(ctx, "delete a credential", "DELETE FROM credentials WHERE server = ? AND principal = ?", server, principal)
}

// Credential implements store.Credentials.
func (d *DB) Credential(ctx context.Context, server, principal string) (store.Credential, bool, error) {
	c := store.Credential{Server: server, Principal: principal}
	var changed int64
	err := d.db.QueryRowContext(ctx, "SELECT data, changed FROM credentials WHERE server = ? AND principal = ?", server, principal).
		Scan((*[]byte)(&c.Data), &changed)
	if errors.Is(err, sql.ErrNoRows) {
		return store.Credential{}, false, nil
	}
	if err != nil {
		return store.Credential{}, false, d.wrap("read a credential", err)
	}
	c.Changed = fromNanos(changed)
	return c, true, nil
}

// CredentialsOf implements store.Credentials.
func (d *DB) CredentialsOf(ctx context.Context, server string) ([]store.Credential, error) {
	var all []store.Credential
	err := d.each(ctx, "list the credentials of a server", "SELECT principal, data, changed FROM credentials WHERE server = ? ORDER BY principal", func(rows *sql.Rows) error {
		c := store.Credential{Server: server}
		var changed int64
		if err := rows.Scan(&c.Principal, (*[]byte)(&c.Data), &changed); err != nil {
			return err
		}
		c.Changed = fromNanos(changed)
		all = append(all, c)
		return nil
	}, server)
	return all, err
}
