package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/tine-mcp/tine/internal/store"
)

// PutToken implements store.Tokens.
func (d *DB) PutToken(ctx context.Context, t store.Token) error {
	return d.changeAccess(ctx, "write a token", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT OR REPLACE INTO tokens (name, hash, role, created, expires, unconfirmed) VALUES (?, ?, ?, ?, ?, ?)",
			t.Name, t.Hash, t.Role, nanos(t.Created), nanos(t.Expires), t.Unconfirmed)
		if err == nil && !t.Unconfirmed {
			_, err = tx.ExecContext(ctx, "DELETE FROM meta WHERE key = ?", lostKey)
		}
		return err
	})
}

// DeleteToken implements store.Tokens.
func (d *DB) DeleteToken(ctx context.Context, name string) error {
	return d.changeAccess(ctx, "delete a token", execIn(ctx, "DELETE FROM tokens WHERE name = ?", name))
}

// Tokens implements store.Tokens.
func (d *DB) Tokens(ctx context.Context) ([]store.Token, error) {
	var all []store.Token
	err := d.each(ctx, "list the tokens", "SELECT name, hash, role, created, expires, unconfirmed FROM tokens ORDER BY name", func(rows *sql.Rows) error {
		var t store.Token
		var created, expires int64
		if err := rows.Scan(&t.Name, &t.Hash, &t.Role, &created, &expires, &t.Unconfirmed); err != nil {
			return err
		}
		t.Created, t.Expires = fromNanos(created), fromNanos(expires)
		all = append(all, t)
		return nil
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
