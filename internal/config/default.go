package config

import "time"

// Values that a config has when it does not say otherwise.
const (
	DefaultSeparator = "__"

	defaultTimeout        = 5 * time.Minute
	defaultConnectCommand = 60 * time.Second
	defaultConnectURL     = 10 * time.Second
)

// Words that keys of a server may take.
var (
	builtins     = []string{"time", "fetch", "everything"}
	drivers      = []string{"process", "url", "builtin"}
	scopes       = []string{ScopeSession, ScopeShared}
	transports   = []string{"auto", "streamable", "sse"}
	protocols    = []string{"auto", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}
	capabilities = []string{"elicitation", "sampling", "roots"}
)

// Default is the config of a gateway that was given none: the built-in servers
// on loopback.
func Default() *Config {
	c := bare()
	for _, name := range builtins {
		s := Server{ID: name, Builtin: name, Enabled: true}
		s.fill()
		c.Servers = append(c.Servers, s)
	}
	return c
}

// bare is every default and no server.
func bare() *Config {
	return &Config{
		Listen:    DefaultListen,
		Separator: DefaultSeparator,
		LongNames: "keep",
		Log:       Log{Level: "info", Format: "text"},
		Limits: Limits{
			Body:        16 << 20,
			Header:      64 << 10,
			Message:     64 << 20,
			Connections: 4096,
			Calls:       4096,
			ListWait:    5 * time.Second,
			Idle:        time.Hour,
			Drain:       10 * time.Second,
		},
		hidden: map[string]bool{},
	}
}

// fill sets what the entry left open.
func (s *Server) fill() {
	if s.Title == "" {
		s.Title = s.ID
	}
	switch {
	case s.URL != "":
		setDefault(&s.Driver, "url")
	case s.Builtin != "":
		setDefault(&s.Driver, "builtin")
	default:
		setDefault(&s.Driver, "process")
	}
	scope, connect := ScopeShared, defaultConnectURL
	switch s.Driver {
	case "process":
		scope, connect = ScopeSession, defaultConnectCommand
	case "url":
		setDefault(&s.Transport, "auto")
	}
	setDefault(&s.Scope, scope)
	setDefault(&s.Protocol, "auto")
	if s.ConnectTimeout == 0 {
		s.ConnectTimeout = connect
	}
	if s.Timeout == 0 {
		s.Timeout = defaultTimeout
	}
	// An empty list is an answer: claim nothing.
	if s.ClientCapabilities == nil {
		s.ClientCapabilities = []string{"elicitation", "sampling"}
	}
}

func setDefault(s *string, v string) {
	if *s == "" {
		*s = v
	}
}
