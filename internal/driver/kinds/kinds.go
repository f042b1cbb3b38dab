// Package kinds adds the keys of drivers to those that a config may have. A program that
// reads configs imports it.
package kinds

import (
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver/docker"
	"github.com/tine-mcp/tine/internal/driver/remote"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
)

func init() { config.Register(sandbox.Kind, docker.Kind, remote.Kind) }
