package model

import (
	"bytes"
	"encoding/json"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/packages/param"
)

// messageParams makes the request of an attempt.
//
// Its stable beginning is marked for the prompt cache: the tools, the system prompt,
// and in a conversation that goes on the last message, since the next request repeats
// all up to there. A single question is not marked, as writing to the cache costs more
// than reading the question twice.
func messageParams(model string, a *attempt) anthropic.MessageNewParams {
	p := anthropic.MessageNewParams{
		Model:         anthropic.Model(model),
		MaxTokens:     int64(a.maxTokens),
		StopSequences: a.Stop,
	}
	if a.Temperature != nil {
		p.Temperature = anthropic.Float(*a.Temperature)
	}
	if a.System != "" {
		p.System = []anthropic.TextBlockParam{{Text: a.System, CacheControl: anthropic.NewCacheControlEphemeralParam()}}
	}
	for _, t := range a.Tools {
		p.Tools = append(p.Tools, claudeTool(t))
	}
	if n := len(p.Tools); n > 0 {
		p.Tools[n-1].OfTool.CacheControl = anthropic.NewCacheControlEphemeralParam()
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
func markLast(blocks []anthropic.ContentBlockParamUnion) {
	switch last := &blocks[len(blocks)-1]; {
	case last.OfText != nil:
		last.OfText.CacheControl = anthropic.NewCacheControlEphemeralParam()
	case last.OfToolResult != nil:
		last.OfToolResult.CacheControl = anthropic.NewCacheControlEphemeralParam()
	}
}

func claudeTool(t Tool) anthropic.ToolUnionParam {
	tool := &anthropic.ToolParam{Name: t.Name, InputSchema: anthropic.ToolInputSchemaParam{Type: "object"}}
	if t.Description != "" {
		tool.Description = anthropic.String(t.Description)
	}
	if len(t.Schema) > 0 {
		tool.InputSchema = param.Override[anthropic.ToolInputSchemaParam](t.Schema)
	}
	return anthropic.ToolUnionParam{OfTool: tool}
}

func claudeParam(model string, m *Message) anthropic.MessageParam {
	if m.Role == RoleUser {
		var blocks []anthropic.ContentBlockParamUnion
		for _, r := range m.Results {
			blocks = append(blocks, claudeResult(r))
		}
		if !blank(m.Text) {
			blocks = append(blocks, anthropic.NewTextBlock(m.Text))
		}
		return anthropic.NewUserMessage(blocks...)
	}
	blocks := rawBlocks(model, m)
	if blocks == nil {
		if !blank(m.Text) {
			blocks = append(blocks, anthropic.NewTextBlock(m.Text))
		}
		for _, c := range m.Calls {
			blocks = append(blocks, anthropic.NewToolUseBlock(c.ID, claudeInput(c.Arguments), c.Name))
		}
	}
	return anthropic.NewAssistantMessage(blocks...)
}

// claudeResult leaves out the text of an empty result, which the API refuses.
func claudeResult(r Result) anthropic.ContentBlockParamUnion {
	block := anthropic.NewToolResultBlock(r.ID, r.Text, r.IsError)
	if r.Text == "" {
		block.OfToolResult.Content = nil
	}
	return block
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
func rawBlocks(model string, m *Message) []anthropic.ContentBlockParamUnion {
	var raw rawMessage
	if len(m.Raw) == 0 || json.Unmarshal(m.Raw, &raw) != nil || raw.Model != model {
		return nil
	}
	var (
		text   string
		calls  []Call
		blocks []anthropic.ContentBlockParamUnion
	)
	for _, r := range raw.Content {
		var b struct {
			Type, Text, ID, Name string
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
			text += b.Text
		case "tool_use":
			calls = append(calls, Call{b.ID, b.Name, b.Input})
		}
		blocks = append(blocks, param.Override[anthropic.ContentBlockParamUnion](r))
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
