package sqlite

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// splitter cuts a script into statements. SQLite can do that itself, but takes
// the whole rest of the script for each of them.
//
// A statement ends with a semicolon; a CREATE TRIGGER has some of its own and
// ends with "; END ;".
type splitter struct {
	r   *bufio.Reader
	buf []byte

	words   int  // so far, up to the third
	create  bool // it begins with CREATE [TEMP]
	trigger bool
	ending  int // of "; END": how much was just seen
	code    bool
}

func newSplitter(r io.Reader) *splitter { return &splitter{r: bufio.NewReaderSize(r, 4<<10)} }

// next returns the next statement, or io.EOF. One that is only space and
// comments is skipped.
func (s *splitter) next() (string, error) {
	s.buf = s.buf[:0]
	s.words, s.create, s.trigger, s.ending, s.code = 0, false, false, 0, false
	for {
		b, err := s.read()
		if err == io.EOF && s.code {
			return string(s.buf), nil
		}
		if err != nil {
			return "", err
		}
		switch {
		case b == ';':
			if s.trigger && s.ending < 2 {
				s.ending = 1
				continue
			}
			if s.code {
				return string(s.buf), nil
			}
			s.buf = s.buf[:0]
		case b == '\'' || b == '"' || b == '`':
			s.other()
			err = s.until(b)
		case b == '[':
			s.other()
			err = s.until(']')
		case b == '-' && s.peek('-'):
			err = s.until('\n')
		case b == '/' && s.peek('*'):
			err = s.comment()
		case letter(b):
			err = s.word(b)
		case b > ' ':
			s.other()
		}
		// What ends in the middle of something is SQLite's to complain about.
		if err != nil && err != io.EOF {
			return "", err
		}
	}
}

func (s *splitter) read() (byte, error) {
	b, err := s.r.ReadByte()
	if err != nil {
		return 0, err
	}
	if len(s.buf) >= maxSQL {
		return 0, fmt.Errorf("a statement is longer than %d MiB: %s", maxSQL>>20, brief(string(s.buf[:100])))
	}
	s.buf = append(s.buf, b)
	return b, nil
}

func (s *splitter) peek(want byte) bool {
	b, err := s.r.Peek(1)
	return err == nil && b[0] == want
}

func (s *splitter) until(end byte) error {
	for {
		if b, err := s.read(); err != nil || b == end {
			return err
		}
	}
}

func (s *splitter) comment() error {
	s.read() // the star, which does not end it
	for {
		b, err := s.read()
		if err != nil {
			return err
		}
		if b == '*' && s.peek('/') {
			_, err := s.read()
			return err
		}
	}
}

func (s *splitter) word(first byte) error {
	word := []byte{first}
	for {
		b, err := s.r.Peek(1)
		if err != nil || !(letter(b[0]) || b[0] >= '0' && b[0] <= '9') {
			break
		}
		c, err := s.read()
		if err != nil {
			return err
		}
		if len(word) < 16 {
			word = append(word, c)
		}
	}
	s.code = true
	w := strings.ToUpper(string(word))
	switch {
	case s.words == 0 && (w == "EXPLAIN" || w == "QUERY" || w == "PLAN"):
		// what is explained comes after it
	case s.words == 0:
		s.create = w == "CREATE"
		s.words++
	case s.create && (w == "TEMP" || w == "TEMPORARY"):
	case s.words == 1:
		s.trigger = s.create && w == "TRIGGER"
		s.words++
	}
	if s.ending == 1 && w == "END" {
		s.ending = 2
	} else {
		s.ending = 0
	}
	return nil
}

func (s *splitter) other() {
	s.code = true
	s.ending = 0
}

func letter(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' || b == '$' || b >= 0x80
}

// firstWord returns the first keyword of a statement, in capitals.
func firstWord(sql string) string {
	s := &splitter{r: bufio.NewReaderSize(strings.NewReader(sql), 64)}
	for {
		b, err := s.read()
		switch {
		case err != nil:
			return ""
		case b == '-' && s.peek('-'):
			s.until('\n')
		case b == '/' && s.peek('*'):
			s.comment()
		case letter(b):
			at := len(s.buf) - 1
			s.word(b)
			return strings.ToUpper(string(s.buf[at:]))
		case b > ' ' && b != ';':
			return ""
		}
	}
}

// blank tells whether there is no statement in sql.
func blank(sql string) bool {
	_, err := newSplitter(strings.NewReader(sql)).next()
	return err == io.EOF
}
