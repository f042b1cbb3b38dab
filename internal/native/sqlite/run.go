package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

const (
	maxResult = 1 << 20 // bytes of rows in one answer
	maxCount  = 100_000 // of rows left out that are counted
)

// rows is the result of a statement, already written as JSON objects.
type rows struct {
	columns []string
	data    []byte // one object a line, with commas between
	n       int
	leftOut int
	atLeast bool // not all that were left out are counted
}

// collect steps through a statement. What goes beyond limit rows or the bytes of
// an answer is counted only. A statement that changes something is stepped to its
// end whatever the number of rows.
func collect(ctx context.Context, s *sqlite3.Stmt, limit int) (*rows, error) {
	r := &rows{columns: columnNames(s)}
	reads := s.ReadOnly()
	var keys [][]byte
	for i, c := range r.columns {
		k := appendString(nil, c)
		if i > 0 {
			k = append([]byte(","), k...)
		}
		keys = append(keys, append(k, ':'))
	}
	for s.Step() {
		if r.n >= limit || r.leftOut > 0 {
			if r.leftOut++; reads && r.leftOut >= maxCount {
				r.atLeast = true
				return r, nil
			}
			continue
		}
		before := len(r.data)
		if r.n > 0 {
			r.data = append(r.data, ",\n"...)
		}
		r.data = append(r.data, '{')
		for i := range r.columns {
			r.data = append(r.data, keys[i]...)
			r.data = appendValue(r.data, s, i)
		}
		r.data = append(r.data, '}')
		if len(r.data) > maxResult {
			if r.n == 0 && reads {
				return nil, fmt.Errorf("the first row alone is larger than an answer may be (%d KiB); select fewer columns, or a part with substr()", maxResult>>10)
			}
			r.data = r.data[:before]
			r.leftOut++
			continue
		}
		r.n++
	}
	err := s.Err()
	if err != nil && reads && r.leftOut > 0 && errors.Is(err, sqlite3.INTERRUPT) && context.Cause(ctx) == errTimeout {
		// The rows that are wanted are there; only counting the others took long.
		r.atLeast = true
		return r, nil
	}
	return r, err
}

// columnNames returns the names of the result's columns, made different where
// they are not.
func columnNames(s *sqlite3.Stmt) []string {
	names := make([]string, s.ColumnCount())
	seen := map[string]bool{}
	for i := range names {
		name := strings.ToValidUTF8(s.ColumnName(i), "\uFFFD")
		names[i] = name
		for n := 2; seen[names[i]]; n++ {
			names[i] = fmt.Sprintf("%s:%d", name, n)
		}
		seen[names[i]] = true
	}
	return names
}

// query runs one statement that reads.
func (c *conn) query(ctx context.Context, sql string, p *params, limit int) (*rows, error) {
	s, err := c.reading(sql, p)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	r, err := collect(ctx, s, limit)
	if err != nil && c.guard.denied != "" {
		err = refused(c.guard.denied)
	}
	return r, err
}

// reading prepares one statement that reads. Nothing else may be in sql.
func (c *conn) reading(sql string, p *params) (*sqlite3.Stmt, error) {
	s, tail, err := c.prepare(modeQuery, sql)
	switch {
	case err != nil:
		return nil, err
	case s == nil:
		return nil, errors.New("there is no statement in sql")
	}
	fail := func(err error) (*sqlite3.Stmt, error) {
		s.Close()
		return nil, err
	}
	if tail != "" && !blank(tail) {
		return fail(errors.New("query takes one statement; make a call for each, or use execute"))
	}
	switch {
	case c.guard.txn != "":
		return fail(fmt.Errorf("%s is not needed: each call is a transaction by itself", c.guard.txn))
	case !s.ReadOnly():
		return fail(errors.New("query only reads; use execute for statements that change something"))
	}
	if err := p.bind(s); err != nil {
		return fail(err)
	}
	if err := p.rest(); err != nil {
		return fail(err)
	}
	return s, nil
}

// script is a run of statements in one transaction.
type script struct {
	c     *conn
	p     *params
	limit int

	begun      bool // our transaction
	open       bool // the script's own BEGIN, which is part of it
	statements int
	changes    int64
	rows       *rows // of the last statement that has some
}

// execute runs all statements of src as one transaction. It is whole when there
// is no error, else nothing has happened.
func (c *conn) execute(ctx context.Context, src io.Reader, p *params, limit int) (*script, error) {
	x := &script{c: c, p: p, limit: limit}
	c.SetLastInsertRowID(0) // what an earlier call has inserted is not this one's
	err := x.run(ctx, newSplitter(src))
	if err == nil {
		err = p.rest()
	}
	if err == nil && x.open {
		err = errors.New("BEGIN without COMMIT: a call is one transaction and none stays open after it; leave both out, or send both")
	}
	if err == nil && x.statements == 0 {
		err = errors.New("there is no statement in sql")
	}
	if err == nil {
		err = x.commit(ctx)
	}
	if err != nil {
		c.rollback()
		return nil, err
	}
	return x, nil
}

func (x *script) run(ctx context.Context, in *splitter) error {
	for {
		sql, err := in.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if firstWord(sql) == "VACUUM" {
			if err := x.vacuum(sql, in); err != nil {
				return err
			}
			continue
		}
		for sql != "" {
			if sql, err = x.statement(ctx, sql); err != nil {
				if x.statements > 0 && !errors.Is(err, sqlite3.INTERRUPT) {
					return fmt.Errorf("statement %d: %w; nothing of this call was kept", x.statements+1, explain(err))
				}
				return err
			}
		}
	}
}

// statement runs the first statement of sql and returns what comes after it.
func (x *script) statement(ctx context.Context, sql string) (tail string, err error) {
	c := x.c
	s, tail, err := c.prepare(modeExecute, sql)
	if err != nil || s == nil {
		return "", err
	}
	defer s.Close()
	if c.guard.txn != "" {
		x.statements++
		return tail, x.transaction(c.guard.txn)
	}
	if c.guard.outer && x.begun {
		return "", errors.New("a PRAGMA about the connection has no effect in a transaction; put it before all other statements")
	}
	if !c.guard.outer && !x.begun {
		if err := c.begin(); err != nil {
			return "", err
		}
		x.begun = true
		// BEGIN was prepared in between, under its own mode.
		c.guard.mode = modeExecute
	}
	if err := x.p.bind(s); err != nil {
		return "", err
	}
	before := c.TotalChanges()
	if s.ColumnCount() > 0 {
		x.rows, err = collect(ctx, s, x.limit)
	} else {
		s.Step()
		err = s.Err()
	}
	if err != nil {
		if c.guard.denied != "" {
			err = refused(c.guard.denied)
		}
		return "", err
	}
	if c.TotalChanges() != before {
		x.changes += c.Changes()
	}
	x.statements++
	return tail, nil
}

// transaction follows the script's own BEGIN and COMMIT, which say what is so
// anyway.
func (x *script) transaction(op string) error {
	switch {
	case op == "BEGIN" && !x.open:
		x.open = true
	case op == "COMMIT" && x.open:
		x.open = false
	case op == "BEGIN":
		return errors.New("BEGIN inside of a transaction; use SAVEPOINT")
	case op == "COMMIT":
		return errors.New("COMMIT without BEGIN: a call is one transaction, which is committed at its end")
	default:
		return errors.New("ROLLBACK is not possible: a call is one transaction, which is rolled back when a statement fails; use SAVEPOINT and ROLLBACK TO for a part of it")
	}
	return nil
}

// vacuum runs VACUUM, which must be alone as it makes a transaction itself.
func (x *script) vacuum(sql string, in *splitter) error {
	if _, err := in.next(); err != io.EOF || x.statements > 0 {
		return errors.New("VACUUM can't run in a transaction; make a call with it alone")
	}
	c := x.c
	s, _, err := c.prepare(modeVacuum, sql)
	if err != nil {
		return err
	}
	defer s.Close()
	c.file.committing = true
	s.Step()
	c.file.committing = false
	x.statements++
	if err := s.Err(); err != nil {
		if c.guard.denied != "" {
			return refused(c.guard.denied)
		}
		return c.why(err)
	}
	return nil
}

func (c *conn) begin() error {
	c.guard.mode = modeInternal
	return c.Exec("BEGIN")
}

func (x *script) commit(ctx context.Context) error {
	if !x.begun {
		return nil
	}
	return x.c.commit(ctx)
}

// commit ends a transaction. From here on it is not interrupted.
func (c *conn) commit(ctx context.Context) error {
	if ctx.Err() != nil {
		return sqlite3.INTERRUPT
	}
	c.SetInterrupt(context.Background())
	c.guard.mode = modeInternal
	c.file.committing = true
	err := c.Exec("COMMIT")
	c.file.committing = false
	return c.why(err)
}

// why prefers the reason of a commit that failed to what SQLite made of it.
func (c *conn) why(err error) error {
	if err != nil && c.file.err != nil {
		c.spoiled = true
		return fmt.Errorf("the change could not be written and did not happen: %w", c.file.err)
	}
	return err
}

// rollback undoes what was not committed. A connection that can't is not used
// again.
func (c *conn) rollback() {
	c.SetInterrupt(context.Background())
	c.guard.mode = modeInternal
	if c.GetAutocommit() {
		return // SQLite has done so itself, or nothing had begun
	}
	if err := c.Exec("ROLLBACK"); err != nil {
		c.spoiled = true
	}
}
