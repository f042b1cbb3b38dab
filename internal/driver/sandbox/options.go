package sandbox

import (
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// options are those of a spec; nil where it is of another driver.
func options(spec driver.Spec) *config.Sandbox { return driver.Options[config.Sandbox](spec) }

// optionsOf are those of an entry of the config.
func optionsOf(s config.Server) *config.Sandbox {
	b, _ := s.Options.(*config.Sandbox)
	return b
}
