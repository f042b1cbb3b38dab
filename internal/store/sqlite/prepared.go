package sqlite

import (
	"context"
	"database/sql"
)

// statement returns the statement with this text, for those that come often:
// to have SQLite read the text each time would cost more than all the rest.
// They end with the database. It waits for the one connection, so it is no use
// within a transaction.
func (d *DB) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	d.preparedMu.Lock()
	defer d.preparedMu.Unlock()
	if s := d.prepared[query]; s != nil {
		return s, nil
	}
	s, err := d.db.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if d.prepared == nil {
		d.prepared = make(map[string]*sql.Stmt)
	}
	d.prepared[query] = s
	return s, nil
}

// execEach runs a statement once for each of n, all or none, and returns the
// rowid that each wrote last. One alone needs no transaction of ours.
func (d *DB) execEach(ctx context.Context, query string, n int, args func(i int) []any) ([]int64, error) {
	if n == 0 {
		return nil, nil
	}
	s, err := d.statement(ctx, query)
	if err != nil {
		return nil, err
	}
	var tx *sql.Tx
	if n > 1 {
		if tx, err = d.db.BeginTx(ctx, nil); err != nil {
			return nil, err
		}
		defer tx.Rollback()
		s = tx.StmtContext(ctx, s)
	}
	ids := make([]int64, n)
	for i := range n {
		r, err := s.ExecContext(ctx, args(i)...)
		if err != nil {
			return nil, err
		}
		if ids[i], err = r.LastInsertId(); err != nil {
			return nil, err
		}
	}
	if tx != nil {
		return ids, tx.Commit()
	}
	return ids, nil
}

// execFor runs statements, each of which has one id as its last argument, for
// all ids: all or none.
func (d *DB) execFor(ctx context.Context, ids []string, queries map[string][]any) error {
	if len(ids) == 0 {
		return nil
	}
	prepared := make(map[*sql.Stmt][]any, len(queries))
	for query, args := range queries {
		s, err := d.statement(ctx, query)
		if err != nil {
			return err
		}
		prepared[s] = args[:len(args):len(args)]
	}
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for s, args := range prepared {
		s = tx.StmtContext(ctx, s)
		for _, id := range ids {
			if _, err := s.ExecContext(ctx, append(args, id)...); err != nil {
				return err
			}
		}
	}
	return tx.Commit()
}
