package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Columns are not made narrower than this, unless the terminal is narrower than
// that, and the last one, which holds the longest texts, gives way first.
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

// table prints rows for people. On a terminal no line is longer than it is wide.
type table struct {
	header []string
	rows   [][]cell
	whole  map[int]bool // columns that are never cut
	least  []int        // widths below which columns don't go; nil for none
}

func (t *table) add(cells ...cell) { t.rows = append(t.rows, cells) }

func plain(s string) cell { return cell{text: s} }

func (t *table) print(c *cli) { fmt.Fprint(c.stdout, t.render(c)) }

func (t *table) render(c *cli) string {
	if len(t.rows) == 0 {
		return ""
	}
	for _, r := range t.rows {
		for i := range r {
			r[i].text = visible(oneLine(r[i].text), c.outTerminal)
		}
	}
	widths := t.widths(c.width)
	var b strings.Builder
	if t.header != nil {
		head := make([]cell, len(t.header))
		for i, h := range t.header {
			head[i] = cell{h, bold}
		}
		c.row(&b, head, widths)
	}
	for _, r := range t.rows {
		c.row(&b, r, widths)
	}
	return b.String()
}

func (c *cli) row(b *strings.Builder, cells []cell, widths []int) {
	last := len(cells) - 1
	for last > 0 && cells[last].text == "" {
		last-- // no trailing spaces
	}
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
	for i, h := range t.header {
		w[i] = max(w[i], utf8.RuneCountInString(h))
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
				if !t.whole[i] && n > floor && (widest < 0 || n > w[widest]) {
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

// cut shortens a text to n characters, the last of which says that it was cut.
func cut(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return strings.TrimRight(string(r[:max(0, n-1)]), " ") + "…"
}
