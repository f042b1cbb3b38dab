package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"github.com/tine-mcp/tine/internal/store"
)

const (
	// dropAtOnce bounds how long other writers wait while blocks are forgotten.
	dropAtOnce = 64
	// mergeBelow is how small the last block is when others are added to it, so
	// that calls that come one by one are not one row each. Below it a block is
	// quickly written again.
	mergeBelow = 64
)

// PutCalls implements store.Calls. Blocks never overlap: each call goes into the
// block that its Seq falls in, or follows.
func (d *DB) PutCalls(ctx context.Context, calls []store.Call) error {
	const step = "write to the index of calls"
	if len(calls) == 0 {
		return nil
	}
	calls = inOrder(calls)
	if seq := calls[0].Seq; seq <= 0 {
		return fmt.Errorf("%s: a call has the number %d; numbers begin with 1", step, seq)
	}
	// Statements first: there is one connection, and a transaction has it.
	p, err := d.callsPutter(ctx)
	if err != nil {
		return d.wrap(step, err)
	}
	tx, err := d.db.BeginTx(ctx, nil)
	if err != nil {
		return d.wrap(step, err)
	}
	defer tx.Rollback()
	p = p.in(ctx, tx)
	for len(calls) > 0 {
		n, err := p.put(ctx, calls)
		if err != nil {
			tx.Rollback() // the damage is noted on the same connection
			return d.wrapCalls(step, err)
		}
		calls = calls[n:]
	}
	return d.wrap(step, tx.Commit())
}

// putter holds the prepared statements that put calls. Parsing them each time would
// cost more than all the rest when calls come one by one.
type putter struct {
	near, next, insert *sql.Stmt
	blocks             blockWriter
}

// callsPutter returns the putter of the database.
func (d *DB) callsPutter(ctx context.Context) (*putter, error) {
	d.putterMu.Lock()
	defer d.putterMu.Unlock()
	if d.putter != nil {
		return d.putter, nil
	}
	var p putter
	for query, s := range map[string]**sql.Stmt{
		"SELECT first, last, segment, size, CASE WHEN last >= ?1 OR size < ?2 THEN data END FROM calls WHERE first <= ?1 ORDER BY first DESC LIMIT 1": &p.near,
		"SELECT min(first) FROM calls WHERE first > ?": &p.next,
		"INSERT OR REPLACE INTO calls (first, last, segment, newest, size, failed, servers, principals, sessions, runs, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)": &p.insert,
	} {
		var err error
		if *s, err = d.db.PrepareContext(ctx, query); err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	d.putter = &p
	return &p, nil
}

func (p *putter) close() error {
	var errs []error
	for _, s := range []*sql.Stmt{p.near, p.next, p.insert} {
		if s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// in returns the same for a transaction.
func (p *putter) in(ctx context.Context, tx *sql.Tx) *putter {
	return &putter{near: tx.StmtContext(ctx, p.near), next: tx.StmtContext(ctx, p.next), insert: tx.StmtContext(ctx, p.insert)}
}

// put puts the first n of calls: those before the next existing block.
func (p *putter) put(ctx context.Context, calls []store.Call) (n int, err error) {
	from := calls[0].Seq
	var b block
	err = p.near.QueryRowContext(ctx, from, mergeBelow).Scan(&b.first, &b.last, &b.segment, &b.size, &b.data)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	there := err == nil
	var next sql.NullInt64
	if err := p.next.QueryRowContext(ctx, from).Scan(&next); err != nil {
		return 0, err
	}
	if n = len(calls); next.Valid {
		n, _ = slices.BinarySearchFunc(calls, next.Int64, func(c store.Call, seq int64) int { return cmp.Compare(c.Seq, seq) })
	}
	calls = calls[:n]

	if there && (b.last >= from || b.size < mergeBelow && b.segment == calls[0].Segment) {
		old, err := readBlock(nil, b.data, b.segment)
		if err != nil && b.last >= from {
			return 0, &damagedBlock{first: b.first}
		}
		if err == nil { // else it is left alone
			if calls = inOrder(append(old, calls...)); len(calls) == len(old) {
				return n, nil
			}
		}
	}
	for len(calls) > 0 {
		size := 1
		for size < min(len(calls), blockCalls) && calls[size].Segment == calls[0].Segment {
			size++
		}
		b := p.blocks.block(calls[:size])
		if _, err := p.insert.ExecContext(ctx, b.first, b.last, b.segment, b.newest, b.size, b.failed, b.servers, b.principals, b.sessions, b.runs, b.data); err != nil {
			return 0, err
		}
		calls = calls[size:]
	}
	return n, nil
}

// inOrder returns calls by Seq. Of two equal ones the first stays.
func inOrder(calls []store.Call) []store.Call {
	ordered := true
	for i := 1; i < len(calls) && ordered; i++ {
		ordered = calls[i-1].Seq < calls[i].Seq
	}
	if ordered {
		return calls
	}
	calls = slices.Clone(calls)
	slices.SortStableFunc(calls, func(a, b store.Call) int { return cmp.Compare(a.Seq, b.Seq) })
	return slices.CompactFunc(calls, func(a, b store.Call) bool { return a.Seq == b.Seq })
}

// LastCall implements store.Calls. Of a damaged block it returns no place, which
// matches no journal, so that the index is rebuilt.
func (d *DB) LastCall(ctx context.Context) (store.Call, bool, error) {
	var b block
	err := d.reader.QueryRowContext(ctx, "SELECT last, segment, data FROM calls ORDER BY first DESC LIMIT 1").Scan(&b.last, &b.segment, &b.data)
	if errors.Is(err, sql.ErrNoRows) {
		return store.Call{}, false, nil
	}
	if err != nil {
		return store.Call{}, false, d.wrap("read the newest call of the index", err)
	}
	c := store.Call{Seq: b.last, Segment: b.segment}
	if calls, err := readBlock(nil, b.data, b.segment); err == nil {
		c = calls[len(calls)-1]
	}
	c.ID = store.CallID(c.Seq)
	return c, true, nil
}

// DropCalls implements store.Calls. Segments grow with Seq, so the old blocks
// are the first ones.
func (d *DB) DropCalls(ctx context.Context, below int64) error {
	for {
		r, err := d.db.ExecContext(ctx, "DELETE FROM calls WHERE first IN (SELECT first FROM (SELECT first, segment FROM calls ORDER BY first LIMIT ?) WHERE segment < ?)", dropAtOnce, below)
		if err != nil {
			return d.wrap("forget old calls", err)
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return d.wrap("forget old calls", err)
		}
	}
}
