package sqlite

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
)

// field is one value of a CSV file. Whether it was quoted tells an empty string
// from no value, which is why encoding/csv does not serve here.
type field struct {
	text   string
	quoted bool
}

func (f field) null() bool { return f.text == "" && !f.quoted }

// csvReader reads records as RFC 4180 has them, with any kind of line end. Empty
// lines are skipped.
type csvReader struct {
	r    *bufio.Reader
	line int // where the next record begins
	size int // of the record so far
}

func newCSVReader(r io.Reader) *csvReader {
	br := bufio.NewReaderSize(r, 64<<10)
	if mark, _ := br.Peek(3); string(mark) == "\uFEFF" {
		br.Discard(3)
	}
	return &csvReader{r: br, line: 1}
}

// next returns the next record and its line, or io.EOF.
func (c *csvReader) next() (record []field, line int, err error) {
	line, c.size = c.line, 0
	for {
		f, last, err := c.field()
		if err == io.EOF && len(record) == 0 && f.null() {
			return nil, line, io.EOF
		}
		if err != nil && err != io.EOF {
			return nil, line, fmt.Errorf("line %d: %w", line, err)
		}
		if record = append(record, f); len(record) > maxColumns {
			return nil, line, fmt.Errorf("line %d has more than %d fields", line, maxColumns)
		}
		if err == io.EOF {
			return record, line, nil
		}
		if last {
			if len(record) == 1 && f.null() {
				record, line, c.size = nil, c.line, 0
				continue
			}
			return record, line, nil
		}
	}
}

const maxColumns = 2000 // as SQLite has it

// field reads one field; last tells that it ended a line. With io.EOF it ended
// the file.
func (c *csvReader) field() (f field, last bool, err error) {
	var b strings.Builder
	for {
		ch, err := c.read()
		switch {
		case err != nil:
			f.text = b.String()
			return f, true, err
		case ch == '"' && b.Len() == 0 && !f.quoted:
			f.quoted = true
			if err := c.quotes(&b); err != nil {
				return f, false, err
			}
		case ch == ',':
			f.text = b.String()
			return f, false, nil
		case ch == '\n':
			f.text = b.String()
			return f, true, nil
		case ch == '\r' && c.newline():
		case f.quoted:
			return f, false, errors.New(`something follows a closing quote; a quote inside of quotes is written ""`)
		default:
			b.WriteByte(ch)
		}
	}
}

// quotes reads up to the closing quote.
func (c *csvReader) quotes(b *strings.Builder) error {
	for {
		ch, err := c.read()
		if err == io.EOF {
			return errors.New("a quote is not closed")
		}
		if err != nil {
			return err
		}
		if ch == '"' {
			if next, _ := c.r.Peek(1); len(next) == 0 || next[0] != '"' {
				return nil
			}
			c.r.ReadByte()
		}
		b.WriteByte(ch)
	}
}

// newline tells whether the carriage return that was read belongs to a line end.
func (c *csvReader) newline() bool {
	next, _ := c.r.Peek(1)
	return len(next) == 0 || next[0] == '\n'
}

func (c *csvReader) read() (byte, error) {
	b, err := c.r.ReadByte()
	if err != nil {
		return 0, err
	}
	if b == '\n' {
		c.line++
	}
	if c.size++; c.size > maxLength {
		return 0, fmt.Errorf("the record is larger than %d MiB", maxLength>>20)
	}
	return b, nil
}

// appendField writes a field. What is NULL is nothing, and an empty string a pair
// of quotes.
func appendField(b []byte, s string) []byte {
	if s != "" && !strings.ContainsAny(s, "\",\r\n") && s[0] != ' ' && s[len(s)-1] != ' ' {
		return append(b, s...)
	}
	b = append(b, '"')
	b = append(b, strings.ReplaceAll(s, `"`, `""`)...)
	return append(b, '"')
}
