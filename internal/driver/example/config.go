// Package example is a driver to copy: the least that is whole. It runs a program that
// speaks stdio as a child of the gateway, and nothing outlives the gateway.
//
// It is compiled and passes drivertest, so that it stays true. It is not registered in
// cmd/tine: no config of a user has its key. CONTRIBUTING.md, "Add a driver", says how
// a copy is registered. Read the files in the order in which one writes them:
//
//	config.go    what a config says of such a server
//	example.go   what the driver is, and how an instance starts
//	instance.go  one running program, until nothing is left of it
//	sweep.go     what a gateway that was killed left behind
//
// The driver itself is for systems with process groups; the config is read on all.
package example

import (
	"time"

	"github.com/tine-mcp/tine/internal/config"
)

// Config is what stands below the key. Sessions store it as JSON and compare its hash, so
// a field that is zero is left out: one that is added later changes nothing stored.
type Config struct {
	Priority int `yaml:"priority" json:",omitzero"`
}

// keys describe each key once. The reading, tine config show, the redaction, the
// reference and the JSON Schema follow from it, so none of them is written by hand.
var keys = config.Table[Config]{
	// Always, because 0 is an answer and not the lack of one.
	config.Put("priority", func(c *Config) *int { return &c.Priority }, config.Int[int](0, 19).Default(0).Always(),
		"how much the program gives way to others, as nice(1) counts"),
}

// Kind adds the key to an entry of servers. What it does not say holds as for a plain
// command.
var Kind = config.KindOf[Config]{
	Kind: config.Kind{
		About: config.About{Name: "example", Type: "map", Meaning: "runs the program by the example driver"},
		// The key stands beside a command. A driver that is a way of its own to run a
		// server, as docker is, has no Around.
		Around: "command", AroundMend: "name the program", Budget: config.DefaultBudget,
		NoWorkspace: "the example driver shows its programs no workspace; remove this",
	},
	Keys: keys,
	Read: func(o config.Object, _ *config.Server) *Config {
		if o.Get("example") == nil {
			return nil // another driver's server
		}
		c := &Config{}
		// What is wrong below the key is told with its place, and the rest is still
		// read: a person sees all mistakes at once.
		if below, ok := o.Child("example", keys.Names()); ok {
			keys.Read(below, c)
		}
		return c
	},
	// What the driver can't do is refused when the config is read and not at the first
	// call. This one is no driver.Keeper, so it has no place for a state.
	Check: func(o config.Object, s *config.Server, _ *Config) {
		if len(s.State) > 0 {
			o.Wrong("state", o.Get("state"), "the example driver keeps no state; remove this")
		}
	},
	Fork: func(o config.Object, s *config.Server, _ *Config) bool {
		if n := o.Get("fork"); s.Fork == config.ForkMemory || s.Fork == config.ForkFiles {
			o.Wrong("fork", n, "%s carries what a server remembers, which the example driver can't; use fresh, share or refuse", n.Shown())
		}
		return true
	},
	Connect: func(*config.Server) time.Duration { return config.DefaultConnectCommand },
	// Shown texts have their secrets masked; the fields themselves don't.
	Target: func(s *config.Server, _ *Config) string {
		return config.CommandLine("example "+s.ShownText("command", s.Command), s.ShownArgs())
	},
}.Make()
