package journal

import (
	"bytes"
	"io"
)

const (
	// chunk is how much of a segment is read at once.
	chunk = 64 << 10
	// listedParams is how large params may be to be part of a list.
	listedParams = 16 << 10
)

// place is where a line begins, or the last one ends.
type place struct{ segment, offset int64 }

// kind says what a line of a segment is.
type kind int

const (
	call    kind = iota
	header       // of the segment
	passed       // not looked at: of a session that was not chosen
	damaged      // ends with a newline and is nothing else
	torn         // the last one, without a newline
)

// A line of a segment, as far as it was looked at.
type line struct {
	kind   kind
	offset int64
	length int64
	head   head // of a call; of one that was passed, its Seq
}

// scanner reads the lines of a segment one after the other. It does not look at
// long results: the head of a line says where the line ends, and there must be
// a newline.
type scanner struct {
	r      io.ReaderAt
	offset int64 // of the next line
	end    int64 // of what was written whole

	// choose picks the lines that are looked at, by what they begin with; nil for all.
	// Others cost little. Long lines are looked at in any case.
	choose func(line []byte) bool

	buf  []byte // a part of the file
	base int64  // where it begins
}

// at makes the scanner begin anew, with the memory it has.
func (s *scanner) at(r io.ReaderAt, offset, end int64) {
	*s = scanner{r: r, offset: offset, end: end, buf: s.buf[:0]}
}

// next returns io.EOF at the end.
func (s *scanner) next() (line, error) {
	l := line{offset: s.offset}
	if s.offset >= s.end {
		return l, io.EOF
	}
	b := s.buffered(s.offset)
	newline := bytes.IndexByte(b, '\n')
	if newline < 0 {
		var err error
		if b, err = s.window(s.offset, chunk); err != nil {
			return l, err
		}
		newline = bytes.IndexByte(b, '\n')
	}
	var err error
	if newline >= 0 {
		l.length = int64(newline) + 1
		if b = b[:newline+1]; s.choose != nil && !s.choose(b) {
			l.kind, l.head.Seq = passed, seqOf(b)
		} else {
			l.read(b)
		}
	} else {
		err = s.long(&l, b)
	}
	s.offset += l.length
	return l, err
}

// read says what a whole line is.
func (l *line) read(b []byte) {
	l.kind = damaged
	if bytes.HasPrefix(b, headerMark) {
		l.kind = header
	} else if h, ok := parseHead(b); ok && h.fits(b) {
		l.kind, l.head = call, h
	}
}

// long reads a line that begins with b and is longer.
func (s *scanner) long(l *line, b []byte) error {
	h, ok := parseHead(b)
	if !ok && len(b) == chunk {
		var err error
		if b, err = s.window(s.offset, maxHead); err != nil {
			return err
		}
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			l.length = int64(i) + 1
			l.read(b[:i+1])
			return nil
		}
		h, ok = parseHead(b)
	}
	if ok {
		if _, _, length := h.bodies(); length > int64(len(b)) && s.offset+length <= s.end {
			tail, err := s.window(s.offset+length-int64(len(lineEnd)), len(lineEnd))
			if err != nil {
				return err
			}
			if bytes.Equal(tail, lineEnd) {
				l.kind, l.head, l.length = call, h, length
				return nil
			}
		}
	}
	for from := s.offset + int64(len(b)); from < s.end; {
		b, err := s.window(from, chunk)
		if err != nil {
			return err
		}
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			l.kind, l.length = damaged, from+int64(i)+1-s.offset
			return nil
		}
		from += int64(len(b))
	}
	l.kind, l.length = torn, s.end-s.offset
	return nil
}

// listed returns the call of a line as lists have it.
func (s *scanner) listed(l *line) (Entry, error) {
	e := l.head.entry()
	size := l.head.Sizes[0]
	if size == 0 {
		return e, nil
	}
	if size > listedParams {
		e.Cut = true
		return e, nil
	}
	params, _, _ := l.head.bodies()
	b, err := s.window(l.offset+params, int(size))
	if err != nil {
		return e, err
	}
	if int64(len(b)) != size {
		return e, io.ErrUnexpectedEOF
	}
	e.Params = asJSON(bytes.Clone(b))
	return e, nil
}

// buffered returns what is in memory from an offset on.
func (s *scanner) buffered(offset int64) []byte {
	if offset < s.base || offset >= s.base+int64(len(s.buf)) {
		return nil
	}
	return s.buf[offset-s.base:]
}

// window returns n bytes of the file, or fewer at its end. They are valid until
// the next call.
func (s *scanner) window(offset int64, n int) ([]byte, error) {
	n = int(max(0, min(int64(n), s.end-offset)))
	if b := s.buffered(offset); len(b) >= n {
		return b[:n], nil
	}
	want := int(min(int64(max(n, chunk)), s.end-offset))
	if cap(s.buf) < want {
		s.buf = make([]byte, want)
	}
	s.buf, s.base = s.buf[:want], offset
	got, err := s.r.ReadAt(s.buf, offset)
	s.buf = s.buf[:got]
	if got < want {
		if err != io.EOF {
			s.buf = s.buf[:0]
			return nil, err
		}
		s.end = offset + int64(got) // the file was truncated
	}
	return s.buf[:min(n, got)], nil
}
