package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"
)

// An Event is one server-sent event.
type Event struct {
	Name  string
	ID    string
	Data  []byte
	Retry time.Duration // zero when the event sets none
}

// EventReader reads server-sent events. Fields it does not know and comments
// are skipped; several data lines are joined with newlines.
type EventReader struct {
	r     *bufio.Reader
	limit int
	data  []byte
	begun bool // the first line is read
	cr    bool // the last line ended with a CR, which a LF may follow
}

// NewEventReader reads events from r with at most limit bytes of data each.
func NewEventReader(r io.Reader, limit int) *EventReader {
	buf := eventBuffers.Get().(*bufio.Reader)
	buf.Reset(r)
	return &EventReader{r: buf, limit: limit}
}

var eventBuffers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4<<10) }}

// Release gives the reader's buffer back. The reader must not be used again;
// the data of its last event may.
func (er *EventReader) Release() {
	er.r.Reset(nil)
	eventBuffers.Put(er.r)
	er.r = nil
}

// ErrTooLarge reports an event over the reader's limit.
type ErrTooLarge struct{ Limit int }

func (e *ErrTooLarge) Error() string {
	return fmt.Sprintf("message is larger than the limit of %d bytes", e.Limit)
}

// Next returns the next event that has data, an id or a retry. Its data is
// valid until the call after. An event cut off by the end of the stream is
// dropped, as the standard says.
func (er *EventReader) Next() (Event, error) {
	var ev Event
	er.data = er.data[:0]
	seen, hasData := false, false
	for {
		line, err := er.line()
		if err != nil {
			return Event{}, err
		}
		if len(line) == 0 {
			if !seen {
				ev = Event{}
				continue
			}
			ev.Data = er.data
			return ev, nil
		}
		field, value, _ := bytes.Cut(line, colon)
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
		switch string(field) {
		case "data":
			if hasData {
				er.data = append(er.data, '\n')
			}
			if len(er.data)+len(value) > er.limit {
				return Event{}, &ErrTooLarge{er.limit}
			}
			er.data = append(er.data, value...)
			seen, hasData = true, true
		case "event":
			ev.Name = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				ev.ID = string(value)
				seen = true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 63); err == nil {
				ev.Retry = time.Duration(min(ms, 1<<31)) * time.Millisecond
				seen = true
			}
		}
	}
}

var colon = []byte{':'}

// line returns the next line without its end, which is LF, CRLF or CR. The
// slice is valid until the next read.
func (er *EventReader) line() ([]byte, error) {
	var long []byte // what did not fit the buffer
	seen := 0       // bytes of the buffer without a line's end
	for {
		if _, err := er.r.Peek(seen + 1); err != nil {
			if err == io.EOF && (seen > 0 || len(long) > 0) {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
		buf, _ := er.r.Peek(er.r.Buffered())
		if er.cr {
			er.cr = false
			if buf[0] == '\n' {
				er.discard(1)
				continue
			}
		}
		if i := lineEnd(buf[seen:]); i >= 0 {
			line := buf[:seen+i]
			er.cr = buf[len(line)] == '\r'
			er.discard(len(line) + 1)
			if long != nil {
				line = append(long, line...)
			}
			if !er.begun {
				er.begun = true
				line = bytes.TrimPrefix(line, byteOrderMark)
			}
			return line, nil
		}
		if seen = len(buf); seen == er.r.Size() {
			if long = append(long, buf...); len(long) > er.limit+64 {
				return nil, &ErrTooLarge{er.limit}
			}
			er.discard(seen)
			seen = 0
		}
	}
}

var byteOrderMark = []byte("\ufeff")

// discard drops bytes that are in the buffer, which can't fail.
func (er *EventReader) discard(n int) { _, _ = er.r.Discard(n) }

func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// AppendEvent appends one event with a message as its data. Each kind of line
// break in the data becomes a line of its own.
func AppendEvent(dst []byte, id string, data []byte) []byte {
	dst = append(dst, "event: message\n"...)
	if id != "" {
		dst = append(append(append(dst, "id: "...), id...), '\n')
	}
	for {
		i := lineEnd(data)
		dst = append(dst, "data: "...)
		if i < 0 {
			dst = append(dst, data...)
			break
		}
		dst = append(append(dst, data[:i]...), '\n')
		if data[i] == '\r' && i+1 < len(data) && data[i+1] == '\n' {
			i++
		}
		data = data[i+1:]
	}
	return append(dst, "\n\n"...)
}
