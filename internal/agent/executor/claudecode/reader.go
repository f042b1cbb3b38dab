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
	run    string
	bound  bool   // the conversation was told
	fault  string // what kept the model from answering; empty where it has answered since
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
	Error json.RawMessage `json:"error"`
}

// unanswered is why the model did not answer a request; empty where it did.
func (p *printed) unanswered() (why string) {
	_ = json.Unmarshal(p.Error, &why) // anything else has another meaning
	return why
}

// retry is what a line says of a request that is made once more.
type retry struct {
	Error   string  `json:"error"`
	Status  int     `json:"error_status"`
	Attempt int     `json:"attempt"`
	Most    int     `json:"max_retries"`
	Delay   float64 `json:"retry_delay_ms"`
}

func (r retry) String() string {
	return fmt.Sprintf("Claude Code has no answer from the model (%s) and asks again in %.1f s: %d of %d", withStatus(r.Error, r.Status), r.Delay/1000, r.Attempt, r.Most)
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
	Status     int             `json:"api_error_status"` // of a request that failed
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
		if again := (retry{}); p.Subtype == "api_retry" && json.Unmarshal(line, &again) == nil {
			events = append(events, executor.Stderr(again.String()))
		}
	case "assistant":
		events = r.bind(p.Session)
		r.fault = p.unanswered()
		for _, b := range blocks(p.Message.Content) {
			switch b.Type {
			case "text":
				if r.fault == "" { // else no word of the model: the result has it
					events = append(events, executor.Text(b.Text))
				}
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
		return api.RunResult{}, r.unanswered(why)
	}
	out := api.RunResult{Text: r.result.Result, Data: r.result.Structured}
	if string(out.Data) == "null" {
		out.Data = nil
	}
	if len(out.Data) > 0 && json.Valid([]byte(out.Text)) {
		out.Text = "" // the data again
	}
	return executor.Fit(r.schema, out)
}

// unanswered is the error of a program that has failed, with the mend where the model has
// not answered: that is no failure of the agent.
func (r *reader) unanswered(why string) error {
	e := &api.Error{Kind: api.KindInfrastructure}
	mend := ""
	switch r.fault {
	case "authentication_failed":
		mend = "set ANTHROPIC_API_KEY in the environment of the gateway or in env of the blueprint, or log in with claude as the gateway's user"
	case "billing_error":
		mend = "add credit to the account of the key, or use another key"
	case "rate_limit", "server_error":
		e.Retryable = true
		mend = fmt.Sprintf("the conversation is kept; go on with it later: tine runs send %s \"Go on\"", r.run)
	default:
		return executor.Fault("Claude Code failed: %s", why)
	}
	e.Message = fmt.Sprintf("Claude Code failed: %s; %s", withStatus(why, r.result.Status), mend)
	return e
}

// withStatus adds the HTTP status of the model's answer, where there was one.
func withStatus(what string, status int) string {
	if status == 0 || strings.Contains(what, fmt.Sprint(status)) {
		return what
	}
	return fmt.Sprintf("%s (status %d)", what, status)
}
