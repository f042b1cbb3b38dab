package model

import (
	"encoding/json"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/shared"
)

// chatParams makes the request of an attempt. The endpoints cache prompts by
// themselves, so nothing is marked.
func (c *chatAPI) chatParams(a *attempt) openai.ChatCompletionNewParams {
	p := openai.ChatCompletionNewParams{Model: c.model}
	if a.System != "" {
		p.Messages = append(p.Messages, openai.SystemMessage(a.System))
	}
	for i := range a.Messages {
		p.Messages = append(p.Messages, chatParam(c.model, &a.Messages[i])...)
	}
	for _, t := range a.Tools {
		p.Tools = append(p.Tools, chatTool(t))
	}
	if a.Temperature != nil {
		p.Temperature = openai.Float(*a.Temperature)
	}
	if len(a.Stop) > 0 {
		p.Stop.OfStringArray = a.Stop
	}
	if n := int64(a.maxTokens); n > 0 {
		// OpenAI's newer models refuse the older name, and most compatible endpoints know
		// only that.
		if host := c.base.Hostname(); host == "api.openai.com" || strings.HasSuffix(host, ".openai.azure.com") {
			p.MaxCompletionTokens = openai.Int(n)
		} else {
			p.MaxTokens = openai.Int(n)
		}
	}
	return p
}

// chatParam makes one message, or one of each result of a tool.
func chatParam(model string, m *Message) []openai.ChatCompletionMessageParamUnion {
	var all []openai.ChatCompletionMessageParamUnion
	if m.Role == RoleUser {
		for _, r := range m.Results {
			text := r.Text
			if r.IsError {
				text = "Error: " + text // there is no field for it
			}
			all = append(all, openai.ToolMessage(text, r.ID))
		}
		if !blank(m.Text) {
			all = append(all, openai.UserMessage(m.Text))
		}
		return all
	}
	if blank(m.Text) && len(m.Calls) == 0 {
		return nil
	}
	var said openai.ChatCompletionAssistantMessageParam
	if !blank(m.Text) {
		said.Content.OfString = openai.String(m.Text)
	}
	var raw rawChat
	if len(m.Raw) > 0 && (json.Unmarshal(m.Raw, &raw) != nil || raw.Model != model) {
		raw = rawChat{}
	}
	for _, c := range m.Calls {
		call := &openai.ChatCompletionMessageFunctionToolCallParam{ID: c.ID}
		call.Function.Name, call.Function.Arguments = c.Name, chatArguments(c.Arguments)
		if extra, ok := raw.Extra[c.ID]; ok {
			call.SetExtraFields(map[string]any{"extra_content": extra})
		}
		said.ToolCalls = append(said.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{OfFunction: call})
	}
	return append(all, openai.ChatCompletionMessageParamUnion{OfAssistant: &said})
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

func chatTool(t Tool) openai.ChatCompletionToolUnionParam {
	f := map[string]any{"name": t.Name}
	if t.Description != "" {
		f["description"] = t.Description
	}
	if len(t.Schema) > 0 {
		f["parameters"] = t.Schema
	}
	return openai.ChatCompletionFunctionTool(param.Override[shared.FunctionDefinitionParam](f))
}
