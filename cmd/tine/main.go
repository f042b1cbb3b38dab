// Command tine is the MCP gateway whose sessions fork: the gateway itself and the
// commands to inspect and use it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/tine-mcp/tine/internal/driver/process"
)

// version is set by the linker: -ldflags "-X main.version=1.2.3".
var version = "dev"

func main() {
	process.Main() // returns unless the binary was started to become a server
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal, which asks for a stop, a second one kills as usual.
	context.AfterFunc(ctx, stop)
	os.Exit(newCLI().run(ctx))
}
