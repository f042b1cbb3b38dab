package wire_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/tine-mcp/tine/internal/wire"
)

type event struct {
	name, id, data string
	retry          time.Duration
}

// readEvents reads to the end and returns what came and why it ended.
func readEvents(r io.Reader, limit int) ([]event, error) {
	er := wire.NewEventReader(r, limit)
	var out []event
	for {
		ev, err := er.Next()
		if err != nil {
			return out, err
		}
		out = append(out, event{ev.Name, ev.ID, string(ev.Data), ev.Retry})
	}
}

func TestEventReader(t *testing.T) {
	tests := []struct {
		name string
		in   string
		want []event
	}{
		{"one", "data: hello\n\n", []event{{data: "hello"}}},
		{"named, with an id", "event: message\nid: 7\ndata: {}\n\n", []event{{name: "message", id: "7", data: "{}"}}},
		{"CRLF", "event: message\r\nid: 7\r\ndata: {}\r\n\r\n", []event{{name: "message", id: "7", data: "{}"}}},
		{"CR", "event: message\rid: 7\rdata: {}\r\rdata: b\r\r", []event{{name: "message", id: "7", data: "{}"}, {data: "b"}}},
		{"several data lines", "data: {\ndata:  \"a\":1\ndata: }\n\n", []event{{data: "{\n \"a\":1\n}"}}},
		{"no space after the colon", "data:x\nid:1\n\n", []event{{id: "1", data: "x"}}},
		{"only one space is taken", "data:  x\n\n", []event{{data: " x"}}},
		{"colon in the value", "data: a:b: c\n\n", []event{{data: "a:b: c"}}},
		{"field without a colon", "data\ndata\n\n", []event{{data: "\n"}}},
		{"comments", ": ping\n\n:\r\ndata: x\n: more\n\n", []event{{data: "x"}}},
		{"unknown fields", "foo: bar\nDATA: no\ndata: x\n\n", []event{{data: "x"}}},
		{"empty lines between", "\n\ndata: a\n\n\n\ndata: b\n\n", []event{{data: "a"}, {data: "b"}}},
		{"id with empty data", "id: p1\ndata:\n\n", []event{{id: "p1"}}},
		{"id alone", "id: p1\n\n", []event{{id: "p1"}}},
		{"id with a zero byte is none", "id: a\x00b\ndata: x\n\n", []event{{data: "x"}}},
		{"retry alone", "retry: 1500\n\n", []event{{retry: 1500 * time.Millisecond}}},
		{"retry that is no number", "retry: soon\ndata: x\n\nretry: -5\ndata: y\n\nretry: 1e3\ndata: z\n\n", []event{{data: "x"}, {data: "y"}, {data: "z"}}},
		{"a name without data says nothing of the next event", "event: endpoint\n\ndata: x\n\n", []event{{data: "x"}}},
		{"byte order mark", "\ufeffdata: x\n\n", []event{{data: "x"}}},
		{"cut off before the empty line", "data: a\n\ndata: b\n", []event{{data: "a"}}},
		{"cut off in a line", "data: a\n\ndata: b", []event{{data: "a"}}},
		{"not UTF-8", "data: \xff\xfe\n\n", []event{{data: "\xff\xfe"}}},
		{"line longer than a buffer", "data: " + strings.Repeat("x", 10_000) + "\n\ndata: y\n\n", []event{{data: strings.Repeat("x", 10_000)}, {data: "y"}}},
		{"nothing", "", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for how, r := range map[string]io.Reader{
				"whole":        strings.NewReader(tt.in),
				"byte by byte": iotest.OneByteReader(strings.NewReader(tt.in)),
				"with its end": iotest.DataErrReader(strings.NewReader(tt.in)),
			} {
				got, err := readEvents(r, 1<<20)
				if !slices.Equal(got, tt.want) {
					t.Errorf("%s: got %+v, want %+v", how, got, tt.want)
				}
				if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("%s: ended with %v", how, err)
				}
			}
		})
	}
}

func TestEventReaderLimit(t *testing.T) {
	// An endless stream of one kind of thing must not be read for ever.
	for name, part := range map[string]string{
		"one long line":    "x",
		"many data lines":  "data: xxxxxxxxxxxxxxxx\n",
		"empty data lines": "data\n",
		"one long id":      "y",
	} {
		t.Run(name, func(t *testing.T) {
			head := ""
			switch name {
			case "one long line":
				head = "data: "
			case "one long id":
				head = "id: "
			}
			src := &endless{head: head, part: part}
			_, err := readEvents(src, 1<<16)
			var large *wire.ErrTooLarge
			if !errors.As(err, &large) || large.Limit != 1<<16 {
				t.Errorf("got %v, want ErrTooLarge", err)
			}
			if src.read > 1<<20 {
				t.Errorf("read %d bytes with a limit of %d", src.read, 1<<16)
			}
		})
	}
	exactly := strings.Repeat("x", 100)
	if got, _ := readEvents(strings.NewReader("data: "+exactly+"\n\n"), 100); len(got) != 1 {
		t.Errorf("an event of exactly the limit is refused")
	}
	if got, err := readEvents(strings.NewReader("data: "+exactly+"x\n\n"), 100); len(got) != 0 {
		t.Errorf("an event of one more than the limit passed (%v)", err)
	}
}

// endless gives head once and then part again and again. It fails the reader's
// test by ending at 16 MiB.
type endless struct {
	head, part string
	read       int
	buf        []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if e.read > 16<<20 {
		return 0, io.EOF
	}
	if e.read == 0 {
		e.buf = []byte(e.head)
	}
	for len(e.buf) < len(p) {
		e.buf = append(e.buf, e.part...)
	}
	n := copy(p, e.buf)
	e.buf = append(e.buf[:0], e.buf[n:]...)
	e.read += n
	return n, nil
}

// What was read last stays when the reader is given back and its buffer used
// again.
func TestEventReaderRelease(t *testing.T) {
	for range 10 {
		er := wire.NewEventReader(strings.NewReader("data: first\n\ndata: never read\n\n"), 100)
		first, err := er.Next()
		if err != nil {
			t.Fatal(err)
		}
		er.Release()
		next := wire.NewEventReader(strings.NewReader("data: other\n\n"), 100)
		if ev, err := next.Next(); err != nil || string(ev.Data) != "other" {
			t.Errorf("the next reader read %q, %v", ev.Data, err)
		}
		next.Release()
		if string(first.Data) != "first" {
			t.Errorf("what was read is %q now", first.Data)
		}
	}
}

func TestEventReaderPassesErrorsOn(t *testing.T) {
	broken := errors.New("connection reset")
	got, err := readEvents(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n\nda"), iotest.ErrReader(broken)), 100)
	if len(got) != 2 || !errors.Is(err, broken) {
		t.Errorf("got %+v and %v", got, err)
	}
}

// FuzzEvents holds the reader to a plain reading of the standard, and to
// never taking more than its limit.
func FuzzEvents(f *testing.F) {
	for _, s := range []string{
		"event: message\nid: 1\ndata: {}\n\n", "data: a\ndata: b\r\n\r\n", ": c\n\nretry: 10\n\n", "id\ndata\n\n",
		"\ufeffdata: x\n\n", "data: x\r\rdata: y\n\n", "data: x\r\n\r\n\r\n", "event: a\n\ndata: b\n\n", "\x00\n\n", "data", ":\n:\n\n", "retry: 99999999999999999999\n\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 64
		whole, err1 := readEvents(bytes.NewReader(b), limit)
		bytewise, err2 := readEvents(iotest.OneByteReader(bytes.NewReader(b)), limit)
		if !slices.Equal(whole, bytewise) || (err1 == nil) != (err2 == nil) {
			t.Fatalf("%q: read whole %+v (%v), byte by byte %+v (%v)", b, whole, err1, bytewise, err2)
		}
		for _, ev := range whole {
			if len(ev.data) > limit {
				t.Fatalf("%q: %d bytes of data with a limit of %d", b, len(ev.data), limit)
			}
		}
		var large *wire.ErrTooLarge
		if want := plainEvents(b); !errors.As(err1, &large) && !slices.Equal(whole, want) {
			t.Fatalf("%q: got %+v, the standard says %+v", b, whole, want)
		}
	})
}

// plainEvents is the standard's algorithm on a whole input, but for this: an
// event with an id or a retry and no data counts, and an id does not last.
func plainEvents(b []byte) []event {
	s := strings.TrimPrefix(string(b), "\ufeff")
	s = strings.ReplaceAll(s, "\r\n", "\n")
	s = strings.ReplaceAll(s, "\r", "\n")
	lines := strings.Split(s, "\n")
	var out []event
	var ev event
	var data []string
	seen := false
	for _, line := range lines[:len(lines)-1] {
		if line == "" {
			if seen {
				ev.data = strings.Join(data, "\n")
				out = append(out, ev)
			}
			ev, data, seen = event{}, nil, false
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
			seen = true
		case "event":
			ev.name = value
		case "id":
			if !strings.Contains(value, "\x00") {
				ev.id = value
				seen = true
			}
		case "retry":
			if value != "" && strings.Trim(value, "0123456789") == "" {
				if ms, ok := small(value); ok {
					ev.retry = ms
					seen = true
				}
			}
		}
	}
	return out
}

func small(digits string) (time.Duration, bool) {
	n := int64(0)
	for _, c := range digits {
		n = n*10 + int64(c-'0')
		if n > 1<<60 {
			return 0, false
		}
	}
	return time.Duration(min(n, 1<<31)) * time.Millisecond, true
}

// FuzzEventRoundTrip sends any data through AppendEvent and the reader.
func FuzzEventRoundTrip(f *testing.F) {
	for _, s := range []string{"", "{}", "{\n\"a\":1\n}", "\n", "\n\n", " x", ":", "a\rb", "{\r\n}", "data: x\n\n", "\xff", strings.Repeat("y", 9000)} {
		f.Add("17", []byte(s))
		f.Add("", []byte(s))
	}
	f.Fuzz(func(t *testing.T, id string, data []byte) {
		if strings.ContainsAny(id, "\r\n\x00") || strings.HasPrefix(id, " ") {
			return
		}
		b := wire.AppendEvent([]byte(": first\n"), id, data)
		b = wire.AppendEvent(b, id, []byte("{}"))
		got, err := readEvents(bytes.NewReader(b), len(b))
		if !errors.Is(err, io.EOF) {
			t.Fatalf("%q ended with %v", b, err)
		}
		// A stream of events knows one kind of line break.
		norm := func(s string) string {
			return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\r", "\n")
		}
		if len(got) != 2 || norm(got[0].data) != norm(string(data)) || got[0].id != id || got[1].data != "{}" {
			t.Fatalf("%q as %q came back as %+v", data, b, got)
		}
	})
}
