package model_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
	"github.com/tine-mcp/tine/internal/testkit"
)

// An answers is a client whose requests are all answered with the same bytes. It keeps
// what it was sent.
type answers struct {
	kind string // the Content-Type; by default that of a stream
	body func() io.Reader
	sent []*http.Request
	with [][]byte
}

func says(body string) *answers {
	return &answers{body: func() io.Reader { return strings.NewReader(body) }}
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	a.sent, a.with = append(a.sent, r), append(a.with, body)
	header := http.Header{"Content-Type": {"text/event-stream"}}
	if a.kind != "" {
		header.Set("Content-Type", a.kind)
	}
	return &http.Response{StatusCode: 200, Header: header, Request: r, Body: io.NopCloser(a.body())}, err
}

// open opens a model whose endpoint answers so.
func (a *answers) open(t testing.TB, name string) model.Model {
	return open(t, nil, name, model.Options{Client: &http.Client{Transport: a}, Retries: -1, BaseURL: "http://model.test", KeyEnv: "OPENAI_API_KEY"})
}

// event is an event of Anthropic's format, whose name is the type in its data.
func event(data string) string {
	var e struct{ Type string }
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		panic(err)
	}
	return "event: " + e.Type + "\ndata: " + data + "\n\n"
}

// message is the stream of a message with the events of its blocks.
func message(blocks ...string) string {
	all := event(`{"type":"message_start","message":{"id":"msg_1","model":"claude-x","content":[],"stop_reason":null,"usage":{"input_tokens":10,"output_tokens":1}}}`)
	for _, b := range blocks {
		all += event(b)
	}
	return all + event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":5}}`) + event(`{"type":"message_stop"}`)
}

// sameJSON compares values as JSON, with numbers as they are written.
func sameJSON(t testing.TB, what string, got []byte, want string) {
	t.Helper()
	read := func(raw []byte) (v any) {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%s: %v in %s", what, err, raw)
		}
		return v
	}
	if !reflect.DeepEqual(read(got), read([]byte(want))) {
		t.Errorf("%s: got %s\nwant %s", what, got, want)
	}
}

// everyBlock has blocks with deltas of every kind, and what is not known: types of blocks,
// fields of them, and a delta.
var everyBlock = message(
	`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":"","new":{"b":[12345678901234567890],"a":null}}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Hm <x"}}`,
	`{"type":"ping"}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"> \u2028é"}}`,
	`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQB/w=="}}`,
	`{"type":"content_block_stop","index":0}`,
	`{"type":"content_block_start","index":1,"content_block":{"type":"redacted_thinking","data":"AAAA"}}`,
	`{"type":"content_block_stop","index":1}`,
	`{"type":"content_block_start","index":2,"content_block":{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{}}}`,
	`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"query\":"}}`,
	`{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"tine\"}"}}`,
	`{"type":"content_block_stop","index":2}`,
	`{"type":"content_block_start","index":3,"content_block":{"type":"web_search_tool_result","tool_use_id":"srv_1","content":[{"type":"web_search_result","encrypted_content":"Eo"}]}}`,
	`{"type":"content_block_stop","index":3}`,
	`{"type":"content_block_start","index":4,"content_block":{"type":"text","text":"A ","citations":null,"odd":1.50}}`,
	`{"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":"fork"}}`,
	`{"type":"content_block_delta","index":4,"delta":{"type":"citations_delta","citation":{"type":"web_search_result_location","cited_text":"x","new":1}}}`,
	`{"type":"content_block_delta","index":4,"delta":{"type":"text_delta","text":"."}}`,
	`{"type":"content_block_delta","index":4,"delta":{"type":"citations_delta","citation":{"type":"new_location"}}}`,
	`{"type":"content_block_stop","index":4}`,
	`{"type":"content_block_start","index":5,"content_block":{"type":"new_block","text":{"b":1,"a":2},"flag":true}}`,
	`{"type":"content_block_delta","index":5,"delta":{"type":"new_delta","text":"?"}}`,
	`{"type":"content_block_stop","index":5}`,
	`{"type":"content_block_start","index":6,"content_block":{"type":"tool_use","id":"a","name":"add","input":{},"caller":{"type":"direct"}}}`,
	`{"type":"content_block_delta","index":6,"delta":{"type":"input_json_delta","partial_json":""}}`,
	// The blocks may be open at once.
	`{"type":"content_block_start","index":7,"content_block":{"type":"tool_use","id":"b","name":"stop","input":{}}}`,
	`{"type":"content_block_stop","index":7}`,
	`{"type":"content_block_delta","index":6,"delta":{"type":"input_json_delta","partial_json":"{\"z\":12345678901234"}}`,
	`{"type":"content_block_delta","index":6,"delta":{"type":"input_json_delta","partial_json":"567890,\"a\":1}"}}`,
	`{"type":"content_block_stop","index":6}`,
	`{"type":"new_event","index":"odd"}`,
)

const everyBlockBack = `[
	{"type":"thinking","thinking":"Hm <x> \u2028é","signature":"EqQB/w==","new":{"b":[12345678901234567890],"a":null}},
	{"type":"redacted_thinking","data":"AAAA"},
	{"type":"server_tool_use","id":"srv_1","name":"web_search","input":{"query":"tine"}},
	{"type":"web_search_tool_result","tool_use_id":"srv_1","content":[{"type":"web_search_result","encrypted_content":"Eo"}]},
	{"type":"text","text":"A fork.","citations":[{"type":"web_search_result_location","cited_text":"x","new":1},{"type":"new_location"}],"odd":1.50},
	{"type":"new_block","text":{"b":1,"a":2},"flag":true},
	{"type":"tool_use","id":"a","name":"add","input":{"z":12345678901234567890,"a":1},"caller":{"type":"direct"}},
	{"type":"tool_use","id":"b","name":"stop","input":{}}]`

// Whatever a message has goes back as it came, however its stream is written and cut into
// pieces.
func TestEveryBlockGoesBack(t *testing.T) {
	for name, body := range map[string]func() io.Reader{
		"at once":      func() io.Reader { return strings.NewReader(everyBlock) },
		"byte by byte": func() io.Reader { return iotest.OneByteReader(strings.NewReader(everyBlock)) },
		"with its end": func() io.Reader { return iotest.DataErrReader(strings.NewReader(everyBlock)) },
		"CRLF": func() io.Reader {
			return iotest.HalfReader(strings.NewReader(strings.ReplaceAll(everyBlock, "\n", "\r\n")))
		},
		"comments": func() io.Reader {
			return strings.NewReader(": hello\n\n" + strings.ReplaceAll(everyBlock, "event: ", ": still here\nid: 7\nevent: "))
		},
		"data in many lines": func() io.Reader {
			return strings.NewReader(strings.ReplaceAll(everyBlock, `,"`, ",\ndata: \""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := &answers{body: body}
			m := a.open(t, claudeName)
			var said strings.Builder
			r := question("?")
			reply := ask(t, m, r, func(text string) { said.WriteString(text) })
			calls := []model.Call{{ID: "a", Name: "add", Arguments: json.RawMessage(`{"z":12345678901234567890,"a":1}`)}, {ID: "b", Name: "stop", Arguments: json.RawMessage(`{}`)}}
			if reply.Message.Text != "A fork." || said.String() != "fork." || !reflect.DeepEqual(reply.Message.Calls, calls) || reply.Model != "claude-x" {
				t.Errorf("said %q, reply %+v", said.String(), reply)
			}
			r.Messages = append(r.Messages, reply.Message, model.Message{Role: model.RoleUser, Results: []model.Result{{ID: "a"}, {ID: "b"}}})
			ask(t, m, r, nil)
			var sent struct {
				Messages []struct{ Content json.RawMessage }
			}
			if err := json.Unmarshal(a.with[1], &sent); err != nil {
				t.Fatal(err)
			}
			sameJSON(t, "the message that goes back", sent.Messages[1].Content, everyBlockBack)
			if !bytes.Contains(a.with[1], []byte(`"input":{"z":12345678901234567890,"a":1}`)) {
				t.Errorf("the arguments have changed: %s", a.with[1])
			}
		})
	}
}

// One event may be as large as the whole reply.
func TestLargeEvents(t *testing.T) {
	long := strings.Repeat("lorem é ", 5<<20/9)
	quoted, _ := json.Marshal(long)
	arguments, _ := json.Marshal(`{"text":` + string(quoted) + `}`)
	for name, body := range map[string]string{
		claudeName: message(
			`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`,
			`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":`+string(quoted)+`}}`,
			`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"add","input":{}}}`,
			`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":`+string(arguments)+`}}`),
		gptName: `data: {"choices":[{"delta":{"content":` + string(quoted) + `}}]}` + "\n\n" +
			`data: {"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"add","arguments":` + string(arguments) + `}}]},"finish_reason":"stop"}]}` + "\n\n",
	} {
		reply := ask(t, says(body).open(t, name), question("?"), func(string) {})
		if reply.Message.Text != long || len(reply.Message.Calls) != 1 || len(reply.Message.Calls[0].Arguments) < len(long) {
			t.Errorf("%s: %d bytes of text, %d calls", name, len(reply.Message.Text), len(reply.Message.Calls))
		}
	}
}

// Both the first event and a last one report what was used. What the last one leaves out
// stands in the first.
func TestUsageInTwoEvents(t *testing.T) {
	for _, tt := range []struct {
		last string
		want model.Usage
	}{
		{`{"output_tokens":50}`, model.Usage{InputTokens: 10, OutputTokens: 50, CacheRead: 20, CacheWrite: 30}},
		{`{"input_tokens":11,"output_tokens":50,"cache_read_input_tokens":0,"cache_creation_input_tokens":31}`, model.Usage{InputTokens: 11, OutputTokens: 50, CacheWrite: 31}},
		{`{"input_tokens":null,"output_tokens":50,"cache_read_input_tokens":null}`, model.Usage{InputTokens: 10, OutputTokens: 50, CacheRead: 20, CacheWrite: 30}},
		{`{"input_tokens":"none","output_tokens":50.0,"cache_read_input_tokens":-7}`, model.Usage{InputTokens: 10, OutputTokens: 50, CacheRead: 20, CacheWrite: 30}},
		{`{}`, model.Usage{InputTokens: 10, OutputTokens: 1, CacheRead: 20, CacheWrite: 30}},
		{`null`, model.Usage{InputTokens: 10, OutputTokens: 1, CacheRead: 20, CacheWrite: 30}},
	} {
		body := event(`{"type":"message_start","message":{"model":"m","usage":{"input_tokens":10,"output_tokens":1,"cache_read_input_tokens":20,"cache_creation_input_tokens":30,"service_tier":"standard"}}}`) +
			event(`{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":`+tt.last+`}`) + event(`{"type":"message_stop"}`)
		u := ask(t, says(body).open(t, claudeName), question("?"), nil).Usage
		if tt.want.Calls, tt.want.Cost = 1, u.Cost; u != tt.want {
			t.Errorf("%s: usage %+v, want %+v", tt.last, u, tt.want)
		}
	}
}

// Nothing is read after the end of a message, and an endpoint that keeps the connection
// open does not hold up the reply.
func TestWhatFollowsTheEnd(t *testing.T) {
	const chunk = `data: {"choices":[{"delta":{"content":"Ah"},"finish_reason":"stop"}]}` + "\n\n"
	text := message(`{"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Ah"}}`)
	for _, tt := range []struct {
		name, model, body string
		then              error
		want              bool
	}{
		{"message_stop", claudeName, text, errors.New("read on"), true},
		{"DONE", gptName, chunk + "data: [DONE]\n\n", errors.New("read on"), true},
		{"an end without DONE", gptName, chunk, io.EOF, true},
		{"DONE without a line's end", gptName, chunk + "data: [DONE]", io.EOF, true},
		{"a connection that breaks before DONE", gptName, chunk, io.ErrUnexpectedEOF, false},
		{"an end without message_stop", claudeName, strings.TrimSuffix(text, event(`{"type":"message_stop"}`)), io.EOF, false},
		{"an end in message_stop", claudeName, strings.TrimSuffix(text, "\n\n"), io.EOF, false},
		{"an end in an event", gptName, strings.TrimSuffix(chunk, "\n\n"), io.EOF, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := &answers{body: func() io.Reader { return io.MultiReader(strings.NewReader(tt.body), iotest.ErrReader(tt.then)) }}
			reply, err := a.open(t, tt.model).Ask(t.Context(), question("?"), func(string) {})
			if tt.want {
				if err != nil || reply.Message.Text != "Ah" || reply.Stop != model.StopEnd {
					t.Errorf("reply %+v, error %v", reply, err)
				}
				return
			}
			e := asAPI(t, err)
			if e.Kind != api.KindInfrastructure || !e.Retryable {
				t.Errorf("error %+v", e)
			}
			testkit.Has(t, "error", e.Message, "broke off")
		})
	}
}

// What is no stream is not asked for again. A stream may have any type.
func TestTypeOfAStream(t *testing.T) {
	for _, name := range []string{claudeName, gptName} {
		a := says("<html>data: none</html>")
		a.kind = "text/html; charset=utf-8"
		e := failed(t, a.open(t, name), question("?"), func(string) {})
		if e.Kind != api.KindInfrastructure || e.Retryable {
			t.Errorf("%s: error %+v", name, e)
		}
		testkit.Has(t, "error", e.Message, "something else than a reply", "base_url")
		a = says("data: {\"choices\":[{\"finish_reason\":\"stop\"}]}\n\n" + message())
		a.kind = "text/plain"
		ask(t, a.open(t, name), question("?"), func(string) {})
	}
}

func TestErrorEvents(t *testing.T) {
	for _, tt := range []struct {
		name, body string
		kind       api.Kind
		status     int
	}{
		{claudeName, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"why\"},\"request_id\":\"req_1\"}\n\n", api.KindInfrastructure, 529},
		{claudeName, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\",\"message\":\"why\"}}\n\n", api.KindInfrastructure, 500},
		{claudeName, "event: error\ndata: {\"error\":\"why\"}\n\n", api.KindInfrastructure, 500},
		{claudeName, "event: error\ndata: why not\n\n", api.KindInfrastructure, 500},
		{gptName, "data: {\"error\":{\"code\":429,\"message\":\"why\"}}\n\n", api.KindRefused, 429},
		{gptName, "data: {\"error\":{\"code\":400,\"message\":\"why\"}}\n\n", api.KindInvalid, 400},
		{gptName, "data: {\"error\":{\"code\":\"invalid_prompt\",\"message\":\"why\"},\"choices\":[]}\n\n", api.KindInvalid, 400},
		{gptName, "event: error\ndata: {\"message\":\"why\"}\n\n", api.KindInfrastructure, 500},
		{gptName, "data: {\"error\":\"why\"}\n\n", api.KindInfrastructure, 500},
	} {
		e := failed(t, says(tt.body).open(t, tt.name), question("?"), func(string) {})
		if e.Kind != tt.kind || e.Status != tt.status || !strings.Contains(e.Message, "why") && !strings.Contains(tt.body, "why not") {
			t.Errorf("%s: %+v", tt.body, e)
		}
	}
	reply := ask(t, says("data: {\"error\":null,\"choices\":[{\"delta\":{\"content\":\"Ah\"},\"finish_reason\":\"stop\"}]}\n\n").open(t, gptName), question("?"), func(string) {})
	if reply.Message.Text != "Ah" {
		t.Errorf("reply %+v", reply)
	}
}

func TestMessagesThatAreNone(t *testing.T) {
	for _, block := range []string{
		`{"type":"content_block_start","index":0}`,
		`{"type":"content_block_start","index":0,"content_block":null}`,
		`{"type":"content_block_start","index":0,"content_block":[]}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"text"}}`,
		`{"type":"content_block_start","index":"first","content_block":{"type":"text"}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Ah"}}`,
		`{"type":"content_block_stop","index":-1}`,
		`{"type":"content_block_stop","index":12345678901234567890}`,
		`{"type":"message_start","message":{"content":["Ah"]}}`,
	} {
		e := failed(t, says(message(block)).open(t, claudeName), question("?"), nil)
		if e.Kind != api.KindInfrastructure || e.Retryable {
			t.Errorf("%s: %+v", block, e)
		}
	}
}

// A call that broke off is no call without arguments, also if the end of its block is
// missing.
func TestCallWithoutItsEnd(t *testing.T) {
	reply := ask(t, says(message(
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"Hm","signature":"s"}}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"drop","input":{}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"table\":"}}`,
	)).open(t, claudeName), question("?"), nil)
	if len(reply.Message.Calls) != 0 || reply.Message.Raw != nil {
		t.Errorf("reply %+v", reply)
	}
}

// Compatible endpoints are not exact about types.
func TestValuesOfOtherTypes(t *testing.T) {
	const call = `{"index":"0","id":17,"type":"function","function":{"name":"add","arguments":{"z":12345678901234567890,"a":1}},"extra_content":null}`
	const rest = `"finish_reason":"tool_calls","logprobs":[]}],"usage":{"prompt_tokens":"30","completion_tokens":5.0,"prompt_tokens_details":[]}}`
	for _, streamed := range []bool{false, true} {
		a := says(`{"model":null,"choices":[{"message":{"content":12,"refusal":null,"tool_calls":[` + call + `]},` + rest)
		a.kind = "application/json; charset=utf-8"
		var delta func(string)
		if streamed {
			a, delta = says(`data: {"id":7,"choices":[{"delta":{"content":12,"tool_calls":[`+call+`]},`+rest+"\n\n"), func(string) {}
		}
		reply := ask(t, a.open(t, gptName), question("?"), delta)
		want := []model.Call{{ID: "17", Name: "add", Arguments: json.RawMessage(`{"z":12345678901234567890,"a":1}`)}}
		if reply.Message.Text != "12" || !reflect.DeepEqual(reply.Message.Calls, want) || reply.Message.Raw != nil || reply.Usage.InputTokens != 30 || reply.Usage.OutputTokens != 5 {
			t.Errorf("streamed %v: reply %+v", streamed, reply)
		}
	}
}

func TestWholeRepliesThatAreNone(t *testing.T) {
	for body, cut := range map[string]bool{
		``: true, `{"choices":[{"message":{"content":"A`: true,
		`"Ah"`: false, `[]`: false, `{"choices":[1]}`: false, `{"choices":{}}`: false, `{"choices":[{"message":"Ah"}]}`: false,
	} {
		a := says(body)
		a.kind = "application/json"
		e := failed(t, a.open(t, gptName), question("?"), nil)
		if e.Kind != api.KindInfrastructure || e.Retryable != cut || strings.Contains(e.Message, "broke off") != cut {
			t.Errorf("%s: %+v", body, e)
		}
	}
}

// The bodies were recorded from the providers' own clients.
func TestRequestsAsAWhole(t *testing.T) {
	half := 0.5
	r := model.Request{System: "Be <brief>.", MaxTokens: 77, Temperature: &half, Stop: []string{"END"},
		Tools: []model.Tool{{Name: "stop"}, {Name: "add", Description: "Adds.", Schema: json.RawMessage(`{"type":"object","properties":{"z":{"maximum":12345678901234567890},"a":{}}}`)}},
		Messages: []model.Message{{Role: model.RoleUser, Text: "Add & stop."},
			{Role: model.RoleAssistant, Text: "Adding.", Calls: []model.Call{{ID: "a", Name: "add", Arguments: json.RawMessage(`{"z":1}`)}, {ID: "b", Name: "stop"}}},
			{Role: model.RoleUser, Text: "Now?", Results: []model.Result{{ID: "a", Text: "2"}, {ID: "b", IsError: true}}}}}
	const (
		tools    = `{"type":"object","properties":{"z":{"maximum":12345678901234567890},"a":{}}}`
		messages = `{"max_tokens":77,"messages":[
			{"content":[{"text":"Add & stop.","type":"text"}],"role":"user"},
			{"content":[{"text":"Adding.","type":"text"},{"id":"a","input":{"z":1},"name":"add","type":"tool_use"},{"id":"b","input":{},"name":"stop","type":"tool_use"}],"role":"assistant"},
			{"content":[{"tool_use_id":"a","is_error":false,"content":[{"text":"2","type":"text"}],"type":"tool_result"},{"tool_use_id":"b","is_error":true,"type":"tool_result"},
				{"text":"Now?","cache_control":{"type":"ephemeral"},"type":"text"}],"role":"user"}],
			"model":"claude-sonnet-4-5","temperature":0.5,"stop_sequences":["END"],"system":[{"text":"Be <brief>.","cache_control":{"type":"ephemeral"},"type":"text"}],
			"tools":[{"input_schema":{"type":"object"},"name":"stop"},{"input_schema":` + tools + `,"name":"add","description":"Adds.","cache_control":{"type":"ephemeral"}}],"stream":true}`
		chat = `{"messages":[{"content":"Be <brief>.","role":"system"},{"content":"Add & stop.","role":"user"},
			{"content":"Adding.","tool_calls":[{"id":"a","function":{"arguments":"{\"z\":1}","name":"add"},"type":"function"},{"id":"b","function":{"arguments":"{}","name":"stop"},"type":"function"}],"role":"assistant"},
			{"content":"2","tool_call_id":"a","role":"tool"},{"content":"Error: ","tool_call_id":"b","role":"tool"},{"content":"Now?","role":"user"}],
			"model":"gpt-4.1","max_tokens":77,"temperature":0.5,"stop":["END"],
			"tools":[{"function":{"name":"stop"},"type":"function"},{"function":{"description":"Adds.","name":"add","parameters":` + tools + `},"type":"function"}]%s}`
	)
	for _, tt := range []struct {
		name, want string
		streamed   bool
		header     http.Header
	}{
		{claudeName, messages, false, http.Header{"Anthropic-Version": {"2023-06-01"}, "X-Api-Key": {testKey}}},
		{claudeName, messages, true, http.Header{"Anthropic-Version": {"2023-06-01"}, "X-Api-Key": {testKey}}},
		{gptName, fmt.Sprintf(chat, ""), false, http.Header{"Authorization": {"Bearer " + testKey}}},
		{gptName, fmt.Sprintf(chat, `,"stream_options":{"include_usage":true},"stream":true`), true, http.Header{"Authorization": {"Bearer " + testKey}}},
	} {
		a := says("")
		var delta func(string)
		if tt.streamed {
			delta = func(string) {}
		}
		failed(t, a.open(t, tt.name), r, delta)
		sameJSON(t, tt.name, a.with[0], tt.want)
		tt.header.Set("Content-Type", "application/json")
		tt.header.Set("Accept", "application/json")
		tt.header.Set("User-Agent", "tine")
		if sent := a.sent[0]; sent.Method != http.MethodPost || sent.URL.RawQuery != "" || sent.ContentLength != int64(len(a.with[0])) || !reflect.DeepEqual(sent.Header, tt.header) {
			t.Errorf("%s: %s %s with %v and %d bytes", tt.name, sent.Method, sent.URL, sent.Header, sent.ContentLength)
		}
	}
}
