//go:build unix

package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// The tools that RewardKit's clients know, and those that came beside them.
var rolloutTools = []string{
	"initialize_session", "call_backend_tool", "list_backend_tools", "cleanup_session", "ping",
	"fork_session", "snapshot_session", "rewind_session", "list_sessions",
}

// TestRolloutClient drives every control tool with a client as RewardKit has it,
// in both eras, over a plain tine.yaml: unprefixed at /mcp, arguments wrapped, the
// session named by argument, by header, or by what the connection opened last.
func TestRolloutClient(t *testing.T) {
	t.Parallel()
	need(t, python)
	g := newGateway(t, patientLists+"template_roots: [./templates]\nservers:\n"+yamlBuiltins+yamlState(t, "prog")+
		"  rollout: {builtin: rollout, merged: true}\n")
	writeTemplate(t, filepath.Join(g.dir, "templates", "desk"))
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	t.Run("eras", func(t *testing.T) {
		for _, era := range []string{"legacy", "auto"} {
			t.Run(era, func(t *testing.T) {
				t.Parallel()
				driveRollouts(t, startRewardKit(t, era, g.url+"/mcp"), "moved-"+era)
			})
		}
	})
	newTrainer(t, g).nothingOpen(t)
}

// driveRollouts makes every call of a rollout's life; the template that it makes
// has the name.
func driveRollouts(t *testing.T, k *rewardKit, name string) {
	tools := k.ask(object{"list": true}).Tools
	for _, tool := range rolloutTools {
		if !slices.Contains(tools, tool) {
			t.Errorf("%s is not among the tools of /mcp: %v", tool, tools)
		}
	}
	var pong struct {
		Reply   string `json:"reply"`
		Session string `json:"session_id"`
	}
	if k.call("ping", object{}, &pong); pong.Reply != "pong" {
		t.Errorf("ping answers %+v", pong)
	}

	// Two instances of one backend, both with the template's file.
	var s rolloutSession
	k.call("initialize_session", object{"backends": []object{
		{"backend_name_ref": "files", "num_instances": 2, "template_details": "desk"},
		{"backend_name_ref": "mem"},
		{"backend_name_ref": "prog", "num_instances": 2},
	}}, &s)
	if s.ID != s.RK || !strings.HasPrefix(s.ID, "ses_") || len(s.Backends) != 3 {
		t.Fatalf("initialize_session answers %+v", s)
	}
	for _, b := range s.Backends {
		want := 2
		if b.Name == "mem" {
			want = 1
		}
		if len(b.Instances) != want {
			t.Fatalf("%s has %d instances, want %d", b.Name, len(b.Instances), want)
		}
		for _, i := range b.Instances {
			if i.ID == "" || i.Backend != b.Name || i.Mode == "" || i.Transport != "http" && i.Transport != "stdio" || i.Details == nil {
				t.Errorf("an instance of %s: %+v", b.Name, i)
			}
		}
	}
	w := k.worker(s.ID)
	if w.call("ping", object{}, &pong); pong.Session != s.ID {
		t.Errorf("with the header mcp-session-id: %s the session is %s", s.ID, pong.Session)
	}
	first, second := s.instances("files")[0].ID, s.instances("files")[1].ID
	w.use("files", first, "move_file", object{"source": "note.txt", "destination": "moved.txt"})
	if got := w.use("files", nil, "list_directory", object{"path": "."}); !strings.Contains(got, "moved.txt") || strings.Contains(got, "note.txt") {
		t.Errorf("the first instance, and the default, has %q after the file was moved in it", got)
	}
	if got := w.use("files", second, "read_text_file", object{"path": "note.txt"}); got != "on the desk" {
		t.Errorf("the second instance has %q in the file", got)
	}
	w.use("prog", s.instances("prog")[1].ID, "put", object{"key": "k", "value": "second"})

	var list struct{ Tools []struct{ Name string } }
	k.call("list_backend_tools", object{"rk_session_id": s.ID, "backend_name_ref": "prog", "instance_id": s.instances("prog")[1].ID}, &list)
	if !slices.ContainsFunc(list.Tools, func(t struct{ Name string }) bool { return t.Name == "put" }) {
		t.Errorf("list_backend_tools of prog: %+v", list)
	}

	// Every member is in what is frozen, forked and rewound to.
	var snap api.Snapshot
	k.call("snapshot_session", object{"session_id": s.ID, "name": name}, &snap)
	var forks api.Forks
	k.call("fork_session", object{"session_id": s.ID, "count": 2}, &forks)
	if forks.Parent != s.ID || len(forks.Sessions) != 2 {
		t.Fatalf("fork_session answers %+v", forks)
	}
	for _, f := range forks.Sessions {
		child := k.worker(f.ID)
		if got := child.use("prog", s.instances("prog")[1].ID, "all", object{}); got != `{"k":"second"}` {
			t.Errorf("the second prog of a fork has %s", got)
		}
		child.use("files", second, "write_file", object{"path": "own.txt", "content": f.ID})
	}
	if got := w.use("files", second, "list_directory", object{"path": "."}); strings.Contains(got, "own.txt") {
		t.Errorf("the parent has what a fork wrote: %q", got)
	}
	w.use("prog", nil, "put", object{"key": "late", "value": "x"})
	k.call("rewind_session", object{"session_id": s.ID, "snapshot": snap.ID}, nil)
	if got := w.use("prog", nil, "all", object{}); got != `{}` {
		t.Errorf("the first prog has %s after a rewind", got)
	}
	// A template by its name.
	var again rolloutSession
	k.call("initialize_session", object{"backends": []object{{"backend_name_ref": "files", "template_details": name}}}, &again)
	if got := k.worker(again.ID).use("files", nil, "list_directory", object{"path": "."}); !strings.Contains(got, "moved.txt") {
		t.Errorf("a session from the template has %q", got)
	}

	var all api.SessionList
	k.call("list_sessions", object{}, &all)
	for _, id := range []string{s.ID, again.ID, forks.Sessions[0].ID, forks.Sessions[1].ID} {
		if !slices.ContainsFunc(all.Sessions, func(s api.Session) bool { return s.ID == id }) {
			t.Errorf("list_sessions does not have %s", id)
		}
		var done cleaned
		k.worker(id).call("cleanup_session", object{}, &done)
		if done.Status != statusCleaned || done.RK != id {
			t.Errorf("cleanup_session of %s by header answers %+v", id, done)
		}
		if k.call("cleanup_session", object{"rk_session_id": id}, &done); done.Status != statusGone || done.RK != id {
			t.Errorf("cleanup_session a second time answers %+v", done)
		}
	}
	if e := k.refused("call_backend_tool", object{"rk_session_id": s.ID, "backend_name_ref": "mem", "tool_name": "read_graph"}); e.Kind != api.KindInvalid || !strings.Contains(e.Message, s.ID) {
		t.Errorf("a call in a session that is gone: %+v", e)
	}
}

// writeTemplate makes a folder with a file in it.
func writeTemplate(t testing.TB, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "note.txt"), []byte("on the desk"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestRolloutWrongCalls holds that calls that are wrong say so, name what is
// wrong, and open nothing.
func TestRolloutWrongCalls(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "template_roots: [./templates]\nservers:\n"+yamlBuiltins+"  clock: {builtin: time}\n  rollout: {builtin: rollout}\n")
	r := newTrainer(t, g)
	one := func(more object) object {
		more["backend_name_ref"] = "mem"
		return object{"backends": []object{more}}
	}
	for _, tt := range []struct {
		name string
		args any
		want []string
	}{
		{"no backends", object{}, []string{"backends"}},
		{"an empty list", object{"backends": []object{}}, []string{"backends"}},
		{"no such backend", object{"backends": []object{{"backend_name_ref": "memo"}}}, []string{"memo", "mem"}},
		{"the control tools themselves", object{"backends": []object{{"backend_name_ref": "rollout"}}}, []string{"rollout"}},
		{"no instances", one(object{"num_instances": 0}), []string{"num_instances"}},
		{"a fraction", one(object{"num_instances": 1.5}), []string{"num_instances"}},
		{"too many", one(object{"num_instances": 1000000}), []string{"mem", "1000"}},
		{"another way to run it", one(object{"orchestration_preference": "local_docker"}), []string{"mem", "local_docker"}},
		{"an unknown argument", one(object{"num_instance": 2}), []string{"num_instance"}},
		{"a template that is not there", one(object{"template_details": "nowhere"}), []string{"nowhere"}},
		{"a template from outside", one(object{"template_details": "/etc/passwd"}), []string{"/etc/passwd"}},
		{"a template that climbs", one(object{"template_details": "../../../../etc/passwd"}), []string{"etc/passwd"}},
		{"a template for what remembers nothing", object{"backends": []object{{"backend_name_ref": "clock", "template_details": "."}}}, []string{"clock"}},
		{"several of what is shared", object{"backends": []object{{"backend_name_ref": "clock", "num_instances": 2}}}, []string{"clock"}},
		{"wrapped and not", object{"args": object{}, "backends": []object{}}, []string{"args"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := r.do(t.Context(), "initialize_session", tt.args, nil)
			e := kindOf(err)
			if e == nil || e.Kind != api.KindInvalid {
				t.Fatalf("%v: %v (%+v), want kind invalid", tt.args, err, e)
			}
			for _, want := range tt.want {
				if !strings.Contains(e.Message, want) {
					t.Errorf("%v: %s, want %q in it", tt.args, e.Message, want)
				}
			}
		})
	}
	r.nothingOpen(t)
	s := r.mustInit(t, object{"backend_name_ref": "mem"})
	for _, tt := range []struct {
		tool string
		args object
		want string
	}{
		{"call_backend_tool", object{"backend_name_ref": "files", "tool_name": "list_directory"}, "files"},
		{"call_backend_tool", object{"backend_name_ref": "mem", "instance_id": 1, "tool_name": "read_graph"}, "mem"},
		{"call_backend_tool", object{"backend_name_ref": "mem", "instance_id": "files", "tool_name": "read_graph"}, "files"},
		{"call_backend_tool", object{"backend_name_ref": "mem"}, "tool_name"},
		{"call_backend_tool", object{"backend_name_ref": "mem", "tool_name": "read_graph", "tool_args": []string{}}, "tool_args"},
		{"list_backend_tools", object{"backend_name_ref": "mem~1"}, "mem"},
		{"fork_session", object{"session_id": s.ID, "count": 0}, "count"},
		{"rewind_session", object{"session_id": s.ID, "snapshot": "nothing"}, "nothing"},
	} {
		err := r.do(t.Context(), tt.tool, tt.args, nil)
		if e := kindOf(err); e == nil || e.Kind != api.KindInvalid || !strings.Contains(e.Message, tt.want) {
			t.Errorf("%s %v: %v, want kind invalid and %q", tt.tool, tt.args, err, tt.want)
		}
	}
	// A tool's own failure is its result, and none of ours.
	var res toolResult
	err := r.do(t.Context(), "call_backend_tool", object{"rk_session_id": s.ID, "backend_name_ref": "mem", "tool_name": "add_observations",
		"tool_args": object{"observations": []object{{"entityName": "nobody", "contents": []string{"x"}}}}}, &res)
	if err != nil || !res.IsError {
		t.Errorf("a tool that fails: %v, %+v, want the tool's failure in the result", err, res)
	}
	r.mustClean(t, s.ID)
}

// TestRolloutApart holds that what works in a session never sees the control
// tools, unless the config says so, and that its token is good for nothing else.
func TestRolloutApart(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBuiltins+"  rollout: {builtin: rollout}\n")
	r := newTrainer(t, g)
	s, other := r.mustInit(t, object{"backend_name_ref": "mem"}), r.mustInit(t, object{"backend_name_ref": "mem"})
	header := http.Header{"Authorization": {"Bearer " + s.Token}}
	for _, path := range []string{"/mcp", "/s/" + s.ID + "/mcp"} {
		policy, err := open(t.Context(), g.url+path, header)
		if err != nil {
			t.Fatal(err)
		}
		names, err := policy.tools(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !strings.HasPrefix(name, "mem__") {
				t.Errorf("%s shows %s to what works in the session", path, name)
			}
		}
		if len(names) == 0 {
			t.Errorf("%s shows nothing", path)
		}
		if _, err := policy.call(t.Context(), "fork_session", object{}); err == nil {
			t.Errorf("%s has a tool that it does not show", path)
		}
	}
	there, err := post(t.Context(), g.url+"/s/"+other.ID+"/mcp", header, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}`)
	if err != nil || there.status != http.StatusNotFound && there.status != http.StatusForbidden {
		t.Errorf("the token of one session at another answers %d %s %v", there.status, there.body, err)
	}
	r.mustClean(t, s.ID)
	r.mustClean(t, other.ID)
	r.nothingOpen(t)
}
