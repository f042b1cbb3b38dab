package model

import (
	"encoding/json"
	"strings"
)

type (
	chatRequest struct {
		Model               string       `json:"model"`
		Messages            []chatTurn   `json:"messages"`
		Tools               []chatTool   `json:"tools,omitempty"`
		Temperature         *float64     `json:"temperature,omitempty"`
		Stop                []string     `json:"stop,omitempty"`
		MaxTokens           int          `json:"max_tokens,omitempty"`
		MaxCompletionTokens int          `json:"max_completion_tokens,omitempty"`
		Stream              bool         `json:"stream,omitempty"`
		StreamOptions       *chatOptions `json:"stream_options,omitempty"`
	}
	chatOptions struct {
		IncludeUsage bool `json:"include_usage"`
	}
	chatTurn struct {
		Role       string         `json:"role"`
		Content    *string        `json:"content,omitempty"`
		ToolCallID string         `json:"tool_call_id,omitempty"`
		ToolCalls  []chatToolCall `json:"tool_calls,omitempty"`
	}
	// A chatToolCall goes back to the model that made it.
	chatToolCall struct {
		ID       string          `json:"id"`
		Type     string          `json:"type"`
		Function chatCalled      `json:"function"`
		Extra    json.RawMessage `json:"extra_content,omitempty"`
	}
	chatCalled struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	}
	chatTool struct {
		Type     string       `json:"type"`
		Function chatFunction `json:"function"`
	}
	chatFunction struct {
		Name        string          `json:"name"`
		Description string          `json:"description,omitempty"`
		Parameters  json.RawMessage `json:"parameters,omitempty"`
	}
)

// chatParams makes the request of an attempt. The endpoints cache prompts by
// themselves, so nothing is marked.
func (c *chatAPI) chatParams(a *attempt) *chatRequest {
	p := &chatRequest{Model: c.model, Temperature: a.Temperature, Stop: a.Stop}
	if a.System != "" {
		p.Messages = append(p.Messages, chatTurn{Role: "system", Content: &a.System})
	}
	for i := range a.Messages {
		p.Messages = append(p.Messages, chatParam(c.model, &a.Messages[i])...)
	}
	for _, t := range a.Tools {
		p.Tools = append(p.Tools, chatTool{"function", chatFunction{t.Name, t.Description, t.Schema}})
	}
	if n := a.maxTokens; n > 0 {
		// OpenAI's newer models refuse the older name, and most compatible endpoints know
		// only that.
		if host := c.base.Hostname(); host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") {
			p.MaxCompletionTokens = n
		} else {
			p.MaxTokens = n
		}
	}
	if a.delta != nil {
		p.Stream, p.StreamOptions = true, &chatOptions{IncludeUsage: true}
	}
	return p
}

// chatParam makes one message, or one of each result of a tool.
func chatParam(model string, m *Message) []chatTurn {
	var all []chatTurn
	if m.Role == RoleUser {
		for _, r := range m.Results {
			text := r.Text
			if r.IsError {
				text = "Error: " + text // there is no field for it
			}
			all = append(all, chatTurn{Role: "tool", Content: &text, ToolCallID: r.ID})
		}
		if !blank(m.Text) {
			all = append(all, chatTurn{Role: "user", Content: &m.Text})
		}
		return all
	}
	if blank(m.Text) && len(m.Calls) == 0 {
		return nil
	}
	said := chatTurn{Role: "assistant"}
	if !blank(m.Text) {
		said.Content = &m.Text
	}
	var raw rawChat
	if len(m.Raw) > 0 && (json.Unmarshal(m.Raw, &raw) != nil || raw.Model != model) {
		raw = rawChat{}
	}
	for _, c := range m.Calls {
		said.ToolCalls = append(said.ToolCalls, chatToolCall{c.ID, "function", chatCalled{c.Name, chatArguments(c.Arguments)}, raw.Extra[c.ID]})
	}
	return append(all, said)
}

// A rawChat is what an endpoint wants back with its tool calls, such as signatures of
// thoughts, by the ids of the calls.
type rawChat struct {
	Model string                     `json:"model"`
	Extra map[string]json.RawMessage `json:"extra"`
}

// chatArguments are the arguments as the model wrote them.
func chatArguments(arguments json.RawMessage) string {
	var text string
	if json.Unmarshal(arguments, &text) == nil {
		return text
	}
	if len(arguments) == 0 {
		return "{}"
	}
	return string(arguments)
}
