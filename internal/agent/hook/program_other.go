//go:build !linux && !darwin

package hook

import (
	"context"

	"github.com/tine-mcp/tine/internal/agent/blueprint"
)

// hosting is empty where what a program has started can't be found.
type hosting struct{}

func (p *Programs) sweep([]string) error { return nil }

func (p *Programs) run(context.Context, blueprint.Command, []byte) ([]byte, error) {
	return nil, failure("hooks run on Linux and macOS; run the gateway there")
}
