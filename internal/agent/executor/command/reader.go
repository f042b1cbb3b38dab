package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
)

// maxPlain is how much is kept of what a program prints besides lines of the contract.
const maxPlain = 4 << 20

// reader reads what a program prints.
type reader struct {
	schema json.RawMessage
	result *api.RunResult // that a line said
	fault  string         // likewise
	plain  bytes.Buffer
	cut    bool           // plain is not all
	torn   bool           // a line of the contract is no JSON, such as one that was cut off
	wrong  bool           // one is other JSON than it says
	odd    bool           // a line with a type that is none was told
	calls  map[string]int // that were posted and have not returned, by their tool and id
}

var _ executor.Hearer = (*reader)(nil)

// printed is a line of the contract.
type printed struct {
	Type            string          `json:"type"`
	ExecutorSession string          `json:"executor_session_id"`
	Text            string          `json:"text"`
	ID              string          `json:"id"`
	Name            string          `json:"name"`
	Arguments       json.RawMessage `json:"arguments"`
	Done            bool            `json:"done"`
	IsError         bool            `json:"is_error"`
	Message         string          `json:"message"`
	Error           string          `json:"error"`
	Result          json.RawMessage `json:"result"`
	api.RunUsage
}

// types are those of the lines of the contract.
var types = []string{"bind", "text", "tool", "usage", "error", "result", "turn_complete"}

// typed is how a line of the contract begins.
var typed = regexp.MustCompile(`^\{\s*"type"\s*:`)

// Line implements executor.Reader.
func (r *reader) Line(line []byte) []executor.Event {
	events, _ := r.line(line)
	return events
}

// line reads a line and reports whether it completes a turn.
func (r *reader) line(line []byte) (events []executor.Event, complete bool) {
	text := bytes.TrimSpace(line)
	var p printed
	if len(text) == 0 || text[0] != '{' || json.Unmarshal(text, &p) != nil {
		if typed.Match(text) {
			whole := json.Valid(text)
			r.torn = r.torn || !whole
			r.wrong = r.wrong || whole && slices.Contains(types, p.Type)
		}
		r.keep(line)
		return nil, false
	}
	switch p.Type {
	case "bind":
		if p.ExecutorSession == "" {
			return nil, false
		}
		return []executor.Event{executor.Bound(p.ExecutorSession)}, false
	case "text":
		return []executor.Event{executor.Text(p.Text)}, false
	case "tool":
		if p.Done {
			return []executor.Event{executor.Returned(p.ID, p.Text, p.IsError)}, false
		}
		return []executor.Event{executor.Call(p.ID, p.Name, p.Arguments)}, false
	case "usage":
		return []executor.Event{executor.Used(p.RunUsage)}, false
	case "error":
		r.fault = p.Message
		if r.fault == "" {
			r.fault = "the executor said only that there was an error"
		}
		return nil, false
	case "result", "turn_complete":
		if len(p.Result) > 0 && string(p.Result) != "null" {
			result := executor.ResultOf(p.Result)
			r.result = &result
		}
		if p.Error != "" {
			r.fault = p.Error
		}
		return nil, p.Type == "turn_complete"
	}
	r.keep(line) // it may be the result
	if !r.odd && typed.Match(text) {
		r.odd = true
		return []executor.Event{executor.Stderr(fmt.Sprintf("tine: a line has the type %q, which is none of %s; it counts as output", p.Type, strings.Join(types, ", ")))}, false
	}
	return nil, false
}

// Hear implements executor.Hearer. Some programs post a call and its return, and some the
// return alone.
func (r *reader) Hear(event []byte) []executor.Event {
	p, err := executor.ReadPosted(event)
	if err != nil { // cut off by a kill, so that it was not taken
		return nil
	}
	call := p.Tool + "\x00" + p.ToolID
	switch p.Type {
	case executor.PostedBind:
		return []executor.Event{executor.Bound(p.ExecutorSession)}
	case executor.PostedMessage:
		if text := p.Said(); text != "" && p.Role != "user" { // which is the prompt
			return []executor.Event{executor.Text(text)}
		}
	case executor.PostedCall:
		if r.calls == nil {
			r.calls = make(map[string]int)
		}
		r.calls[call]++
		return []executor.Event{executor.Call(p.ToolID, p.Tool, p.Input)}
	case executor.PostedReturn:
		text, isError := p.Returned()
		returned := executor.Returned(p.ToolID, text, isError)
		if r.calls[call] > 0 {
			r.calls[call]--
			return []executor.Event{returned}
		}
		return []executor.Event{executor.Call(p.ToolID, p.Tool, p.Input), returned}
	case executor.PostedResult:
		result := p.Result()
		r.result = &result
	}
	return nil
}

func (r *reader) keep(line []byte) {
	if r.plain.Len()+len(line) >= maxPlain {
		r.cut = true
		return
	}
	r.plain.Write(line)
	r.plain.WriteByte('\n')
}

// End implements executor.Reader.
func (r *reader) End(exit executor.Exit) (api.RunResult, error) {
	if r.fault != "" {
		return api.RunResult{}, executor.Fault("%s", r.fault)
	}
	if err := executor.Failed(exit); err != nil {
		return api.RunResult{}, err
	}
	if r.result == nil && exit.Long > 0 {
		return api.RunResult{}, executor.Fault("the executor printed no result, but lines that are too long; have it print shorter ones")
	}
	return r.conclude()
}

// conclude is the result of what was read.
func (r *reader) conclude() (api.RunResult, error) {
	switch {
	case r.fault != "":
		return api.RunResult{}, executor.Fault("%s", r.fault)
	case r.result != nil:
		return executor.Fit(r.schema, *r.result)
	case r.wrong, r.torn && !json.Valid(r.plain.Bytes()): // the lines together may be the result
		return api.RunResult{}, executor.Fault("the executor printed no result, but a line with a type that can't be read: it was cut off, or has other JSON than the contract says")
	case r.cut:
		return api.RunResult{}, executor.Fault("the executor printed more than %d bytes, which can't be its result; have it print a line with the type result", maxPlain)
	}
	return executor.Fit(r.schema, resultIn(r.plain.Bytes()))
}

// resultIn is the result in what was printed besides lines of the contract.
func resultIn(plain []byte) api.RunResult {
	plain = bytes.TrimSpace(plain)
	if len(plain) > 0 && (plain[0] == '{' || plain[0] == '[') && json.Valid(plain) {
		return executor.ResultOf(plain)
	}
	i := bytes.LastIndexByte(plain, '\n')
	if last := plain[i+1:]; i >= 0 && len(last) > 0 && last[0] == '{' && json.Valid(last) {
		result := executor.ResultOf(last)
		if result.Text == "" {
			result.Text = textOf(plain[:i])
		}
		return result
	}
	return api.RunResult{Text: textOf(plain)}
}

func textOf(b []byte) string {
	return strings.ToValidUTF8(strings.TrimSpace(string(b)), "\uFFFD")
}

// turner is the reader of a persistent program.
type turner struct {
	*reader
	complete bool
}

var _ executor.Turner = (*turner)(nil)

// Line implements executor.Reader.
func (t *turner) Line(line []byte) []executor.Event {
	events, complete := t.line(line)
	t.complete = t.complete || complete
	return events
}

// Turn implements executor.Turner.
func (t *turner) Turn() (result api.RunResult, err error, ok bool) {
	if !t.complete {
		return api.RunResult{}, nil, false
	}
	result, err = t.conclude()
	return result, err, true
}

// End implements executor.Reader. The program ended in the midst of a turn.
func (t *turner) End(exit executor.Exit) (api.RunResult, error) {
	if t.fault == "" && t.result == nil && exit.Status == 0 {
		return api.RunResult{}, executor.Fault("the executor ended before it completed the turn")
	}
	return t.reader.End(exit)
}

// Next implements executor.Turner.
func (t *turner) Next(job executor.Job) ([]byte, error) {
	parameters := job.Parameters
	if parameters == nil {
		parameters = map[string]any{}
	}
	return line(map[string]any{"type": "turn", "parameters": parameters})
}

// Shutdown implements executor.Turner.
func (t *turner) Shutdown() []byte { return []byte("{\"type\":\"shutdown\"}\n") }
