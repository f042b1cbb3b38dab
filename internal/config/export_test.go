package config

// For tests that name the types of drivers, which stand outside of this package.
var (
	Env         = env
	NoEnv       = noEnv
	MustParse   = mustParse
	ServerOf    = serverOf
	QuoteScalar = quoteScalar
)

// Meaning is what the options of an entry are compared by.
func (s *Server) Meaning() any { return kindOf(s.Driver).meaning(s.Options) }

// WholeOptions says what is missing of the options of an entry that was read.
var WholeOptions func(s *Server) error
