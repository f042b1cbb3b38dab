package rollouttest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// Run runs the suite.
func Run(t *testing.T, r *Rig) {
	for name, test := range map[string]func(*testing.T, *Rig){
		"several instances":    testInstances,
		"which session":        testWhich,
		"wrong arguments":      testWrong,
		"another owner's":      testOthers,
		"some backends fail":   testPartial,
		"shared backends":      testShared,
		"the same key":         testKey,
		"tools of an instance": testTools,
	} {
		t.Run(name, func(t *testing.T) { test(t, r) })
	}
}

// testInstances opens a session with three instances, calls each by all of its
// names, and closes it.
func testInstances(t *testing.T, r *Rig) {
	call := r.Dial(t, As{Name: "ada"})
	a, b := r.Own[0], r.Own[1]
	for _, form := range []string{`%s`, `{"args":%s}`} {
		s := wants[opened](t, call, "initialize_session", form,
			fmt.Sprintf(`{"backends":[{"backend_name_ref":%q,"num_instances":2,"template_details":null,"orchestration_preference":null},{"backend_name_ref":%q}]}`, a, b))
		if s.Session == "" || s.RK != s.Session || s.Token == "" || len(s.Backends) != 2 {
			t.Fatalf("opened %+v", s)
		}
		var ids []string
		for i, backend := range s.Backends {
			if backend.Name != r.Own[i] {
				t.Errorf("backend %d is %q", i, backend.Name)
			}
			for _, in := range backend.Instances {
				ids = append(ids, in.ID)
				if in.Backend != backend.Name || in.Mode == "" || in.Transport != "http" && in.Transport != "stdio" || in.Details == nil {
					t.Errorf("an instance: %+v", in)
				}
			}
		}
		if got := strings.Join(ids, " "); got != fmt.Sprintf("%s %s~1 %s", a, a, b) {
			t.Errorf("the instances are %s", got)
		}
		named := fmt.Sprintf(`,"rk_session_id":%q`, s.Session)
		r.put(t, call, a, "first", named)
		r.put(t, call, a, "second", named+fmt.Sprintf(`,"instance_id":"%s~1"`, a))
		r.put(t, call, b, "third", named+`,"instance_id":null`)
		for _, which := range []string{``, `,"instance_id":0`, `,"instance_id":"0"`, fmt.Sprintf(`,"instance_id":%q`, a), fmt.Sprintf(`,"instance_id":"%s~0"`, a)} {
			r.has(t, call, a, "first", named+which, true)
			r.has(t, call, a, "second", named+which, false)
		}
		for _, which := range []string{`,"instance_id":1`, `,"instance_id":"1"`, fmt.Sprintf(`,"instance_id":"%s~1"`, a)} {
			r.has(t, call, a, "first", named+which, false)
			r.has(t, call, a, "second", named+which, true)
		}
		r.has(t, call, b, "third", named, true)
		r.has(t, call, b, "first", named, false)
		fails(t, call, api.KindInvalid, a+"~1", "call_backend_tool", `{"backend_name_ref":%q,"instance_id":2,"tool_name":"x"%s}`, a, named)
		fails(t, call, api.KindInvalid, a, "call_backend_tool", `{"backend_name_ref":%q,"tool_name":"x"%s}`, r.Shared, named)

		for _, status := range []string{"cleaned", "custom_session_data_not_found_or_already_cleaned"} {
			got := wants[map[string]string](t, call, "cleanup_session", form, fmt.Sprintf(`{"rk_session_id":%q}`, s.Session))
			if got["status"] != status || got["rk_session_id"] != s.Session || len(got) != 2 {
				t.Errorf("cleaned up: %v, want %s", got, status)
			}
		}
		fails(t, call, api.KindInvalid, "closed", "call_backend_tool", `{"backend_name_ref":%q,"tool_name":"x"%s}`, a, named)
		fails(t, call, api.KindInvalid, "closed", "ping", `{"session_id":%q}`, s.Session)
	}
	got := wants[map[string]string](t, call, "cleanup_session", `{"session_id":"ses_000000000000"}`)
	if got["status"] != "custom_session_data_not_found_or_already_cleaned" {
		t.Errorf("one that never was: %v", got)
	}
}

// testWhich checks in which order a session is found: by token, argument, header,
// connection.
func testWhich(t *testing.T, r *Rig) {
	call := r.Dial(t, As{Name: "ada"})
	a := r.Own[0]
	fails(t, call, api.KindInvalid, "initialize_session", "call_backend_tool", `{"backend_name_ref":%q,"tool_name":"x"}`, a)
	fails(t, call, api.KindInvalid, "initialize_session", "list_backend_tools", `{"backend_name_ref":%q}`, a)
	fails(t, call, api.KindInvalid, "initialize_session", "cleanup_session", `{}`)
	if got := wants[map[string]string](t, call, "ping", `{}`); got["reply"] != "pong" || !strings.HasPrefix(got["session_id"], "ses_") {
		t.Errorf("a ping of a connection that has opened nothing: %v", got)
	}

	first, second := open(t, call, a, 1), open(t, call, a, 1)
	meant := func(call Caller, args, want string) {
		t.Helper()
		if got := wants[map[string]string](t, call, "ping", `%s`, args); got["reply"] != "pong" || got["session_id"] != want {
			t.Errorf("ping %s: %v, want %s", args, got, want)
		}
	}
	meant(call, `{}`, second.Session) // the last one
	meant(call, fmt.Sprintf(`{"rk_session_id":%q}`, first.Session), first.Session)
	meant(call, fmt.Sprintf(`{"session_id":%q}`, first.Session), first.Session)
	meant(call, fmt.Sprintf(`{"session_id":%q,"rk_session_id":%q}`, first.Session, first.Session), first.Session)
	fails(t, call, api.KindInvalid, "two sessions", "ping", `{"session_id":%q,"rk_session_id":%q}`, first.Session, second.Session)
	r.put(t, call, a, "by-connection", ``)
	r.has(t, call, a, "by-connection", fmt.Sprintf(`,"session_id":%q`, second.Session), true)
	r.has(t, call, a, "by-connection", fmt.Sprintf(`,"session_id":%q`, first.Session), false)

	forks := wants[api.Forks](t, call, "fork_session", `{}`) // our own tools mean it, too
	if forks.Parent != second.Session || len(forks.Sessions) != 1 {
		t.Errorf("forked %+v, want %s", forks, second.Session)
	} else {
		wants[map[string]any](t, call, "close_session", `{"session_id":%q}`, forks.Sessions[0].ID)
	}

	other := r.Dial(t, As{Name: "ada"}) // another connection of the same caller
	fails(t, other, api.KindInvalid, "initialize_session", "cleanup_session", `{}`)
	third := open(t, other, a, 1)
	meant(other, `{}`, third.Session)
	meant(call, `{}`, second.Session)

	header := r.Dial(t, As{Name: "ada", Session: first.Session})
	meant(header, `{}`, first.Session)
	meant(header, fmt.Sprintf(`{"session_id":%q}`, second.Session), second.Session)
	r.put(t, header, a, "by-header", ``)
	r.has(t, call, a, "by-header", fmt.Sprintf(`,"session_id":%q`, first.Session), true)

	token := r.Dial(t, As{Token: second.Token})
	meant(token, `{}`, second.Session)
	r.has(t, token, a, "by-connection", ``, true)
	fails(t, token, api.KindInvalid, first.Session, "call_backend_tool", `{"session_id":%q,"backend_name_ref":%q,"tool_name":"x"}`, first.Session, a)
	fails(t, token, api.KindRefused, second.Session, "initialize_session", `{"backends":[{"backend_name_ref":%q}]}`, a)

	// The one that the connection means can be closed without a name, and stays
	// the one that it means.
	for range 2 {
		if got := wants[map[string]string](t, call, "cleanup_session", `{}`); got["rk_session_id"] != second.Session {
			t.Errorf("cleaned up %v", got)
		}
	}
	fails(t, call, api.KindInvalid, "closed", "call_backend_tool", `{"backend_name_ref":%q,"tool_name":"x"}`, a)
	for call, s := range map[*Caller]opened{&header: first, &other: third} {
		if got := wants[map[string]string](t, *call, "cleanup_session", `{}`); got["rk_session_id"] != s.Session || got["status"] != "cleaned" {
			t.Errorf("cleaned up %v", got)
		}
	}
}

func testWrong(t *testing.T, r *Rig) {
	call := r.Dial(t, As{Name: "ada"})
	a := r.Own[0]
	s := open(t, call, a, 1)
	before := sessions(t, call)
	for _, tt := range []struct{ tool, args, say string }{
		{"initialize_session", `{}`, `backends must name`},
		{"initialize_session", `{"backends":[]}`, `backends must name`},
		{"initialize_session", `{"backends":null}`, `backends must name`},
		{"initialize_session", `{"backends":{}}`, `backends must be a list, got object`},
		{"initialize_session", `{"backends":["x"]}`, `backends[0]: must be an object, got string`},
		{"initialize_session", `{"backends":[{}]}`, `backends[0]: backend_name_ref must name a backend; there are`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"nosuch"}]}`, `backends[0]: there is no backend "nosuch"; there are`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A"},{"backend_name_ref":"A"}]}`, `backends[1]: "A" is named twice`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A~1"}]}`, `there is no backend "A~1"`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A","num_instances":0}]}`, `num_instances must be at least 1`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A","num_instances":-1}]}`, `num_instances must be at least 1`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A","num_instances":1.5}]}`, `num_instances must be a whole number`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A","num_instances":1001}]}`, `1000`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A","num_instanses":2}]}`, `backends[0]: unknown field "num_instanses"; the arguments are backend_name_ref, num_instances`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A","template_details":"nosuch"}]}`, `nosuch`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A","template_details":{"a":1}}]}`, `must be a string`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A","orchestration_preference":"` + r.Other + `"}]}`, `orchestration_preference "` + r.Other + `"`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A","orchestration_preference":"magic"}]}`, `"magic"`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"A"}],"idempotency_key":"a b"}`, `Idempotency-Key must be`},
		{"initialize_session", `{"backends":[{"backend_name_ref":"SHARED","num_instances":2}]}`, `share`},
		{"call_backend_tool", `{"tool_name":"x"}`, `backend_name_ref must name`},
		{"call_backend_tool", `{"backend_name_ref":"A"}`, `tool_name must name a tool`},
		{"call_backend_tool", `{"backend_name_ref":"A","tool_name":"x","tool_args":[]}`, `tool_args must be an object`},
		{"call_backend_tool", `{"backend_name_ref":"A","tool_name":"x","tool_args":"{}"}`, `tool_args must be an object`},
		{"call_backend_tool", `{"backend_name_ref":"A","tool_name":"x","instance_id":1.5}`, `instance_id 1.5 is no instance of backend "A"; session SESSION has A`},
		{"call_backend_tool", `{"backend_name_ref":"A","tool_name":"x","instance_id":-1}`, `instance_id`},
		{"call_backend_tool", `{"backend_name_ref":"A","tool_name":"x","instance_id":{}}`, `instance_id {} is no`},
		{"call_backend_tool", `{"backend_name_ref":"A","tool_name":"x","instance_id":"B~1"}`, `instance_id "B~1" is no instance of backend "A"; session SESSION has A`},
		{"call_backend_tool", `{"backend_name_ref":"nosuch","tool_name":"x","instance_id":"A"}`, `session SESSION has no server nosuch; it has A`},
		{"list_backend_tools", `{"backend_name_ref":"nosuch","instance_id":"A"}`, `session SESSION has no server nosuch; it has A`},
		{"list_backend_tools", `{"backend_name_ref":"A","instance_id":"nope"}`, `instance_id "nope" is no instance of backend "A"; session SESSION has A`},
		{"call_backend_tool", `{"backend_name_ref":"A","tool_name":"x","instance_id":"A~x"}`, `has no server A~x; it has A`},
		{"call_backend_tool", `{"backend_name_ref":"nosuch","tool_name":"x"}`, `has no server nosuch; it has A`},
		{"call_backend_tool", `{"backend_name_ref":"rollout","tool_name":"ping"}`, `has no server rollout; it has A`},
		{"call_backend_tool", `{"backend_name_ref":"A","tool_name":"x","session_id":"ses_000000000000"}`, `there is no session ses_000000000000 of yours`},
		{"call_backend_tool", `{"backend_name_ref":"A","tool_name":"x","session":"ses_1"}`, `unknown field "session"; the arguments are backend_name_ref, instance_id, rk_session_id, session_id, tool_args, tool_name`},
		{"list_backend_tools", `{"backend_name_ref":"nosuch"}`, `has no server nosuch`},
		{"ping", `{"session_id":"ses_000000000000"}`, `there is no session`},
		{"ping", `{"session_id":7}`, `session_id must be a string`},
		{"cleanup_session", `{"session_id":["x"]}`, `session_id must be a string`},
	} {
		names := strings.NewReplacer(`"A"`, `"`+a+`"`, `"A~`, `"`+a+`~`, `"B~`, `"`+r.Own[1]+`~`, `"SHARED"`, `"`+r.Shared+`"`, ` A~`, ` `+a+`~`, `SESSION`, s.Session, `has A`, `has `+a)
		fails(t, call, api.KindInvalid, names.Replace(tt.say), tt.tool, `%s`, names.Replace(tt.args))
	}
	// Only the backend knows which tools it has; the policy gets its error as a result.
	var unknown struct {
		Content []struct{ Text string }
		IsError bool
	}
	answer := call(t, "call_backend_tool", fmt.Sprintf(`{"backend_name_ref":%q,"tool_name":"no_such_tool"}`, a))
	if err := json.Unmarshal([]byte(answer.Text), &unknown); err != nil || answer.IsError || !unknown.IsError ||
		len(unknown.Content) != 1 || unknown.Content[0].Text != "MCP error -32602: Tool no_such_tool not found" {
		t.Errorf("a tool that is not there: %+v", answer)
	}
	if after := sessions(t, call); after != before {
		t.Errorf("there were %d sessions, and now %d", before, after)
	}
	wants[map[string]string](t, call, "cleanup_session", `{"rk_session_id":%q}`, s.Session)
}

// testOthers checks that a caller can't use another owner's session, or learn that it
// exists.
func testOthers(t *testing.T, r *Rig) {
	call, bob := r.Dial(t, As{Name: "ada"}), r.Dial(t, As{Name: "bob"})
	a := r.Own[0]
	s := open(t, call, a, 1)
	say := "there is no session " + s.Session + " of yours"
	fails(t, bob, api.KindInvalid, say, "call_backend_tool", `{"session_id":%q,"backend_name_ref":%q,"tool_name":"x"}`, s.Session, a)
	fails(t, bob, api.KindInvalid, say, "list_backend_tools", `{"session_id":%q,"backend_name_ref":%q}`, s.Session, a)
	fails(t, bob, api.KindInvalid, say, "ping", `{"session_id":%q}`, s.Session)
	for _, id := range []string{s.Session, "ses_000000000000"} {
		if got := wants[map[string]string](t, bob, "cleanup_session", `{"session_id":%q}`, id); got["status"] != "custom_session_data_not_found_or_already_cleaned" {
			t.Errorf("bob cleans up %s: %v", id, got)
		}
	}
	r.put(t, call, a, "still-there", ``)
	r.has(t, call, a, "still-there", ``, true)
	wants[map[string]string](t, call, "cleanup_session", `{}`)
}

// testPartial checks that each backend that failed is named, and that nothing is
// left of the others.
func testPartial(t *testing.T, r *Rig) {
	call := r.Dial(t, As{Name: "ada"})
	before := sessions(t, call)
	e := fails(t, call, api.KindInfrastructure, r.Broken[0], "initialize_session",
		`{"backends":[{"backend_name_ref":%q},{"backend_name_ref":%q},{"backend_name_ref":%q}]}`, r.Own[0], r.Broken[0], r.Broken[1])
	var named []string
	for _, c := range e.Causes {
		named = append(named, c.Server)
	}
	if got := strings.Join(named, " "); got != r.Broken[0]+" "+r.Broken[1] && got != r.Broken[1]+" "+r.Broken[0] || !strings.Contains(e.Message, r.Broken[1]) {
		t.Errorf("failed with %+v", e)
	}
	if after := sessions(t, call); after != before {
		t.Errorf("there were %d sessions, and now %d", before, after)
	}
	fails(t, call, api.KindInvalid, "initialize_session", "cleanup_session", `{}`)
}

// testShared checks that what all share outlives the sessions that used it.
func testShared(t *testing.T, r *Rig) {
	call := r.Dial(t, As{Name: "ada"})
	open(t, call, r.Shared, 1)
	r.put(t, call, r.Shared, "kept", ``)
	wants[map[string]string](t, call, "cleanup_session", `{}`)
	open(t, call, r.Shared, 1)
	r.has(t, call, r.Shared, "kept", ``, true)
	wants[map[string]string](t, call, "cleanup_session", `{}`)
}

// testKey checks that a repeated request opens and forks nothing twice.
func testKey(t *testing.T, r *Rig) {
	call := r.Dial(t, As{Name: "ada"})
	args := func(key, backend string) string {
		return fmt.Sprintf(`{"backends":[{"backend_name_ref":%q,"num_instances":2}],"idempotency_key":%q}`, backend, key)
	}
	first := wants[opened](t, call, "initialize_session", `%s`, args("k", r.Own[0]))
	between := open(t, call, r.Own[0], 1)
	again := wants[opened](t, call, "initialize_session", `%s`, args("k", r.Own[0]))
	if first.Session != again.Session || first.Token != again.Token || len(again.Backends) != 1 || len(again.Backends[0].Instances) != 2 {
		t.Errorf("opened %+v, and then %+v", first, again)
	}
	if got := wants[map[string]string](t, call, "ping", `{}`); got["session_id"] != first.Session {
		t.Errorf("the connection means %v", got)
	}
	fails(t, call, api.KindInvalid, "Idempotency-Key was used", "initialize_session", `%s`, args("k", r.Own[1]))

	forks := func(key string) string {
		f := wants[api.Forks](t, call, "fork_session", `{"session_id":%q,"idempotency_key":%q}`, first.Session, key)
		if len(f.Sessions) != 1 {
			t.Fatalf("forked %+v", f)
		}
		return f.Sessions[0].ID
	}
	one, same, other := forks("f"), forks("f"), forks("g")
	if one != same || one == other {
		t.Errorf("forked %s, %s and %s", one, same, other)
	}
	for _, id := range []string{first.Session, between.Session, one, other} {
		wants[map[string]string](t, call, "cleanup_session", `{"session_id":%q}`, id)
	}
}

func testTools(t *testing.T, r *Rig) {
	call := r.Dial(t, As{Name: "ada"})
	open(t, call, r.Own[0], 2)
	put, _ := r.Put(r.Own[0], "x")
	for _, which := range []string{``, `,"instance_id":1`} {
		list := wants[struct{ Tools []struct{ Name string } }](t, call, "list_backend_tools", `{"backend_name_ref":%q%s}`, r.Own[0], which)
		found := false
		for _, tool := range list.Tools {
			found = found || tool.Name == put
		}
		if !found {
			t.Errorf("%s is not among %+v", put, list)
		}
	}
	wants[map[string]string](t, call, "cleanup_session", `{}`)
}
