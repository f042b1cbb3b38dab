package config

import "testing"

func TestRewardKitErrors(t *testing.T) {
	const b = "backends:\n  - {backend_name_ref: a, backend_type: memory, orchestration_mode: "
	testErrors(t, []wrongConfig{
		{"hardly anything", "backends:\n  - backend_name_ref: fs\n",
			`tine.yaml:2:5: backends[0]: backend_type is missing; it is filesystem, duckdb, memory, everything, fetch or time
tine.yaml:2:5: backends[0]: orchestration_mode is missing; it is local_docker or remote_http_api`},
		{"unknown keys", "log_levl: INFO\n" + b + "local_docker, docker_image: i, container_port: 1, image: x}\n",
			`tine.yaml:1:1: unknown key "log_levl"; did you mean "log_level"?
tine.yaml:3:119: unknown key "image" in backends[0]; known keys: backend_name_ref, backend_type, orchestration_mode, instance_scoping, mcp_transport, docker_image, container_port, container_command, container_volumes, template_data_path_host, container_template_data_path, docker_run_args, startup_check_mcp_tool, remote_api_config_ref, remote_api_config_inline, remote_resource_type_identifier`},
		{"names", "backends:\n  - {backend_name_ref: my db, backend_type: memory, orchestration_mode: local_docker}\n  - {backend_name_ref: a__b, backend_type: memory, orchestration_mode: local_docker}\n",
			`tine.yaml:2:24: backends[0].backend_name_ref: server id "my db" is not valid; use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first; clients call it by this name, so change it there as well
tine.yaml:3:24: backends[1].backend_name_ref: server id "a__b" contains "__", which separates server and tool; write "a_b"; clients call it by this name, so change it there as well`},
		{"twice", b + "local_docker, docker_image: i, container_port: 1}\n  - {backend_name_ref: a, backend_type: time, orchestration_mode: local_docker, docker_image: i, container_port: 1}\n",
			`tine.yaml:3:5: backends[1].backend_name_ref: "a" stands twice; give each backend its own`},
		{"no image and no port", b + "local_docker}\n",
			`tine.yaml:2:5: backends[0]: docker_image is missing; name the image of the server
tine.yaml:2:5: backends[0]: container_port is missing, which mcp_transport http needs; say where in the container the server listens`},
		{"flags", "global_docker_options: {gpus: all}\n" + b + "local_docker, docker_image: i, mcp_transport: stdio, docker_run_args: [--name, x]}\n",
			`tine.yaml:1:31: backends[0].docker_run_args: --gpus: Tine has no key for it; remove it
tine.yaml:3:140: backends[0].docker_run_args: --name: each instance has a name of its own, so that there can be several; remove it`},
		{"volumes", b + "local_docker, docker_image: i, mcp_transport: stdio, container_volumes: {./a: {mode: ro}, ./b: {bind: b}, ./c: {bind: /c, mode: z}}}\n",
			`tine.yaml:2:142: backends[0].container_volumes../a: bind is missing; it is the path in the container
tine.yaml:2:197: backends[0].container_volumes../c.mode: got "z", want rw or ro`},
		{"half a template", b + "local_docker, docker_image: i, mcp_transport: stdio, template_data_path_host: ./t}\n",
			`tine.yaml:2:122: backends[0]: container_template_data_path is missing; it says where in the container the template goes`},
		{"a template that is bound", b + "local_docker, docker_image: i, mcp_transport: stdio, template_data_path_host: ./t, container_template_data_path: /d/x, container_volumes: {v0: {bind: /d}}}\n",
			`tine.yaml:2:182: backends[0].container_template_data_path: "/d/x" lies in what is bound, which belongs to the host; choose another, or remove the bind`},
		{"no orchestrator", b + "remote_http_api}\n  - {backend_name_ref: b, backend_type: time, orchestration_mode: remote_http_api, remote_api_config_ref: nope}\n",
			`tine.yaml:2:5: backends[0]: nothing says which orchestrator; add remote_api_config_ref or remote_api_config_inline
tine.yaml:3:107: backends[1].remote_api_config_ref: there is no API "nope"; add it to global_remote_apis`},
		{"an orchestrator's keys", b + "remote_http_api, remote_resource_type_identifier: x, remote_api_config_inline: {base_url: nowhere, auth_type: bearer_token, auth_details: {tokn: hunter2}}}\n",
			`tine.yaml:2:207: backends[0].remote_api_config_inline.auth_details.token is missing, which auth_type bearer_token needs
tine.yaml:2:208: unknown key "tokn" in backends[0].remote_api_config_inline.auth_details; did you mean "token"?`},
		{"an orchestrator's address", b + "remote_http_api, remote_resource_type_identifier: x, remote_api_config_inline: {base_url: nowhere, delete_instance_endpoint_template: /all}}\n",
			`tine.yaml:2:159: backends[0]: base_url of the remote API: "nowhere" is not an absolute http or https URL; write it like https://orchestrator.example.org
tine.yaml:2:203: backends[0]: delete_instance_endpoint_template: "/all" does not say which instance; write it like /instances/{remote_instance_id}`},
		{"level and seconds", "log_level: LOUD\nglobal_remote_api_defaults: {timeout: soon}\n" + b + "remote_http_api, remote_resource_type_identifier: x, remote_api_config_inline: {base_url: 'https://x'}}\n",
			`tine.yaml:1:12: log_level: got "LOUD", want DEBUG, INFO, WARNING, ERROR or CRITICAL
tine.yaml:2:39: global_remote_api_defaults.timeout: got "soon", want a number of seconds up to 3600`},
	})
	// What can't be served can't be imported, for the same reasons.
	in := b + "local_docker}\n"
	_, served := Parse([]byte(in), Options{Path: "x.yaml"})
	_, _, imported := Import([]byte(in), "x.yaml")
	if served == nil || imported == nil || served.Error() != imported.Error() {
		t.Errorf("served\n%v\nimported\n%v", served, imported)
	}
}
