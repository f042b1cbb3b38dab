package model

import (
	"bytes"
	"encoding/json"
)

type (
	claudeRequest struct {
		Model         string        `json:"model"`
		MaxTokens     int           `json:"max_tokens"`
		System        []claudeSaid  `json:"system,omitempty"`
		Messages      []claudeTurn  `json:"messages"`
		Tools         []*claudeTool `json:"tools,omitempty"`
		Temperature   *float64      `json:"temperature,omitempty"`
		StopSequences []string      `json:"stop_sequences,omitzero"`
		Stream        bool          `json:"stream"`
	}
	claudeTool struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Schema      json.RawMessage `json:"input_schema"`
		Cache       *claudeCache    `json:"cache_control,omitempty"`
	}
	claudeTurn struct {
		Role    string `json:"role"`
		Content []any  `json:"content"` // blocks, or JSON that the model sent
	}
	claudeSaid struct {
		Type  string       `json:"type"`
		Text  string       `json:"text"`
		Cache *claudeCache `json:"cache_control,omitempty"`
	}
	claudeCall struct {
		Type  string          `json:"type"`
		ID    string          `json:"id"`
		Name  string          `json:"name"`
		Input json.RawMessage `json:"input"`
	}
	claudeResult struct {
		Type    string       `json:"type"`
		ID      string       `json:"tool_use_id"`
		Content []claudeSaid `json:"content,omitempty"`
		IsError bool         `json:"is_error"`
		Cache   *claudeCache `json:"cache_control,omitempty"`
	}
	claudeCache struct {
		Type string `json:"type"`
	}
)

// cached marks the end of what the prompt cache keeps.
var cached = &claudeCache{"ephemeral"}

// messageParams makes the request of an attempt.
//
// Its stable beginning is marked for the prompt cache: the tools, the system prompt,
// and in a conversation that goes on the last message, since the next request repeats
// all up to there. A single question is not marked, as writing to the cache costs more
// than reading the question twice.
func messageParams(model string, a *attempt) *claudeRequest {
	p := &claudeRequest{Model: model, MaxTokens: a.maxTokens, Temperature: a.Temperature, StopSequences: a.Stop, Stream: true}
	if a.System != "" {
		p.System = []claudeSaid{{"text", a.System, cached}}
	}
	for _, t := range a.Tools {
		schema := t.Schema
		if len(schema) == 0 {
			schema = json.RawMessage(`{"type":"object"}`)
		}
		p.Tools = append(p.Tools, &claudeTool{Name: t.Name, Description: t.Description, Schema: schema})
	}
	if n := len(p.Tools); n > 0 {
		p.Tools[n-1].Cache = cached
	}
	for i := range a.Messages {
		if m := claudeParam(model, &a.Messages[i]); len(m.Content) > 0 {
			p.Messages = append(p.Messages, m)
		}
	}
	if len(a.Tools) > 0 || len(a.Messages) > 1 {
		markLast(p.Messages[len(p.Messages)-1].Content)
	}
	return p
}

// markLast marks the last block of a message of the user.
func markLast(blocks []any) {
	switch last := blocks[len(blocks)-1].(type) {
	case *claudeSaid:
		last.Cache = cached
	case *claudeResult:
		last.Cache = cached
	}
}

func claudeParam(model string, m *Message) claudeTurn {
	if m.Role == RoleUser {
		turn := claudeTurn{Role: "user"}
		for _, r := range m.Results {
			result := &claudeResult{Type: "tool_result", ID: r.ID, IsError: r.IsError}
			if r.Text != "" { // the API refuses an empty text
				result.Content = []claudeSaid{{Type: "text", Text: r.Text}}
			}
			turn.Content = append(turn.Content, result)
		}
		if !blank(m.Text) {
			turn.Content = append(turn.Content, &claudeSaid{Type: "text", Text: m.Text})
		}
		return turn
	}
	turn := claudeTurn{Role: "assistant", Content: rawBlocks(model, m)}
	if turn.Content == nil {
		if !blank(m.Text) {
			turn.Content = append(turn.Content, &claudeSaid{Type: "text", Text: m.Text})
		}
		for _, c := range m.Calls {
			turn.Content = append(turn.Content, &claudeCall{"tool_use", c.ID, c.Name, claudeInput(c.Arguments)})
		}
	}
	return turn
}

// claudeInput makes an object of arguments that are none, as the API takes nothing
// else.
func claudeInput(arguments json.RawMessage) json.RawMessage {
	switch {
	case len(arguments) == 0:
		return json.RawMessage("{}")
	case isObject(arguments):
		return arguments
	}
	return json.RawMessage(`{"not_an_object":` + string(arguments) + `}`)
}

// A rawMessage is a message of the assistant as it came from the API.
type rawMessage struct {
	Model   string            `json:"model"`
	Content []json.RawMessage `json:"content"`
}

// rawBlocks are the blocks of a message as the model sent them, or nil if they are of
// another model, or the message has been changed since.
func rawBlocks(model string, m *Message) []any {
	var raw rawMessage
	if len(m.Raw) == 0 || json.Unmarshal(m.Raw, &raw) != nil || raw.Model != model {
		return nil
	}
	var (
		text   string
		calls  []Call
		blocks []any
	)
	for _, r := range raw.Content {
		var b struct {
			Type, Text, ID, Name looseText
			Input                json.RawMessage
		}
		if json.Unmarshal(r, &b) != nil {
			return nil
		}
		switch b.Type {
		case "text":
			if b.Text == "" {
				continue // the API sends such blocks, and refuses them
			}
			text += string(b.Text)
		case "tool_use":
			calls = append(calls, Call{string(b.ID), string(b.Name), b.Input})
		}
		blocks = append(blocks, r)
	}
	if text != m.Text || !sameCalls(calls, m.Calls) {
		return nil
	}
	return blocks
}

func sameCalls(a, b []Call) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].ID != b[i].ID || a[i].Name != b[i].Name || !bytes.Equal(compact(a[i].Arguments), compact(b[i].Arguments)) {
			return false
		}
	}
	return true
}

func compact(raw json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, raw) != nil {
		return raw
	}
	return b.Bytes()
}
