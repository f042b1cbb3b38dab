package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/native/nativetest"
)

func TestTidy(t *testing.T) {
	for _, tt := range []struct {
		name, in, want string
		o              own
	}{
		{"as it is", `{ "content" : [ ] , "isError":false}`, `{ "content" : [ ] , "isError":false}`, callResult},
		{"numbers and fields of the server's own", `{"n":12345678901234567890,"f":1.10,"e":1E400,"x":{"a":null},"content":[{"type":"text","text":"<é>","y":[null]}]}`,
			`{"n":12345678901234567890,"f":1.10,"e":1E400,"x":{"a":null},"content":[{"type":"text","text":"<é>","y":[null]}]}`, callResult},
		{"nulls of the protocol", `{"_meta":null,"content":[{"type":"text","text":"a","annotations":null,"_meta":null},{"type":"image","annotations":{"audience":null,"priority":0.5}}],"structuredContent":null,"isError":false}`,
			`{"content":[{"type":"text","text":"a"},{"type":"image","annotations":{"priority":0.5}}],"isError":false}`, callResult},
		{"an embedded resource", `{"content":[{"type":"resource","resource":{"uri":"a:b","mimeType":null,"text":"t","_meta":null}}]}`,
			`{"content":[{"type":"resource","resource":{"uri":"a:b","text":"t"}}]}`, callResult},
		{"nulls that mean something", `{"structuredContent":{"a":null,"b":[null]},"_meta":{"c":null},"content":[],"isError":null}`,
			`{"structuredContent":{"a":null,"b":[null]},"_meta":{"c":null},"content":[]}`, callResult},
		{"nothing but nulls", `{"a":null}`, `{}`, callResult},
		{"a list of tools", `{"tools":[{"name":"t","title":null,"inputSchema":{"default":null},"outputSchema":null,"annotations":{"title":null}}],"nextCursor":null}`,
			`{"tools":[{"name":"t","inputSchema":{"default":null},"annotations":{}}]}`, listResult},
		{"names that need escaping", `{"a\"\n":1,"b":null}`, `{"a\"\n":1}`, callResult},
		{"content of another kind", `{"content":"x","b":null}`, `{"content":"x"}`, callResult},
	} {
		got, err := tidy([]byte(tt.in), tt.o)
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: %v\n%s, not\n%s", tt.name, err, got, tt.want)
		}
	}
}

// speaking is Sessions whose members say what they are told to.
type speaking struct {
	*fake
	says string
}

func (s *speaking) Call(context.Context, string, string, string, string, json.RawMessage) (json.RawMessage, error) {
	return json.RawMessage(s.says), nil
}

func (s *speaking) Which(context.Context, string, string) (string, error) { return "ses_1", nil }

// forgetful is Sessions that can't remember what a connection opened.
type forgetful struct{ *fake }

func (forgetful) Use(context.Context, string, string) error { return errors.New("disk full") }

// TestNotRemembered checks that no session is left that its caller does not know of.
func TestNotRemembered(t *testing.T) {
	s := forgetful{newFake()}
	s.callers["me"] = &fakeCaller{name: "ada"}
	cs := connect(t, nativetest.Eras()[0], s)
	if e := errorOf(t, call(t, cs, "initialize_session", `{"backends":[{"backend_name_ref":"notes"}]}`)); e.Message != "disk full" {
		t.Errorf("failed with %+v", e)
	}
	for id, left := range s.sessions {
		if left.Closed.IsZero() {
			t.Errorf("session %s is left", id)
		}
	}
	if len(s.sessions) != 1 {
		t.Errorf("there were %d", len(s.sessions))
	}
	// With a key an earlier call may have been answered with it.
	for range 2 {
		errorOf(t, call(t, cs, "initialize_session", `{"backends":[{"backend_name_ref":"notes"}],"idempotency_key":"k"}`))
	}
	open := 0
	for _, left := range s.sessions {
		if left.Closed.IsZero() {
			open++
		}
	}
	if open != 1 || len(s.sessions) != 2 {
		t.Errorf("%d of %d are open", open, len(s.sessions))
	}
}

// TestRelayed checks that a backend's result comes through to the digit, in both
// forms of the answer.
func TestRelayed(t *testing.T) {
	for _, era := range nativetest.Eras() {
		t.Run(era, func(t *testing.T) {
			s := &speaking{fake: newFake()}
			cs := connect(t, era, s)
			// A tool's own error is no error of call_backend_tool.
			for _, tt := range []struct{ says, want string }{
				{`{"content":[],"id":12345678901234567890,"later":{"x":null}}`, `{"content":[],"id":12345678901234567890,"later":{"x":null},"isError":false}`},
				{`{ }`, `{"isError":false}`},
				{`{"content":[], "isError": false}`, `{"content":[], "isError": false}`},
				{`{"content":[{"type":"text","text":"no"}],"isError":true,"_meta":null}`, `{"content":[{"type":"text","text":"no"}],"isError":true}`},
				{`{"resultType":"complete","content":[]}`, `{"resultType":"complete","content":[],"isError":false}`},
			} {
				s.says = tt.says
				res := call(t, cs, "call_backend_tool", `{"backend_name_ref":"notes","tool_name":"x"}`)
				if got := textOf(t, res); got != tt.want || res.IsError || len(res.Meta) > 1 {
					t.Errorf("%s came as %s (%v, %v)", tt.says, got, res.IsError, res.Meta)
				}
			}
			for _, says := range []string{``, `[]`, `null`, `"x"`} {
				s.says = says
				if e := errorOf(t, call(t, cs, "call_backend_tool", `{"backend_name_ref":"notes","tool_name":"x"}`)); !strings.Contains(e.Message, `backend "notes" answered with what is no result`) {
					t.Errorf("%s: %+v", says, e)
				}
			}
		})
	}
}
