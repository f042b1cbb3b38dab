//go:build unix && torture

package e2e

import (
	"fmt"
	"testing"
)

// TestDuckDBForksDocker forks a database in a volume whose parent is written to all the time.
func TestDuckDBForksDocker(t *testing.T) {
	t.Parallel()
	need(t, python)
	e := needPresetEngine(t)
	needRoom(t, 8e9)
	g, w := startDuck(t, fmt.Sprintf("driver: docker, template: TEMPLATE, docker: {host: %q, image: %s, pull: never, entrypoint: [mcp-server-motherduck]}", e.host, serversImage))
	id := e.gatewayOf(t, w.parent)
	stop := w.write()
	w.batch(3)
	stop()
	w.finish(g)
	if code, err := g.stop(); err != nil || code != 0 {
		t.Errorf("the gateway ended with %d, %v", code, err)
	}
	e.nothingLeft(t, id)
}
