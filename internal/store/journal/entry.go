package journal

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tine-mcp/tine/internal/store"
)

// Entry is one call.
type Entry struct {
	Seq       int64     // grows with every call, also over restarts; set by Append
	ID        string    // store.CallID of Seq, as call_00000000002a; set by Append
	At        time.Time // when it began
	Principal string
	Session   string
	Run       string // of the token that the caller showed; empty for none
	Server    string
	Method    string
	Name      string
	Duration  time.Duration
	Outcome   string
	Error     string
	Mode      string // how the server is journalled: full or meta
	Trace     string
	Note      string // what the journal did to this entry; set by Append

	// Params and Result are JSON, or empty. They are written as they are, except
	// that newlines become spaces. What is read back is always JSON: anything else
	// is read back as a string.
	Params, Result []byte

	// Cut says that Params were left out of a list because of their size.
	Cut bool
	// Missed is how many calls before this one a follower will never see, because
	// they were dropped before it came to them, or are damaged.
	Missed int64
}

// modeMeta is the mode of an entry that is kept without params and result.
const modeMeta = "meta"

// maxText bounds each of the texts of an entry, so that the part of a line that
// lists need is small.
const maxText = 4 << 10

// tidy makes an entry one that reads back as it is written.
func (e *Entry) tidy(now time.Time) {
	for _, s := range []*string{&e.Principal, &e.Session, &e.Run, &e.Server, &e.Method, &e.Name, &e.Outcome, &e.Error, &e.Mode, &e.Trace} {
		if !utf8.ValidString(*s) {
			*s = strings.ToValidUTF8(*s, "\uFFFD")
		}
		if len(*s) > maxText {
			*s = clip(*s)
		}
	}
	// Neither the line nor the index can hold other times.
	if y := e.At.Year(); y < 1970 || y > 2261 {
		e.At = now
	}
	e.At = e.At.UTC().Round(0)
	e.Note, e.Cut, e.Missed = "", false, 0
}

func clip(s string) string {
	end := maxText - len("…")
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// exceeds says whether the entry is larger than all that may be kept.
func (e *Entry) exceeds(maxSize int64) bool {
	return maxSize > 0 && int64(len(e.Params))+int64(len(e.Result)) > maxSize-maxHeader
}

// shrink drops params and result.
func (e *Entry) shrink(maxSize int64) {
	e.Note = fmt.Sprintf("params and result of %d bytes were left out: the journal keeps %d", len(e.Params)+len(e.Result), maxSize)
	e.Mode, e.Params, e.Result = modeMeta, nil, nil
}

// call is the entry's line of the index.
func (e *Entry) call(at place, length int64) store.Call {
	return store.Call{
		Seq: e.Seq, ID: e.ID, At: e.At, Principal: e.Principal, Session: e.Session, Run: e.Run, Server: e.Server,
		Method: e.Method, Name: e.Name, Duration: e.Duration, Outcome: e.Outcome,
		Segment: at.segment, Offset: at.offset, Length: length,
	}
}
