package sandbox

import (
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// options are those of a spec; nil where it is of another driver.
func options(spec driver.Spec) *Config { return driver.Options[Config](spec) }

// optionsOf are those of an entry of the config.
func optionsOf(s config.Server) *Config {
	b, _ := s.Options.(*Config)
	return b
}
