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
	Stateful: func(t testing.TB, program, state string) driver.Spec {
		return driver.Spec{
			Server: "fs", Dir: filepath.Join(t.TempDir(), "instance"), Command: program,
			State: state, Dirs: []driver.StateDir{{Name: "data"}},
			Env: map[string]string{drivertest.StateVar: "${state.data}"},
		}
	},
	Kill: func(t testing.TB, inst driver.Instance) {
		rec, err := records.Parse(inst.Handle().Data)
		if err != nil {
			t.Fatal(err)
		}
		p, err := os.FindProcess(rec.PID)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Release()
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	},
	Left: left,
}

func TestMain(m *testing.M) {
	Main()
	if state := os.Getenv(gatewayVar); state != "" {
		beGateway(state)
	}
	if os.Getenv(watchedVar) != "" {
		suite.New = watched().New
	}
	suite.Main(m)
}

func TestSuite(t *testing.T) { suite.Run(t) }
