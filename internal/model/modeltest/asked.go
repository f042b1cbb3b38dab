package modeltest

import (
	"encoding/json"
	"slices"
	"strings"
)

// Asked is a request in Anthropic's format, as far as scripts look at it.
type Asked struct {
	System  string   // the system prompt
	Tools   []string // the names of those that are offered, sorted
	Said    []string // the texts of the user
	Turns   int      // how many messages the model has sent in the conversation
	Results []string // what the tools that it called have answered, as text
}

// Asked reads a request. One in another format has nothing of it.
func (r Request) Asked() (a Asked) {
	var body struct {
		System   json.RawMessage
		Tools    []struct{ Name string }
		Messages []struct {
			Role    string
			Content json.RawMessage
		}
	}
	if json.Unmarshal(r.Body, &body) != nil {
		return a
	}
	a.System = strings.Join(textsOf(body.System, "text"), "\n")
	for _, tool := range body.Tools {
		a.Tools = append(a.Tools, tool.Name)
	}
	slices.Sort(a.Tools)
	for _, m := range body.Messages {
		if m.Role == "assistant" {
			a.Turns++
			continue
		}
		a.Said = append(a.Said, textsOf(m.Content, "text")...)
		a.Results = append(a.Results, textsOf(m.Content, "tool_result")...)
	}
	return a
}

// textsOf are the texts of the blocks of a type. A text alone is one block.
func textsOf(content json.RawMessage, kind string) (all []string) {
	var text string
	if json.Unmarshal(content, &text) == nil {
		if kind == "text" {
			return []string{text}
		}
		return nil
	}
	var blocks []struct {
		Type, Text string
		Content    json.RawMessage
	}
	_ = json.Unmarshal(content, &blocks) // something else has no texts
	for _, b := range blocks {
		switch {
		case b.Type != kind:
		case kind == "text":
			all = append(all, b.Text)
		default:
			all = append(all, strings.Join(textsOf(b.Content, "text"), "\n"))
		}
	}
	return all
}
