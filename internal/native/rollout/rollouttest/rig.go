// Package rollouttest is one suite for the tools that RewardKit's clients call. It
// passes against a fake that acts on sessions, and against the gateway.
package rollouttest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// A Rig is what the suite runs against. No other caller uses its sessions.
type Rig struct {
	// Dial makes a connection of its own. It is closed with the test.
	Dial func(t *testing.T, as As) Caller
	// Own are two backends that each session has for itself, and that a session may
	// have several of; Shared is one that all share.
	Own    [2]string
	Shared string
	// Broken are two that never start.
	Broken [2]string
	// Other is how the backends are not run, as orchestration_preference.
	Other string
	// Put is a call that has a backend remember a word, and Get one whose result
	// says what it remembers.
	Put func(backend, word string) (tool, args string)
	Get func(backend string) (tool, args string)
}

// As is the client that connects.
type As struct {
	Name    string // ada or bob
	Token   string // of a session, in the place of a name
	Session string // in the Mcp-Session-Id header of every call; empty for none
}

// A Caller calls a tool with arguments, as JSON.
type Caller func(t *testing.T, tool, args string) Answer

// An Answer is a tool's result.
type Answer struct {
	IsError    bool
	Text       string          // of the first content item
	Structured json.RawMessage // nil for none
	Error      *api.Error      // ours; nil for none
}

// wants makes a call that must work, and decodes its answer.
func wants[T any](t *testing.T, call Caller, tool, format string, args ...any) (out T) {
	t.Helper()
	in := fmt.Sprintf(format, args...)
	a := call(t, tool, in)
	if a.IsError || a.Error != nil {
		t.Fatalf("%s %s: %s %+v", tool, in, a.Text, a.Error)
	}
	same(t, tool, a)
	if err := json.Unmarshal([]byte(a.Text), &out); err != nil {
		t.Fatalf("%s %s: %v in %s", tool, in, err, a.Text)
	}
	return out
}

// same checks that both forms of an answer say the same.
func same(t *testing.T, tool string, a Answer) {
	t.Helper()
	var text, structured any
	if err := json.Unmarshal([]byte(a.Text), &text); err != nil {
		t.Errorf("%s: the first content item is no JSON: %s", tool, a.Text)
	}
	if err := json.Unmarshal(a.Structured, &structured); err != nil || !reflect.DeepEqual(text, structured) {
		t.Errorf("%s: the text is %s, the content %s", tool, a.Text, a.Structured)
	}
}

// fails makes a call that must fail, as one of ours and of a kind.
func fails(t *testing.T, call Caller, kind api.Kind, say, tool, format string, args ...any) *api.Error {
	t.Helper()
	in := fmt.Sprintf(format, args...)
	a := call(t, tool, in)
	if !a.IsError || a.Error == nil || a.Error.Kind != kind || !strings.Contains(a.Error.Message, say) || a.Text != a.Error.Message || a.Structured != nil {
		t.Errorf("%s %s: %+v %+v, want %s and %q", tool, in, a, a.Error, kind, say)
		return &api.Error{}
	}
	return a.Error
}

type opened struct {
	Session  string `json:"session_id"`
	RK       string `json:"rk_session_id"`
	Token    string `json:"token"`
	Backends []struct {
		Name      string `json:"backend_name_ref"`
		Instances []struct {
			ID        string         `json:"instance_id"`
			Backend   string         `json:"backend_name_ref"`
			Mode      string         `json:"orchestration_mode"`
			Transport string         `json:"mcp_transport"`
			Details   map[string]any `json:"internal_instance_details"`
		} `json:"instances"`
	} `json:"initialized_backends"`
}

// open opens a session with one backend, so many times.
func open(t *testing.T, call Caller, backend string, count int) opened {
	t.Helper()
	return wants[opened](t, call, "initialize_session", `{"backends":[{"backend_name_ref":%q,"num_instances":%d}]}`, backend, count)
}

// put has a backend of a session remember a word; where says which it is, in
// members of call_backend_tool's arguments.
func (r *Rig) put(t *testing.T, call Caller, backend, word, where string) {
	t.Helper()
	tool, args := r.Put(backend, word)
	a := call(t, "call_backend_tool", fmt.Sprintf(`{"backend_name_ref":%q,"tool_name":%q,"tool_args":%s%s}`, backend, tool, args, where))
	if a.IsError {
		t.Fatalf("put %s at {%s}: %s", word, where, a.Text)
	}
}

// has checks whether a backend remembers a word.
func (r *Rig) has(t *testing.T, call Caller, backend, word, where string, want bool) {
	t.Helper()
	tool, args := r.Get(backend)
	a := call(t, "call_backend_tool", fmt.Sprintf(`{"backend_name_ref":%q,"tool_name":%q,"tool_args":%s%s}`, backend, tool, args, where))
	if a.IsError || strings.Contains(a.Text, word) != want {
		t.Errorf("%s at {%s} says %s (%q must be in it: %v)", backend, where, a.Text, word, want)
	}
	same(t, "call_backend_tool", a)
}

// sessions is how many the caller has open.
func sessions(t *testing.T, call Caller) int {
	t.Helper()
	n := 0
	for _, s := range wants[api.SessionList](t, call, "list_sessions", `{}`).Sessions {
		if s.Kind == api.SessionOpened {
			n++
		}
	}
	return n
}
