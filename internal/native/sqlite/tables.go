package sqlite

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ncruces/go-sqlite3"
)

// maxRowCount is up to where the rows of a table are counted.
const maxRowCount = 100_000

type tableName struct {
	Name string `json:"name"`
	Type string `json:"type"` // table, view or virtual
}

type tableList struct {
	Tables  []tableName `json:"tables"`
	LeftOut int         `json:"left_out,omitempty"`
}

// each runs one of our own queries.
func (c *conn) each(sql string, row func(s *sqlite3.Stmt), args ...any) error {
	c.guard.mode = modeInternal
	s, _, err := c.Prepare(sql)
	if err != nil {
		return err
	}
	defer s.Close()
	for i, a := range args {
		if err := bind(s, i+1, a); err != nil {
			return err
		}
	}
	for s.Step() {
		row(s)
	}
	return s.Err()
}

func (c *conn) tables(limit int) (*tableList, error) {
	l := &tableList{Tables: []tableName{}}
	err := c.each(`SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND type <> 'shadow' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`,
		func(s *sqlite3.Stmt) {
			if len(l.Tables) >= limit {
				l.LeftOut++
				return
			}
			l.Tables = append(l.Tables, tableName{s.ColumnText(0), s.ColumnText(1)})
		})
	return l, err
}

// description of a table or view.
type description struct {
	Name            string       `json:"name"`
	Type            string       `json:"type"`
	SQL             string       `json:"sql"`
	Columns         []column     `json:"columns"`
	PrimaryKey      []string     `json:"primary_key"`
	ForeignKeys     []foreignKey `json:"foreign_keys"`
	Indexes         []index      `json:"indexes"`
	Triggers        []string     `json:"triggers"`
	RowCount        *int64       `json:"row_count,omitempty"` // not of a view that fails
	RowCountAtLeast bool         `json:"row_count_at_least,omitempty"`
}

type column struct {
	Name      string  `json:"name"`
	Type      string  `json:"type"`
	NotNull   bool    `json:"not_null"`
	Default   *string `json:"default"` // as SQL
	Generated bool    `json:"generated,omitempty"`
	Hidden    bool    `json:"hidden,omitempty"`
}

type foreignKey struct {
	Columns  []string `json:"columns"`
	Table    string   `json:"table"`
	To       []string `json:"to,omitempty"` // none: its primary key
	OnUpdate string   `json:"on_update"`
	OnDelete string   `json:"on_delete"`
}

type index struct {
	Name    string    `json:"name"`
	Unique  bool      `json:"unique"`
	Origin  string    `json:"origin"`  // index, unique or primary_key
	Columns []*string `json:"columns"` // null is an expression
	Partial bool      `json:"partial,omitempty"`
}

func (c *conn) describe(ctx context.Context, table string) (*description, error) {
	d := &description{Columns: []column{}, PrimaryKey: []string{}, ForeignKeys: []foreignKey{}, Indexes: []index{}, Triggers: []string{}}
	err := c.each(`SELECT l.name, l.type, coalesce(m.sql, '') FROM pragma_table_list l LEFT JOIN main.sqlite_schema m ON m.name = l.name AND m.type IN ('table', 'view')
		WHERE l.schema = 'main' AND l.name = ? COLLATE NOCASE`,
		func(s *sqlite3.Stmt) { d.Name, d.Type, d.SQL = s.ColumnText(0), s.ColumnText(1), s.ColumnText(2) }, table)
	if err != nil {
		return nil, err
	}
	if d.Name == "" {
		return nil, c.noTable(table)
	}
	if err := errors.Join(c.describeColumns(d), c.describeKeys(d), c.describeIndexes(d)); err != nil {
		return nil, err
	}
	var n int64
	err = c.each(fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM main.%s LIMIT %d)", quote(d.Name), maxRowCount+1),
		func(s *sqlite3.Stmt) { n = s.ColumnInt64(0) })
	switch {
	case err == nil:
		d.RowCountAtLeast = n > maxRowCount
		n = min(n, maxRowCount)
		d.RowCount = &n
	case d.Type == "table" || ctx.Err() != nil:
		return nil, err
	}
	return d, nil
}

func (c *conn) describeColumns(d *description) error {
	keys := map[int]string{}
	err := c.each(`SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?, 'main')`, func(s *sqlite3.Stmt) {
		col := column{Name: s.ColumnText(0), Type: s.ColumnText(1), NotNull: s.ColumnBool(2), Hidden: s.ColumnInt(5) == 1, Generated: s.ColumnInt(5) > 1}
		if s.ColumnType(3) != sqlite3.NULL {
			v := s.ColumnText(3)
			col.Default = &v
		}
		if pk := s.ColumnInt(4); pk > 0 {
			keys[pk] = col.Name
		}
		d.Columns = append(d.Columns, col)
	}, d.Name)
	for i := 1; i <= len(keys); i++ {
		d.PrimaryKey = append(d.PrimaryKey, keys[i])
	}
	return err
}

func (c *conn) describeKeys(d *description) error {
	last := -1
	return errors.Join(c.each(`SELECT id, "table", "from", "to", on_update, on_delete FROM pragma_foreign_key_list(?, 'main') ORDER BY id, seq`, func(s *sqlite3.Stmt) {
		if id := s.ColumnInt(0); id != last {
			last = id
			d.ForeignKeys = append(d.ForeignKeys, foreignKey{Table: s.ColumnText(1), OnUpdate: s.ColumnText(4), OnDelete: s.ColumnText(5)})
		}
		k := &d.ForeignKeys[len(d.ForeignKeys)-1]
		k.Columns = append(k.Columns, s.ColumnText(2))
		if s.ColumnType(3) != sqlite3.NULL {
			k.To = append(k.To, s.ColumnText(3))
		}
	}, d.Name), c.each(`SELECT name FROM main.sqlite_schema WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE ORDER BY name`, func(s *sqlite3.Stmt) {
		d.Triggers = append(d.Triggers, s.ColumnText(0))
	}, d.Name))
}

func (c *conn) describeIndexes(d *description) error {
	last := ""
	return c.each(`SELECT l.name, l."unique", l.origin, l.partial, i.name FROM pragma_index_list(?, 'main') l, pragma_index_info(l.name, 'main') i ORDER BY l.name, i.seqno`, func(s *sqlite3.Stmt) {
		if name := s.ColumnText(0); name != last || len(d.Indexes) == 0 {
			last = name
			origin := map[string]string{"c": "index", "u": "unique", "pk": "primary_key"}[s.ColumnText(2)]
			d.Indexes = append(d.Indexes, index{Name: name, Unique: s.ColumnBool(1), Origin: origin, Partial: s.ColumnBool(3)})
		}
		x := &d.Indexes[len(d.Indexes)-1]
		if s.ColumnType(4) == sqlite3.NULL {
			x.Columns = append(x.Columns, nil)
		} else {
			name := s.ColumnText(4)
			x.Columns = append(x.Columns, &name)
		}
	}, d.Name)
}

// insertable returns the columns of a table that can be given values; nil when
// there is no such table.
func (c *conn) insertable(table string) (columns []string, err error) {
	err = c.each(`SELECT name FROM pragma_table_xinfo(?, 'main') WHERE hidden = 0`,
		func(s *sqlite3.Stmt) { columns = append(columns, s.ColumnText(0)) }, table)
	return columns, err
}

func (c *conn) noTable(name string) error {
	l, err := c.tables(20)
	if err != nil {
		return err
	}
	if len(l.Tables) == 0 {
		return fmt.Errorf("there is no table %q; the database is empty", name)
	}
	var names []string
	for _, t := range l.Tables {
		names = append(names, t.Name)
	}
	if l.LeftOut > 0 {
		names = append(names, fmt.Sprintf("and %d more", l.LeftOut))
	}
	return fmt.Errorf("there is no table %q; there are %s", name, strings.Join(names, ", "))
}
