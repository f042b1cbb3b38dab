package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// TestWrongAnswersAreFound puts servers that answer wrongly under the load
// generator. Each must be found out by the very call it failed.
func TestWrongAnswersAreFound(t *testing.T) {
	answer := func(id, text string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%q}]}}`, id, text)
	}
	event := func(message string) string { return "event: message\ndata: " + message + "\n\n" }
	const note = `{"jsonrpc":"2.0","method":"notifications/message","params":{}}`
	for _, tc := range []struct {
		name   string
		reply  func(id, text string) (kind, body string)
		status int
		want   string // part of the failure; empty for a right answer
	}{
		{name: "right as JSON", reply: func(id, text string) (string, string) {
			return "application/json; charset=utf-8", answer(id, text)
		}},
		{name: "right as a stream", reply: func(id, text string) (string, string) {
			return "text/event-stream", ": hi\n\nid: 1\ndata:\n\n" + event(note) + event(answer(id, text))
		}},
		{name: "right in two data lines", reply: func(id, text string) (string, string) {
			a, b, _ := strings.Cut(answer(id, text), `"result":`)
			return "text/event-stream", "data: " + a + "\r\ndata: \"result\":" + b + "\r\n\r\n"
		}},
		{name: "the text of another call", want: "another text", reply: func(id, text string) (string, string) {
			return "application/json", answer(id, "1"+text[1:])
		}},
		{name: "text cut short", want: "another text", reply: func(id, text string) (string, string) {
			return "application/json", answer(id, text[:len(text)-1])
		}},
		{name: "no text", want: "another text", reply: func(id, text string) (string, string) {
			return "application/json", answer(id, "")
		}},
		{name: "the id of another call", want: "answered with id", reply: func(id, text string) (string, string) {
			return "application/json", answer(id+"0", text)
		}},
		{name: "the id as a string", want: "answered with id", reply: func(id, text string) (string, string) {
			return "application/json", answer(`"`+id+`"`, text)
		}},
		{name: "an error", want: "failed", reply: func(id, _ string) (string, string) {
			return "application/json", `{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32603,"message":"no"}}`
		}},
		{name: "a tool's error", want: "not answered with one text", reply: func(id, text string) (string, string) {
			return "application/json", strings.Replace(answer(id, text), `"content"`, `"isError":true,"content"`, 1)
		}},
		{name: "not JSON", want: "not JSON", reply: func(string, string) (string, string) {
			return "application/json", "<html>"
		}},
		{name: "another content type", want: "content type", reply: func(id, text string) (string, string) {
			return "text/html", answer(id, text)
		}},
		{name: "a status", status: 503, want: "503", reply: func(id, text string) (string, string) {
			return "application/json", answer(id, text)
		}},
		{name: "a stream without the answer", want: "no answer", reply: func(string, string) (string, string) {
			return "text/event-stream", event(note)
		}},
		{name: "a stream with a torn answer", want: "no answer", reply: func(id, text string) (string, string) {
			return "text/event-stream", "data: " + answer(id, text)
		}},
		{name: "answered twice", want: "twice", reply: func(id, text string) (string, string) {
			return "text/event-stream", event(answer(id, text)) + event(answer(id, text))
		}},
		{name: "two calls in one stream", want: "answered with id", reply: func(id, text string) (string, string) {
			return "text/event-stream", event(answer(id, text)) + event(answer(id+"1", text))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var call struct {
					ID     json.RawMessage
					Params struct{ Arguments echoArgs }
				}
				body, err := io.ReadAll(r.Body)
				if err == nil {
					err = json.Unmarshal(body, &call)
				}
				if err != nil {
					t.Error(err)
				}
				kind, reply := tc.reply(string(call.ID), call.Params.Arguments.Text)
				w.Header().Set("Content-Type", kind)
				if tc.status != 0 {
					w.WriteHeader(tc.status)
				}
				_, _ = io.WriteString(w, reply)
			}))
			defer srv.Close()
			c, err := dialHTTP(t.Context(), statelessEra, srv.URL, toolName, "", 64)
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			var ids atomic.Uint64
			got := drive(t.Context(), []caller{c}, time.Minute, 3, &ids)
			if tc.want == "" {
				if got.errors != 0 || len(got.latencies) != 3 {
					t.Fatalf("%d right, %d failed: %v", len(got.latencies), got.errors, got.first)
				}
				return
			}
			if got.errors != 3 || len(got.latencies) != 0 || !strings.Contains(got.first.Error(), tc.want) {
				t.Fatalf("%d passed, %d failed: %v", len(got.latencies), got.errors, got.first)
			}
		})
	}
}

// TestFailuresVoidTheRun holds that one wrong answer among right ones reaches
// the report.
func TestFailuresVoidTheRun(t *testing.T) {
	calls := 0
	r := &row{
		Group:    legacyEra,
		Name:     rowTine,
		middle:   func() int { return 0 },
		upstream: func() int { return 0 },
		open: func(context.Context, int) ([]caller, error) {
			return []caller{callFunc(func(id uint64) error {
				if calls++; calls == 30 {
					return errNoAnswer
				}
				return nil
			})}, nil
		},
	}
	s := settings{Duration: time.Minute, MaxCalls: 50, Rounds: 1, Callers: []int{1}}
	cells, err := rounds(t.Context(), s, []*row{r}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	rep := summarize(s, cells)
	if !rep.failed() || rep.Lines[0].Errors != 1 {
		t.Errorf("the failure is not in the report: %+v", rep.Lines)
	}
}

// callFunc is a caller that needs no server.
type callFunc func(id uint64) error

func (f callFunc) call(_ context.Context, id uint64) error { return f(id) }
func (callFunc) close()                                    {}

func TestScript(t *testing.T) {
	for _, era := range []string{legacyEra, statelessEra} {
		s := newScript(era, "a__b", 33)
		var call struct {
			ID     uint64
			Params struct {
				Name      string
				Meta      map[string]any `json:"_meta"`
				Arguments echoArgs
			}
		}
		if err := json.Unmarshal(s.call(7), &call); err != nil {
			t.Fatal(err)
		}
		if call.ID != 7 || call.Params.Name != "a__b" || len(call.Params.Arguments.Text) != 33 {
			t.Errorf("%s: %+v", era, call)
		}
		if (era == statelessEra) != (len(call.Params.Meta) == 3) {
			t.Errorf("%s: _meta is %v", era, call.Params.Meta)
		}
	}
}
