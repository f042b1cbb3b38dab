//go:build amd64 || arm64

package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/sandbox/control"
)

// Variables of the process that plays the gateway which dies.
const (
	binaryVar = "TINE_TEST_SANDBOX_BIN" // what sandboxes are made with
	dirVar    = "TINE_TEST_SANDBOX_DIR"
)

var builder = &drivertest.Suite{
	Options: &Config{},
	New: func(maxFrame int) driver.Driver {
		d := New(Options{Dir: os.Getenv(dirVar), Binary: os.Getenv(binaryVar), MaxFrame: maxFrame})
		d.beside = true
		return d
	},
}

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == control.Arg {
		helpLater()
	}
	builder.Main(m)
}

// binary is what sandboxes are made with: the one beside TINE_BIN, or one that is
// built for the tests.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(binaryVar); path != "" {
		return path, nil
	}
	if path := os.Getenv("TINE_BIN"); path != "" {
		return filepath.Join(filepath.Dir(path), binaryName), nil
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(out)), "bin", binaryName+"-test")
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "github.com/tine-mcp/tine/cmd/tine-sandbox")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the binary: %w: %s", err, out)
	}
	return path, nil
})

// bench is a driver's folder and what is in it.
type bench struct {
	dir    string
	binary string

	mu      sync.Mutex
	drivers []*Driver
}

// newBench looks at the end that nothing is left.
func newBench(t testing.TB) *bench {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: its name would make the paths of sockets too long.
	dir, err := os.MkdirTemp("", "tine-sandbox")
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{dir: dir, binary: path}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, d := range b.drivers {
			d.Close()
		}
		for _, name := range []string{"run", "mounts", slotsName} {
			entries, _ := os.ReadDir(filepath.Join(dir, name))
			for _, e := range entries {
				t.Errorf("%s/%s is left", name, e.Name())
			}
		}
		for _, p := range processes(dir) {
			t.Errorf("process %s is left", p)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return b
}

// driver makes a driver that is closed at the end.
func (b *bench) driver(o Options) *Driver {
	o.Dir, o.Binary = b.dir, b.binary
	d := New(o)
	d.beside = true
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drivers = append(b.drivers, d)
	return d
}

// processes lists what has a folder in its command line.
func processes(dir string) []string {
	var found []string
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err == nil && strings.Contains(string(line), dir) && e.Name() != fmt.Sprint(os.Getpid()) {
			found = append(found, e.Name()+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// box is a sandbox with the defaults of the config.
func box() *Config {
	return &Config{Memory: 1 << 30, Pids: 512, Files: 4096, Disk: 256 << 20, Path: "/mcp"}
}

func (b *bench) spec(t testing.TB, program string, args ...string) driver.Spec {
	return driver.Spec{
		Server: "fs", Session: "ses_1", Dir: filepath.Join(t.TempDir(), "instance"), StopGrace: time.Second,
		Command: program, Args: args, Options: box(),
	}
}

// suite is the whole suite on sandboxes.
func (b *bench) suite() *drivertest.Suite {
	return &drivertest.Suite{
		Slow: true, Env: []string{dirVar + "=" + b.dir, binaryVar + "=" + b.binary},
		New:  func(maxFrame int) driver.Driver { return b.driver(Options{MaxFrame: maxFrame}) },
		Spec: b.spec,
		Stateful: func(t testing.TB, program, state string) driver.Spec {
			s := b.spec(t, program)
			s.State, s.Dirs = state, []driver.StateDir{{Name: "data"}}
			s.Env = map[string]string{drivertest.StateVar: "${state.data}"}
			return s
		},
		Kill: func(t testing.TB, inst driver.Instance) {
			t.Helper()
			rec, err := records.Parse(inst.Handle().Data)
			if err != nil {
				t.Fatal(err)
			}
			if err := rec.ID.Signal(unix.SIGKILL); err != nil {
				t.Fatal(err)
			}
		},
		Left: func(t testing.TB, h driver.Handle) []string { return processes(h.Dir) },
	}
}

func TestSuite(t *testing.T) {
	t.Run("masks", masksHold) // first: gVisor can leave out a mount without a word
	newBench(t).suite().Run(t)
}
