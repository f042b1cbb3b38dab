package model_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/modeltest"
)

// A claudeRequest is what the tests look at of a request in Anthropic's format.
type claudeRequest struct {
	Model         string
	MaxTokens     int `json:"max_tokens"`
	Stream        bool
	Temperature   *float64
	StopSequences []string `json:"stop_sequences"`
	System        []claudeBlock
	Tools         []struct {
		Name, Description string
		InputSchema       json.RawMessage `json:"input_schema"`
		CacheControl      *struct{}       `json:"cache_control"`
	}
	Messages []struct {
		Role    string
		Content []claudeBlock
	}
}

type claudeBlock struct {
	Type, Text, ID, Name string
	Thinking, Signature  string
	Input                json.RawMessage
	ToolUseID            string `json:"tool_use_id"`
	Content              []claudeBlock
	IsError              bool      `json:"is_error"`
	CacheControl         *struct{} `json:"cache_control"`
}

func TestAnthropicQuestion(t *testing.T) {
	s := modeltest.New(t, modeltest.Reply{Text: "Hello, world", Usage: modeltest.Usage{Input: 1000, Output: 200, CacheRead: 4000, CacheWrite: 3000}})
	m := open(t, s, claudeName, model.Options{})
	if m.Name() != claudeName {
		t.Errorf("name %q", m.Name())
	}
	r := question("Greet.")
	r.System, r.MaxTokens, r.Stop, r.Temperature = "Be brief.", 77, []string{"END"}, new(0.5)
	var pieces []string
	reply := ask(t, m, r, func(text string) { pieces = append(pieces, text) })
	if len(pieces) < 2 || strings.Join(pieces, "") != "Hello, world" {
		t.Errorf("pieces %q", pieces)
	}
	if reply.Message.Text != "Hello, world" || reply.Message.Role != model.RoleAssistant || reply.Stop != model.StopEnd || reply.Model != "claude-sonnet-4-5" {
		t.Errorf("reply %+v", reply)
	}
	want := model.Usage{InputTokens: 1000, OutputTokens: 200, CacheRead: 4000, CacheWrite: 3000, Calls: 1, Cost: 0.003 + 0.003 + 0.0012 + 0.01125}
	if math.Abs(reply.Usage.Cost-want.Cost) > 1e-9 {
		t.Errorf("cost %v, want %v", reply.Usage.Cost, want.Cost)
	}
	if want.Cost = reply.Usage.Cost; reply.Usage != want {
		t.Errorf("usage %+v, want %+v", reply.Usage, want)
	}

	sent := s.Requests()[0]
	if sent.Key() != testKey || sent.Path != "/v1/messages" {
		t.Errorf("sent to %s with the key %q", sent.Path, sent.Key())
	}
	var got claudeRequest
	sent.Decode(t, &got)
	if got.Model != "claude-sonnet-4-5" || got.MaxTokens != 77 || !got.Stream || *got.Temperature != 0.5 || !reflect.DeepEqual(got.StopSequences, r.Stop) {
		t.Errorf("request %s", sent.Body)
	}
	if len(got.System) != 1 || got.System[0].Text != "Be brief." || got.System[0].CacheControl == nil {
		t.Errorf("system prompt %s", sent.Body)
	}
	if got.Messages[0].Content[0].CacheControl != nil {
		t.Error("a single question is written to the cache")
	}
}

func TestAnthropicTools(t *testing.T) {
	const schema = `{"type":"object","properties":{"n":{"type":"integer","maximum":12345678901234567890}},"$defs":{"x":true}}`
	s := modeltest.New(t,
		modeltest.Reply{Text: "Adding.", Calls: []modeltest.Call{{ID: "a", Name: "add", Arguments: `{"n":1}`}, {ID: "b", Name: "stop", Arguments: ""}}},
		modeltest.Reply{Text: "Done."})
	m := open(t, s, claudeName, model.Options{})
	r := question("Add.")
	r.Tools = []model.Tool{{Name: "stop"}, {Name: "add", Description: "Adds.", Schema: json.RawMessage(schema)}}
	reply := ask(t, m, r, nil)
	if reply.Stop != model.StopTools || reply.Message.Text != "Adding." {
		t.Errorf("reply %+v", reply)
	}
	want := []model.Call{{ID: "a", Name: "add", Arguments: json.RawMessage(`{"n":1}`)}, {ID: "b", Name: "stop", Arguments: json.RawMessage(`{}`)}}
	if !reflect.DeepEqual(reply.Message.Calls, want) {
		t.Errorf("calls %s", reply.Message.Calls)
	}
	r.Messages = append(r.Messages, reply.Message, model.Message{Role: model.RoleUser, Results: []model.Result{{ID: "a", Text: "2"}, {ID: "b", IsError: true}}})
	if reply = ask(t, m, r, nil); reply.Message.Text != "Done." || reply.Stop != model.StopEnd {
		t.Errorf("reply %+v", reply)
	}

	var got claudeRequest
	sent := s.Requests()[1]
	sent.Decode(t, &got)
	if len(got.Tools) != 2 || got.Tools[0].CacheControl != nil || got.Tools[1].CacheControl == nil || got.Tools[1].Description != "Adds." {
		t.Errorf("tools %s", sent.Body)
	}
	if string(got.Tools[1].InputSchema) != schema || string(got.Tools[0].InputSchema) != `{"type":"object"}` {
		t.Errorf("schemas %s, %s", got.Tools[0].InputSchema, got.Tools[1].InputSchema)
	}
	said, results := got.Messages[1].Content, got.Messages[2].Content
	if said[0].Text != "Adding." || said[1].ID != "a" || string(said[1].Input) != `{"n":1}` || string(said[2].Input) != `{}` {
		t.Errorf("message of the assistant %s", sent.Body)
	}
	if results[0].ToolUseID != "a" || results[0].IsError || results[0].Content[0].Text != "2" || !results[1].IsError || len(results[1].Content) != 0 {
		t.Errorf("results %s", sent.Body)
	}
	if results[0].CacheControl != nil || results[1].CacheControl == nil {
		t.Errorf("the conversation is not marked for the cache at its end: %s", sent.Body)
	}
}

// Blocks that only the provider understands go back unchanged, but not to another
// model, and not if the message was changed.
func TestThinkingGoesBack(t *testing.T) {
	for _, tt := range []struct {
		name   string
		model  string
		change func(m *model.Message)
		want   bool
	}{
		{"unchanged", claudeName, func(*model.Message) {}, true},
		{"arguments written otherwise", claudeName, func(m *model.Message) { m.Calls[0].Arguments = json.RawMessage(`{ "n": 1 }`) }, true},
		{"another text", claudeName, func(m *model.Message) { m.Text = "Well." }, false},
		{"another call", claudeName, func(m *model.Message) { m.Calls[0].Name = "sub" }, false},
		{"no JSON", claudeName, func(m *model.Message) { m.Raw = json.RawMessage(`x`) }, false},
		{"another model", "anthropic/claude-opus-5-5", func(*model.Message) {}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := modeltest.New(t,
				modeltest.Reply{Thinking: "Hm <x>.", Text: "Sum: ", Calls: []modeltest.Call{{ID: "a", Name: "add", Arguments: `{"n":1}`}}},
				modeltest.Reply{Text: "1"})
			r := question("Add.")
			r.Tools = []model.Tool{{Name: "add"}}
			reply := ask(t, open(t, s, claudeName, model.Options{}), r, nil)
			if reply.Message.Text != "Sum: " {
				t.Errorf("thoughts are in the text %q", reply.Message.Text)
			}
			tt.change(&reply.Message)
			r.Messages = append(r.Messages, reply.Message, model.Message{Role: model.RoleUser, Results: []model.Result{{ID: "a", Text: "1"}}})
			ask(t, open(t, s, tt.model, model.Options{BaseURL: s.URL}), r, nil)
			var got claudeRequest
			sent := s.Requests()[1]
			sent.Decode(t, &got)
			blocks := got.Messages[1].Content
			thinks := blocks[0].Type == "thinking" && blocks[0].Thinking == "Hm <x>." && blocks[0].Signature == "signed"
			if thinks != tt.want || len(blocks) != map[bool]int{true: 3, false: 2}[tt.want] {
				t.Errorf("sent back %s", sent.Body)
			}
		})
	}
}

// A call that the limit of tokens cut off must not look like one without arguments.
func TestCallThatWasCutOff(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t, modeltest.Reply{Stop: "length", Calls: []modeltest.Call{
			{ID: "a", Name: "add", Arguments: `{"n":1}`}, {ID: "b", Name: "add", Arguments: `{"n":`}}})
		r := question("Add.")
		r.Tools = []model.Tool{{Name: "add"}}
		reply := ask(t, open(t, s, name, model.Options{}), r, delta)
		if reply.Stop != model.StopLength || len(reply.Message.Calls) != 1 || reply.Message.Calls[0].ID != "a" {
			t.Errorf("reply %+v", reply)
		}
	})
}

func TestReasonsToStop(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		for _, stop := range []string{model.StopEnd, model.StopLength, model.StopRefusal} {
			s := modeltest.New(t, modeltest.Reply{Text: "Ah", Stop: stop})
			if reply := ask(t, open(t, s, name, model.Options{}), question("?"), delta); reply.Stop != stop || reply.Message.Text != "Ah" {
				t.Errorf("%s: reply %+v", stop, reply)
			}
		}
	})
}

func TestDefaultMaxTokens(t *testing.T) {
	s := modeltest.New(t, modeltest.Reply{Text: "Ah", Check: func(r modeltest.Request) error {
		var got claudeRequest
		if err := json.Unmarshal(r.Body, &got); err != nil || got.MaxTokens != model.DefaultMaxTokens {
			return fmt.Errorf("max_tokens %d, %v", got.MaxTokens, err)
		}
		return nil
	}})
	ask(t, open(t, s, claudeName, model.Options{}), question("?"), nil)
}

// Models answer with nothing at times. The conversation goes on without it.
func TestEmptyReply(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t, modeltest.Reply{}, modeltest.Reply{Text: "Ah"})
		m := open(t, s, name, model.Options{})
		r := question("?")
		reply := ask(t, m, r, delta)
		if reply.Message.Text != "" || reply.Stop != model.StopEnd {
			t.Errorf("reply %+v", reply)
		}
		r.Messages = append(r.Messages, reply.Message, model.Message{Role: model.RoleUser, Text: "Well?"})
		ask(t, m, r, delta)
		var got struct{ Messages []struct{ Role string } }
		s.Requests()[1].Decode(t, &got)
		if len(got.Messages) != 2 || got.Messages[1].Role != "user" {
			t.Errorf("messages %v", got.Messages)
		}
	})
}
