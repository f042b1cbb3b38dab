package sqlite

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/layer"
)

// readTime bounds how long a database may take to be read.
const readTime = 10 * time.Minute

// Read tells what is in a database: the statements that made its tables, and the rows of
// each as objects. What a virtual table shows is in the tables that it keeps it in.
func Read(ctx context.Context, h *layer.Head[*DB], each func(driver.Item) error) (err error) {
	e := newEngine(h, limits{timeout: readTime, maxRows: mostRows, maxSize: mostSize})
	defer func() { err = errors.Join(err, e.Close()) }()
	return e.call(ctx, func(ctx context.Context, c *conn) error {
		var tables []string
		var failed error
		err := c.each("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name", func(s *sqlite3.Stmt) {
			kind, name, sql := s.ColumnText(0), s.ColumnText(1), s.ColumnText(2)
			if kind == "table" && !strings.HasPrefix(strings.ToUpper(sql), "CREATE VIRTUAL") {
				tables = append(tables, name)
			}
			b, err := json.Marshal(sql)
			if err == nil && failed == nil {
				err = each(driver.Item{Kind: "schema", Name: name, Value: b})
			}
			failed = errors.Join(failed, err)
		})
		if err := errors.Join(err, failed); err != nil {
			return err
		}
		for _, table := range tables {
			var columns []string
			err := c.each(`SELECT * FROM "`+strings.ReplaceAll(table, `"`, `""`)+`"`, func(s *sqlite3.Stmt) {
				if failed != nil {
					return
				}
				if columns == nil {
					columns = columnNames(s)
				}
				b := []byte{'{'}
				for i, name := range columns {
					if i > 0 {
						b = append(b, ',')
					}
					b = append(appendString(b, name), ':')
					b = appendValue(b, s, i)
				}
				failed = each(driver.Item{Kind: "table", Name: table, Value: append(b, '}')})
			})
			if err := errors.Join(err, failed); err != nil {
				return err
			}
		}
		return nil
	})
}
