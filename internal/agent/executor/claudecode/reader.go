package claudecode

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
)

// reader reads the lines of --output-format stream-json.
type reader struct {
	schema json.RawMessage
	bound  bool // the conversation was told
	result *result
}

// printed is any line, as far as it matters.
type printed struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
	Session string `json:"session_id"`
	Servers []struct {
		Name   string `json:"name"`
		Status string `json:"status"`
	} `json:"mcp_servers"`
	Message struct {
		Content json.RawMessage `json:"content"`
	} `json:"message"`
}

// block is a part of a message.
type block struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// result is the last line.
type result struct {
	Subtype    string          `json:"subtype"`
	IsError    bool            `json:"is_error"`
	Result     string          `json:"result"`
	Errors     []string        `json:"errors"`
	Structured json.RawMessage `json:"structured_output"`
	Cost       float64         `json:"total_cost_usd"` // of the conversation
	Models     map[string]struct {
		Cost float64 `json:"costUSD"`
	} `json:"model_usage_since_last_result"`
	Usage struct {
		Input      int64 `json:"input_tokens"`
		Output     int64 `json:"output_tokens"`
		CacheRead  int64 `json:"cache_read_input_tokens"`
		CacheWrite int64 `json:"cache_creation_input_tokens"`
	} `json:"usage"`
}

// used is what the run has used. Earlier versions tell only the cost of the conversation.
func (r *result) used() api.RunUsage {
	u := api.RunUsage{InputTokens: r.Usage.Input + r.Usage.CacheRead + r.Usage.CacheWrite, OutputTokens: r.Usage.Output, Cost: r.Cost}
	if len(r.Models) > 0 {
		u.Cost = 0
		for _, m := range r.Models {
			u.Cost += m.Cost
		}
	}
	return u
}

// Line implements executor.Reader.
func (r *reader) Line(line []byte) (events []executor.Event) {
	var p printed
	if json.Unmarshal(line, &p) != nil || p.Type == "" {
		if text := strings.TrimSpace(string(line)); text != "" {
			return []executor.Event{executor.Stderr(text)} // a remark for people
		}
		return nil
	}
	switch p.Type {
	case "system":
		for _, s := range p.Servers {
			if p.Subtype == "init" && s.Status != "connected" && s.Status != "pending" {
				events = append(events, executor.Stderr(fmt.Sprintf("Claude Code has no connection to the server %q: %s", s.Name, s.Status)))
			}
		}
	case "assistant":
		events = r.bind(p.Session)
		for _, b := range blocks(p.Message.Content) {
			switch b.Type {
			case "text":
				events = append(events, executor.Text(b.Text))
			case "tool_use":
				events = append(events, executor.Call(b.ID, b.Name, b.Input))
			}
		}
	case "user":
		for _, b := range blocks(p.Message.Content) {
			if b.Type == "tool_result" {
				events = append(events, executor.Returned(b.ToolUseID, textOf(b.Content), b.IsError))
			}
		}
	case "result":
		var end result
		if json.Unmarshal(line, &end) != nil {
			return nil
		}
		r.result = &end
		events = append(events, executor.Used(end.used()))
	}
	return events
}

// bind tells the conversation once the model has answered: before, there may be none to
// resume.
func (r *reader) bind(session string) []executor.Event {
	if r.bound || session == "" {
		return nil
	}
	r.bound = true
	return []executor.Event{executor.Bound(session)}
}

// blocks are the parts of a message, whose content may be a text.
func blocks(raw json.RawMessage) []block {
	var list []block
	if json.Unmarshal(raw, &list) == nil {
		return list
	}
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []block{{Type: "text", Text: text}}
	}
	return nil
}

// textOf is the text of a tool's result.
func textOf(raw json.RawMessage) string {
	var b strings.Builder
	for _, part := range blocks(raw) {
		if part.Type == "text" {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(part.Text)
		}
	}
	return b.String()
}

// End implements executor.Reader.
func (r *reader) End(exit executor.Exit) (api.RunResult, error) {
	switch {
	case r.result == nil && exit.Status != 0:
		return api.RunResult{}, executor.Failed(exit)
	case r.result == nil && exit.Long > 0:
		return api.RunResult{}, executor.Fault("Claude Code ended without a result, but with lines that are too long")
	case r.result == nil:
		return api.RunResult{}, executor.Fault("Claude Code ended without a result")
	case r.result.IsError || r.result.Subtype != "success":
		why := strings.TrimSpace(r.result.Result)
		if why == "" {
			why = strings.Join(r.result.Errors, "; ")
		}
		if r.result.Subtype != "success" { // such as error_max_turns
			why = strings.TrimSpace(r.result.Subtype + " " + why)
		}
		why, _ = executor.Shorten(why, 4<<10)
		return api.RunResult{}, executor.Fault("Claude Code failed: %s", why)
	}
	out := api.RunResult{Text: r.result.Result, Data: r.result.Structured}
	if string(out.Data) == "null" {
		out.Data = nil
	}
	return executor.Fit(r.schema, out)
}
