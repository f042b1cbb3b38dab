package main

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Columns are not made narrower than this, unless the terminal is too narrow, and
// the last one, which holds the longest texts, is cut first.
const (
	minColumn     = 9
	minNarrow     = 4
	minLastColumn = 24
	columnGap     = 2
)

// cell is one field of a table.
type cell struct {
	text  string
	color string
}

func plain(s string) cell { return cell{text: s} }

// cells are fields without a color.
func cells(texts ...string) []cell {
	row := make([]cell, len(texts))
	for i, s := range texts {
		row[i].text = s
	}
	return row
}

// rule says how a column is shown.
type rule int

const (
	whole  rule = 1 << iota // never cut: ids must stay usable
	filled                  // hidden if it is empty in all rows
	varied                  // hidden if it is the same in all rows
	hidden
)

// when is the rule of a column that is shown on a condition.
func when(shown bool) rule {
	if shown {
		return 0
	}
	return hidden
}

type column struct {
	name string
	rule rule
}

// table is a list for people: columns with names, or labelled lines where it has no
// columns. On a terminal no line is longer than it is wide.
type table struct {
	columns []column
	rows    [][]cell
	least   []int // widths below which columns don't go; nil for none
	indent  string
}

// columns are columns without a rule.
func columns(names ...string) []column {
	all := make([]column, len(names))
	for i, name := range names {
		all[i].name = name
	}
	return all
}

// listing is a table with a row for each item.
func listing[T any](items []T, columns []column, row func(T) []cell) *table {
	t := &table{columns: columns}
	for _, item := range items {
		t.add(row(item)...)
	}
	return t
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

func (t *table) print(c *cli) { fmt.Fprint(c.stdout, t.render(c)) }

func (t *table) render(c *cli) string {
	if len(t.rows) == 0 {
		return ""
	}
	t.hide()
	for _, r := range t.rows {
		for i := range r {
			r[i].text = visible(oneLine(r[i].text), c.outTerminal)
		}
	}
	widths := t.widths(c.width)
	var b strings.Builder
	if t.least == nil && t.columns != nil {
		head := make([]cell, len(t.columns))
		for i, col := range t.columns {
			head[i] = cell{col.name, bold}
		}
		t.row(c, &b, head, widths)
	}
	for _, r := range t.rows {
		t.row(c, &b, r, widths)
	}
	return b.String()
}

// hide removes the columns that their rules hide.
func (t *table) hide() {
	for i := len(t.columns) - 1; i >= 0; i-- {
		has := func(other func(text string) bool) bool {
			return slices.ContainsFunc(t.rows, func(r []cell) bool { return other(r[i].text) })
		}
		switch rule := t.columns[i].rule; {
		case rule&hidden != 0:
		case rule&filled != 0 && !has(func(text string) bool { return text != "" }):
		case rule&varied != 0 && !has(func(text string) bool { return text != t.rows[0][i].text }):
		default:
			continue
		}
		t.columns = slices.Delete(slices.Clone(t.columns), i, i+1)
		for r := range t.rows {
			t.rows[r] = slices.Delete(t.rows[r], i, i+1)
		}
	}
}

func (t *table) row(c *cli, b *strings.Builder, cells []cell, widths []int) {
	last := len(cells) - 1
	for last > 0 && cells[last].text == "" {
		last-- // no trailing spaces
	}
	b.WriteString(t.indent)
	for i, cell := range cells[:last+1] {
		text := cut(cell.text, widths[i])
		b.WriteString(c.paint(cell.color, text))
		if i < last {
			b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(text)+columnGap))
		}
	}
	b.WriteByte('\n')
}

// natural finds the width that each column wants.
func (t *table) natural() []int {
	w := make([]int, len(t.rows[0]))
	copy(w, t.least)
	for i, col := range t.columns {
		w[i] = max(w[i], utf8.RuneCountInString(col.name))
	}
	for _, r := range t.rows {
		for i, cell := range r {
			w[i] = max(w[i], utf8.RuneCountInString(cell.text))
		}
	}
	return w
}

// widths finds each column's width for lines of at most total characters; 0 is
// no bound.
func (t *table) widths(total int) []int {
	w := t.natural()
	if total == 0 {
		return w
	}
	over := columnGap * (len(w) - 1)
	for _, n := range w {
		over += n
	}
	over -= total
	last := len(w) - 1
	shrink := func(i, floor int) {
		by := min(over, max(0, w[i]-floor))
		if by > 0 {
			w[i] -= by
			over -= by
		}
	}
	shrinkWidest := func(floor int) {
		for over > 0 {
			widest := -1
			for i, n := range w[:last] {
				if !(i < len(t.columns) && t.columns[i].rule&whole != 0) && n > floor && (widest < 0 || n > w[widest]) {
					widest = i
				}
			}
			if widest < 0 {
				return
			}
			w[widest]--
			over--
		}
	}
	shrink(last, minLastColumn)
	shrinkWidest(minColumn)
	shrink(last, 1)
	shrinkWidest(minNarrow)
	shrinkWidest(1)
	return w
}

// cut shortens a text to n characters, the last of which shows the cut.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return strings.TrimRight(string(r[:max(0, n-1)]), " ") + "…"
}
