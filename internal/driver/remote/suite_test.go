package remote

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(gatewayVar); dir != "" {
		gateway(dir)
	}
	(&drivertest.Suite{}).Main(m)
}

// bare hides what a driver is besides.
type bare struct{ driver.Driver }

func TestSuite(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		remote Config
		bare   bool
	}{
		"direct with snapshots": {remote: Config{Snapshot: "/instances/{remote_instance_id}/snapshot"}},
		"through with forks": {remote: Config{
			Call: "/instances/{remote_instance_id}/call", Fork: "/instances/{remote_instance_id}/fork"}},
		"tools": {remote: Config{Type: TypeMCP}, bare: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrchestra(t)
			home := t.TempDir()
			remote := tt.remote
			remote.URL, remote.Resource = o.URL, "box"
			if remote.Type == TypeMCP {
				remote.URL += "/orchestrator"
			}
			var n atomic.Int64
			spec := func(testing.TB, string, ...string) driver.Spec {
				return driver.Spec{Server: "box", Options: &remote, Dir: filepath.Join(home, "instances", fmt.Sprint(n.Add(1)))}
			}
			s := &drivertest.Suite{
				Foreign: true,
				New: func(int) driver.Driver {
					d := New(Options{Dir: filepath.Join(home, "ledger")})
					if tt.bare {
						return bare{d}
					}
					return d
				},
				Spec: spec,
				Stateful: func(t testing.TB, program, state string) driver.Spec {
					s := spec(t, program)
					s.State = state
					return s
				},
				Put: func(ctx context.Context, p *drivertest.Peer, key, value string) error {
					_, err := p.TryCall(ctx, "put", map[string]any{"key": key, "value": value})
					return err
				},
				Get: func(ctx context.Context, p *drivertest.Peer, key string) (string, error) {
					return p.TryCall(ctx, "get", map[string]any{"key": key})
				},
			}
			s.Run(t)
			nothingLeft(t, o, filepath.Join(home, "ledger"))
		})
	}
}

// nothingLeft looks that neither side has anything of the other.
func nothingLeft(t *testing.T, o *orchestra, dir string) {
	t.Helper()
	if n := o.left(); n != 0 {
		t.Errorf("%d instances and snapshots are left at the orchestrator", n)
	}
	if created, deleted := o.counts(); created != deleted {
		t.Errorf("%d instances were made and %d removed", created, deleted)
	}
	files, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Errorf("%s is left in the ledger", f.Name())
	}
}
