package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// imported is the result of an import.
type imported struct {
	table   string
	columns []string
	rows    int
	created bool
}

// importCSV puts the records of a CSV file into a table, which it makes when it
// is missing and create says so: all of them, or none and no table.
func (c *conn) importCSV(ctx context.Context, table string, csv io.ReaderAt, size int64, withHeader, create bool) (*imported, error) {
	if err := c.begin(); err != nil {
		return nil, err
	}
	x := &imported{table: table}
	err := x.run(ctx, c, func() *csvReader { return newCSVReader(io.NewSectionReader(csv, 0, size)) }, withHeader, create)
	if err == nil {
		err = c.commit(ctx)
	}
	if err != nil {
		c.rollback()
		return nil, err
	}
	return x, nil
}

func (x *imported) run(ctx context.Context, c *conn, again func() *csvReader, withHeader, create bool) error {
	in := again()
	first, _, err := in.next()
	if err == io.EOF {
		return errors.New("the CSV is empty")
	}
	if err != nil {
		return err
	}
	var named []string
	if withHeader {
		for _, f := range first {
			named = append(named, strings.TrimSpace(f.text))
		}
	}
	columns, err := c.insertable(x.table)
	if err != nil {
		return err
	}
	switch {
	case columns == nil && !create:
		return c.noTable(x.table)
	case columns == nil:
		if err := x.create(ctx, c, again(), named, len(first)); err != nil {
			return err
		}
	case withHeader:
		if x.columns, err = match(x.table, named, columns); err != nil {
			return err
		}
	case len(first) != len(columns):
		return fmt.Errorf("the CSV has %d columns and table %s has %d; give a header that names some of them", len(first), x.table, len(columns))
	default:
		x.columns = columns
	}
	if !withHeader {
		in = again()
	}
	return x.insert(c, in)
}

// match finds the columns that a header names.
func match(table string, named, columns []string) ([]string, error) {
	var out []string
	for _, n := range named {
		i := slices.IndexFunc(columns, func(c string) bool { return strings.EqualFold(c, n) })
		switch {
		case i < 0:
			return nil, fmt.Errorf("the header names %q, which is no column of table %s; it has %s", n, table, strings.Join(columns, ", "))
		case slices.Contains(out, columns[i]):
			return nil, fmt.Errorf("the header names %q twice", n)
		}
		out = append(out, columns[i])
	}
	return out, nil
}

// create makes the table, with types that all values of a column have.
func (x *imported) create(ctx context.Context, c *conn, in *csvReader, named []string, n int) error {
	types := make([]int, n)
	if named != nil {
		in.next()
	}
	for {
		record, _, err := in.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return sqlite3.INTERRUPT
		}
		for i, f := range record[:min(n, len(record))] {
			types[i] = max(types[i], typeOf(f))
		}
	}
	seen := map[string]bool{}
	var defs []string
	for i := range n {
		name := ""
		if named != nil {
			name = named[i]
		}
		if name == "" {
			name = fmt.Sprintf("c%d", i+1)
		}
		if fold := strings.ToLower(name); seen[fold] {
			return fmt.Errorf("the header names %q twice", name)
		} else {
			seen[fold] = true
		}
		x.columns = append(x.columns, name)
		defs = append(defs, quote(name)+" "+[]string{"TEXT", "INTEGER", "REAL", "TEXT"}[types[i]])
	}
	if strings.HasPrefix(strings.ToLower(x.table), "sqlite_") || strings.TrimSpace(x.table) == "" {
		return fmt.Errorf("%q can't be the name of a table", x.table)
	}
	x.created = true
	return c.Exec("CREATE TABLE " + quote(x.table) + " (" + strings.Join(defs, ", ") + ")")
}

// typeOf ranks the type of a value: nothing, integer, real, text. A number that
// would be written otherwise again, as 007, is text.
func typeOf(f field) int {
	if f.null() {
		return 0
	}
	if f.quoted {
		return 3
	}
	if n, err := strconv.ParseInt(f.text, 10, 64); err == nil && strconv.FormatInt(n, 10) == f.text {
		return 1
	}
	if strings.Trim(f.text, "+-.0123456789eE") != "" { // no hexadecimal, no NaN
		return 3
	}
	digits := strings.TrimLeft(f.text, "-")
	if len(digits) > 1 && digits[0] == '0' && digits[1] != '.' {
		return 3
	}
	// An integer that is too large keeps its digits only as text.
	if _, err := strconv.ParseFloat(f.text, 64); err != nil || !strings.ContainsAny(f.text, ".eE") {
		return 3
	}
	return 2
}

func (x *imported) insert(c *conn, in *csvReader) error {
	quoted := make([]string, len(x.columns))
	for i, name := range x.columns {
		quoted[i] = quote(name)
	}
	s, _, err := c.Prepare("INSERT INTO " + quote(x.table) + " (" + strings.Join(quoted, ", ") + ") VALUES (?" + strings.Repeat(", ?", len(x.columns)-1) + ")")
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		record, line, err := in.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if len(record) != len(x.columns) {
			return fmt.Errorf("line %d has %d fields, not %d; nothing was imported", line, len(record), len(x.columns))
		}
		for i, f := range record {
			if f.null() {
				err = s.BindNull(i + 1)
			} else {
				err = s.BindText(i+1, f.text)
			}
			if err != nil {
				return err
			}
		}
		if err := s.Exec(); err != nil {
			if errors.Is(err, sqlite3.CONSTRAINT) || errors.Is(err, sqlite3.MISMATCH) {
				return fmt.Errorf("line %d: %w; nothing was imported", line, explain(err))
			}
			return err
		}
		x.rows++
	}
}

func quote(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
