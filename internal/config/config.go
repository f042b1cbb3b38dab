// Package config turns tine.yaml, and the formats other programs use for the
// same thing, into one strict and validated Config.
package config

import (
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

	// Separator stands between server and name in the merged view.
	Separator string `yaml:"separator"`
	// LongNames says what happens to names over 64 characters: keep or shorten.
	LongNames string `yaml:"long_names"`
	// DefaultView makes /mcp the view of one server.
	DefaultView string `yaml:"default_view"`

	// Servers in the order of the file.
	Servers []Server `yaml:"-"`

	// Warnings are things worth telling that stop nothing, such as a server that
	// was disabled because a variable is missing.
	Warnings []string `yaml:"-"`

	hidden map[string]bool // as in Server
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

// Auth says who may come in. Without tokens only loopback is served.
type Auth struct {
	Tokens []Token `yaml:"tokens"`
}

// Token is one static bearer token and the principal it names.
type Token struct {
	Name  string `yaml:"name"`
	Token string `yaml:"token"`
}

// Limits bound what comes from outside.
type Limits struct {
	Body        int64         `yaml:"body"`        // bytes of one request; default 16 MiB
	Header      int           `yaml:"header"`      // bytes of a request's headers; default 64 KiB
	Message     int64         `yaml:"message"`     // bytes of one message from a server; default 64 MiB
	Connections int           `yaml:"connections"` // open at once; default 4096
	Calls       int           `yaml:"calls"`       // in flight at once, over all clients; default 4096
	ListWait    time.Duration `yaml:"list_wait"`   // how long a merged list waits for a slow server; default 5s
	Idle        time.Duration `yaml:"idle"`        // how long an unused client connection or session is kept; default 1h
	Drain       time.Duration `yaml:"drain"`       // how long SIGTERM waits for calls; default 10s
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
	Driver string `yaml:"driver"` // process, url or builtin; default by what is given

	Command string            `yaml:"command"`
	Args    []string          `yaml:"args"`
	Env     map[string]string `yaml:"env"`
	EnvFile string            `yaml:"env_file"` // more variables, one NAME=value a line; Env holds them already and wins
	Cwd     string            `yaml:"cwd"`

	URL       string            `yaml:"url"`
	Headers   map[string]string `yaml:"headers"`
	Transport string            `yaml:"transport"` // auto, streamable or sse
	CAFile    string            `yaml:"ca_file"`

	Builtin  string         `yaml:"builtin"`  // time, fetch or everything
	Settings map[string]any `yaml:"settings"` // the built-in server's own

	Scope    string `yaml:"scope"`    // session or shared
	Enabled  bool   `yaml:"enabled"`  // default true
	Eager    bool   `yaml:"eager"`    // start with the gateway or session instead of at first use
	Protocol string `yaml:"protocol"` // auto, or one MCP revision to speak

	// ClientCapabilities is what Tine may claim on behalf of clients:
	// elicitation, sampling, roots. Default: elicitation and sampling.
	ClientCapabilities []string `yaml:"client_capabilities"`

	Tools          Tools         `yaml:"tools"`
	ConnectTimeout time.Duration `yaml:"connect_timeout"` // start and handshake; default 10s for a url, 60s for a command
	Timeout        time.Duration `yaml:"timeout"`         // one call; default 5m

	// Disabled says why a server that is enabled in the file is off all the
	// same, such as a variable that is missing. Empty when it is not.
	Disabled string `yaml:"-"`

	// hidden names the values that came from a placeholder, such as env.KEY or
	// args.2, so that none is ever shown.
	hidden map[string]bool
}

// Tools shapes what of a server's tools is seen, by the server's own names.
// Patterns in Allow and Deny are path.Match globs; Deny wins.
type Tools struct {
	Allow    []string          `yaml:"allow"`
	Deny     []string          `yaml:"deny"`
	Rename   map[string]string `yaml:"rename"`
	Describe map[string]string `yaml:"describe"`
}
