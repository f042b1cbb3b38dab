package codex

import (
	"encoding/json"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
)

// reader reads the lines of codex exec --json.
type reader struct {
	schema  json.RawMessage
	resumed bool
	thread  string // that was begun and not told yet
	last    string // what the model said last
	said    bool
	done    bool // the turn was completed
	fault   string
}

// printed is any line, as far as it matters.
type printed struct {
	Type    string `json:"type"`
	Thread  string `json:"thread_id"`
	Message string `json:"message"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
	Usage struct {
		Input  int64 `json:"input_tokens"`
		Output int64 `json:"output_tokens"`
	} `json:"usage"`
	Item item `json:"item"`
}

// item is a piece of work.
type item struct {
	ID        string          `json:"id"`
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Message   string          `json:"message"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    *struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
	Error *struct {
		Message string `json:"message"`
	} `json:"error"`
	Status  string `json:"status"`
	Command string `json:"command"`
	Output  string `json:"aggregated_output"`
}

// Line implements executor.Reader.
func (r *reader) Line(line []byte) []executor.Event {
	var p printed
	if json.Unmarshal(line, &p) != nil || p.Type == "" {
		if text := strings.TrimSpace(string(line)); text != "" {
			return []executor.Event{executor.Stderr(text)} // a remark for people
		}
		return nil
	}
	switch p.Type {
	case "thread.started":
		r.thread = p.Thread
	case "turn.started":
		// Before, there may be nothing to resume.
		if r.thread != "" {
			thread := r.thread
			r.thread = ""
			return []executor.Event{executor.Bound(thread)}
		}
	case "item.started":
		return p.Item.begun()
	case "item.completed":
		if p.Item.Type == "agent_message" {
			r.last, r.said = p.Item.Text, true
		}
		return p.Item.ended()
	case "turn.completed":
		r.done, r.fault = true, ""
		if !r.resumed {
			return []executor.Event{executor.Used(api.RunUsage{InputTokens: p.Usage.Input, OutputTokens: p.Usage.Output})}
		}
	case "turn.failed":
		r.fault = p.Error.Message
	case "error": // it may try again
		r.fault = p.Message
		return []executor.Event{executor.Stderr(p.Message)}
	}
	return nil
}

// begun is the event of a piece of work that begins.
func (i item) begun() []executor.Event {
	switch i.Type {
	case "mcp_tool_call":
		return []executor.Event{executor.Call(i.ID, i.Server+"/"+i.Tool, i.Arguments)}
	case "command_execution":
		arguments, err := json.Marshal(map[string]string{"command": i.Command})
		if err != nil {
			return nil
		}
		return []executor.Event{executor.Call(i.ID, "shell", arguments)}
	}
	return nil
}

// ended is the event of a piece of work that is over.
func (i item) ended() []executor.Event {
	switch i.Type {
	case "agent_message":
		return []executor.Event{executor.Text(i.Text)}
	case "error":
		return []executor.Event{executor.Stderr(i.Message)}
	case "command_execution":
		return []executor.Event{executor.Returned(i.ID, i.Output, i.Status != "completed")}
	case "mcp_tool_call":
		var text []string
		if i.Result != nil {
			for _, c := range i.Result.Content {
				if c.Text != "" {
					text = append(text, c.Text)
				}
			}
		}
		if i.Error != nil {
			text = append(text, i.Error.Message)
		}
		return []executor.Event{executor.Returned(i.ID, strings.Join(text, "\n"), i.Status != "completed")}
	}
	return nil
}

// End implements executor.Reader.
func (r *reader) End(exit executor.Exit) (api.RunResult, error) {
	switch {
	case r.fault != "":
		why, _ := executor.Shorten(r.fault, 4<<10)
		return api.RunResult{}, executor.Fault("Codex failed: %s", why)
	case exit.Status != 0:
		return api.RunResult{}, executor.Failed(exit)
	case !r.done && exit.Long > 0:
		return api.RunResult{}, executor.Fault("Codex ended without a result, but with lines that are too long")
	case !r.done || !r.said:
		return api.RunResult{}, executor.Fault("Codex ended without a result")
	}
	return executor.Fit(r.schema, api.RunResult{Text: r.last})
}
