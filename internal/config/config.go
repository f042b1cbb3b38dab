// Package config turns tine.yaml, and the formats other programs use for the
// same thing, into one strict and validated Config.
package config

import (
	"cmp"
	"encoding/json"
	"time"
)

// DefaultListen is the address Tine listens on unless told otherwise.
const DefaultListen = "127.0.0.1:8463"

// Config is one resolved configuration. Every default is filled in.
type Config struct {
	// Path is the file it came from; empty for the built-in defaults.
	Path string `yaml:"-"`

	Listen    string `yaml:"listen"`
	PublicURL string `yaml:"public_url"`
	TLS       TLS    `yaml:"tls"`
	CORS      CORS   `yaml:"cors"`
	Auth      Auth   `yaml:"auth"`
	Limits    Limits `yaml:"limits"`
	Log       Log    `yaml:"log"`

	Journal   Journal   `yaml:"journal"`
	Telemetry Telemetry `yaml:"telemetry"`
	Sessions  Sessions  `yaml:"sessions"`
	Workspace Workspace `yaml:"workspace"`

	// TemplateRoots are the directories under which a session may name a template
	// by its path.
	TemplateRoots []string `yaml:"template_roots"`

	// SandboxBinary is tine-sandbox, which makes sandboxes; empty for the one beside
	// tine, or on PATH. It is read when the gateway starts.
	SandboxBinary string `yaml:"sandbox_binary"`

	// Separator stands between server and name in the merged view.
	Separator string `yaml:"separator"`
	// LongNames says what happens to names over 64 characters: keep or shorten.
	LongNames string `yaml:"long_names"`
	// DefaultView makes /mcp the view of one server.
	DefaultView string `yaml:"default_view"`

	// Errors is how failures of tool calls are told that are not the tool's: results
	// or protocol.
	Errors string `yaml:"errors"`

	// Environments are what OpenEnv's clients find, in the order of the file.
	Environments []Environment `yaml:"environments"`

	// Agents are blueprints, and the runs of them.
	Agents Agents `yaml:"agents"`

	// Servers in the order of the file.
	Servers []Server `yaml:"-"`

	// Warnings are things worth telling that stop nothing, such as a server that
	// was disabled because a variable is missing.
	Warnings []string `yaml:"-"`

	hidden map[string]bool // as in Server
	files  []ownFile
	// noWorkspace is whether the file says that sessions have no workspace.
	noWorkspace bool
}

// TLS holds the paths of a certificate and its key, both or none.
type TLS struct {
	Cert string `yaml:"cert"`
	Key  string `yaml:"key"`
}

// CORS lists the web origins that browsers may call from.
type CORS struct {
	Origins []string `yaml:"origins"`
}

// Auth says who may come in and what they may use. Without tokens and OIDC only
// loopback is served.
type Auth struct {
	Tokens []Token `yaml:"tokens"`
	OIDC   *OIDC   `yaml:"oidc"` // nil without
	Rules  []Rule  `yaml:"rules"`
}

// Token is one static bearer token and the principal it names: the token
// itself, or its hash as `tine token new` prints it.
type Token struct {
	Name  string `yaml:"name"`
	Token string `yaml:"token"`
	Hash  string `yaml:"hash"` // sha256:HEX
	Role  string `yaml:"role"` // user, viewer or operator; default user
}

// OIDC lets in who has a token of an issuer.
type OIDC struct {
	Issuer string `yaml:"issuer"`
	// Audience lists what a token's aud may be. Default: the URL that is called,
	// or one above it, up to public_url.
	Audience []string `yaml:"audience"`
	Scopes   []string `yaml:"scopes"` // that a token must have
	// Principal is the claim that names the principal; default sub.
	Principal string `yaml:"principal"`
	// Algorithms a signature may have; default RS256, ES256, EdDSA and their
	// longer relatives, never none or HS256.
	Algorithms []string `yaml:"algorithms"`
	CAFile     string   `yaml:"ca_file"`
}

// Rule gives those it matches a role, and servers and tools. With any rule in
// the config, what no matching rule gives is not there.
type Rule struct {
	Principals []string            `yaml:"principals"` // globs; empty for everyone
	Claims     map[string][]string `yaml:"claims"`     // each must hold one of these; globs
	Role       string              `yaml:"role"`       // user, viewer or operator; default user
	Servers    []string            `yaml:"servers"`    // globs; empty for all
	// Without these three it gives all of its servers; with any of them no more
	// than they name.
	Tools     []string `yaml:"tools"`     // globs of server__tool
	Prompts   []string `yaml:"prompts"`   // globs of server__prompt
	Resources []string `yaml:"resources"` // globs of servers whose resources it gives
	// Exec are globs of the servers beside which it lets commands be run, and whose files
	// it lets be copied; workspace is that of the sessions.
	Exec []string `yaml:"exec"`
	// Rate bounds the calls of each principal it matches; the highest of several
	// rules holds. Without calls it bounds none.
	Rate Rate `yaml:"rate"`
}

// Forms that the failure of a tool call may have which is not the tool's own: a
// tool's result, which a model reads, or an error of the protocol, for frameworks
// that don't look into _meta.
const (
	ErrorsResults  = "results"
	ErrorsProtocol = "protocol"
)

// Journal modes of a server.
const (
	JournalFull = "full" // everything
	JournalMeta = "meta" // who called what, when, how long, with what outcome
	JournalOff  = "off"
)

// Journal says what is written down of calls, and how long it is kept.
type Journal struct {
	Mode    string        `yaml:"mode"`     // full, meta or off, for servers that don't say; default full
	MaxAge  time.Duration `yaml:"max_age"`  // default 7 days
	MaxSize int64         `yaml:"max_size"` // bytes of all files; default 1 GiB
}

// Telemetry says where traces go.
type Telemetry struct {
	OTLP OTLP `yaml:"otlp"`
}

// OTLP is an OpenTelemetry collector that is spoken to over HTTP. What is not
// given is taken from OTEL_EXPORTER_OTLP_ENDPOINT and OTEL_EXPORTER_OTLP_HEADERS.
type OTLP struct {
	Endpoint string            `yaml:"endpoint"` // like http://127.0.0.1:4318; empty for no traces
	Headers  map[string]string `yaml:"headers"`
	Sample   float64           `yaml:"sample"` // share of traces that begin here, 0 to 1; default 1
	CAFile   string            `yaml:"ca_file"`
}

// Limits bound what comes from outside.
type Limits struct {
	Body        int64         `yaml:"body"`        // bytes of one request; default 16 MiB
	Header      int           `yaml:"header"`      // bytes of a request's headers; default 64 KiB
	Message     int64         `yaml:"message"`     // bytes of one message from a server; default 64 MiB
	Connections int           `yaml:"connections"` // open at once; default 4096
	Calls       int           `yaml:"calls"`       // in flight at once, over all clients; default 4096
	ListWait    time.Duration `yaml:"list_wait"`   // how long a list waits for a server that is not known yet, or slow; default 25s
	Fetch       time.Duration `yaml:"fetch"`       // of the packages of one server; default 10m
	Idle        time.Duration `yaml:"idle"`        // how long an unused client connection or session is kept; default 1h
	Drain       time.Duration `yaml:"drain"`       // how long SIGTERM waits for calls; default 10s
}

// Sessions bounds sessions, and says how long they last.
type Sessions struct {
	Max          int           `yaml:"max"`           // open at once; default 10000
	PerPrincipal int           `yaml:"per_principal"` // default 2000
	TTL          time.Duration `yaml:"ttl"`           // of opened ones; default none
	Idle         time.Duration `yaml:"idle"`          // of opened ones; default 24h; limits.idle is for the others
	// Memory and Instances are what the members of all opened sessions may need
	// together, by the budget of each server. Default: three quarters of the
	// machine's memory, and 10000.
	Memory    int64 `yaml:"memory"`
	Instances int   `yaml:"instances"`
	// Share is the part of both, in percent, that one principal with a name may have;
	// default 90.
	Share int `yaml:"share"`
	// Snapshots bounds the bytes of the snapshots of one principal; default 64 GiB.
	Snapshots int64         `yaml:"snapshots"`
	Wait      time.Duration `yaml:"wait"`      // how long an open, a fork or a start waits for room; default 30s
	MaxWait   time.Duration `yaml:"max_wait"`  // the longest that a request may ask to wait; default 10m
	ForkWait  time.Duration `yaml:"fork_wait"` // how long a fork waits for running calls; default 30s
	// OnLoss is what happens to the calls of a session after a server ended with
	// what it had in memory: tell, which fails one, or refuse, which fails all until
	// the session is rewound. Default tell.
	OnLoss string `yaml:"on_loss"`
	// Implicit is where a connection is that names no session: in one of its own, or in
	// the default session of its principal.
	Implicit string `yaml:"implicit"`

	Autosnapshot Autosnapshot `yaml:"autosnapshot"`
}

// Autosnapshot keeps a ring of snapshots of every session.
type Autosnapshot struct {
	Every  int      `yaml:"every"`  // calls; default 0 for never
	Before []string `yaml:"before"` // tools as server__tool, globs
	Keep   int      `yaml:"keep"`   // default 8
}

// Workspace gives each session a directory. In the file it is true, a path for
// a template, or a map.
type Workspace struct {
	On       bool   `yaml:"-"`
	Template string `yaml:"template"` // a directory, or snapshot:NAME; empty for none
	// Path is where servers see it; empty for DefaultWorkspace.
	Path string `yaml:"path"`
}

// DefaultWorkspace is where servers see the workspace unless the config says
// otherwise.
const DefaultWorkspace = "/workspace"

// SeenWorkspace is where the server is to see the workspace; empty where it does
// not.
func (s *Server) SeenWorkspace() string {
	if !s.Workspace {
		return ""
	}
	return cmp.Or(s.WorkspacePath, DefaultWorkspace)
}

// What follows the loss of a server's memory.
const (
	LossTell   = "tell"
	LossRefuse = "refuse"
)

// Where a connection is that names no session.
const (
	ImplicitOwn    = "own"
	ImplicitShared = "shared"
)

// What a fork carries of a server.
const (
	ForkMemory = "memory" // the live instance
	ForkFiles  = "files"  // its declared state; the server starts anew on it
	ForkFresh  = "fresh"  // nothing: it begins as a new session's would
	ForkShare  = "share"  // the same instance
	ForkRefuse = "refuse"
)

// StateDir is one directory of a program's state.
type StateDir struct {
	Name     string `yaml:"-"`
	Template string `yaml:"template"` // a directory it begins as a copy of; empty for none
}

// Budget is what one instance of a server may need.
type Budget struct {
	Memory int64 `yaml:"memory"` // default 64 MiB for a program or a container, 128 MiB in a sandbox, 1 MiB for what is built in
}

// Log sets what is logged: level debug, info, warn or error; format text or json.
type Log struct {
	Level  string `yaml:"level"`
	Format string `yaml:"format"`
}

// Scopes of a server.
const (
	ScopeSession = "session" // each session has an instance of its own
	ScopeShared  = "shared"  // all sessions use one
)

// Server is one named entry: how to run or reach one MCP server.
type Server struct {
	ID     string `yaml:"-"`
	Title  string `yaml:"title"`  // stands in brackets before descriptions; default: the id
	Driver string `yaml:"driver"` // process, sandbox, docker, remote, url or builtin; default by what is given

	Command string            `yaml:"command"`
	Args    []string          `yaml:"args"`
	Env     map[string]string `yaml:"env"`
	EnvFile string            `yaml:"env_file"` // more variables, one NAME=value a line; Env holds them already and wins
	Cwd     string            `yaml:"cwd"`

	URL       string            `yaml:"url"`
	Headers   map[string]string `yaml:"headers"`
	Transport string            `yaml:"transport"` // auto, streamable or sse
	CAFile    string            `yaml:"ca_file"`

	// Options are what the map of its driver says, such as a *Docker; nil for a driver
	// without one.
	Options any `yaml:"-" json:"-"`
	// Preset names the well-known server that the entry was made of.
	Preset string `yaml:"preset" json:",omitzero"`
	// Startup is asked of every new instance; nil for the handshake alone.
	Startup *Startup `yaml:"startup" json:",omitzero"`
	// Merged is whether a server that acts on sessions stands in the merged view,
	// unprefixed; others always do.
	Merged bool `yaml:"merged" json:",omitzero"`

	Builtin string `yaml:"builtin"` // files, memory, sqlite, time, fetch, everything or rollout
	// Front is a built-in server that has a program as its body, which the entry then
	// describes: rlm.
	Front    string         `yaml:"-" json:",omitzero"`
	Settings map[string]any `yaml:"settings"` // the built-in server's own

	Scope    string `yaml:"scope"`    // session or shared
	Enabled  bool   `yaml:"enabled"`  // default true
	Eager    bool   `yaml:"eager"`    // start with the gateway or session instead of at first use
	Protocol string `yaml:"protocol"` // auto, or one MCP revision to speak

	// State lists the directories that are a program's state: names, each perhaps
	// with a template. ${state.NAME} in args, env and cwd is the path of one.
	State []StateDir `yaml:"state" json:",omitzero"`
	// Stateless says that the server remembers nothing from call to call, so that
	// nothing is lost when it ends: state: none in the file.
	Stateless bool `yaml:"-" json:",omitzero"`
	// Template seeds what is built in, or a container's state: a file or directory,
	// or snapshot:NAME.
	Template string `yaml:"template" json:",omitzero"`
	// Details is the template of a server that an orchestrator runs, as JSON: it is
	// handed on as it is.
	Details json.RawMessage `yaml:"-" json:",omitzero"`
	// Workspace is whether the server sees the session's directory: ${workspace}
	// in args, env and cwd is its path, and a program runs in it unless cwd says
	// otherwise. Default: where it is used, and for files.
	Workspace bool `yaml:"workspace" json:",omitzero"`
	// WorkspacePath is the path of the top's workspace, for a server that sees it;
	// empty for DefaultWorkspace.
	WorkspacePath string `yaml:"-" json:",omitzero"`
	// Fork says what a fork carries: memory, files, fresh, share or refuse;
	// empty for the most the driver can, or refuse where that is nothing.
	Fork   string `yaml:"fork" json:",omitzero"`
	Budget Budget `yaml:"budget" json:",omitzero"`
	// Warm is how many instances stand ready for new sessions; for drivers that
	// carry memory.
	Warm int `yaml:"warm" json:",omitzero"`
	// ForkAhead keeps a copy of the instance ready after each call, so that a fork
	// of a session that did nothing since is a hand-over.
	ForkAhead bool `yaml:"fork_ahead" json:",omitzero"`
	// OnFork is how a server hears that it is a copy of another; nil for not at
	// all. In the file it is notify, or tool NAME.
	OnFork *OnFork `yaml:"on_fork" json:",omitzero"`

	// ClientCapabilities is what Tine may claim on behalf of clients:
	// elicitation, sampling, roots. Default: elicitation and sampling.
	ClientCapabilities []string `yaml:"client_capabilities"`

	// Auth is how Tine shows itself to a server that wants more than headers.
	Auth ServerAuth `yaml:"auth"`
	// Credential says whether all principals use one login, or each its own:
	// shared or per-principal; default shared.
	Credential string `yaml:"credential"`

	Policy  Policy `yaml:"policy"`
	Journal string `yaml:"journal"` // full, meta or off; default the top's journal.mode

	// Errors is the top's for the view of this server; empty for that.
	Errors string `yaml:"errors" json:",omitzero"`

	Tools          Tools         `yaml:"tools"`
	ConnectTimeout time.Duration `yaml:"connect_timeout"` // start and handshake, from when its packages are there; default 10s for a url, 60s for a command or a remote, 2m for a container and for npx and uvx in a sandbox
	Timeout        time.Duration `yaml:"timeout"`         // one call; default 5m

	// Disabled says why a server that is enabled in the file is off all the
	// same, such as a variable that is missing. Empty when it is not.
	Disabled string `yaml:"-"`

	// Inline says that it is a session's own and stands in no config; see Config.Inline.
	Inline bool `yaml:"-" json:",omitzero"`
	// Public has an inline server reach public addresses only.
	Public bool `yaml:"-" json:",omitzero"`

	// kind is that of its driver, where it has Options.
	kind *Kind
	// hidden names the values that came from a placeholder, such as env.KEY or
	// args.2, so that none is ever shown.
	hidden map[string]bool
	// derived notes the defaults that follow another key, so that they follow it
	// when it is set at run time.
	derived derived
	// gone are the values whose placeholder is missing, which is why it is off.
	gone []gone
}

type derived struct{ maxTimeout, burst bool }

// Tools shapes what of a server's tools is seen, by the server's own names.
// Patterns in Allow and Deny are globs in the syntax of path.Match, in which a
// slash is a character like any other; Deny wins.
type Tools struct {
	Allow    []string          `yaml:"allow"`
	Deny     []string          `yaml:"deny"`
	Rename   map[string]string `yaml:"rename"`
	Describe map[string]string `yaml:"describe"`
}

// Types of ServerAuth.
const (
	AuthClientCredentials = "client_credentials" // OAuth2, machine to machine
	AuthLogin             = "login"              // OAuth2 authorization code with PKCE, by a person
)

// Credentials of a server.
const (
	CredentialShared       = "shared"
	CredentialPerPrincipal = "per-principal"
)

// ServerAuth is how Tine gets tokens for a server.
type ServerAuth struct {
	Type         string `yaml:"type"` // client_credentials or login; empty for headers alone
	TokenURL     string `yaml:"token_url"`
	AuthURL      string `yaml:"auth_url"` // login: found by the server's metadata unless given
	ClientID     string `yaml:"client_id"`
	ClientSecret string `yaml:"client_secret"`
	PrivateKey   string `yaml:"private_key" json:",omitzero"` // instead of a secret: signs what tells who Tine is
	Issuer       string `yaml:"issuer" json:",omitzero"`      // whom that is told, where TokenURL is given
	// ClientMetadataURL is where Tine's client metadata document is; login: the client
	// id at authorization servers that read such documents.
	ClientMetadataURL string   `yaml:"client_metadata_url" json:",omitzero"`
	Scopes            []string `yaml:"scopes"`
	Audience          string   `yaml:"audience"`
	Resource          string   `yaml:"resource"` // login: default what the server's metadata says
	Redirect          string   `yaml:"redirect"` // login: where the person comes back to, for a client id that was registered with one
}

// Policy is what the calls of a server are subject to.
type Policy struct {
	// MaxTimeout bounds a call however often progress renewed its timeout;
	// default one hour, or timeout where that is longer.
	MaxTimeout  time.Duration `yaml:"max_timeout"`
	Retry       Retry         `yaml:"retry"`
	Breaker     Breaker       `yaml:"breaker"`
	Rate        Rate          `yaml:"rate"`
	Concurrency Concurrency   `yaml:"concurrency"`
	Cache       Cache         `yaml:"cache"`
}

// Retry repeats a call of which nothing was sent, or whose repetition does no
// harm.
type Retry struct {
	Attempts int           `yaml:"attempts"`  // in all; default 3, 1 for none
	Pause    time.Duration `yaml:"pause"`     // before the second; grows, with jitter; default 200ms
	MaxPause time.Duration `yaml:"max_pause"` // default 5s
}

// Breaker stops calls to a server that fails.
type Breaker struct {
	Failures int           `yaml:"failures"` // in a row that open it; default 5, 0 for no breaker
	Open     time.Duration `yaml:"open"`     // before it lets a probe through; default 30s
	Probes   int           `yaml:"probes"`   // that must succeed to close it; default 1
}

// Rate bounds the calls of a server in time, fairly between principals.
type Rate struct {
	Calls float64 `yaml:"calls"` // a second; 0 for no bound
	Burst int     `yaml:"burst"` // at once; default calls, at least 1
}

// Concurrency bounds the calls of a server at once, fairly between principals.
type Concurrency struct {
	Calls int           `yaml:"calls"` // 0 for no bound
	Queue int           `yaml:"queue"` // that may wait for a turn, also for the rate; default 128
	Wait  time.Duration `yaml:"wait"`  // longest; default 10s
}

// Cache keeps answers.
type Cache struct {
	Lists   time.Duration `yaml:"lists"`   // of lists whose server says nothing else; default 5m, 0 for none
	Results time.Duration `yaml:"results"` // of read-only tools; default 0, which is off
	Tools   []string      `yaml:"tools"`   // globs of the read-only tools whose results are kept; empty for all of them
}
