package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// list prints a list: v for programs, and for people t, or none if t has no rows.
func (c *cli) list(v any, t *table, none string) error {
	switch {
	case c.flags.json:
		return c.printJSON(v)
	case len(t.rows) == 0:
		c.say("%s", none)
	default:
		t.print(c)
	}
	return nil
}

// thing prints one thing for people, as labelled lines and sections. Nothing of it is
// cut: a person who asks for one thing wants all of it.
type thing struct {
	c     cli
	lines table
}

func (c *cli) thing() *thing {
	t := &thing{c: *c}
	t.c.width = 0
	return t
}

// line adds a labelled line, unless it is empty.
func (t *thing) line(name, value string) { t.painted(name, value, "") }

func (t *thing) painted(name, value, color string) {
	if value != "" {
		t.lines.add(cell{name, bold}, cell{value, color})
	}
}

// print prints the lines, and then the sections that have rows.
func (t *thing) print(sections ...*table) {
	t.lines.print(&t.c)
	for _, s := range sections {
		if len(s.rows) > 0 {
			fmt.Fprintln(t.c.stdout)
			s.print(&t.c)
		}
	}
}

// moment is a time and how long ago it was.
func (c *cli) moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%s (%s ago)", t.In(c.now().Location()).Format(time.RFC3339), c.age(t))
}

// answer prints the result of a command: a value for programs, or for people a line
// and then advice on standard error.
func (c *cli) answer(v any, line string, advice ...string) error {
	if c.flags.json {
		return c.printJSON(v)
	}
	fmt.Fprintln(c.stdout, visible(line, c.outTerminal))
	for _, s := range advice {
		c.say("%s", s)
	}
	return nil
}

// say prints a line for people on standard error.
func (c *cli) say(format string, args ...any) {
	fmt.Fprintln(c.stderr, visible(fmt.Sprintf(format, args...), c.errTerminal))
}

// jsonLines prints values for programs, a line each.
func (c *cli) jsonLines() *json.Encoder {
	lines := json.NewEncoder(c.stdout)
	lines.SetEscapeHTML(false)
	return lines
}

// printJSON prints a value for programs. Raw JSON in it keeps its numbers and
// the order of its keys.
func (c *cli) printJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode the output: %w", err)
	}
	c.stdout.Write(b.Bytes()) // run reports a failed write
	return nil
}

// indent formats raw JSON for people, its values untouched. Anything else is
// returned as it is.
func indent(raw []byte, prefix string) string {
	var b bytes.Buffer
	if err := json.Indent(&b, bytes.TrimSpace(raw), prefix, "  "); err != nil {
		return string(raw)
	}
	return b.String()
}
