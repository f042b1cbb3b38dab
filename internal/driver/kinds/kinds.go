// Package kinds adds the keys of drivers, and the servers with a body, to what a config
// may have. A program that
// reads configs imports it.
package kinds

import (
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver/docker"
	"github.com/tine-mcp/tine/internal/driver/remote"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
	"github.com/tine-mcp/tine/internal/native/rlm/body"
)

func init() {
	config.Register(sandbox.Kind, docker.Kind, remote.Kind)
	config.RegisterFront(body.Front)
}
