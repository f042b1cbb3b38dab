package main

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
)

// world is a gateway with a server in each state.
func world() *fakeGateway {
	ago := func(d time.Duration) time.Time { return testNow.Add(-d) }
	servers := []api.Server{
		{ID: "files", Title: "Files", Driver: "process", Scope: "session", Enabled: true, State: api.StateReady, Since: ago(90 * time.Second), Protocol: "2025-11-25", ServerName: "secure-filesystem", ServerVer: "0.2.0", Instances: 2, Restarts: 1, Target: "npx -y @modelcontextprotocol/server-filesystem /srv",
			Breaker: api.BreakerHalfOpen, InFlight: 2, Queue: 3, Calls: 12345, Failures: 67, Latency: &api.Latency{Count: 100, P50: 4.25, P95: 1234},
			LastError:  &api.LastError{At: ago(2 * time.Hour), Kind: api.KindTimeout, Message: "no answer to read_file within 5m0s; raise servers.files.timeout"},
			Overridden: true, Overrides: []string{"policy.retry.attempts", "timeout"}},
		{ID: "git", Title: "Git", Driver: "process", Scope: "session", Enabled: true, State: api.StateFailed, Reason: "command \"uvx\" not found on PATH; install uv or set servers.git.command", Since: ago(3 * time.Hour), Target: "uvx mcp-server-git", Breaker: api.BreakerOpen},
		{ID: "time", Title: "time", Driver: "builtin", Scope: "shared", Enabled: true, State: api.StateIdle, Since: ago(50 * time.Hour), Target: "built in"},
		{ID: "web", Title: "Web", Driver: "url", Scope: "shared", Enabled: false, Overridden: true, Overrides: []string{"enabled"}, State: api.StateDisabled, Reason: "switched off", Since: ago(5 * time.Second), Target: "https://mcp.example.com/mcp", Breaker: api.BreakerClosed, Calls: 7, Latency: &api.Latency{Count: 7, P50: 230.4, P95: 100200}, Login: &api.LoginState{Credential: "per-principal", Reason: "the server no longer takes the refresh token"}},
	}
	policy := api.Policy{
		Timeout: "10s", ConnectTimeout: "1m0s", MaxTimeout: "1h0m0s", Retry: 5, Breaker: 5, BreakerOpen: "30s", Rate: 2.5, Burst: 3,
		Concurrency: 4, Queue: 128, QueueWait: "10s", CacheLists: "5m0s", CacheResults: "1m0s", CacheTools: []string{"read_*"}, Journal: "full",
	}
	find := func(id string) (*api.Server, *api.Error) {
		for _, s := range servers {
			if s.ID == id {
				s.Overrides = slices.Clone(s.Overrides)
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
		if e == nil && s.ID != "time" {
			s.Policy = &policy
		}
		return s, e
	}
	f.patch = func(id string, p api.ServerPatch) (any, *api.Error) {
		s, e := find(id)
		if e != nil {
			return nil, e
		}
		if strings.Contains(string(p.Set), "polcy") {
			return nil, &api.Error{Kind: api.KindInvalid, Server: id, Message: `unknown key "polcy"`, Status: 400}
		}
		// All are enabled in the config; web was switched off at run time.
		if p.Reset || p.Enabled != nil {
			s.Enabled = p.Reset || *p.Enabled
			s.Overrides = slices.DeleteFunc(s.Overrides, func(key string) bool { return p.Reset || key == "enabled" })
			if !s.Enabled {
				s.Overrides = append(s.Overrides, "enabled")
			}
		}
		s.Overrides = slices.DeleteFunc(s.Overrides, func(key string) bool { return slices.Contains(p.Unset, key) })
		s.Overridden = len(s.Overrides) > 0
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
				{Instance: "files-1", Session: "ses_0a0000000001", Text: lastBytes("starting\nready\n", bytes)},
				{Instance: "files-2", Text: lastBytes("starting", bytes)},
			}}, nil
		case "git":
			return api.LogList{Instances: []api.LogEntry{{Instance: "git-1", Text: lastBytes("fatal: \x1b[31mno\x1b[0m repository\n", bytes)}}}, nil
		}
		return api.LogList{}, nil
	}
	f.journalled(ago)
	f.withTokens(ago)
	f.withSessions(ago)
	return f
}

// journalled gives the gateway a journal.
func (f *fakeGateway) journalled(ago func(time.Duration) time.Time) {
	args := json.RawMessage(`{"path": "/srv/notes.txt",  "big": 12345678901234567890, "text": "<two\\nlines> and a lot more that does not fit into the line of a table"}`)
	calls := []api.Call{ // newest first
		{ID: "call_0005", At: ago(time.Second), Principal: "alice", Session: "ses_0a0000000001", Server: "files", Method: "tools/call", Name: "read_file", Duration: 4.26, Outcome: "ok", Journal: "full", Arguments: args, Trace: "4bf92f3577b34da6a3ce929d0e0e4736"},
		{ID: "call_0004", At: ago(2 * time.Minute), Principal: "alice", Server: "files", Method: "tools/call", Name: "read_file", Duration: 300012.4, Outcome: "timeout", Error: "no answer within 5m0s", Journal: "full", Arguments: json.RawMessage(`{"path":"/x"}`)},
		{ID: "call_0003", At: ago(time.Hour), Server: "web", Method: "tools/call", Name: "search", Duration: 99.96, Outcome: "ok", Journal: "meta"},
		{ID: "call_0002", At: ago(30 * time.Hour), Principal: "bob", Server: "files", Method: "prompts/get", Name: "greet", Duration: 0.04, Outcome: "ok", Journal: "full", Arguments: json.RawMessage(`{}`)},
		{ID: "call_0001", At: ago(31 * time.Hour), Principal: "bob\x1b[2J", Server: "files", Method: "tools/list", Duration: 12, Outcome: "infrastructure", Error: "it said \x1b[2J and\nended", Journal: "full"},
	}
	f.calls = func(q url.Values) (any, *api.Error) {
		since, _ := time.Parse(time.RFC3339Nano, q.Get("since"))
		limit, _ := strconv.Atoi(q.Get("limit"))
		list := api.CallList{Calls: []api.Call{}}
		for _, call := range calls {
			switch {
			case q.Get("server") != "" && q.Get("server") != call.Server, q.Get("principal") != "" && q.Get("principal") != call.Principal,
				q.Get("session") != "" && q.Get("session") != call.Session, q.Get("failed") == "1" && call.Outcome == "ok",
				call.At.Before(since), q.Get("before") != "" && call.ID >= q.Get("before"):
				continue
			}
			if len(list.Calls) == min(limit, 2) { // a page holds two
				list.Next = list.Calls[len(list.Calls)-1].ID
				break
			}
			list.Calls = append(list.Calls, call)
		}
		return list, nil
	}
	f.oneCall = func(id string) (any, *api.Error) {
		for _, call := range calls {
			if call.ID == id {
				if call.Journal == "full" {
					call.Result = json.RawMessage(`{"content":[{"type":"text","text":"hello\u001b[2J"}]}`)
				}
				return call, nil
			}
		}
		return nil, notFound("call " + id)
	}
	f.replay = func(id string) (any, *api.Error) {
		switch id {
		case "call_0005":
			return json.RawMessage(`{"id":"call_0006","result":{"content":[ {"type":"text","text":"hello again"} ]}}`), nil
		case "call_0004":
			return json.RawMessage(`{"id":"call_0007","result":{"content":[{"type":"text","text":"no such file"}],"isError":true}}`), nil
		case "call_0003":
			return nil, &api.Error{Kind: api.KindRefused, Status: 409, Message: "call call_0003 can't be replayed: the journal kept no arguments of it"}
		}
		return nil, notFound("call " + id)
	}
}

// withTokens gives the gateway tokens.
func (f *fakeGateway) withTokens(ago func(time.Duration) time.Time) {
	list := []api.Token{
		{Name: "alice", Role: "operator", Config: true},
		{Name: "board", Role: "viewer", Created: ago(50 * time.Hour), Expires: ago(-90 * 24 * time.Hour)},
		{Name: "ci", Role: "user", Created: ago(time.Minute)},
		{Name: "old", Role: "user", Created: ago(400 * time.Hour), Expires: ago(time.Hour)},
	}
	f.tokens = func() (any, *api.Error) { return api.TokenList{Tokens: list}, nil }
	f.newToken = func(t api.NewToken) (any, *api.Error) {
		for _, have := range list {
			if have.Name == t.Name {
				return nil, &api.Error{Kind: api.KindInvalid, Status: 409, Message: "there is a token " + t.Name + " already"}
			}
		}
		return api.CreatedToken{Token: api.Token{Name: t.Name, Role: t.Role, Created: testNow, Expires: t.Expires}, Secret: "tine_secret"}, nil
	}
	f.rotateToken = func(name string) (any, *api.Error) {
		if name != "ci" {
			return nil, notFound("token " + name)
		}
		return api.CreatedToken{Token: list[2], Secret: "tine_another"}, nil
	}
	f.revokeToken = func(name string) (any, *api.Error) {
		switch name {
		case "alice":
			return nil, &api.Error{Kind: api.KindInvalid, Status: 409, Message: "token alice stands in the config; remove it from auth.tokens there"}
		case "board", "ci", "old":
			return json.RawMessage(`{}`), nil
		}
		return nil, notFound("token " + name)
	}
}
