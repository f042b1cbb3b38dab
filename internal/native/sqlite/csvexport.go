package sqlite

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/ncruces/go-sqlite3"

	"github.com/tine-mcp/tine/internal/workspace"
)

// maxExport is how large a CSV file may be.
const maxExport = 1 << 30

// exported is the result of an export.
type exported struct {
	rows    int
	leftOut int
	atLeast bool
	csv     []byte // where it was not written to a file
	path    string
	size    int64
}

// export writes the rows of a query as CSV: to a file of the workspace, which
// must know its size before and so gets it from a scratch, or into the answer.
func (c *conn) export(ctx context.Context, sql string, p *params, maxRows int, files workspace.FS, path string) (*exported, error) {
	s, err := c.reading(sql, p)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	x := &exported{path: path}
	if path == "" {
		return x, x.text(ctx, s, maxRows)
	}
	name, err := inWorkspace(files, path)
	if err != nil {
		return nil, err
	}
	out := &scratch{room: &room{left: maxExport}}
	defer out.Close()
	if err := x.file(s, out); err != nil {
		return nil, err
	}
	x.size = out.size
	if err := files.Write(name, io.NewSectionReader(out, 0, out.size), out.size); err != nil {
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return x, nil
}

func (x *exported) text(ctx context.Context, s *sqlite3.Stmt, maxRows int) error {
	x.csv = header(s)
	for s.Step() {
		if x.rows >= maxRows || x.leftOut > 0 {
			if x.leftOut++; x.leftOut >= maxCount {
				x.atLeast = true
				return nil
			}
			continue
		}
		before := len(x.csv)
		if x.csv = appendRecord(x.csv, s); len(x.csv) > maxResult {
			x.csv = x.csv[:before]
			x.leftOut++
			continue
		}
		x.rows++
	}
	err := s.Err()
	if err != nil && x.leftOut > 0 && errors.Is(err, sqlite3.INTERRUPT) && context.Cause(ctx) == errTimeout {
		x.atLeast = true
		return nil
	}
	return err
}

func (x *exported) file(s *sqlite3.Stmt, out *scratch) error {
	buf := header(s)
	flush := func() error {
		if _, err := out.WriteAt(buf, out.size); err != nil {
			return fmt.Errorf("the CSV file grows beyond %d MiB or can't be kept: %w", maxExport>>20, err)
		}
		buf = buf[:0]
		return nil
	}
	for s.Step() {
		x.rows++
		if buf = appendRecord(buf, s); len(buf) > 256<<10 {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return flush()
}

func header(s *sqlite3.Stmt) (b []byte) {
	for i, name := range columnNames(s) {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendField(b, name)
	}
	return append(b, '\n')
}

func appendRecord(b []byte, s *sqlite3.Stmt) []byte {
	n := s.ColumnCount()
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		switch s.ColumnType(i) {
		case sqlite3.NULL:
			if n == 1 {
				b = append(b, `""`...) // an empty line would be no record at all
			}
		case sqlite3.FLOAT:
			switch f := s.ColumnFloat(i); {
			case math.IsInf(f, 1):
				b = append(b, "Infinity"...)
			case math.IsInf(f, -1):
				b = append(b, "-Infinity"...)
			default:
				b = append(b, formatReal(f)...)
			}
		case sqlite3.BLOB:
			b = append(b, "x'"...)
			b = hex.AppendEncode(b, s.ColumnRawBlob(i))
			b = append(b, '\'')
		default:
			b = appendField(b, s.ColumnText(i))
		}
	}
	return append(b, '\n')
}
