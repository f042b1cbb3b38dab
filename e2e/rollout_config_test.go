//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// rewardKitConfig is an mcp_agent_config.yaml: containers over stdio and HTTP, one
// that is shared, and one that an orchestrator runs.
func rewardKitConfig(dir, orchestrator, token string) string {
	return fmt.Sprintf(`log_level: INFO
global_docker_options: {}
global_remote_api_defaults: {timeout: 30, connect_timeout: 5}
global_remote_apis:
  lab:
    base_url: %[2]q
    create_instance_endpoint: /instances
    delete_instance_endpoint_template: "/instances/{remote_instance_id}"
    auth_type: bearer_token
    auth_details: {token: %[3]s}
backends:
  - backend_name_ref: filesystem_test
    backend_type: filesystem
    orchestration_mode: local_docker
    instance_scoping: session
    mcp_transport: stdio
    docker_image: %[4]s
    container_command: [mcp-server-filesystem, /projects, /library]
    template_data_path_host: ./templates/desk
    container_template_data_path: /projects
    container_volumes:
      %[1]s/library: {bind: /library, mode: ro}
    docker_run_args: ["--network", "none", "-e", "LANG=C", "--memory=512m"]
  - backend_name_ref: http_test
    backend_type: everything
    orchestration_mode: local_docker
    instance_scoping: session
    mcp_transport: http
    docker_image: %[5]s
    container_port: 8080
    container_command: [stateserver, -dir, /data, -http, ":8080"]
    startup_check_mcp_tool: {tool_name: all, arguments: {}}
  - backend_name_ref: board_test
    backend_type: memory
    orchestration_mode: local_docker
    instance_scoping: shared_global
    mcp_transport: stdio
    docker_image: %[5]s
    container_command: [stateserver, -dir, /data]
  - backend_name_ref: remote_memory
    backend_type: memory
    orchestration_mode: remote_http_api
    instance_scoping: session
    mcp_transport: http
    remote_api_config_ref: lab
    remote_resource_type_identifier: memory_v1
`, dir, orchestrator, token, imageServers, imageStatic)
}

// TestRolloutConfig serves a RewardKit config as it is, and drives it with a
// client as RewardKit has it: every backend, every tool. In the end nothing is
// left in the engine nor at the orchestrator.
func TestRolloutConfig(t *testing.T) {
	t.Parallel()
	onEngines(t, oneEngine, func(t *testing.T, e *engine) {
		const token = "lab-lab-lab-lab-lab-lab"
		lab := newGateway(t, "auth: {tokens: [{name: lab, token: "+token+"}]}\nservers:\n  memory_v1: {builtin: memory}\n")
		lab.verb = []string{"orchestrator", "serve"}
		if err := lab.start(); err != nil {
			t.Fatal(err)
		}
		var id string
		e.sweepAfter(t, &id)
		g := newGateway(t, "", "DOCKER_HOST="+e.host)
		file := filepath.Join(g.dir, "mcp_agent_config.yaml")
		g.args = []string{"--config", file}
		writeTemplate(t, filepath.Join(g.dir, "templates", "desk"))
		writeTemplate(t, filepath.Join(g.dir, "library"))
		if err := os.WriteFile(file, []byte(rewardKitConfig(g.dir, lab.url, token)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		id = gatewayID(t, g)

		k := startRewardKit(t, "legacy", g.url+"/mcp")
		tools := k.ask(object{"list": true}).Tools
		for _, tool := range rolloutTools {
			if !slices.Contains(tools, tool) {
				t.Errorf("%s is not among the tools of /mcp: %v", tool, tools)
			}
		}
		var one, two rolloutSession
		k.call("initialize_session", object{"backends": []object{
			{"backend_name_ref": "filesystem_test", "num_instances": 2, "orchestration_preference": "local_docker"},
			{"backend_name_ref": "http_test"},
			{"backend_name_ref": "board_test"},
			{"backend_name_ref": "remote_memory", "num_instances": 2, "orchestration_preference": "remote_http_api"},
		}}, &one)
		for _, want := range []struct {
			backend, mode, transport string
			instances                int
		}{
			{"filesystem_test", "local_docker", "stdio", 2}, {"http_test", "local_docker", "http", 1},
			{"board_test", "local_docker", "stdio", 1}, {"remote_memory", "remote_http_api", "http", 2},
		} {
			got := one.instances(want.backend)
			if len(got) != want.instances {
				t.Fatalf("%s: %+v, want %d instances", want.backend, got, want.instances)
			}
			for _, i := range got {
				if i.Mode != want.mode || i.Transport != want.transport || i.Backend != want.backend {
					t.Errorf("an instance is %+v, want %+v", i, want)
				}
			}
		}
		raw, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), token) {
			t.Errorf("initialize_session shows the orchestrator's token: %s", raw)
		}
		k.call("initialize_session", object{"backends": []object{
			{"backend_name_ref": "filesystem_test"}, {"backend_name_ref": "http_test"}, {"backend_name_ref": "board_test"},
		}}, &two)

		// The template's file is moved in one instance, and in no other.
		w, other := k.worker(one.ID), k.worker(two.ID)
		first, second := one.instances("filesystem_test")[0].ID, one.instances("filesystem_test")[1].ID
		w.use("filesystem_test", first, "move_file", object{"source": "/projects/note.txt", "destination": "/projects/moved.txt"})
		if got := w.use("filesystem_test", nil, "list_directory", object{"path": "/projects"}); strings.TrimSpace(got) != "[FILE] moved.txt" {
			t.Errorf("the instance in which the file was moved has %q", got)
		}
		for _, u := range []struct {
			k        *rewardKit
			instance any
		}{{w, second}, {other, nil}} {
			if got := u.k.use("filesystem_test", u.instance, "read_text_file", object{"path": "/projects/note.txt"}); got != "on the desk" {
				t.Errorf("another instance has %q in the file", got)
			}
		}
		if got := w.use("filesystem_test", nil, "read_text_file", object{"path": "/library/note.txt"}); got != "on the desk" {
			t.Errorf("the volume of the host has %q in the file", got)
		}
		w.use("http_test", nil, "put", object{"key": "a", "value": "one"})
		if got := other.use("http_test", nil, "all", object{}); got != `{}` {
			t.Errorf("one session's values in another: %s", got)
		}
		w.use("board_test", nil, "put", object{"key": "a", "value": "for all"})
		if got := other.use("board_test", nil, "all", object{}); got != `{"a":"for all"}` {
			t.Errorf("the shared server has %s for another session", got)
		}
		far := one.instances("remote_memory")
		w.use("remote_memory", far[1].ID, "create_entities", object{"entities": []entity{{"far", "place", []string{"away"}}}})
		if got := w.use("remote_memory", far[1].ID, "read_graph", object{}); !strings.Contains(got, "away") {
			t.Errorf("the second remote instance has %s", got)
		}
		if got := w.use("remote_memory", nil, "read_graph", object{}); strings.Contains(got, "away") {
			t.Errorf("the first remote instance has %s", got)
		}
		var list struct{ Tools []struct{ Name string } }
		w.call("list_backend_tools", object{"backend_name_ref": "remote_memory"}, &list)
		if !slices.ContainsFunc(list.Tools, func(t struct{ Name string }) bool { return t.Name == "read_graph" }) {
			t.Errorf("list_backend_tools: %+v", list)
		}

		// The orchestrator's API has no fork; the others fork with what they have.
		if e := w.refused("fork_session", object{"session_id": one.ID, "count": 2}); !strings.Contains(e.Message, "remote_memory") {
			t.Errorf("a fork that can't be: %+v, want the server that can't", e)
		}
		other.use("http_test", nil, "put", object{"key": "a", "value": "two"})
		other.use("filesystem_test", nil, "write_file", object{"path": "/projects/two.txt", "content": "by two"})
		var snap api.Snapshot
		k.call("snapshot_session", object{"session_id": two.ID}, &snap)
		var forks api.Forks
		k.call("fork_session", object{"session_id": two.ID, "count": 2}, &forks)
		for _, f := range forks.Sessions {
			child := k.worker(f.ID)
			if got := child.use("http_test", nil, "all", object{}); got != `{"a":"two"}` {
				t.Errorf("a fork has %s", got)
			}
			child.use("http_test", nil, "put", object{"key": "b", "value": f.ID})
			if got := child.use("filesystem_test", nil, "read_text_file", object{"path": "/projects/two.txt"}); got != "by two" {
				t.Errorf("a fork has %q in the parent's file", got)
			}
			child.use("filesystem_test", nil, "write_file", object{"path": "/projects/two.txt", "content": f.ID})
		}
		other.use("filesystem_test", nil, "write_file", object{"path": "/projects/two.txt", "content": "changed"})
		k.call("rewind_session", object{"session_id": two.ID, "snapshot": snap.ID}, nil)
		if got := other.use("filesystem_test", nil, "read_text_file", object{"path": "/projects/two.txt"}); got != "by two" {
			t.Errorf("after a rewind the file has %q", got)
		}
		if got := other.use("http_test", nil, "all", object{}); got != `{"a":"two"}` {
			t.Errorf("after a rewind the values are %s", got)
		}

		var all api.SessionList
		k.call("list_sessions", object{}, &all)
		for _, s := range []string{one.ID, forks.Sessions[0].ID, forks.Sessions[1].ID, two.ID} {
			if !slices.ContainsFunc(all.Sessions, func(has api.Session) bool { return has.ID == s }) {
				t.Errorf("list_sessions does not have %s", s)
			}
			if s == two.ID {
				if got := other.use("board_test", nil, "all", object{}); got != `{"a":"for all"}` {
					t.Errorf("after other sessions were cleaned up the shared server has %s", got)
				}
			}
			var done cleaned
			if k.worker(s).call("cleanup_session", object{}, &done); done.Status != statusCleaned || done.RK != s {
				t.Errorf("cleanup_session by header: %+v", done)
			}
			if left := e.mustOwned(t, "tine.session="+s); left.count("container") > 0 {
				t.Errorf("after session %s was cleaned up: %v", s, left)
			}
		}
		if err := closeAll(t.Context(), g.client(t)); err != nil { // snapshots
			t.Error(err)
		}
		if err := eventually(func() error {
			there, err := openSessions(t.Context(), lab.client(t), client.SessionQuery{})
			if err == nil && len(there) > 0 {
				err = fmt.Errorf("the orchestrator has %v", there)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if _, err := g.stop(); err != nil {
			t.Fatal(err)
		}
		if e.name == "podman" {
			// It has been seen to keep the tag of a template's image; what one gateway
			// leaves the next one removes.
			if err := g.start(); err != nil {
				t.Fatal(err)
			}
			if _, err := g.stop(); err != nil {
				t.Fatal(err)
			}
		}
		e.nothingOf(t, id)
	})
}
