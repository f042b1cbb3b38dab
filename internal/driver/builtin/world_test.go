package builtin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/native/memory"
)

// memoryKind is the kind "memory" as the binary has it.
func memoryKind() Kind {
	return Kind{
		Remembers: true,
		New: func(e Env) (*mcp.Server, io.Closer, error) {
			h, err := layer.Open(e.Layers, e.State, memory.Machine())
			if err != nil {
				return nil, nil, err
			}
			s, err := memory.New(e.Settings, h)
			if err != nil {
				h.Close()
				return nil, nil, err
			}
			return s, h, nil
		},
		Import: func(ctx context.Context, e Env, template string, progress func(done, total int64)) error {
			h, err := layer.Open(e.Layers, e.State, memory.Machine())
			if err != nil {
				return err
			}
			defer h.Close()
			return memory.Import(ctx, e.Settings, h, template, progress)
		},
	}
}

// world is a gateway's share of this driver, on a folder.
type world struct {
	t      testing.TB
	dir    string
	layers *layer.Store
	*Driver
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	if err := w.open(nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// open is the start of a gateway.
func (w *world) open(states []string, snapshots ...driver.Snapshot) error {
	layers, err := layer.OpenStore(layer.Options{Dir: filepath.Join(w.dir, "layers")})
	if err != nil {
		return err
	}
	w.layers = layers
	w.Driver = New(Options{Kinds: map[string]Kind{"memory": memoryKind()}, Layers: layers, Dir: filepath.Join(w.dir, "templates")})
	return w.Recover(context.Background(), states, snapshots, true)
}

func (w *world) close() {
	if w.Driver == nil {
		return
	}
	w.Driver.Close()
	if err := w.layers.Close(); err != nil {
		w.t.Error(err)
	}
	w.Driver = nil
}

// again is the next gateway on the same folder.
func (w *world) again(states []string, snapshots ...driver.Snapshot) {
	w.t.Helper()
	w.close()
	if err := w.open(states, snapshots...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) state(name string) string { return filepath.Join(w.dir, "states", name) }

func (w *world) spec(name string) driver.Spec {
	return driver.Spec{Server: "mem", Session: name, Builtin: "memory", State: w.state(name)}
}

func (w *world) seed(name string, from *driver.Snapshot) driver.Spec {
	w.t.Helper()
	spec := w.spec(name)
	if err := w.Seed(context.Background(), spec, driver.Source{From: from}); err != nil {
		w.t.Fatal(err)
	}
	return spec
}

func (w *world) freeze(name string) driver.Snapshot {
	w.t.Helper()
	s, err := w.Freeze(context.Background(), w.spec(name), nil, filepath.Join(w.dir, "never made"))
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) discard(s driver.Snapshot) {
	w.t.Helper()
	if err := w.Discard(context.Background(), s); err != nil {
		w.t.Fatal(err)
	}
}

// use starts an instance on a state for as long as f runs.
func (w *world) use(name string, f func(driver.Instance, *mcp.ClientSession)) {
	w.t.Helper()
	inst, err := w.Start(context.Background(), w.spec(name))
	if err != nil {
		w.t.Fatal(err)
	}
	cs, err := attach(inst)
	if err != nil {
		w.t.Fatal(err)
	}
	f(inst, cs)
	cs.Close()
	if err := inst.Stop(context.Background()); err != nil {
		w.t.Fatal(err)
	}
}

func attach(inst driver.Instance) (*mcp.ClientSession, error) {
	l, err := inst.Dial(context.Background())
	if err != nil {
		return nil, err
	}
	return mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(context.Background(), frames{l.Stream}, nil)
}

// remember creates entities, each in a call of its own.
func remember(cs *mcp.ClientSession, names ...string) error {
	for _, name := range names {
		res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "create_entities", Arguments: map[string]any{
			"entities": []any{map[string]any{"name": name, "entityType": "t", "observations": []string{"of " + name}}},
		}})
		if err != nil {
			return err
		}
		if res.IsError {
			return fmt.Errorf("%s", text(res))
		}
	}
	return nil
}

func recall(cs *mcp.ClientSession) ([]string, error) {
	res, err := cs.CallTool(context.Background(), &mcp.CallToolParams{Name: "read_graph"})
	if err != nil {
		return nil, err
	}
	var g struct{ Entities []struct{ Name string } }
	if err := json.Unmarshal([]byte(text(res)), &g); err != nil {
		return nil, err
	}
	names := []string{}
	for _, e := range g.Entities {
		names = append(names, e.Name)
	}
	return names, nil
}

func (w *world) add(name string, entities ...string) {
	w.t.Helper()
	w.use(name, func(_ driver.Instance, cs *mcp.ClientSession) {
		if err := remember(cs, entities...); err != nil {
			w.t.Fatal(err)
		}
	})
}

func (w *world) want(name string, entities ...string) {
	w.t.Helper()
	w.use(name, func(_ driver.Instance, cs *mcp.ClientSession) {
		got, err := recall(cs)
		if err != nil || !slices.Equal(got, append([]string{}, entities...)) {
			w.t.Errorf("%s knows %v, %v, want %v", name, got, err, entities)
		}
	})
}

// files counts what is in the folder of layers.
func (w *world) files() int {
	w.t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.dir, "layers"))
	if err != nil {
		w.t.Fatal(err)
	}
	n := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "lyr_") {
			n++
		}
	}
	return n
}
