package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"

	"github.com/tine-mcp/tine/internal/driver"
)

// frames cuts a stream of bytes into messages, one a line. It holds a buffer
// only while there is something in it, so that a thousand idle instances cost
// none.
type frames struct {
	limit   int
	log     *slog.Logger
	buffers *sync.Pool
	// fill waits for input, then reads it into what room returns, which it gives
	// back with noRoom when there was nothing to read after all.
	fill func(f *frames) (int, error)
	// torn is set where the first line may be the rest of a message whose
	// beginning somebody else has read.
	torn bool

	buf            *[]byte // nil, or from buffers
	pos, scan, end int     // buf[pos:end] is not consumed; buf[pos:scan] has no newline
	part           []byte  // the beginning of a line that is longer than buf
	skip           bool    // the rest of a line that was too long
}

// room is where to read to. It is never empty.
func (f *frames) room() []byte {
	if f.buf == nil {
		f.buf = f.buffers.Get().(*[]byte)
	}
	return (*f.buf)[f.end:]
}

// noRoom gives the buffer back when nothing is in it.
func (f *frames) noRoom() {
	if f.buf != nil && f.pos == f.end {
		f.buffers.Put(f.buf)
		f.buf = nil
		f.pos, f.scan, f.end = 0, 0, 0
	}
}

// next returns the next message. One call at a time.
func (f *frames) next() ([]byte, error) {
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
				f.noRoom()
				return frame, err
			}
		}
		f.noRoom()
		n, err := f.fill(f)
		if err != nil {
			if errors.Is(err, io.EOF) {
				f.pos = f.end // a line without an end is no message
			}
			f.noRoom()
			return nil, err
		}
		f.end += n
	}
}

// goOn makes room for more of a line whose end is not in the buffer. Most lines
// fit into it, and are copied once, when they are whole.
func (f *frames) goOn() error {
	buf := *f.buf
	rest := buf[f.pos:f.end]
	f.scan = f.end
	switch {
	case f.skip:
		f.pos = f.end
	case f.part != nil || len(rest) == len(buf) || len(rest) > f.limit:
		f.pos = f.end
		err := f.piece(rest)
		f.noRoom()
		return err
	case f.end == len(buf):
		copy(buf, rest)
		f.pos, f.scan, f.end = 0, len(rest), len(rest)
	}
	return nil
}

// piece takes the beginning or the middle of a line.
func (f *frames) piece(b []byte) error {
	if len(f.part)+len(b) > f.limit {
		f.part, f.skip = nil, true
		return &driver.FrameTooLarge{Limit: f.limit}
	}
	if f.part == nil {
		f.part = make([]byte, 0, 2*bufferSize)
	}
	f.part = append(f.part, b...)
	return nil
}

// line takes the end of a line and returns the message in it, or nil for a line
// that is none.
func (f *frames) line(b []byte) ([]byte, error) {
	torn := f.torn
	f.torn = false
	if f.skip {
		f.skip = false
		return nil, nil
	}
	if len(f.part)+len(b) > f.limit {
		f.part = nil
		return nil, &driver.FrameTooLarge{Limit: f.limit}
	}
	whole := b
	if f.part != nil {
		whole = append(f.part, b...)
	}
	message := trimLine(whole)
	switch {
	case len(message) == 0:
		f.part = nil
		return nil, nil
	case message[0] != '{' && message[0] != '[':
		f.drop("server wrote a line that is no message", message)
		return nil, nil
	case torn && !json.Valid(message):
		f.drop("dropped the rest of a message that an earlier gateway began to read", message)
		return nil, nil
	}
	if f.part == nil {
		return bytes.Clone(message), nil
	}
	f.part = nil
	return message, nil
}

// drop forgets a line. Servers and their launchers print banners to standard
// output, so this is no error.
func (f *frames) drop(why string, line []byte) {
	f.log.Debug(why, "bytes", len(line), "line", string(line[:min(len(line), 200)]))
	f.part = nil
}

func trimLine(b []byte) []byte {
	if n := len(b); n > 0 && b[0] == '{' && b[n-1] == '}' {
		return b
	}
	b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	return bytes.Trim(b, " \t\r\n\v\f\x00")
}
