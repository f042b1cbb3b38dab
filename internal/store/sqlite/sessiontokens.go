package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"

	"github.com/tine-mcp/tine/internal/store"
)

const deleteTokensOf = "DELETE FROM session_tokens WHERE session = ?"

// PutSessionToken implements store.SessionTokens.
func (d *DB) PutSessionToken(ctx context.Context, t store.SessionToken) error {
	const step = "write a token of a session"
	servers, err := list(t.Servers)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	allow, err := list(t.Allow)
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	r, err := d.db.ExecContext(ctx, `INSERT OR REPLACE INTO session_tokens (id, session, hash, run, servers, allow, created, expires)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE EXISTS (SELECT 1 FROM sessions WHERE id = ?2 AND closed = 0)`,
		t.ID, t.Session, t.Hash, t.Run, servers, allow, nanos(t.Created), nanos(t.Expires))
	if err != nil {
		return d.wrap(step, err)
	}
	if n, err := r.RowsAffected(); err != nil || n == 0 {
		if err == nil {
			err = fmt.Errorf("%s %q: %w", step, t.Session, store.ErrUnknown)
		}
		return err
	}
	return nil
}

// DeleteSessionTokens implements store.SessionTokens.
func (d *DB) DeleteSessionTokens(ctx context.Context, ids ...string) error {
	tokens := write{query: "DELETE FROM session_tokens WHERE id = ?"}
	for _, id := range ids {
		tokens.add(id)
	}
	_, err := d.write(ctx, tokens)
	return d.wrap("delete tokens of sessions", err)
}

// SessionTokens implements store.SessionTokens.
func (d *DB) SessionTokens(ctx context.Context) ([]store.SessionToken, error) {
	const step = "list the tokens of sessions"
	var all []store.SessionToken
	err := d.each(ctx, step, "SELECT id, session, hash, run, servers, allow, created, expires FROM session_tokens ORDER BY id", func(rows *sql.Rows) error {
		var t store.SessionToken
		var servers, allow []byte
		var created, expires int64
		if err := rows.Scan(&t.ID, &t.Session, &t.Hash, &t.Run, &servers, &allow, &created, &expires); err != nil {
			return err
		}
		t.Created, t.Expires = fromNanos(created), fromNanos(expires)
		for _, l := range []struct {
			raw []byte
			to  *[]string
		}{{servers, &t.Servers}, {allow, &t.Allow}} {
			if l.raw == nil {
				continue
			}
			if err := json.Unmarshal(l.raw, l.to); err != nil || *l.to == nil {
				// Without the list it would reach everything.
				return d.damaged(fmt.Errorf("token %s of session %s can't be read", t.ID, t.Session))
			}
		}
		all = append(all, t)
		return nil
	})
	return all, err
}

// list keeps nil as NULL, and an empty list as one.
func list(texts []string) (any, error) {
	if texts == nil {
		return nil, nil
	}
	return json.Marshal(texts)
}
