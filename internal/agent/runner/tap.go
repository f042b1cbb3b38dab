package runner

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// place is how far the output of a program was read, in lines.
type place struct{ stdout, stderr, posted mark }

type mark struct{ pos int64 }

func (a *place) begin(t turn) {
	a.stdout.pos, a.stderr.pos, a.posted.pos = t.Stdout, t.Stderr, t.Posted
}

// tap reads a growing file line by line.
type tap struct {
	f     *os.File
	at    *mark  // where the next line begins
	limit int64  // of the file; what is behind it is not read
	line  int    // the longest line that is handed over
	buf   []byte // what was read of the next line
	long  int64  // how much was dropped of it, where it is too long
	piece []byte
}

func openTap(path string, at *mark, limit int64, line int) (*tap, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the output of the run: %w", err)
	}
	return &tap{f: f, at: at, limit: limit, line: line, piece: make([]byte, 16<<10)}, nil
}

func (t *tap) close() { t.f.Close() }

// read reads one piece, up to a place or, with a negative one, up to what is there, and
// hands over the lines in it, until line reports that it was the last one. A line that
// is too long comes as its length alone. Where the file ends at the place, or with all
// set at its end, what is left is a line too. It reports false where there was nothing.
func (t *tap) read(to int64, all bool, line func(b []byte, long int64) (last bool)) (bool, error) {
	from := t.at.pos + int64(len(t.buf)) + t.long
	end := t.limit
	if to >= 0 {
		end = min(end, to)
	}
	piece := t.piece[:max(0, min(int64(len(t.piece)), end-from))]
	n := 0
	if len(piece) > 0 {
		var err error
		if n, err = t.f.ReadAt(piece, from); err != nil && !errors.Is(err, io.EOF) {
			return false, fmt.Errorf("read the output of the run: %w", err)
		}
	}
	piece = piece[:n]
	if n == 0 {
		if !all || len(t.buf) == 0 && t.long == 0 || to >= 0 && from < to {
			return false, nil
		}
		t.hand(line)
		return true, nil
	}
	for len(piece) > 0 {
		i := bytes.IndexByte(piece, '\n')
		if i < 0 {
			t.keep(piece)
			break
		}
		t.keep(piece[:i])
		piece = piece[i+1:]
		t.at.pos++ // the newline
		if t.hand(line) {
			break
		}
	}
	return true, nil
}

// keep adds to the line that is being read.
func (t *tap) keep(b []byte) {
	switch {
	case t.long > 0:
		t.long += int64(len(b))
	case len(t.buf)+len(b) > t.line:
		t.long = int64(len(t.buf) + len(b))
		t.buf = nil
	default:
		t.buf = append(t.buf, b...)
	}
}

// hand hands over the line that was read.
func (t *tap) hand(line func([]byte, int64) bool) bool {
	b, long := t.buf, t.long
	t.at.pos += int64(len(b)) + long
	t.buf, t.long = t.buf[:0], 0
	return line(b, long)
}
