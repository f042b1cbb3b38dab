package command

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/executor/executortest"
)

// What a program posts is told as what it prints: a return without a call before it stands
// for both, and the last result counts, whichever way it came.
func TestHear(t *testing.T) {
	for _, tt := range []struct {
		name   string
		posted []string
		want   []string // of each event its type and data
		result string
	}{
		{"bind", []string{`{"event_type":"bind","executor_session_id":"c-1"}`}, []string{`state {"executor_session_id":"c-1"}`}, ""},
		{"messages", []string{
			`{"event_type":"message","role":"user","content":"the prompt"}`,
			`{"event_type":"message","role":"assistant","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}`,
		}, []string{`text {"text":"one\ntwo"}`}, ""},
		{"a return alone", []string{`{"event_type":"post_tool","tool_name":"look","tool_input":{"at":1},"tool_output":"blue","error":null}`},
			[]string{`tool {"name":"look","arguments":{"at":1}}`, `tool {"done":true,"text":"blue"}`}, ""},
		{"a call and its return", []string{
			`{"event_type":"pre_tool","tool_name":"look","tool_use_id":"7","tool_input":{}}`,
			`{"event_type":"post_tool","tool_name":"look","tool_use_id":"7","tool_input":{},"tool_output":{"a":1}}`,
		}, []string{`tool {"id":"7","name":"look","arguments":{}}`, `tool {"id":"7","done":true,"text":"{\"a\":1}"}`}, ""},
		{"an error of a tool", []string{`{"event_type":"pre_tool","tool_name":"look"}`, `{"event_type":"post_tool","tool_name":"look","error":"no sky"}`},
			[]string{`tool {"name":"look"}`, `tool {"done":true,"text":"no sky","is_error":true}`}, ""},
		{"results", []string{`{"event_type":"result","result_text":"first"}`, `{"event_type":"result","result_text":"last","result_data":null}`}, nil, "last"},
		{"states, and one that was cut off", []string{`{"event_type":"run_start"}`, `{"event_type":"run_completed"}`, `{"event_type":"mess`}, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			job := executortest.Job(t)
			job.Agent.Result = nil
			r := New(executor.Options{}).Read(job).(executor.Hearer)
			var got []string
			for _, event := range tt.posted {
				for _, e := range r.Hear([]byte(event)) {
					got = append(got, e.Type+" "+string(e.Data))
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("it told %q, want %q", got, tt.want)
			}
			if result, err := r.End(executor.Exit{}); err != nil || result.Text != tt.result {
				t.Errorf("it came to %+v, %v, want %q", result, err, tt.result)
			}
		})
	}
}

func TestMisusedPosts(t *testing.T) {
	for event, want := range map[string]string{
		`{}`:                     "event_type is missing",
		`{"event_type":"dance"}`: `event_type "dance" is none of bind`,
		`{"event_type":"bind"}`:  "executor_session_id is missing",
		`{"event_type":"bind","executor_session_id":"` + strings.Repeat("x", 5000) + `"}`: "may have 4096",
		`{"event_type":"pre_tool"}`: "tool_name is missing",
		`{"event_type":"message","role":"assistant","content":[{"type":"image"}]}`: "content has no text",
		`{"event_type":"message","role":"system","content":"x"}`:                   "neither assistant nor user",
	} {
		_, err := executor.ReadPosted([]byte(event))
		var e *api.Error
		if !errors.As(err, &e) || e.Kind != api.KindInvalid || !strings.Contains(e.Message, want) {
			t.Errorf("%.60s: %v, want %q", event, err, want)
		}
	}
}
