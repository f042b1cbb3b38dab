package config

import (
	"slices"
	"time"
)

// Values that a config has when it does not say otherwise.
const (
	DefaultSeparator = "__"

	defaultTimeout        = 5 * time.Minute
	ownTimeout            = 24 * time.Hour // of servers whose tools have limits of their own
	DefaultConnectCommand = 60 * time.Second
	defaultConnectURL     = 10 * time.Second
	DefaultConnectFetch   = 2 * time.Minute // of what fetches the server first
	defaultMaxTimeout     = time.Hour
	DefaultBudget         = 64 << 20
	defaultBudgetBuiltin  = 1 << 20
)

// Words that keys of a server may take.
var (
	builtins = append(slices.Clone(standing), builtinOrchestrator)
	// standing are the servers of a gateway without a config.
	standing     = []string{builtinFiles, builtinMemory, builtinSQLite, "time", "fetch", "everything", builtinRollout}
	drivers      = []string{"process", "url", "builtin"}
	scopes       = []string{ScopeSession, ScopeShared}
	transports   = []string{"auto", "streamable", "sse"}
	protocols    = []string{"auto", "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"}
	capabilities = []string{"elicitation", "sampling", "roots"}
	authTypes    = []string{AuthClientCredentials, AuthLogin}
	credentials  = []string{CredentialShared, CredentialPerPrincipal}
	errorForms   = []string{ErrorsResults, ErrorsProtocol}
	journalModes = []string{JournalFull, JournalMeta, JournalOff}
)

// Words that keys of auth may take.
var (
	roles = []string{"user", "viewer", "operator"}
	// algorithms are the asymmetric ones: with a symmetric one a server that can
	// check a token can make it.
	algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)

// Default is the config of a gateway that was given none: the built-in servers
// on loopback, on a machine like this one.
func Default() *Config { return standard(machineMemory()) }

func standard(memory int64) *Config {
	c := bare(memory)
	c.Workspace.On = true
	for _, name := range standing {
		s := newServer(name)
		s.Builtin, s.Journal, s.Workspace = name, c.Journal.Mode, name == builtinFiles
		s.fill()
		c.Servers = append(c.Servers, s)
	}
	return c
}

// bare is every default and no server, for a machine with so much memory.
func bare(memory int64) *Config {
	c := &Config{Sessions: Sessions{Memory: partOf(memory, 75)}, hidden: map[string]bool{}}
	topTable.Begin(c)
	return c
}

// newServer is an entry with the defaults that zero means something else for.
func newServer(id string) Server {
	s := Server{ID: id, hidden: map[string]bool{}}
	serverTable.Begin(&s)
	return s
}

// fill sets what the entry left open, but for the journal, which the top of the
// config decides.
func (s *Server) fill() {
	if s.Title == "" {
		s.Title = s.ID
	}
	switch {
	case s.URL != "":
		SetDefault(&s.Driver, "url")
	case s.Builtin != "":
		SetDefault(&s.Driver, "builtin")
	case s.kind != nil:
		SetDefault(&s.Driver, s.kind.Name)
	default:
		SetDefault(&s.Driver, "process")
	}
	connect, budget := defaultConnectURL, int64(0)
	switch k := s.kind; {
	case k != nil:
		connect, budget = k.connect(s), k.Budget
		k.fill(s)
	case s.Driver == "process":
		connect, budget = DefaultConnectCommand, DefaultBudget
	case s.Driver == "url":
		SetDefault(&s.Transport, "auto")
	case s.Driver == "builtin":
		budget = defaultBudgetBuiltin
	}
	serverTable.Fill(s)
	SetDefault(&s.Scope, s.DefaultScope())
	if s.Budget.Memory == 0 {
		s.Budget.Memory = budget
	}
	if s.ConnectTimeout == 0 {
		s.ConnectTimeout = connect
	}
	if s.Timeout == 0 {
		s.Timeout = s.defaultTimeout()
	}
	s.derive()
	// An empty list is an answer: claim nothing.
	if s.ClientCapabilities == nil {
		s.ClientCapabilities = []string{"elicitation", "sampling"}
	}
}

func (s *Server) defaultTimeout() time.Duration {
	if s.Controls() || s.Front != "" {
		return ownTimeout
	}
	return defaultTimeout
}

// DefaultScope is a session's own for what remembers something.
func (s *Server) DefaultScope() string {
	switch s.Builtin {
	case builtinFiles, builtinMemory, builtinSQLite:
		return ScopeSession
	case "":
		if s.URL == "" && s.Driver != "url" {
			return ScopeSession
		}
	}
	return ScopeShared
}

// derive sets the defaults that follow another key.
func (s *Server) derive() {
	p := &s.Policy
	if p.MaxTimeout == 0 {
		p.MaxTimeout, s.derived.maxTimeout = max(defaultMaxTimeout, s.Timeout), true
	}
	if p.Rate.Burst == 0 {
		p.Rate, s.derived.burst = p.Rate.Filled(), true
	}
}

func SetDefault(s *string, v string) {
	if *s == "" {
		*s = v
	}
}
