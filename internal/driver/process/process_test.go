package process

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

var suite = &drivertest.Suite{
	New: func(maxFrame int) driver.Driver { return New(Options{MaxFrame: maxFrame}) },
	Spec: func(t testing.TB, program string, args ...string) driver.Spec {
		return driver.Spec{Server: "fs", Dir: filepath.Join(t.TempDir(), "instance"), Command: program, Args: args}
	},
	Left: left,
}

func TestMain(m *testing.M) {
	if state := os.Getenv(gatewayVar); state != "" {
		beGateway(state)
	}
	suite.Main(m)
}

func TestSuite(t *testing.T) { suite.Run(t) }
