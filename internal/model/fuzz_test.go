package model_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model"
)

// FuzzReply gives both formats an endpoint's bytes. Whatever they are, there is a
// reply or an error of the API, and what comes of it can be sent back.
func FuzzReply(f *testing.F) {
	f.Add(200, "text/event-stream", []byte("event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"))
	f.Add(200, "text/event-stream", []byte("data: {\"choices\":[{\"delta\":{\"content\":\"a\",\"tool_calls\":[{\"index\":-1,\"id\":\"a\",\"function\":{\"name\":\"b\"}}]},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n"))
	f.Add(200, "text/event-stream", []byte(message(
		`{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"s"}}`,
		`{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"a","name":"b","input":{}}}`,
		`{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{}"}}`)))
	f.Add(200, "text/event-stream", []byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":\"0\",\"id\":1,\"function\":{\"name\":\"b\",\"arguments\":{}},\"extra_content\":{\"a\":1}}]},\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":-1}}\n\n"))
	f.Add(200, "text/event-stream", []byte("event: error\ndata: {\"error\":{\"type\":\"x\"}}\n\n"))
	f.Add(200, "application/json", []byte(`{"choices":[{"message":{"content":"a","tool_calls":[{"id":"x","function":{"name":"n","arguments":"{"}}]}}]}`))
	f.Add(429, "application/json", []byte(`{"error":{"code":17,"message":"slow"}}`))
	f.Add(500, "text/html", []byte(`{"error":"oops"}`))
	f.Fuzz(func(t *testing.T, status int, kind string, body []byte) {
		if status < 200 || status > 599 || len(body) > 1<<16 {
			t.Skip()
		}
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {kind}}, Request: r, Body: io.NopCloser(bytes.NewReader(body))}, nil
		})}
		for _, name := range []string{claudeName, gptName} {
			for _, delta := range []func(string){nil, func(string) {}} {
				m := open(t, nil, name, model.Options{Client: client, Retries: -1, BaseURL: "http://model.test"})
				reply, err := m.Ask(t.Context(), question("?"), delta)
				checkOutcome(t, m, reply, err)
			}
		}
	})
}

// checkOutcome fails the test if a reply can't be sent back, or an error is not one
// of the API.
func checkOutcome(t *testing.T, m model.Model, reply model.Reply, err error) {
	var e *api.Error
	switch {
	case errors.As(err, &e):
		if !strings.HasPrefix(e.Message, "model ") || e.Kind == "" {
			t.Errorf("error %+v", e)
		}
		return
	case err != nil:
		t.Errorf("error %v is none of the API", err)
		return
	}
	answer := model.Message{Role: model.RoleUser, Text: "Go on."}
	for _, c := range reply.Message.Calls {
		answer.Results = append(answer.Results, model.Result{ID: c.ID})
	}
	r := question("?")
	r.Messages = append(r.Messages, reply.Message, answer)
	if _, err := m.Ask(t.Context(), r, nil); errors.As(err, &e) && e.Kind == api.KindInvalid && e.Status == 0 {
		t.Errorf("the reply %+v can't be sent back: %v", reply.Message, e)
	}
}

// FuzzProgram lets the program print anything.
func FuzzProgram(f *testing.F) {
	if _, err := os.Stat("/bin/sh"); err != nil {
		f.Skip("no shell")
	}
	f.Add([]byte(`{"type":"result","subtype":"success","structured_output":{"text":"a","calls":[{"name":"add","arguments":[]}]}}` + "\n"))
	f.Add([]byte(`{"type":"stream_event","event":{"type":"message_delta","delta":{"stop_reason":"max_tokens"}}}`))
	f.Add([]byte(`{"type":"result","is_error":true,"api_error_status":"x"}`))
	f.Fuzz(func(t *testing.T, out []byte) {
		dir := t.TempDir()
		program := filepath.Join(dir, "claude")
		for name, text := range map[string]string{"out": string(out), "claude": "#!/bin/sh\ncat > /dev/null\ncat " + dir + "/out\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		m, err := model.Open("claude-code", model.Options{CLI: program, Retries: -1, Environ: environ("PATH", os.Getenv("PATH"))})
		if err != nil {
			t.Fatal(err)
		}
		r := question("?")
		r.Tools = []model.Tool{{Name: "add"}}
		reply, err := m.Ask(t.Context(), r, nil)
		checkOutcome(t, m, reply, err)
	})
}
