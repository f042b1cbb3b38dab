package docker

import (
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

func TestCarries(t *testing.T) {
	d := New(Options{})
	if got, why := d.Carries(driver.Spec{Server: "s", Options: &Config{State: []string{"/data"}}}); got != driver.CarryFiles || why != "" {
		t.Errorf("with a path it carries %q: %s", got, why)
	}
	const want = `what the container of server "s" remembers is not known; name its paths, or root, in servers.s.docker.state`
	if got, why := d.Carries(driver.Spec{Server: "s", Options: &Config{}}); got != driver.CarryNone || why != want {
		t.Errorf("without one it carries %q: %s", got, why)
	}
}
