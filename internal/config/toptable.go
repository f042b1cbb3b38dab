package config

import (
	"fmt"
	"strings"
	"time"
)

// topTable are the keys of a config.
var topTable = Table[Config]{
	Put("listen", func(c *Config) *string { return &c.Listen }, Text(DefaultListen).As("`host:port`").Begin(DefaultListen).By(readListen).Open(), "where Tine listens; port 0 takes a free one"),
	Put("public_url", func(c *Config) *string { return &c.PublicURL }, Text("https://tine.example.org").As("URL").Then(plainURL), "the URL that clients use when a proxy is in front of Tine"),
	Put("tls", func(c *Config) *TLS { return &c.TLS }, Map(tlsTable, nil), "the certificate that Tine shows; without it there is none"),
	Put("cors", func(c *Config) *CORS { return &c.CORS }, Map(corsTable, nil), "which web pages may call Tine"),
	Put("auth", func(c *Config) *Auth { return &c.Auth }, Map(authTable, nil), "who has access, and to what; see [auth](#auth)"),
	Put("limits", func(c *Config) *Limits { return &c.Limits }, Map(limitsTable, nil), "limits on requests, connections and time, see [limits](#limits)"),
	Put("log", func(c *Config) *Log { return &c.Log }, Map(logTable, nil), "what the gateway writes to standard error"),
	Put("journal", func(c *Config) *Journal { return &c.Journal }, Map(journalTable, func(j *Journal, word string) { j.Mode = word }, journalModes...), "what the journal keeps of calls, see [journal](#journal)"),
	Put("telemetry", func(c *Config) *Telemetry { return &c.Telemetry }, Map(telemetryTable, nil), "where traces go, see [telemetry](#telemetry)"),
	Put("sessions", func(c *Config) *Sessions { return &c.Sessions }, Map(sessionsTable, nil), "how many sessions there may be, and how long they last; see [sessions](#sessions)"),
	Put("workspace", func(c *Config) *Workspace { return &c.Workspace }, workspaceValue, "the directory of each session, see [workspace](#workspace)"),
	Put("template_roots", func(c *Config) *[]string { return &c.TemplateRoots }, Set(Texts("[./templates]").As("list of paths").Unless("none").By(readTemplateRoots)),
		"the directories from which a caller that opens a session may name a template by its path; never `/`, nor one with the gateway's own files or keys in it"),
	Put("sandbox_binary", func(c *Config) *string { return &c.SandboxBinary }, FilePath("/usr/libexec/tine-sandbox").Unless("beside `tine`, then on `PATH`"),
		"the program `tine-sandbox`, which makes [sandboxes](sandbox.md); read when the gateway starts"),
	Put("separator", func(c *Config) *string { return &c.Separator }, Text(`"__"`).As("1 to 4 of `_` `-` `.`").Begin(DefaultSeparator).Then(checkSeparator), "separates server and name in the merged view"),
	Put("long_names", func(c *Config) *string { return &c.LongNames }, OneOf("keep", "shorten").Begin("keep"), "what happens to names over 64 characters in the merged view; `shorten` cuts them and adds a stable hash"),
	Put("default_view", func(c *Config) *string { return &c.DefaultView }, Text("fs").As("a server's id").Then(func(o Object, key string, _ *string) { o.d.defaultView = o.Get(key) }),
		"makes `/mcp` the view of this one server"),
	Put("errors", func(c *Config) *string { return &c.Errors }, OneOf(errorForms...).Begin(ErrorsResults), "how a tool call fails when the cause is not the tool, see [failures](rollouts.md#failures)"),
	Put("environments", func(c *Config) *[]Environment { return &c.Environments }, environmentsValue, "environments for clients of OpenEnv, by their names; see [environments](#environments)"),
	Put("agents", func(c *Config) *Agents { return &c.Agents }, Map(agentsTable, nil), "where the blueprints of agents are, and what their runs may use; see [agents](#agents)"),
	Told[Config]("servers", "map", "none", nil, "the servers by their ids, see [servers](#servers)"),
}

var tlsTable = Table[TLS]{
	Put("cert", func(t *TLS) *string { return &t.Cert }, FilePath("cert.pem"), "PEM file with the certificate"),
	Put("key", func(t *TLS) *string { return &t.Key }, FilePath("key.pem"), "PEM file with its key; set both or neither"),
}

var corsTable = Table[CORS]{
	Put("origins", func(c *CORS) *[]string { return &c.Origins }, Texts(`["https://app.example.org"]`).As("list of origins").Unless("none"), "web origins whose pages may call Tine; without auth at the MCP endpoints only"),
}

var logTable = Table[Log]{
	Put("level", func(l *Log) *string { return &l.Level }, OneOf("debug", "info", "warn", "error").Begin("info"), "the lowest level that is logged"),
	Put("format", func(l *Log) *string { return &l.Format }, OneOf("text", "json").Begin("text"), "the format of the log"),
}

var limitsTable = Table[Limits]{
	Put("body", func(l *Limits) *int64 { return &l.Body }, Size[int64](1<<10, 1<<30).Begin(16<<20), "one request from a client"),
	Put("header", func(l *Limits) *int { return &l.Header }, Size[int](4<<10, 16<<20).Begin(64<<10), "the headers of one request"),
	Put("message", func(l *Limits) *int64 { return &l.Message }, Size[int64](1<<10, 1<<30).Begin(64<<20), "one message from a server"),
	Put("connections", func(l *Limits) *int { return &l.Connections }, Int[int](1, 1_000_000).Begin(4096),
		"connections open at once; half of the files that the process may have open (`ulimit -Hn`) where that is less, which the log and `tine doctor` show. See below for what happens when they are used up"),
	Put("calls", func(l *Limits) *int { return &l.Calls }, Int[int](1, 1_000_000).Begin(4096), "calls in flight at once, over all clients"),
	Put("list_wait", func(l *Limits) *time.Duration { return &l.ListWait }, Duration(10*time.Millisecond, 10*time.Minute).Begin(25*time.Second),
		"how long a merged list waits for a server whose list is not known yet, or that runs and is slow, see below"),
	Put("fetch", func(l *Limits) *time.Duration { return &l.Fetch }, Duration(time.Second, day).Begin(10*time.Minute),
		"how long the packages of one `npx`, `uvx` or `pipx` server may take to be fetched, see below"),
	Put("idle", func(l *Limits) *time.Duration { return &l.Idle }, Duration(time.Second, 30*day).Begin(time.Hour), "how long an unused connection is kept, and how long the programs of a default or named session run unused; such a session itself stays, with the state of its built-in servers. A connection with a call in progress or an open stream is in use"),
	Put("drain", func(l *Limits) *time.Duration { return &l.Drain }, Duration(0, time.Hour).Begin(10*time.Second),
		"how long a stop waits for calls in flight; a call that takes longer fails as `infrastructure`, and may have taken effect"),
}

var journalTable = Table[Journal]{
	Put("mode", func(j *Journal) *string { return &j.Mode }, OneOf(journalModes...).Begin(JournalFull),
		"the default for servers: everything, or only who called what, when, how long and with what outcome, or nothing"),
	Put("max_age", func(j *Journal) *time.Duration { return &j.MaxAge }, Duration(time.Minute, 3650*day).Begin(7*day), "older calls are dropped"),
	Put("max_size", func(j *Journal) *int64 { return &j.MaxSize }, Size[int64](1<<20, MaxBytes).Begin(1<<30), "the oldest are dropped beyond it"),
}

var telemetryTable = Table[Telemetry]{
	Put("otlp", func(t *Telemetry) *OTLP { return &t.OTLP }, Map(otlpTable, nil).ShownIf(func(o OTLP) bool { return o.Endpoint != "" }), "an OpenTelemetry collector"),
}

var otlpTable = Table[OTLP]{
	Put("endpoint", func(o *OTLP) *string { return &o.Endpoint }, Text("http://127.0.0.1:4318").As("URL").Unless("`OTEL_EXPORTER_OTLP_ENDPOINT`").Then(checkCollector),
		"an OpenTelemetry collector that takes OTLP over HTTP; without one, or with `\"\"`, there are no traces"),
	Put("headers", func(o *OTLP) *map[string]string { return &o.Headers }, Headers().Unless("`OTEL_EXPORTER_OTLP_HEADERS`"), "headers of each export"),
	Put("sample", func(o *OTLP) *float64 { return &o.Sample }, Number(0, 1).Begin(1).Always(), "the share of traces that begin here and are kept; a trace that a client began follows the client's decision"),
	Put("ca_file", func(o *OTLP) *string { return &o.CAFile }, FilePath("ca.pem"), "PEM file with additional certificate authorities"),
}

var sessionsTable = Table[Sessions]{
	Put("max", func(s *Sessions) *int { return &s.Max }, Int[int](0, mostSessions).Begin(10_000).Always(), "sessions open at once; 0 for no bound"),
	Put("per_principal", func(s *Sessions) *int { return &s.PerPrincipal }, Int[int](0, mostSessions).Begin(2000).Always(), "sessions of one principal; 0 for no bound"),
	Put("ttl", func(s *Sessions) *time.Duration { return &s.TTL }, Duration(0, 3650*day).Unless("`0`"), "the longest that an opened session lasts; 0 for as long as it is used"),
	Put("idle", func(s *Sessions) *time.Duration { return &s.Idle }, Duration(0, 3650*day).Begin(day),
		"how long an opened session is kept without use; 0 for ever. Default and named sessions stay; the session of a connection ends with it, or after `limits.idle`"),
	Put("memory", func(s *Sessions) *int64 { return &s.Memory }, Bound().Or(Schema{"type": "string", "pattern": `^[0-9.]+ ?%$`}).As("size, percentage").Unless("`75%`").By(func(o Object, key string, dst *int64) bool { return o.share(key, dst, o.d.opts.Memory) }),
		"what the running servers of all opened sessions may need together, by the `budget` of each; a percentage is of the memory of the machine, or of the container it runs in. `off` or 0 for no bound"),
	Put("instances", func(s *Sessions) *int { return &s.Instances }, Int[int](0, mostSessions).Begin(10_000).Always(), "how many instances opened sessions may run together; 0 for no bound"),
	Put("share", func(s *Sessions) *int { return &s.Share }, percentValue.Begin(90),
		"the share of `memory` and `instances` that one principal may use, so that it can't keep all others out; without auth there is one principal, which may use all"),
	Put("snapshots", func(s *Sessions) *int64 { return &s.Snapshots }, Bound().Begin(64<<30), "bytes of the snapshots of one principal; `off` or 0 for no bound"),
	Put("wait", func(s *Sessions) *time.Duration { return &s.Wait }, Duration(0, day).Begin(30*time.Second), "how long an open, a fork or the start of a server waits for room"),
	Put("max_wait", func(s *Sessions) *time.Duration { return &s.MaxWait }, Duration(time.Second, day).Begin(10*time.Minute),
		"the longest that a request may ask to wait, for room or for calls in progress; a longer wait is cut to this, and the error says so"),
	Put("fork_wait", func(s *Sessions) *time.Duration { return &s.ForkWait }, Duration(0, day).Begin(30*time.Second), "how long a fork waits for calls in progress"),
	Put("on_loss", func(s *Sessions) *string { return &s.OnLoss }, OneOf(LossTell, LossRefuse).Begin(LossTell), "what follows when a server lost its memory: `tell` fails the next call with `lost`; `refuse` fails every call of the session until it is rewound to an earlier snapshot, or closed. In implicit sessions (of a connection, default, named) only a death of the server counts, not an end by the gateway itself, and only calls of the server that died are refused. See [sessions.md](sessions.md#damage)"),
	Put("implicit", func(s *Sessions) *string { return &s.Implicit }, OneOf(ImplicitOwn, ImplicitShared).Begin(ImplicitOwn), "the session of a connection with a handshake that names none: its own, whose programs end with it, or the default session of its principal, together with all others. See [sessions.md](sessions.md#which-session-a-caller-is-in)"),
	Put("autosnapshot", func(s *Sessions) *Autosnapshot { return &s.Autosnapshot }, Map(autosnapshotTable, nil).Inline(), "snapshots to rewind to, which are made by themselves"),
}

var autosnapshotTable = Table[Autosnapshot]{
	Put("every", func(a *Autosnapshot) *int { return &a.Every }, Int[int](0, 1_000_000).Unless("`0`").Always(), "a snapshot to rewind to after so many calls; 0 for never"),
	Put("before", func(a *Autosnapshot) *[]string { return &a.Before }, Set(toolPatterns.Unless("none")), "a snapshot before calls of these tools"),
	Put("keep", func(a *Autosnapshot) *int { return &a.Keep }, Int[int](1, 1000).Begin(8), "how many of them a session keeps; the oldest is deleted"),
}

// toolPatterns is a list of globs of server__tool, or one.
var toolPatterns = func() Value[[]string] {
	v := Texts("").As("list of patterns of `server__tool`")
	v.About.Schema = v.About.Schema.orOne()
	v.Read = func(o Object, key string, dst *[]string) bool {
		d := o.d
		if !o.oneOrMore(key, dst, false, `["files`+d.separator+`write_*"]`) {
			return false
		}
		o.patterns(key, "server"+d.separator+"tool")
		for _, it := range o.Items(key, false) {
			d.named = append(d.named, named{it, "tool"})
		}
		return true
	}
	return v
}()

// percentValue is a part of something, from 1% to all of it.
var percentValue = Value[int]{
	About:   About{Type: "percentage", Range: "`1%` to `100%`", Schema: Schema{"type": "string", "pattern": `^[0-9]{1,3} ?%$|\$\{`}},
	Read:    func(o Object, key string, dst *int) bool { return o.percent(key, dst) },
	Show:    func(v int, _ Place) *Node { return StringNode(fmt.Sprintf("%d%%", v)) },
	written: func(v int) string { return fmt.Sprintf("%d%%", v) },
}

var workspaceTable = Table[Workspace]{
	Put("template", func(w *Workspace) *string { return &w.Template },
		Text("./start").As("path, `snapshot:NAME`").By(func(o Object, key string, dst *string) bool { return o.d.template(o, key, dst, true) }), "what it begins as a copy of"),
	Put("path", func(w *Workspace) *string { return &w.Path }, Text(DefaultWorkspace).As("path").Unless("`/workspace`").By(readWorkspacePath), "where servers see it"),
}

// workspaceValue is the top's: a word, a template, or a map with one.
var workspaceValue = Value[Workspace]{
	About: About{
		Type: "boolean, path, `snapshot:NAME`, or a map", Default: "on where a server sees it", Keys: workspaceTable.About(),
		Schema: Schema{"type": []string{"boolean", "string"}},
	},
	Read:   readWorkspace,
	Show:   func(w Workspace, at Place) *Node { return w.shown(at.hidden) },
	always: true,
}

var authTable = Table[Auth]{
	Put("tokens", func(a *Auth) *[]Token { return &a.Tokens }, List(tokenTable, readTokens, "").As("list").Unless("none"), "who may come in with a token of yours, see [auth](#auth)"),
	Put("oidc", func(a *Auth) **OIDC { return &a.OIDC }, Maybe(oidcTable, readOIDC).Unless("none"), "who may come in with a token of an issuer"),
	Put("rules", func(a *Auth) *[]Rule { return &a.Rules }, List(ruleTable, readRules, "").As("list").Unless("none"), "what each of them gets"),
}

// tokenHash is shown, so that what is shown can be loaded: a token of 16 characters
// can't be guessed from it. Logs have no use for it.
var tokenHash = func() Value[string] {
	v := Secret(`"sha256:..."`)
	v.Show = showText
	return v
}()

var tokenTable = Table[Token]{
	Put("name", func(t *Token) *string { return &t.Name }, Text("laptop"), "the principal's name: letters, digits, dots, dashes, underscores and @; no colon, since the principals of an issuer are `oidc:NAME`"),
	Put("token", func(t *Token) *string { return &t.Token }, Secret(`"${TINE_TOKEN}"`), "the token, at least 16 visible ASCII characters; `openssl rand -hex 24` makes one"),
	Put("hash", func(t *Token) *string { return &t.Hash }, tokenHash.As("`sha256:` and 64 hexadecimal digits"), "instead of `token`, so that the file holds no secret"),
	Put("role", func(t *Token) *string { return &t.Role }, OneOf(roles...).Begin(roles[0]),
		"what it may do beside using tools: a viewer also sees calls and their outcomes, without contents; an operator also reads contents and changes settings"),
}

var oidcTable = Table[OIDC]{
	Put("issuer", func(o *OIDC) *string { return &o.Issuer }, secretURL("https://login.example.org").Then(noQuery), "the `iss` of the tokens; its keys are found below it. Plain http on loopback only"),
	Put("audience", func(o *OIDC) *[]string { return &o.Audience }, Set(oneOrList("[https://tine.example.org]").Unless("the URL that is called, or one above it").Then(noEmptyAudience)), "what a token's `aud` may be"),
	Put("scopes", func(o *OIDC) *[]string { return &o.Scopes }, Set(scopeList.Unless("none")), "the scopes that a token must have"),
	Put("principal", func(o *OIDC) *string { return &o.Principal }, Text("email").As("a claim").Begin("sub").Then(noEmptyClaim), "the claim that names the principal"),
	Put("algorithms", func(o *OIDC) *[]string { return &o.Algorithms }, Set(Words(algorithms...).As("list").Unless("`"+strings.Join(algorithms, "`, `")+"`").By(readAlgorithms)),
		"how a token may be signed; `none` and symmetric ones are refused"),
	Put("ca_file", func(o *OIDC) *string { return &o.CAFile }, FilePath("ca.pem"), "PEM file with additional certificate authorities"),
}

var ruleTable = Table[Rule]{
	Put("principals", func(r *Rule) *[]string { return &r.Principals }, rulePatterns("a principal's name", "", mostHint).As("list of patterns").Unless("everyone"), "the principals it applies to, by name"),
	Put("claims", func(r *Rule) *map[string][]string { return &r.Claims }, claimsValue, "each of these claims must hold one of its patterns"),
	Put("role", func(r *Rule) *string { return &r.Role }, OneOf(roles...).Begin(roles[0]), "the role it grants"),
	Put("servers", func(r *Rule) *[]string { return &r.Servers }, rulePatterns("a server's id", "", mostHint).As("list of patterns").Unless("all"), "the servers it grants"),
	Put("tools", func(r *Rule) *[]string { return &r.Tools }, rulePatterns("tool", "tool", mostHint).As("list of patterns of `server__tool`"), "the tools it grants"),
	Put("prompts", func(r *Rule) *[]string { return &r.Prompts }, rulePatterns("prompt", "prompt", leastHint).As("list of patterns of `server__prompt`"), "the prompts it grants, with their completion"),
	Put("resources", func(r *Rule) *[]string { return &r.Resources }, rulePatterns("a server's id", "", leastHint).As("list of patterns of servers"), "the servers whose resources and templates it grants, with their completion"),
	Put("exec", func(r *Rule) *[]string { return &r.Exec }, rulePatterns("a server's id", "", leastHint).As("list of patterns of servers"), "the servers beside which commands may be run and whose files may be copied in and out; `workspace` for copies into the workspace of a session, out of which every principal of the session may copy"),
	Put("rate", func(r *Rule) *Rate { return &r.Rate }, rateValue.ShownIf(func(r Rate) bool { return r.Calls > 0 }).As("`{calls, burst}`").Unless("none"),
		"how many calls a second each principal may make, over all servers and sessions, and at once (default `calls`, at least 1); 0 for any number"),
}
