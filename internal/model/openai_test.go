package model_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/model/modeltest"
)

// A chatRequest is what the tests look at of a request in OpenAI's format.
type chatRequest struct {
	Model               string
	Stream              bool
	Temperature         *float64
	MaxTokens           int `json:"max_tokens"`
	MaxCompletionTokens int `json:"max_completion_tokens"`
	Stop                []string
	Tools               []struct {
		Type     string
		Function struct {
			Name, Description string
			Parameters        json.RawMessage
		}
	}
	Messages []struct {
		Role       string
		Content    *string
		ToolCallID string `json:"tool_call_id"`
		ToolCalls  []struct {
			ID, Type string
			Function struct{ Name, Arguments string }
			Extra    json.RawMessage `json:"extra_content"`
		} `json:"tool_calls"`
	}
}

func TestOpenAIQuestion(t *testing.T) {
	for _, streamed := range []bool{false, true} {
		s := modeltest.New(t, modeltest.Reply{Text: "Hello, world", Usage: modeltest.Usage{Input: 1000, Output: 200, CacheRead: 4000}})
		r := question("Greet.")
		r.System, r.MaxTokens, r.Stop, r.Temperature = "Be brief.", 77, []string{"END"}, new(0.5)
		var pieces []string
		var delta func(string)
		if streamed {
			delta = func(text string) { pieces = append(pieces, text) }
		}
		reply := ask(t, open(t, s, gptName, model.Options{}), r, delta)
		if streamed && (len(pieces) < 2 || strings.Join(pieces, "") != "Hello, world") {
			t.Errorf("pieces %q", pieces)
		}
		if reply.Message.Text != "Hello, world" || reply.Stop != model.StopEnd || reply.Model != "gpt-4.1" {
			t.Errorf("reply %+v", reply)
		}
		const cost = 0.002 + 0.0016 + 0.002
		want := model.Usage{InputTokens: 1000, OutputTokens: 200, CacheRead: 4000, Calls: 1, Cost: reply.Usage.Cost}
		if reply.Usage != want || math.Abs(want.Cost-cost) > 1e-9 {
			t.Errorf("usage %+v, want %+v for %v", reply.Usage, want, cost)
		}
		sent := s.Requests()[0]
		if sent.Key() != testKey || sent.Path != "/v1/chat/completions" {
			t.Errorf("sent to %s with the key %q", sent.Path, sent.Key())
		}
		var got chatRequest
		sent.Decode(t, &got)
		if got.Model != "gpt-4.1" || got.MaxTokens != 77 || got.MaxCompletionTokens != 0 || got.Stream != streamed || *got.Temperature != 0.5 || !reflect.DeepEqual(got.Stop, r.Stop) {
			t.Errorf("request %s", sent.Body)
		}
		if len(got.Messages) != 2 || got.Messages[0].Role != "system" || *got.Messages[0].Content != "Be brief." || got.Messages[1].Role != "user" {
			t.Errorf("messages %s", sent.Body)
		}
	}
}

func TestOpenAITools(t *testing.T) {
	const schema = `{"type":"object","properties":{"n":{"type":"integer","maximum":12345678901234567890}}}`
	for _, streamed := range []bool{false, true} {
		var delta func(string)
		if streamed {
			delta = func(string) {}
		}
		s := modeltest.New(t,
			modeltest.Reply{Text: "Adding.", Calls: []modeltest.Call{
				{ID: "a", Name: "add", Arguments: `{"n":1}`, Extra: `{"google":{"thought_signature":"sig"}}`},
				{ID: "b", Name: "add", Arguments: `n is 2`},
				{ID: "c", Name: "stop", Arguments: ""},
				{Name: "stop", Arguments: "{}"}}},
			modeltest.Reply{Text: "Done."})
		m := open(t, s, gptName, model.Options{})
		r := question("Add.")
		r.Tools = []model.Tool{{Name: "stop"}, {Name: "add", Description: "Adds.", Schema: json.RawMessage(schema)}}
		reply := ask(t, m, r, delta)
		want := []model.Call{
			{ID: "a", Name: "add", Arguments: json.RawMessage(`{"n":1}`)},
			{ID: "b", Name: "add", Arguments: json.RawMessage(`"n is 2"`)},
			{ID: "c", Name: "stop", Arguments: json.RawMessage(`{}`)},
			{ID: "call_4", Name: "stop", Arguments: json.RawMessage(`{}`)}}
		if reply.Stop != model.StopTools || reply.Message.Text != "Adding." || !reflect.DeepEqual(reply.Message.Calls, want) {
			t.Errorf("reply %+v", reply)
		}
		r.Messages = append(r.Messages, reply.Message, model.Message{Role: model.RoleUser, Text: "Now?", Results: []model.Result{
			{ID: "a", Text: "2"}, {ID: "b", Text: "no number", IsError: true}, {ID: "c"}, {ID: "call_4"}}})
		ask(t, m, r, delta)
		var got chatRequest
		sent := s.Requests()[1]
		sent.Decode(t, &got)
		if len(got.Tools) != 2 || got.Tools[1].Type != "function" || got.Tools[1].Function.Description != "Adds." || string(got.Tools[1].Function.Parameters) != schema {
			t.Errorf("tools %s", sent.Body)
		}
		if len(got.Messages) != 7 {
			t.Fatalf("messages %s", sent.Body)
		}
		calls := got.Messages[1].ToolCalls
		if len(calls) != 4 || *got.Messages[1].Content != "Adding." || calls[0].Type != "function" || calls[0].Function.Arguments != `{"n":1}` || calls[1].Function.Arguments != "n is 2" {
			t.Errorf("message of the assistant %s", sent.Body)
		}
		if string(calls[0].Extra) != `{"google":{"thought_signature":"sig"}}` || calls[1].Extra != nil {
			t.Errorf("signatures %s", sent.Body)
		}
		for i, want := range []string{"2", "Error: no number", "", "", "Now?"} {
			m := got.Messages[2+i]
			role := "tool"
			if i == 4 {
				role = "user"
			}
			if m.Role != role || *m.Content != want || role == "tool" && m.ToolCallID != calls[i].ID {
				t.Errorf("message %d is %+v", 2+i, m)
			}
		}
	}
}

// Calls need ids of their own, and names.
func TestCallsWithoutANameOrAnID(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t,
			modeltest.Reply{Calls: []modeltest.Call{{Name: "", ID: "a", Arguments: "{}"}}},
			modeltest.Reply{Calls: []modeltest.Call{{Name: "add", ID: "call_2", Arguments: "{}"}, {Name: "add", Arguments: "{}"}}})
		reply := ask(t, open(t, s, name, model.Options{}), question("?"), delta)
		if c := reply.Message.Calls; len(c) != 2 || c[0].ID != "call_2" || c[1].ID != "call_3" {
			t.Errorf("calls %+v", c)
		}
	})
}

// Some endpoints number all calls of a stream zero, and give every chunk its own id.
func TestStreamOfACompatibleEndpoint(t *testing.T) {
	s := modeltest.New(t, modeltest.Reply{
		Header: map[string]string{"Content-Type": "text/event-stream; charset=utf-8"},
		Body: `data: {"id":"1","model":"m","choices":[{"index":0,"delta":{"content":"Ok"}}]}

: a comment

data: {"id":"2","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"x","function":{"name":"add","arguments":"{\"n\":"}}]}}]}

data: {"id":"3","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}}]}

data: {"id":"4","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"y","function":{"name":"add","arguments":"{}"}}]},"finish_reason":"stop"}]}

`})
	reply := ask(t, open(t, s, "some-model", model.Options{}), question("?"), func(string) {})
	want := []model.Call{{ID: "x", Name: "add", Arguments: json.RawMessage(`{"n":1}`)}, {ID: "y", Name: "add", Arguments: json.RawMessage(`{}`)}}
	if reply.Message.Text != "Ok" || reply.Stop != model.StopTools || !reflect.DeepEqual(reply.Message.Calls, want) {
		t.Errorf("reply %+v", reply)
	}
}

// An endpoint that does not report what it used gets an estimate, and the cost is
// said to be unknown.
func TestUsageThatIsNotReported(t *testing.T) {
	each(t, func(t *testing.T, name string, delta func(string)) {
		s := modeltest.New(t, modeltest.Reply{Text: "Ah", Usage: modeltest.Usage{None: true}})
		u := ask(t, open(t, s, name, model.Options{}), question(strings.Repeat("word ", 600)), delta).Usage
		if u.InputTokens < 500 || u.OutputTokens < 1 || !u.CostUnknown {
			t.Errorf("usage %+v", u)
		}
	})
}

func TestModelWithoutAPrice(t *testing.T) {
	s := modeltest.New(t, modeltest.Reply{Text: "Ah", Usage: modeltest.Usage{Input: 10, Output: 2}},
		modeltest.Reply{Text: "Ah", Usage: modeltest.Usage{Input: 10, Output: 2}})
	if u := ask(t, open(t, s, "qwen/qwen3", model.Options{}), question("?"), nil).Usage; !u.CostUnknown || u.Cost != 0 {
		t.Errorf("usage %+v", u)
	}
	priced := open(t, s, "qwen/qwen3", model.Options{Prices: model.Prices{"qwen/qwen3": {Input: 1e5, Output: 1e6}}})
	if u := ask(t, priced, question("?"), nil).Usage; u.CostUnknown || u.Cost != 3 {
		t.Errorf("usage %+v", u)
	}
}
