package executor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tine-mcp/tine/api"
)

// Failed is the error of a program that has not ended by itself with the status 0; nil
// where it has.
func Failed(exit Exit) error {
	how := ""
	kind := api.KindTool
	switch {
	case exit.Status == 0:
		return nil
	case exit.Signal != "":
		how = fmt.Sprintf("the executor was killed by SIG%s", exit.Signal)
	case exit.Status < 0:
		kind = api.KindInfrastructure
		how = "the exit status of the executor is not known: it was killed together with the shell that ran it, or the gateway's disk was full when it ended"
	default:
		how = fmt.Sprintf("the executor exited with status %d", exit.Status)
	}
	if words := strings.TrimSpace(string(exit.Stderr)); words != "" {
		how += ": " + lastLines(words)
	}
	return &api.Error{Kind: kind, Message: how}
}

// Fault is an error of the agent.
func Fault(format string, args ...any) error {
	return &api.Error{Kind: api.KindTool, Message: fmt.Sprintf(format, args...)}
}

// lastLines is the end of what a program said, as far as it fits an error.
func lastLines(words string) string {
	const most = 2 << 10
	if len(words) > most {
		words = words[len(words)-most:]
		if i := strings.IndexByte(words, '\n'); i >= 0 {
			words = words[i+1:]
		}
	}
	return strings.ToValidUTF8(words, "\uFFFD")
}

// Fit checks a result against the schema that the agent has for it, if any. A text that
// is JSON is data there.
func Fit(schema json.RawMessage, r api.RunResult) (api.RunResult, error) {
	if len(schema) == 0 {
		return r, nil
	}
	if len(r.Data) == 0 {
		text := []byte(strings.TrimSpace(r.Text))
		if !json.Valid(text) {
			return r, Fault("the result is no JSON, and the agent has a schema for it")
		}
		r.Data, r.Text = text, ""
	}
	var s jsonschema.Schema
	if err := json.Unmarshal(schema, &s); err != nil {
		return r, fmt.Errorf("the agent's schema of the result: %w", err)
	}
	resolved, err := s.Resolve(nil)
	if err != nil {
		return r, fmt.Errorf("the agent's schema of the result: %w", err)
	}
	var value any
	if err := json.Unmarshal(r.Data, &value); err != nil {
		return r, Fault("the result is no JSON: %v", err)
	}
	if err := resolved.Validate(value); err != nil {
		return r, Fault("the result does not fit the agent's schema: %v", err)
	}
	return r, nil
}

// ResultOf is the result that a JSON value stands for: a string is text, an object with
// result_text or result_data is both, anything else is data.
func ResultOf(raw json.RawMessage) api.RunResult {
	raw = bytes.TrimSpace(raw)
	var text string
	var both struct {
		Text *string         `json:"result_text"`
		Data json.RawMessage `json:"result_data"`
	}
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return api.RunResult{}
	case raw[0] == '"' && json.Unmarshal(raw, &text) == nil:
		return api.RunResult{Text: text}
	case raw[0] == '{' && json.Unmarshal(raw, &both) == nil && (both.Text != nil || len(both.Data) > 0):
		r := api.RunResult{}
		if both.Text != nil {
			r.Text = *both.Text
		}
		if string(both.Data) != "null" {
			r.Data = both.Data
		}
		return r
	}
	return api.RunResult{Data: bytes.Clone(raw)}
}
