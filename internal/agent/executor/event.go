package executor

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/tine-mcp/tine/api"
)

// MaxText is how much of a text goes into one event. What is longer is cut, and the
// event says so.
const MaxText = 64 << 10

// said is the data of events of the types text and stderr.
type said struct {
	Text string `json:"text"`
	Cut  bool   `json:"cut,omitempty"`
}

// called is the data of events of the type tool: a call, or with Done its result.
type called struct {
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Done      bool            `json:"done,omitempty"`
	Text      string          `json:"text,omitempty"`
	IsError   bool            `json:"is_error,omitempty"`
	Cut       bool            `json:"cut,omitempty"`
}

// Text is the event of what the model has said.
func Text(text string) Event {
	text, cut := Shorten(text, MaxText)
	return event(api.RunEventText, said{text, cut})
}

// Stderr is the event of a line of standard error, or of a remark on the output.
func Stderr(line string) Event {
	line, cut := Shorten(line, MaxText)
	return event(api.RunEventStderr, said{line, cut})
}

// Call is the event of a call of a tool.
func Call(id, name string, arguments json.RawMessage) Event {
	c := called{ID: id, Name: name, Arguments: arguments}
	if len(arguments) > MaxText {
		c.Arguments, c.Cut = nil, true
	}
	return event(api.RunEventTool, c)
}

// Returned is the event of a tool's result.
func Returned(id, text string, isError bool) Event {
	text, cut := Shorten(text, MaxText)
	return event(api.RunEventTool, called{ID: id, Done: true, Text: text, IsError: isError, Cut: cut})
}

// Used is the event of what has been used so far, in all.
func Used(u api.RunUsage) Event { return event(api.RunEventUsage, u) }

// Bound is the event that names the program's conversation.
func Bound(session string) Event {
	e := event(api.RunEventState, map[string]string{"executor_session_id": session})
	e.ExecutorSession = session
	return e
}

func event(kind string, data any) Event {
	raw, err := json.Marshal(data)
	if err != nil { // arguments that are no JSON
		raw, _ = json.Marshal(said{Text: err.Error()})
	}
	return Event{Type: kind, Data: raw}
}

// Shorten cuts a text to so many bytes, between characters.
func Shorten(text string, most int) (short string, cut bool) {
	if len(text) <= most {
		return text, false
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most], true
}
