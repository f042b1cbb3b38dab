package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/layer"
)

// TestSuite runs the suite of all drivers: on "sample", which remembers nothing,
// and on "memory", where a key is an entity and its last observation the value.
func TestSuite(t *testing.T) {
	root := t.TempDir()
	layers, err := layer.OpenStore(layer.Options{Dir: filepath.Join(root, "layers")})
	if err != nil {
		t.Fatal(err)
	}
	defer layers.Close()
	d := New(Options{
		Kinds:  map[string]Kind{"sample": sample(nil, nil), "memory": memoryKind()},
		Layers: layers,
		Dir:    filepath.Join(root, "templates"),
	})
	defer d.Close()
	var instances, puts atomic.Int64
	spec := func(s driver.Spec) driver.Spec {
		s.Server, s.Dir = "s", filepath.Join(root, fmt.Sprint("instance", instances.Add(1)))
		return s
	}
	(&drivertest.Suite{
		Foreign: true,
		New:     func(int) driver.Driver { return d },
		Spec: func(testing.TB, string, ...string) driver.Spec {
			return spec(driver.Spec{Builtin: "sample"})
		},
		Stateful: func(_ testing.TB, _, state string) driver.Spec {
			return spec(driver.Spec{Builtin: "memory", State: state})
		},
		// Each put is one change, and never a repeated one.
		Put: func(ctx context.Context, p *drivertest.Peer, key, value string) error {
			value = fmt.Sprint(puts.Add(1), " ", value)
			got, err := p.TryCall(ctx, "create_entities", map[string]any{"entities": []any{
				map[string]any{"name": key, "entityType": "key", "observations": []string{value}},
			}})
			if err != nil || got != "[]" {
				return err
			}
			_, err = p.TryCall(ctx, "add_observations", map[string]any{"observations": []any{
				map[string]any{"entityName": key, "contents": []string{value}},
			}})
			return err
		},
		Get: func(ctx context.Context, p *drivertest.Peer, key string) (string, error) {
			got, err := p.TryCall(ctx, "open_nodes", map[string]any{"names": []string{key}})
			if err != nil {
				return "", err
			}
			var g struct {
				Entities []struct{ Observations []string }
			}
			if err := json.Unmarshal([]byte(got), &g); err != nil || len(g.Entities) == 0 {
				return "", err
			}
			all := g.Entities[0].Observations
			_, value, _ := strings.Cut(all[len(all)-1], " ")
			return value, nil
		},
	}).Run(t)
	left, err := os.ReadDir(filepath.Join(root, "layers"))
	if err != nil || len(left) != 0 {
		t.Errorf("layers without an owner: %v, %v", left, err)
	}
}
