package config

import (
	"slices"
	"strings"
	"time"
)

// serverTable are the keys of an entry of servers. What says how a server is run or
// reached, and what it remembers, hangs together; it is read elsewhere and described
// here.
var serverTable = Table[Server]{
	Told[Server]("command", "string", "", TextSchema, "the program; a relative path starts at `cwd`, else at the folder of the config"),
	Told[Server]("args", "list", "none", textsSchema, "its arguments; numbers are taken as written").With("command"),
	Told[Server]("env", "map", "none", textMapSchema, "variables for it; numbers and booleans are taken as written. Of the gateway's own it gets only those that programs need to run, such as `HOME`, `PATH` and `LANG`: name any other here, such as `GITHUB_TOKEN` or `npm_config_cache`, as in `GITHUB_TOKEN: ${GITHUB_TOKEN}`").With("command"),
	Told[Server]("env_file", "path", "", TextSchema, "a file of `NAME=value` lines; `env` wins over it").With("command"),
	Told[Server]("cwd", "path", "", TextSchema, "the folder it runs in. Unless set it is the workspace where `workspace` is `true`, else the folder where the gateway was started, or in a sandbox its home folder there").With("command"),
	Put("url", func(s *Server) *string { return &s.URL }, Text("https://mcp.example.org/mcp").As("URL").Then(checkURL), "an MCP server that runs elsewhere"),
	Put("headers", func(s *Server) *map[string]string { return &s.Headers }, Headers().Unless("none"), "sent with every request; for a remote only to its orchestrator. Credentials go here").With("url"),
	Put("transport", func(s *Server) *string { return &s.Transport }, OneOf(transports...).Unless("`auto`"), "the MCP transport").With("url"),
	Put("ca_file", func(s *Server) *string { return &s.CAFile }, FilePath("ca.pem"), "PEM file with additional certificate authorities").With("url"),
	Put("auth", func(s *Server) *ServerAuth { return &s.Auth }, Map(serverAuthTable, nil).Unless("none"), "how Tine gets a token for it, see [below](#servers-that-want-a-token); `login` is not for a remote").With("url"),
	Put("credential", func(s *Server) *string { return &s.Credential }, OneOf(credentials...).Default(CredentialShared), "whether all principals use one login, or each its own").With("url"),
	builtinKey(),
	Told[Server]("settings", "map", "none", Schema{"type": "object"}, "the built-in server's own settings").With("builtin"),
	Told[Server]("preset", "`filesystem`, `duckdb`, `memory`, `everything`, `fetch`, `time`", "", Schema{"enum": presetNames()}.OrPlaceholder(), "a well-known server, see [presets](servers/presets.md)"),
	Put("title", func(s *Server) *string { return &s.Title }, Text("Files").Unless("the id").Then(oneLineTitle), "shown in brackets before descriptions"),
	driverKey(),
	Put("scope", func(s *Server) *string { return &s.Scope }, OneOf(scopes...).Unless("`session` for `command`, `docker`, `remote` and for `files`, `memory` and `sqlite`, else `shared`"), "one instance for each session, or one for all"),
	Told[Server]("state", "list, map or `none`", "nothing", Schema{"anyOf": []Schema{{"const": noState}, textsSchema, {"type": "object"}}}, "the directories of its state, see [below](#what-a-server-remembers); for a container it is `docker.state`. `none`: the server keeps no state from call to call, so a restart loses nothing and a fork starts it fresh").With("command"),
	Told[Server]("template", "path, `snapshot:NAME`", "", Schema{}, "the initial state of `memory`, `sqlite` or a container, and with `files` of the workspace; for a remote anything that its orchestrator understands").With("builtin"),
	Told[Server]("workspace", "boolean", "where `${workspace}` is used, and for `files`", Schema{"type": "boolean"}.OrPlaceholder(), "whether it sees the session's [directory](#workspace)").For("`command`, `builtin`"),
	Told[Server]("fork", "`memory`, `files`, `fresh`, `share`, `refuse`", "the most that can be carried", Schema{"enum": forks}.OrPlaceholder(), "what a fork carries of it"),
	Put("budget", func(s *Server) *Budget { return &s.Budget }, Map(budgetTable, nil).Inline(), "what one instance may need").For("`command`, `builtin`, `docker`"),
	Put("warm", func(s *Server) *int { return &s.Warm }, Int[int](0, mostWarm).Unless("`0`"), "instances kept ready for new sessions; not for a server that works in the workspace").For("`sandbox`"),
	Put("fork_ahead", func(s *Server) *bool { return &s.ForkAhead }, Bool(), "whether a copy is made after each call, so that a fork of a session that did nothing since takes the copy; not beside `state` or a workspace, whose files may have changed since").For("`sandbox`"),
	Told[Server]("on_fork", "`notify`, `tool NAME` or `{tool: NAME}`", "", TextSchema, "how the server is told that it is a copy: by the notification `notifications/tine/forked`, or by a call of a tool of its own (`on_fork.tool`)").For("`sandbox`").Of([]About{{Name: "tool", Type: "a tool's name", Schema: TextSchema, Meaning: "the server's tool to call"}}),
	Put("startup", func(s *Server) **Startup { return &s.Startup }, Maybe(startupTable, readStartup), "a call that a new instance must answer before it counts as started"),
	Put("merged", func(s *Server) *bool { return &s.Merged }, Bool(), "whether its tools are in the merged view, unprefixed; it always has a view of its own").For("`builtin: rollout` and `builtin: orchestrator`"),
	Put("enabled", func(s *Server) *bool { return &s.Enabled }, Bool().Begin(true), "whether the server is enabled"),
	Put("eager", func(s *Server) *bool { return &s.Eager }, Bool(), "start at once instead of at first use"),
	Put("protocol", func(s *Server) *string { return &s.Protocol }, OneOf(protocols...).Default("auto"), "the one MCP revision to speak"),
	Put("client_capabilities", func(s *Server) *[]string { return &s.ClientCapabilities }, Words(capabilities...).Unless("`[elicitation, sampling]`"), "client capabilities that Tine announces to the server"),
	Put("connect_timeout", func(s *Server) *time.Duration { return &s.ConnectTimeout }, Duration(time.Millisecond, time.Hour).Unless("`60s` for a command or a remote, `2m` for a container and for `npx` and `uvx` in a sandbox, else `10s`"), "start and handshake, after the packages were fetched; also each list of a running server, at least 30 s"),
	Put("timeout", func(s *Server) *time.Duration { return &s.Timeout }, Duration(time.Millisecond, 7*day).Unless("`5m`; `24h` for `builtin: rollout`, `orchestrator` and `rlm`"), "one call, not counting the time that a question of the server waits for the client (up to 10 minutes each)"),
	Put("policy", func(s *Server) *Policy { return &s.Policy }, Map(policyTable, nil), "limits, retries, breaker and caches of its calls, see [below](#policy)"),
	Put("journal", func(s *Server) *string { return &s.Journal }, OneOf(journalModes...).Unless("`journal.mode`"), "what the journal keeps of its calls"),
	Put("errors", func(s *Server) *string { return &s.Errors }, OneOf(errorForms...).Unless("`errors` of the top"), "the same for the view of this server, `/mcp/{server}`"),
	Put("tools", func(s *Server) *Tools { return &s.Tools }, Map(toolsTable, nil), "which of its tools are visible, and how; see below"),
}

var budgetTable = Table[Budget]{
	Put("memory", func(b *Budget) *int64 { return &b.Memory }, Size[int64](1<<10, MaxBytes).Unless("`64MiB` for a command or a container, `128MiB` for a command in a sandbox and `1MiB` for a builtin"),
		"counts toward `sessions.memory`"),
}

// kindKey is the key of a kind, which is read by it.
func kindKey(k *Kind) Key[Server] {
	key := Key[Server]{About: k.About}
	if k.Around != "" {
		key = key.With(k.Around)
	}
	return key
}

// driverKey is the key that names a driver.
func driverKey() Key[Server] {
	return Told[Server]("driver", "`"+strings.Join(drivers, "`, `")+"`", "by what is given", Schema{"enum": slices.Clone(drivers)}.OrPlaceholder(),
		"the driver; `driver: sandbox` beside a command is the same as `sandbox: true`; with a preset, which of its drivers")
}
