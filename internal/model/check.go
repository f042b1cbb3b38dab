package model

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/tine-mcp/tine/api"
)

// check finds what every provider would refuse, before anything is sent.
func check(model string, r *Request) error {
	bad := func(format string, args ...any) error {
		return &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf("model %q: ", model) + fmt.Sprintf(format, args...)}
	}
	if len(r.Messages) == 0 {
		return bad("the request has no messages; add one of the user")
	}
	if r.MaxTokens < 0 {
		return bad("max tokens is %d; leave it out for the default", r.MaxTokens)
	}
	open := map[string]bool{} // calls that wait for their results
	for i := range r.Messages {
		m := &r.Messages[i]
		switch {
		case m.Role == RoleUser && len(m.Calls) > 0:
			return bad("message %d is of the user and has tool calls; only the assistant calls tools", i+1)
		case m.Role == RoleAssistant && len(m.Results) > 0:
			return bad("message %d is of the assistant and has tool results; results are of the user", i+1)
		case m.Role == RoleAssistant && i == 0:
			return bad("the first message is of the assistant; begin with one of the user")
		case m.Role != RoleUser && m.Role != RoleAssistant:
			return bad("message %d has the role %q; it must be user or assistant", i+1, m.Role)
		case m.Role == RoleUser && blank(m.Text) && len(m.Results) == 0:
			return bad("message %d is empty", i+1) // of the assistant it is left out, as models send such
		}
		for _, res := range m.Results {
			if !open[res.ID] {
				return bad("message %d has a result for the call %q, which the message before does not make", i+1, res.ID)
			}
			delete(open, res.ID)
		}
		for id := range open {
			return bad("message %d leaves the call %q without a result", i+1, id)
		}
		for _, c := range m.Calls {
			if c.ID == "" || c.Name == "" || len(c.Arguments) > 0 && !json.Valid(c.Arguments) {
				return bad("message %d has a tool call without an id, a name or JSON arguments", i+1)
			}
			open[c.ID] = true
		}
	}
	if r.Messages[len(r.Messages)-1].Role != RoleUser {
		return bad("the last message is of the assistant; end with one of the user")
	}
	seen := map[string]bool{}
	for _, t := range r.Tools {
		switch {
		case t.Name == "" || seen[t.Name]:
			return bad("the tool %q is there twice or has no name", t.Name)
		case len(t.Schema) > 0 && !isObject(t.Schema):
			return bad("the schema of the tool %q is no JSON object", t.Name)
		}
		seen[t.Name] = true
	}
	return nil
}

// blank reports whether a text is nothing that a provider takes.
func blank(text string) bool { return strings.TrimSpace(text) == "" }
