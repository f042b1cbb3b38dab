package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tine-mcp/tine/internal/workspace"
)

// Sizes of the pieces in which a file is read: small first, since most heads and
// tails are short, then larger.
const (
	firstPiece = 4 << 10
	mostPiece  = 1 << 20
)

// open opens a file by the path asked for.
func (s *server) open(asked string) (workspace.File, error) {
	name, err := s.name(asked)
	if err != nil {
		return nil, err
	}
	// The tree follows links too; only what it does not find needs a closer look.
	if f, err := s.tree.Open(name); err == nil {
		return f, nil
	}
	p, err := s.resolve(name)
	if err != nil {
		return nil, err
	}
	return s.openPlace(p)
}

func (s *server) openPlace(p place) (workspace.File, error) {
	f, err := s.tree.Open(p.name)
	switch {
	case err == nil:
		return f, nil
	case p.found && p.info.Mode.IsDir():
		return nil, toolErrorf("EISDIR: illegal operation on a directory, read")
	case p.found && !p.info.Mode.IsRegular():
		return nil, fmt.Errorf("%s is not a regular file; only those can be read", s.shown(p.name))
	}
	return nil, s.fail(err, "open", p.name)
}

// A tooLarge is the error of more to return than one call may.
type tooLarge struct {
	what  string
	limit int64
}

func (e tooLarge) Error() string {
	return fmt.Sprintf("%s more than the %d bytes that one call returns (max_read); read a part of it, with head or tail", e.what, e.limit)
}

// whole reads a file to its end, which may move meanwhile.
func whole(ctx context.Context, f workspace.File, limit int64) ([]byte, error) {
	size := f.Info().Size
	if size > limit {
		return nil, tooLarge{fmt.Sprintf("the file has %d bytes,", size), limit}
	}
	// One byte beyond what is expected finds the end in the same read.
	b := make([]byte, 0, size+1)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if int64(len(b)) > limit {
			return nil, tooLarge{"the file grew while it was read and has", limit}
		}
		if len(b) == cap(b) {
			b = slices.Grow(b, firstPiece)
		}
		piece := b[len(b):min(cap(b), len(b)+mostPiece)]
		n, err := f.ReadAt(piece, int64(len(b)))
		b = b[:len(b)+n]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the file: %w", err)
		}
	}
	if int64(len(b)) > limit {
		return nil, tooLarge{"the file grew while it was read and has", limit}
	}
	return b, nil
}

// head returns the first n lines, without the newline of the last.
func head(ctx context.Context, f workspace.File, n, limit int64) ([]byte, error) {
	var b []byte
	piece, end := firstPiece, false
	for n > 0 && !end {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		from := len(b)
		b = slices.Grow(b, piece)
		got, err := f.ReadAt(b[from:from+piece], int64(from))
		b = b[:from+got]
		if end = errors.Is(err, io.EOF); err != nil && !end {
			return nil, fmt.Errorf("read the file: %w", err)
		}
		for rest := b[from:]; n > 0; n-- {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				break
			}
			rest = rest[i+1:]
			if n == 1 {
				b = b[:len(b)-len(rest)]
			}
		}
		if int64(len(b)) > limit+1 {
			return nil, tooLarge{"those lines have", limit}
		}
		piece = min(2*piece, mostPiece)
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	if int64(len(b)) > limit {
		return nil, tooLarge{"those lines have", limit}
	}
	return b, nil
}

// tail returns what comes after the nth newline from the end, with plain
// newlines. So where a file ends in a newline, the empty line after it counts.
func tail(ctx context.Context, f workspace.File, n, limit int64) ([]byte, error) {
	var pieces [][]byte // from the last
	var have, lines int64
	at, size := f.Info().Size, int64(firstPiece)
	for at > 0 && lines < n {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if have > limit {
			return nil, tooLarge{"those lines have", limit}
		}
		size = min(size, at)
		at -= size
		piece := make([]byte, size)
		got, err := f.ReadAt(piece, at)
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read the file: %w", err)
		}
		if int64(got) < size {
			// The file was cut off meanwhile: what was read after is gone.
			pieces, have, lines = nil, 0, 0
		}
		pieces = append(pieces, piece[:got])
		have += int64(got)
		lines += int64(bytes.Count(piece[:got], []byte("\n")))
		size = min(2*size, mostPiece)
	}
	slices.Reverse(pieces)
	b := bytes.Join(pieces, nil)
	for ; lines >= n && lines > 0; lines-- {
		b = b[bytes.IndexByte(b, '\n')+1:]
	}
	if int64(len(b)) > limit {
		return nil, tooLarge{"those lines have", limit}
	}
	return bytes.ReplaceAll(b, []byte("\r\n"), []byte("\n")), nil
}

// decode reads bytes as UTF-8. What is none becomes U+FFFD: one for each longest
// beginning of a character, as everywhere on the web, and not one a byte, as Go
// has it.
func decode(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	out.Grow(len(b) + len(b)/8)
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = begun(b)
		}
		out.WriteRune(r)
		b = b[n:]
	}
	return out.String()
}

// begun returns how many bytes of b begin a character that then does not go on.
func begun(b []byte) int {
	low, high, length := byte(0x80), byte(0xBF), 0
	switch c := b[0]; {
	case c >= 0xC2 && c <= 0xDF:
		length = 2
	case c >= 0xE0 && c <= 0xEF:
		length = 3
		if c == 0xE0 {
			low = 0xA0
		}
		if c == 0xED {
			high = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		length = 4
		if c == 0xF0 {
			low = 0x90
		}
		if c == 0xF4 {
			high = 0x8F
		}
	}
	n := 1
	for n < length && n < len(b) && b[n] >= low && b[n] <= high {
		low, high = 0x80, 0xBF
		n++
	}
	return n
}
