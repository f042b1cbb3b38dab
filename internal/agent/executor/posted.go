package executor

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
)

// Types of what a program posts.
const (
	PostedBind    = "bind"
	PostedMessage = "message"
	PostedCall    = "pre_tool"
	PostedReturn  = "post_tool"
	PostedResult  = "result"
)

// mostSession bounds what a program may call its conversation.
const mostSession = 4096

// postedTypes are all. The last four say what the gateway knows by itself.
var postedTypes = []string{
	PostedBind, PostedMessage, PostedCall, PostedReturn, PostedResult, "run_start", "run_completed", "session_start", "session_stop",
}

// Posted is an event of a run that its program posts to the executor API, in place of a line
// that it prints.
type Posted struct {
	Type            string          `json:"event_type"`
	ExecutorSession string          `json:"executor_session_id,omitempty"` // of bind
	Role            string          `json:"role,omitempty"`                // of message
	Content         json.RawMessage `json:"content,omitempty"`             // of message: text, or blocks of it
	Tool            string          `json:"tool_name,omitempty"`           // of pre_tool and post_tool
	ToolID          string          `json:"tool_use_id,omitempty"`         // likewise
	Input           json.RawMessage `json:"tool_input,omitempty"`          // likewise
	Output          json.RawMessage `json:"tool_output,omitempty"`         // of post_tool
	Error           json.RawMessage `json:"error,omitempty"`               // likewise
	Text            *string         `json:"result_text,omitempty"`         // of result
	Data            json.RawMessage `json:"result_data,omitempty"`         // likewise
}

// ReadPosted reads one. The error says what is wrong with it.
func ReadPosted(raw []byte) (p Posted, err error) {
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, Misused("the event can't be read: %v", err)
	}
	switch {
	case p.Type == "":
		return p, Misused("event_type is missing")
	case !slices.Contains(postedTypes, p.Type):
		return p, Misused("event_type %q is none of %s", p.Type, strings.Join(postedTypes, ", "))
	case p.Type == PostedMessage && p.Role != "user" && p.Role != "assistant" && p.Role != "":
		return p, Misused("role %q is neither assistant nor user", p.Role)
	case p.Type == PostedMessage && p.Role != "user" && p.Said() == "":
		return p, Misused("content has no text: it is a text, or a list of {\"type\": \"text\", \"text\": ...}")
	case p.Type == PostedBind && len(p.ExecutorSession) > mostSession:
		return p, Misused("executor_session_id has %d bytes and may have %d", len(p.ExecutorSession), mostSession)
	case p.Type == PostedBind && p.ExecutorSession == "":
		return p, Misused("executor_session_id is missing: it is what the program calls its conversation")
	case (p.Type == PostedCall || p.Type == PostedReturn) && p.Tool == "":
		return p, Misused("tool_name is missing")
	}
	return p, nil
}

// Misused is an error of a program in what it posts.
func Misused(format string, args ...any) error {
	return &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf(format, args...)}
}

// Said is the text of a message.
func (p Posted) Said() string {
	var text string
	if json.Unmarshal(p.Content, &text) == nil {
		return text
	}
	var blocks []struct{ Text string }
	_ = json.Unmarshal(p.Content, &blocks)
	var all []string
	for _, b := range blocks {
		if b.Text != "" {
			all = append(all, b.Text)
		}
	}
	return strings.Join(all, "\n")
}

// Returned is the text of a tool's result, and whether it is an error.
func (p Posted) Returned() (text string, isError bool) {
	if text := plain(p.Error); text != "" && text != "false" {
		return text, true
	}
	return plain(p.Output), false
}

// plain is a JSON value as text: a string as it is, null as nothing.
func plain(raw json.RawMessage) string {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil { // also null
		return text
	}
	return string(raw)
}

// Result is the result of the type result.
func (p Posted) Result() api.RunResult {
	r := api.RunResult{}
	if p.Text != nil {
		r.Text = *p.Text
	}
	if string(p.Data) != "null" {
		r.Data = p.Data
	}
	return r
}
