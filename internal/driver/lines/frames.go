package lines

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"

	"github.com/tine-mcp/tine/internal/driver"
)

// Frames cuts a stream of bytes into messages, one a line. It holds a buffer
// only while there is something in it, so that a thousand idle instances cost
// none.
type Frames struct {
	limit   int
	log     *slog.Logger
	buffers *sync.Pool
	// fill waits for input, then reads it into what Room returns, which it gives
	// back with NoRoom when there was nothing to read after all.
	fill func(f *Frames) (int, error)
	// torn is set where the first line may be the rest of a message whose beginning
	// another reader has read.
	torn bool

	buf            *[]byte // nil, or from buffers
	pos, scan, end int     // buf[pos:end] is not consumed; buf[pos:scan] has no newline
	full           []chunk // the beginning of a line that is longer than buf
	fullLen        int
	skip           bool // the rest of a line that was too long
}

// chunk is a piece of a line, in a buffer of its own.
type chunk struct {
	buf *[]byte
	n   int
}

// Room is where to read to. It is never empty.
func (f *Frames) Room() []byte {
	if f.buf == nil {
		f.buf = f.buffers.Get().(*[]byte)
	}
	return (*f.buf)[f.end:]
}

// NoRoom gives the buffer back when nothing is in it.
func (f *Frames) NoRoom() {
	if f.buf != nil && f.pos == f.end {
		f.buffers.Put(f.buf)
		f.buf = nil
		f.pos, f.scan, f.end = 0, 0, 0
	}
}

// next returns the next message. One call at a time.
func (f *Frames) next() ([]byte, error) {
	for {
		for f.pos < f.end {
			i := bytes.IndexByte((*f.buf)[f.scan:f.end], '\n')
			if i < 0 {
				if err := f.goOn(); err != nil {
					return nil, err
				}
				break
			}
			line := (*f.buf)[f.pos : f.scan+i]
			f.pos = f.scan + i + 1
			f.scan = f.pos
			frame, err := f.line(line)
			if frame != nil || err != nil {
				f.NoRoom()
				return frame, err
			}
		}
		f.NoRoom()
		n, err := f.fill(f)
		if err != nil {
			if errors.Is(err, io.EOF) {
				if stray := f.rest(); stray != nil {
					return nil, stray // what was the end is so again
				}
			}
			f.NoRoom()
			return nil, err
		}
		f.end += n
	}
}

// goOn makes room for more of a line whose end is not in the buffer.
func (f *Frames) goOn() error {
	buf := *f.buf
	rest := buf[f.pos:f.end]
	f.scan = f.end
	little := len(buf)-f.end <= min(4096, len(buf)/4) // a read of so few bytes is not worth it
	switch {
	case f.skip:
		f.pos = f.end
	case f.fullLen+len(rest) > f.limit:
		f.forget()
		f.skip = true
		f.pos = f.end
		f.NoRoom()
		return &driver.FrameTooLarge{Limit: f.limit}
	case little && f.pos > 0:
		copy(buf, rest)
		f.pos, f.scan, f.end = 0, len(rest), len(rest)
	case little:
		f.full = append(f.full, chunk{f.buf, len(rest)})
		f.fullLen += len(rest)
		f.buf = nil
		f.pos, f.scan, f.end = 0, 0, 0
	}
	return nil
}

// forget drops the beginning of a line.
func (f *Frames) forget() {
	for _, c := range f.full {
		f.buffers.Put(c.buf)
	}
	f.full, f.fullLen = nil, 0
}

// whole returns a line whose end is b, in memory of its own where it is long.
func (f *Frames) whole(b []byte) []byte {
	if f.full == nil {
		return b
	}
	line := make([]byte, 0, f.fullLen+len(b))
	for _, c := range f.full {
		line = append(line, (*c.buf)[:c.n]...)
	}
	f.forget()
	return append(line, b...)
}

// line takes the end of a line and returns the message in it, or nil for a line
// that is none.
func (f *Frames) line(b []byte) ([]byte, error) {
	torn := f.torn
	f.torn = false
	if f.skip {
		f.skip = false
		return nil, nil
	}
	if f.fullLen+len(b) > f.limit {
		f.forget()
		return nil, &driver.FrameTooLarge{Limit: f.limit}
	}
	long := f.full != nil
	message := trimLine(f.whole(b))
	switch {
	case len(message) == 0:
		return nil, nil
	case torn && !json.Valid(message):
		f.log.Debug("dropped the rest of a message that an earlier gateway began to read", "bytes", len(message))
		return nil, nil
	case message[0] != '{' && message[0] != '[':
		return nil, strayOf(message)
	case long:
		return message, nil
	}
	return bytes.Clone(message), nil
}

// rest takes a line that has no end, and so is no message. The beginning of one is
// nothing that a program would print.
func (f *Frames) rest() error {
	var line []byte
	if f.buf != nil {
		line = (*f.buf)[f.pos:f.end]
	}
	if line = trimLine(f.whole(line)); f.skip || f.torn {
		line = nil
	}
	var stray error
	if len(line) > 0 && line[0] != '{' && line[0] != '[' {
		stray = strayOf(line)
	}
	f.pos = f.end
	f.NoRoom()
	return stray
}

func strayOf(line []byte) error {
	return &driver.StrayLine{Text: bytes.Clone(line[:min(len(line), driver.MaxStray)])}
}

func trimLine(b []byte) []byte {
	if n := len(b); n > 0 && b[0] == '{' && b[n-1] == '}' {
		return b
	}
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	return bytes.Trim(b, " \t\r\n\v\f\x00")
}
