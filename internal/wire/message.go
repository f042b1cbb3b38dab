package wire

import (
	"errors"
	"fmt"
)

// A Message is one scanned JSON-RPC message. Its slices point into the bytes
// it was scanned from.
type Message struct {
	ID     []byte // raw, quotes included; nil when there is none
	Method string // of requests and notifications
	Params []byte
	Result []byte
	Error  []byte
}

// IsRequest reports whether the message wants an answer.
func (m *Message) IsRequest() bool { return m.Method != "" && m.ID != nil }

// IsNotification reports whether the message is a notification.
func (m *Message) IsNotification() bool { return m.Method != "" && m.ID == nil }

// IsResponse reports whether the message is an answer.
func (m *Message) IsResponse() bool { return m.Method == "" }

// ErrBatch is returned for an array of messages.
var ErrBatch = errors.New("a batch of messages")

// Scan reads one message. It checks the syntax of all of it and refuses keys
// that stand twice, since what Tine decides on must be what the server sees.
func Scan(b []byte) (Message, error) {
	var msg Message
	i := skipSpace(b, 0)
	if i < len(b) && b[i] == '[' {
		return msg, ErrBatch
	}
	var version, id, method, params, result, errs Span
	m := members{b: b, i: i}
	for m.next() {
		switch {
		case m.is("id"):
			m.set(&id, "id")
		case m.is("method"):
			m.set(&method, "method")
		case m.is("params"):
			m.set(&params, "params")
		case m.is("result"):
			m.set(&result, "result")
		case m.is("error"):
			m.set(&errs, "error")
		case m.is("jsonrpc"):
			m.set(&version, "jsonrpc")
		}
		if m.err != nil {
			return msg, m.err
		}
	}
	if m.err != nil {
		return msg, m.err
	}
	if end := skipSpace(b, m.i); end != len(b) {
		return msg, syntaxError(b, end, "nothing after the message")
	}
	if string(version.Of(b)) != `"2.0"` {
		return msg, errors.New(`not a JSON-RPC 2.0 message: "jsonrpc" must be "2.0"`)
	}
	if raw := id.Of(b); raw != nil && string(raw) != "null" {
		if raw[0] != '"' && raw[0] != '-' && (raw[0] < '0' || raw[0] > '9') {
			return msg, errors.New(`"id" must be a string or a number`)
		}
		if len(raw) > 512 {
			return msg, errors.New(`"id" is longer than 512 bytes`)
		}
		msg.ID = raw
	}
	if method.Ok() {
		s, ok := Unquote(method.Of(b))
		if !ok || s == "" || len(s) > 256 {
			return msg, errors.New(`"method" must be a string of 1 to 256 bytes`)
		}
		msg.Method = s
		if result.Ok() || errs.Ok() {
			return msg, errors.New(`a message with "method" can't have "result" or "error"`)
		}
		if p := params.Of(b); p != nil && string(p) != "null" {
			if p[0] != '{' {
				return msg, errors.New(`"params" must be an object`)
			}
			msg.Params = p
		}
		return msg, nil
	}
	msg.Result, msg.Error = result.Of(b), errs.Of(b)
	// Some servers write both and null for the one that is not.
	switch {
	case msg.Result != nil && string(msg.Error) == "null":
		msg.Error = nil
	case msg.Error != nil && string(msg.Result) == "null":
		msg.Result = nil
	}
	if (msg.Result == nil) == (msg.Error == nil) {
		return msg, errors.New(`a message must have one of "method", "result" and "error"`)
	}
	if msg.Error != nil && msg.Error[0] != '{' {
		return msg, errors.New(`"error" must be an object`)
	}
	return msg, nil
}

// ScanBatch splits an array of messages, at most max of them.
func ScanBatch(b []byte, max int) ([]Message, error) {
	items, err := Items(b)
	if err != nil {
		return nil, err
	}
	if len(items) == 0 {
		return nil, errors.New("an empty batch")
	}
	if len(items) > max {
		return nil, fmt.Errorf("a batch of %d messages, at most %d are taken", len(items), max)
	}
	out := make([]Message, len(items))
	for i, it := range items {
		if out[i], err = Scan(it.Of(b)); err != nil {
			return nil, fmt.Errorf("message %d of the batch: %w", i+1, err)
		}
	}
	return out, nil
}

// Items returns the spans of an array's elements.
func Items(b []byte) ([]Span, error) {
	i := skipSpace(b, 0)
	if i >= len(b) || b[i] != '[' {
		return nil, syntaxError(b, i, "an array")
	}
	var out []Span
	i = skipSpace(b, i+1)
	if i < len(b) && b[i] == ']' {
		return nil, arrayEnd(b, i)
	}
	for {
		end, err := skipValue(b, i, 1)
		if err != nil {
			return nil, err
		}
		out = append(out, Span{i, end})
		i = skipSpace(b, end)
		switch {
		case i >= len(b):
			return nil, errTruncated
		case b[i] == ']':
			return out, arrayEnd(b, i)
		case b[i] != ',':
			return nil, syntaxError(b, i, "a comma or ]")
		}
		i = skipSpace(b, i+1)
	}
}

// arrayEnd fails when something follows the bracket at i.
func arrayEnd(b []byte, i int) error {
	if i = skipSpace(b, i+1); i != len(b) {
		return syntaxError(b, i, "nothing after the array")
	}
	return nil
}

// Find returns the span of the member at path in the object b. Absent members
// and members of something that is no object give the zero Span; a key that
// stands twice on the path is an error.
func Find(b []byte, path ...string) (Span, error) {
	at := Span{0, len(b)}
	at.Start = skipSpace(b, 0)
	for _, name := range path {
		if at.Start >= len(b) || b[at.Start] != '{' {
			return Span{}, nil
		}
		var found Span
		m := members{b: b[:at.End], i: at.Start}
		for m.next() {
			if m.is(name) && !m.set(&found, name) {
				return Span{}, m.err
			}
		}
		if m.err != nil {
			return Span{}, m.err
		}
		if !found.Ok() {
			return Span{}, nil
		}
		at = found
	}
	return at, nil
}

// FindString returns the string at path, "" when there is none.
func FindString(b []byte, path ...string) string {
	s, err := Find(b, path...)
	if err != nil {
		return ""
	}
	v, _ := Unquote(s.Of(b))
	return v
}

// Members calls fn with each key and value span of the object b, in order.
func Members(b []byte, fn func(key string, val Span) error) error {
	m := members{b: b, i: skipSpace(b, 0)}
	for m.next() {
		key, ok := Unquote(b[m.key.Start-1 : m.key.End+1])
		if !ok {
			return errors.New("unreadable key")
		}
		if err := fn(key, m.val); err != nil {
			return err
		}
	}
	return m.err
}
