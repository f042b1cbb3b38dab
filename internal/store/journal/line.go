package journal

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/tine-mcp/tine/internal/store"
)

// A line is
//
//	{"id":...,"seq":...,"at":...,...,"sizes":[P,R],"params":...,"result":...}
//
// with P bytes of params and R of result; empty members are absent. The first line
// of a segment is its header.
var (
	seqMark       = []byte(`,"seq":`)
	sessionMark   = []byte(`,"session":"`)
	principalMark = []byte(`,"principal":"`)
	sizesMark     = []byte(`,"sizes":[`)
	paramsMark    = []byte(`,"params":`)
	resultMark    = []byte(`,"result":`)
	headerMark    = []byte(`{"journal":`)
	lineEnd       = []byte("}\n")
)

const (
	// startSpace is room for the start of any line: its id and its Seq.
	startSpace = 64
	// maxHead is more than any head has: twelve texts, each byte of them as an
	// escape of six.
	maxHead = 512 << 10
	// maxBody is more than any params or result have, so that sums stay sums.
	maxBody = 1 << 48
)

// appendLine appends all of a line but its id and Seq, which are known only when
// its turn to be written comes. It leaves room for them at the beginning;
// finishLine fills it in.
func appendLine(b []byte, e *Entry) []byte {
	b = append(b, make([]byte, startSpace)...)
	b = append(b, `,"at":"`...)
	b = e.At.AppendFormat(b, time.RFC3339Nano)
	b = append(b, '"')
	b = appendText(b, `,"principal":`, e.Principal)
	b = appendText(b, `,"session":`, e.Session)
	b = appendText(b, `,"run":`, e.Run)
	b = appendText(b, `,"server":`, e.Server)
	b = appendText(b, `,"method":`, e.Method)
	b = appendText(b, `,"name":`, e.Name)
	b = append(b, `,"ns":`...)
	b = strconv.AppendInt(b, int64(e.Duration), 10)
	b = appendText(b, `,"outcome":`, e.Outcome)
	b = appendText(b, `,"error":`, e.Error)
	b = appendText(b, `,"mode":`, e.Mode)
	b = appendText(b, `,"trace":`, e.Trace)
	b = appendText(b, `,"note":`, e.Note)
	b = append(b, sizesMark...)
	b = strconv.AppendInt(b, int64(len(e.Params)), 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, int64(len(e.Result)), 10)
	b = append(b, ']')
	b = appendBody(b, paramsMark, e.Params)
	b = appendBody(b, resultMark, e.Result)
	return append(b, lineEnd...)
}

// finishLine puts id and Seq in and returns the line.
func finishLine(b []byte, seq int64) (line []byte, id string) {
	var space [startSpace]byte
	start := append(space[:0], `{"id":"`...)
	from := len(start)
	start = store.AppendCallID(start, seq)
	id = string(start[from:])
	start = append(start, `","seq":`...)
	start = strconv.AppendInt(start, seq, 10)
	line = b[startSpace-len(start):]
	copy(line, start)
	return line, id
}

// lineRoom is about what a line of the entry needs.
func lineRoom(e *Entry) int {
	return len(e.Params) + len(e.Result) + len(e.Error) + len(e.Name) + len(e.Note) + 1024
}

func appendText(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(append(b, key...), s)
}

// appendString appends valid UTF-8 as a JSON string.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		if c == '"' || c == '\\' {
			b = append(b, '\\', c)
		} else {
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(append(b, s[start:]...), '"')
}

// appendBody appends JSON that its owner has checked. Checking it here would cost
// more than all the rest, so only the line is protected.
func appendBody(b, mark, body []byte) []byte {
	if len(body) == 0 {
		return b
	}
	b = append(b, mark...)
	from := len(b)
	b = append(b, body...)
	for _, c := range []byte("\n\r") {
		for rest := b[from:]; ; {
			i := bytes.IndexByte(rest, c)
			if i < 0 {
				break
			}
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
	return b
}

// head is the part of a line before params and result. The id, which follows from
// Seq, is for people who read a file.
type head struct {
	Seq       int64     `json:"seq"`
	At        time.Time `json:"at"`
	Principal string    `json:"principal"`
	Session   string    `json:"session"`
	Run       string    `json:"run"`
	Server    string    `json:"server"`
	Method    string    `json:"method"`
	Name      string    `json:"name"`
	NS        int64     `json:"ns"`
	Outcome   string    `json:"outcome"`
	Error     string    `json:"error"`
	Mode      string    `json:"mode"`
	Trace     string    `json:"trace"`
	Note      string    `json:"note"`
	Sizes     [2]int64  `json:"sizes"`

	end int64 // where the rest of the line begins
}

// parseHead reads the head of the line that b begins with. A quote in a text is
// always escaped, so the mark of the sizes can't stand in one.
func parseHead(b []byte) (head, bool) {
	var h head
	at := bytes.Index(b, sizesMark)
	if at < 0 {
		return h, false
	}
	n := bytes.IndexByte(b[at:], ']')
	if n < 0 || n > 64 {
		return h, false
	}
	end := at + n + 1
	object := append(append(make([]byte, 0, end+1), b[:end]...), '}')
	if err := json.Unmarshal(object, &h); err != nil {
		return head{}, false
	}
	h.end = int64(end)
	p, r := h.Sizes[0], h.Sizes[1]
	return h, h.Seq > 0 && p >= 0 && p < maxBody && r >= 0 && r < maxBody
}

// sessionOf finds the session in a line without reading its head. It is as it
// stands there, with escapes, and empty where there is none.
func sessionOf(b []byte) []byte { return textOf(b, sessionMark) }

// principalOf is to the principal what sessionOf is to the session.
func principalOf(b []byte) []byte { return textOf(b, principalMark) }

func textOf(b, mark []byte) []byte {
	at := bytes.Index(b, mark)
	if at < 0 || bytes.Contains(b[:at], sizesMark) { // of params or result
		return nil
	}
	b = b[at+len(mark):]
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return b[:i]
		}
	}
	return nil
}

// seqOf finds the Seq in a line without reading its head; zero where there is none.
func seqOf(b []byte) int64 {
	at := bytes.Index(b[:min(len(b), startSpace)], seqMark)
	if at < 0 {
		return 0
	}
	digits, _, _ := bytes.Cut(b[at+len(seqMark):], []byte(","))
	seq, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil {
		return 0
	}
	return seq
}

// bodies returns where params and result begin in the line and how long the
// line is, newline included.
func (h *head) bodies() (params, result, length int64) {
	length = h.end
	if h.Sizes[0] > 0 {
		params = length + int64(len(paramsMark))
		length = params + h.Sizes[0]
	}
	if h.Sizes[1] > 0 {
		result = length + int64(len(resultMark))
		length = result + h.Sizes[1]
	}
	return params, result, length + int64(len(lineEnd))
}

// fits says whether a whole line is what its head says.
func (h *head) fits(line []byte) bool {
	params, result, length := h.bodies()
	return int64(len(line)) == length && bytes.HasSuffix(line, lineEnd) &&
		(params == 0 || bytes.HasSuffix(line[:params], paramsMark)) &&
		(result == 0 || bytes.HasSuffix(line[:result], resultMark))
}

func (h *head) entry() Entry {
	return Entry{
		Seq: h.Seq, ID: store.CallID(h.Seq), At: h.At.UTC(), Principal: h.Principal, Session: h.Session, Run: h.Run, Server: h.Server, Method: h.Method,
		Name: h.Name, Duration: time.Duration(h.NS), Outcome: h.Outcome, Error: h.Error, Mode: h.Mode, Trace: h.Trace, Note: h.Note,
	}
}

// asJSON returns JSON as it is, and anything else as a string.
func asJSON(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	if json.Valid(b) {
		return b
	}
	return appendString(nil, string(bytes.ToValidUTF8(b, []byte(string(utf8.RuneError)))))
}
