package main

import (
	"encoding/json"
	"time"

	"github.com/tine-mcp/tine/api"
)

// world is a gateway with a server in each state.
func world() *fakeGateway {
	ago := func(d time.Duration) time.Time { return testNow.Add(-d) }
	servers := []api.Server{
		{ID: "files", Title: "Files", Driver: "process", Scope: "session", Enabled: true, State: api.StateReady, Since: ago(90 * time.Second), Protocol: "2025-11-25", ServerName: "secure-filesystem", ServerVer: "0.2.0", Instances: 2, Restarts: 1, Target: "npx -y @modelcontextprotocol/server-filesystem /srv"},
		{ID: "git", Title: "Git", Driver: "process", Scope: "session", Enabled: true, State: api.StateFailed, Reason: "command \"uvx\" not found on PATH; install uv or set servers.git.command", Since: ago(3 * time.Hour), Target: "uvx mcp-server-git"},
		{ID: "time", Title: "time", Driver: "builtin", Scope: "shared", Enabled: true, State: api.StateIdle, Since: ago(50 * time.Hour), Target: "built in"},
		{ID: "web", Title: "Web", Driver: "url", Scope: "shared", Enabled: false, Overridden: true, State: api.StateDisabled, Reason: "switched off", Since: ago(5 * time.Second), Target: "https://mcp.example.com/mcp"},
	}
	find := func(id string) (*api.Server, *api.Error) {
		for _, s := range servers {
			if s.ID == id {
				return &s, nil
			}
		}
		return nil, notFound("server " + id)
	}
	tools := []api.Tool{
		{Name: "files__read_file", Server: "files", Description: "[Files] Read a file.\nAs UTF-8 <text>.", InputSchema: json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer","maximum":12345678901234567890}},"required":["path"]}`)},
		{Name: "files__draw", Server: "files", Description: "[Files] Draw\ta   picture"},
		{Name: "files__strict", Server: "files", InputSchema: json.RawMessage(`{"type":"object","properties":{"mode":{"enum":["fast","slow"]}},"additionalProperties":false}`)},
		{Name: "time__get_current_time", Server: "time", Description: "[time] Get the current time in a time zone, which is named the way that the database of time zones names it", InputSchema: json.RawMessage(`{"type":"object","properties":{"timezone":{"type":"string"}}}`)},
	}
	f := &fakeGateway{}
	f.status = func() (any, *api.Error) { return api.Status{Version: "1.2.3", PID: 42}, nil }
	f.servers = func() (any, *api.Error) { return api.ServerList{Servers: servers}, nil }
	f.server = func(id string) (any, *api.Error) {
		s, e := find(id)
		return s, e
	}
	f.patch = func(id string, p api.ServerPatch) (any, *api.Error) {
		s, e := find(id)
		if e != nil {
			return nil, e
		}
		// All are enabled in the config; web was switched off at run time.
		s.Enabled = p.Reset || p.Enabled != nil && *p.Enabled
		s.Overridden = !s.Enabled
		switch {
		case !s.Enabled:
			s.State, s.Reason = api.StateDisabled, "switched off"
		case s.State == api.StateDisabled:
			s.State, s.Reason = api.StateIdle, ""
		}
		return s, nil
	}
	f.tools = func(server string) (any, *api.Error) {
		var l api.ToolList
		if server != "" {
			if _, e := find(server); e != nil {
				return nil, e
			}
		}
		for _, t := range tools {
			if server == "" || t.Server == server {
				l.Tools = append(l.Tools, t)
			}
		}
		if server == "" || server == "git" {
			l.Missing = []api.Missing{{Server: "git", Reason: "command \"uvx\" not found on PATH"}}
		}
		return l, nil
	}
	f.call = func(r api.CallRequest) (any, *api.Error) {
		answer := func(result string) (any, *api.Error) { return json.RawMessage(`{"result":` + result + `}`), nil }
		switch r.Tool {
		case "files__read_file":
			return answer(`{"zz": 12345678901234567890, "content": [ {"type":"text","text":` + string(quote(string(r.Arguments))) + `} ], "aa": "<é&\u00e9>"}`)
		case "files__draw":
			return answer(`{"content":[{"type":"text","text":"drawn\n"},{"type":"image","mimeType":"image/png","data":"aGVsbG8="},{"type":"resource","resource":{"uri":"file:///a.bin","mimeType":"application/x-a","blob":"aGk="}},{"type":"resource_link","uri":"file:///b","name":"b"},{"type":"hologram","depth":3}]}`)
		case "files__strict":
			return answer(`{"content":[],"structuredContent":{"z":12345678901234567890,"a":"<&>"}}`)
		case "files__asks":
			return answer(`{"resultType":"input_required","inputRequests":{}}`)
		case "files__odd":
			return answer(`"words"`)
		case "time__get_current_time":
			return answer(`{"content":[{"type":"text","text":"no such time zone\u001b[2J"}],"isError":true}`)
		case "git__log":
			return nil, &api.Error{Kind: api.KindInfrastructure, Server: "git", Message: `server "git": command "uvx" not found on PATH; install uv`, Status: 502}
		}
		return nil, &api.Error{Kind: api.KindInvalid, Message: "unknown tool " + r.Tool, Status: 404}
	}
	f.logs = func(server string, bytes int64) (any, *api.Error) {
		if _, e := find(server); e != nil {
			return nil, e
		}
		switch server {
		case "files":
			return api.LogList{Instances: []api.LogEntry{
				{Instance: "files-1", Session: "ses_a", Text: lastBytes("starting\nready\n", bytes)},
				{Instance: "files-2", Text: lastBytes("starting", bytes)},
			}}, nil
		case "git":
			return api.LogList{Instances: []api.LogEntry{{Instance: "git-1", Text: lastBytes("fatal: \x1b[31mno\x1b[0m repository\n", bytes)}}}, nil
		}
		return api.LogList{}, nil
	}
	return f
}
