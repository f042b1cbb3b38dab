package sqlite

import (
	"context"
	"database/sql"
)

// statement returns the prepared statement with this text, for frequent ones:
// parsing the text each time would cost more than all the rest. They end with the
// database. It waits for the one connection, so it can't be used within a
// transaction.
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

// A write is a statement, and the arguments of each time that it is run.
type write struct {
	query string
	args  [][]any
}

func (w *write) add(args ...any) { w.args = append(w.args, args) }

// write runs writes, all or none, and returns the rowid that each wrote last. One alone
// needs no transaction of ours.
func (d *DB) write(ctx context.Context, writes ...write) ([]int64, error) {
	n, prepared := 0, make([]*sql.Stmt, len(writes))
	for i, w := range writes {
		if len(w.args) == 0 {
			continue
		}
		s, err := d.statement(ctx, w.query)
		if err != nil {
			return nil, err
		}
		n, prepared[i] = n+len(w.args), s
	}
	var tx *sql.Tx
	if n > 1 {
		var err error
		if tx, err = d.db.BeginTx(ctx, nil); err != nil {
			return nil, err
		}
		defer tx.Rollback()
	}
	ids := make([]int64, 0, n)
	for i, w := range writes {
		s := prepared[i]
		if tx != nil && s != nil {
			s = tx.StmtContext(ctx, s)
		}
		for _, args := range w.args {
			r, err := s.ExecContext(ctx, args...)
			if err != nil {
				return nil, err
			}
			id, err := r.LastInsertId()
			if err != nil {
				return nil, err
			}
			ids = append(ids, id)
		}
	}
	if tx != nil {
		return ids, tx.Commit()
	}
	return ids, nil
}
