package sqlite

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// GatewayID implements store.Owner.
func (d *DB) GatewayID(ctx context.Context) (string, error) {
	fresh := make([]byte, 6)
	rand.Read(fresh)
	err := d.exec(ctx, "make the gateway's id", "INSERT INTO meta (key, value) VALUES ('gateway_id', ?) ON CONFLICT DO NOTHING", "gw_"+hex.EncodeToString(fresh))
	if err != nil {
		return "", err
	}
	var id string
	err = d.db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'gateway_id'").Scan(&id)
	return id, d.wrap("read the gateway's id", err)
}

// SetGatewayID implements store.Owner.
func (d *DB) SetGatewayID(ctx context.Context, id string) error {
	const step = "write the gateway's id"
	if err := d.exec(ctx, step, "INSERT INTO meta (key, value) VALUES ('gateway_id', ?) ON CONFLICT DO NOTHING", id); err != nil {
		return err
	}
	have, err := d.GatewayID(ctx)
	if err == nil && have != id {
		err = fmt.Errorf("%s: the state database %s is that of gateway %s, not of %s", step, d.path, have, id)
	}
	return err
}

// ChangeOverride implements store.Overrides.
func (d *DB) ChangeOverride(ctx context.Context, server string, change func(store.Override) (store.Override, error)) error {
	return d.changeAccess(ctx, "change an override", func(tx *sql.Tx) error {
		var o store.Override
		err := tx.QueryRowContext(ctx, "SELECT enabled, settings FROM overrides WHERE server = ?", server).Scan(&o.Enabled, (*[]byte)(&o.Set))
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if o, err = change(o); err != nil {
			return refusal{err}
		}
		if o.Enabled == nil && len(o.Set) == 0 {
			_, err = tx.ExecContext(ctx, "DELETE FROM overrides WHERE server = ?", server)
		} else {
			_, err = tx.ExecContext(ctx, "INSERT OR REPLACE INTO overrides (server, enabled, settings) VALUES (?, ?, ?)", server, o.Enabled, raw(o.Set))
		}
		return err
	})
}

// Overrides implements store.Overrides.
func (d *DB) Overrides(ctx context.Context) (map[string]store.Override, error) {
	all := make(map[string]store.Override)
	err := d.each(ctx, "list the overrides", "SELECT server, enabled, settings FROM overrides", func(rows *sql.Rows) error {
		var server string
		var o store.Override
		if err := rows.Scan(&server, &o.Enabled, (*[]byte)(&o.Set)); err != nil {
			return err
		}
		all[server] = o
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// sharedPrefix begins the keys of shared states in the meta table.
const sharedPrefix = "shared:"

// PutSharedState implements store.SharedStates.
func (d *DB) PutSharedState(ctx context.Context, name, mark string) error {
	return d.exec(ctx, "note a shared state", "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", sharedPrefix+name, mark)
}

// SharedStates implements store.SharedStates.
func (d *DB) SharedStates(ctx context.Context) (map[string]string, error) {
	all := make(map[string]string)
	err := d.each(ctx, "list the shared states", "SELECT key, value FROM meta WHERE key GLOB ?", func(rows *sql.Rows) error {
		var key, mark string
		err := rows.Scan(&key, &mark)
		all[strings.TrimPrefix(key, sharedPrefix)] = mark
		return err
	}, sharedPrefix+"*")
	return all, err
}

// PutHandle implements store.Handles.
func (d *DB) PutHandle(ctx context.Context, h store.Handle) error {
	return d.exec(ctx, "write a handle",
		"INSERT OR REPLACE INTO handles (key, driver, server, session, dir, data, spec_hash, link, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		h.Key, h.Driver, h.Server, h.Session, h.Dir, raw(h.Data), h.SpecHash, raw(h.Link), nanos(h.Created))
}

// DeleteHandle implements store.Handles.
func (d *DB) DeleteHandle(ctx context.Context, key string) error {
	return d.exec(ctx, "delete a handle", "DELETE FROM handles WHERE key = ?", key)
}

// Handles implements store.Handles.
func (d *DB) Handles(ctx context.Context) ([]store.Handle, error) {
	var all []store.Handle
	err := d.each(ctx, "list the handles", "SELECT key, driver, server, session, dir, data, spec_hash, link, created FROM handles ORDER BY key", func(rows *sql.Rows) error {
		var h store.Handle
		var created int64
		if err := rows.Scan(&h.Key, &h.Driver, &h.Server, &h.Session, &h.Dir, (*[]byte)(&h.Data), &h.SpecHash, (*[]byte)(&h.Link), &created); err != nil {
			return err
		}
		h.Created = fromNanos(created)
		all = append(all, h)
		return nil
	})
	return all, err
}

// PutClient implements store.Clients.
func (d *DB) PutClient(ctx context.Context, c store.Client) error {
	return d.exec(ctx, "write a client",
		"INSERT OR REPLACE INTO clients (id, session, view, principal, protocol, init, created, used) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
		c.ID, c.Session, c.View, c.Principal, c.Protocol, raw(c.Init), nanos(c.Created), nanos(c.Used))
}

// DeleteClient implements store.Clients.
func (d *DB) DeleteClient(ctx context.Context, id string) error {
	return d.exec(ctx, "delete a client", "DELETE FROM clients WHERE id = ?", id)
}

// Clients implements store.Clients.
func (d *DB) Clients(ctx context.Context) ([]store.Client, error) {
	var all []store.Client
	err := d.each(ctx, "list the clients", "SELECT id, session, view, principal, protocol, init, created, used FROM clients ORDER BY id", func(rows *sql.Rows) error {
		var c store.Client
		var created, used int64
		if err := rows.Scan(&c.ID, &c.Session, &c.View, &c.Principal, &c.Protocol, (*[]byte)(&c.Init), &created, &used); err != nil {
			return err
		}
		c.Created, c.Used = fromNanos(created), fromNanos(used)
		all = append(all, c)
		return nil
	})
	return all, err
}

// TouchClients implements store.Clients.
func (d *DB) TouchClients(ctx context.Context, used map[string]time.Time) error {
	return d.touch(ctx, "note the use of clients", "UPDATE clients SET used = max(used, ?) WHERE id = ?", used)
}

func (d *DB) each(ctx context.Context, step, query string, row func(*sql.Rows) error, args ...any) error {
	return d.eachOf(ctx, d.db, step, query, row, args...)
}

func (d *DB) eachOf(ctx context.Context, db *sql.DB, step, query string, row func(*sql.Rows) error, args ...any) error {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return d.wrap(step, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows); err != nil {
			return d.wrap(step, err)
		}
	}
	return d.wrap(step, rows.Err())
}

func (d *DB) touch(ctx context.Context, step, query string, used map[string]time.Time) error {
	uses := write{query: query}
	for id, at := range used {
		uses.add(nanos(at), id)
	}
	_, err := d.write(ctx, uses)
	return d.wrap(step, err)
}
