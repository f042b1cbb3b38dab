package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/torture"
)

// gatewayVar is the gateway's id in the process that plays one which dies.
const gatewayVar = "TINE_TEST_DOCKER_GATEWAY"

// builder is the suite for what no engine is needed for.
var builder = &drivertest.Suite{
	Options: &Config{},
	New:     func(int) driver.Driver { return New(Options{Gateway: os.Getenv(gatewayVar)}) },
}

func TestMain(m *testing.M) { builder.Main(m) }

// The tests of the engines run side by side, and those of one engine one after
// another.
func TestDocker(t *testing.T) {
	t.Parallel()
	b := newBench(t, "TINE_TEST_DOCKER", "/var/run/docker.sock")
	b.run(t)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *bench)
	}{
		{"stdio", func(t *testing.T, b *bench) { b.suite(t, b.stdio).Run(t) }},
		{"files", copyFiles},
		{"http", func(t *testing.T, b *bench) {
			s := b.suite(t, b.http)
			s.Only = torture.Or(few, nil)
			s.Run(t)
		}},
		{"root", func(t *testing.T, b *bench) {
			s := b.suite(t, b.root)
			s.Only = torture.Or(few, func(test string) bool { return rootTests[test] })
			s.Run(t)
		}},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, b) })
	}
}

func TestPodman(t *testing.T) {
	t.Parallel()
	b := newBench(t, "TINE_TEST_PODMAN", "/run/podman/podman.sock")
	b.run(t)
	t.Run("stdio", func(t *testing.T) {
		s := b.suite(t, b.stdio)
		s.Mortal = true
		s.Only = torture.Or(few, nil)
		s.Run(t)
	})
}

// few picks one test of each kind, for the ways that share most of their code
// with Docker over stdio, which has them all.
func few(test string) bool { return fewTests[test] }

var fewTests = map[string]bool{
	"lifecycle": true, "hold": true, "state after a restart": true, "fork isolation": true, "export and import": true,
	"failure leaves nothing": true,
}

// rootTests are those of the suite in which it matters that the container itself
// is the state.
var rootTests = map[string]bool{
	"lifecycle": true, "state after a restart": true, "state after a crash": true, "adopt with state": true,
	"fork isolation": true, "forks of forks": true, "freeze while none runs": true, "freeze under load": true,
	"discard and erase twice": true, "export and import": true, "failure leaves nothing": true, "random worlds": true,
}

// bench is an engine with the suite's server as an image.
type bench struct {
	cli   *client.Client
	host  string
	image string
	dir   string

	mu      sync.Mutex
	drivers []*Driver
	ids     []string // gateways that were used
}

// newBench connects to an engine, makes the image, and looks at the end that
// nothing is left.
func newBench(t *testing.T, env, socket string) *bench {
	t.Helper()
	if s := os.Getenv(env); s != "" {
		socket = strings.TrimPrefix(s, "unix://")
	}
	c, err := net.DialTimeout("unix", socket, 5*time.Second)
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no engine answers at %s: %v", socket, err)
		}
		t.Skipf("no engine answers at %s (%s names another): %v", socket, env, err)
	}
	c.Close()
	b := &bench{host: "unix://" + socket, dir: t.TempDir()}
	if b.cli, err = client.New(client.WithHost(b.host)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		for _, d := range b.drivers {
			d.Close()
		}
		b.mu.Unlock()
		b.left(t)
		if _, err := b.cli.ImageRemove(context.Background(), b.image, client.ImageRemoveOptions{Force: true, PruneChildren: true}); err != nil {
			t.Errorf("remove the image: %v", err)
		}
		b.cli.Close()
	})
	b.image = "localhost/tine-drivertest-" + strings.ToLower(rand.Text()) + ":latest"
	b.load(t, b.image, "", map[string]string{"etc/passwd": "root:x:0:0::/:\nsomebody:x:1234:2345::/:\n", "data/": "", "readme": "of the image"})
	return b
}

// load makes an image with the suite's server and some files.
func (b *bench) load(t testing.TB, name, change string, files map[string]string) {
	t.Helper()
	program, err := os.ReadFile(builder.Program(t))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	put := func(name, text string, mode int64) {
		h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(text)), Mode: mode}
		if strings.HasSuffix(name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
	}
	put("server", string(program), 0o755)
	for name, text := range files {
		put(name, text, 0o755)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	changes := []string{`ENTRYPOINT ["/server"]`}
	if change != "" {
		changes = append(changes, change)
	}
	res, err := b.cli.ImageImport(t.Context(), client.ImageImportSource{Source: &out, SourceName: "-"}, name, client.ImageImportOptions{Changes: changes})
	if err != nil {
		t.Fatalf("make the image: %v", err)
	}
	defer res.Close()
	if err := streamError(res); err != nil {
		t.Fatalf("make the image: %v", err)
	}
}

// gateway is a unique id.
func (b *bench) gateway() string {
	id := "test-" + strings.ToLower(rand.Text())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ids = append(b.ids, id)
	return id
}

// driver makes a driver that is closed at the end.
func (b *bench) driver(o Options) *Driver {
	d := New(o)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drivers = append(b.drivers, d)
	return d
}

// left looks that no engine has anything of the test's gateways.
func (b *bench) left(t *testing.T) {
	ctx := context.Background()
	for _, id := range b.ids {
		f := New(Options{Gateway: id}).ours()
		if l, err := b.cli.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: f}); err != nil || len(l.Items) > 0 {
			t.Errorf("containers are left: %v, %v", l.Items, err)
		}
		if l, err := b.cli.VolumeList(ctx, client.VolumeListOptions{Filters: f}); err != nil || len(l.Items) > 0 {
			t.Errorf("volumes are left: %v, %v", l.Items, err)
		}
		if l, err := b.cli.ImageList(ctx, client.ImageListOptions{All: true, Filters: f}); err != nil || len(l.Items) > 0 {
			t.Errorf("images are left: %v, %v", l.Items, err)
		}
		if l, err := b.cli.NetworkList(ctx, client.NetworkListOptions{Filters: f}); err != nil || len(l.Items) > 0 {
			t.Errorf("networks are left: %v, %v", l.Items, err)
		}
	}
}

func (b *bench) stdio() *Config {
	return &Config{Host: b.host, Image: b.image, Pull: PullNever}
}

func (b *bench) http() *Config {
	c := b.stdio()
	c.Transport, c.Port, c.Command = config.ContainerHTTP, 8080, []string{"http", ":8080"}
	return c
}

func (b *bench) root() *Config {
	c := b.stdio()
	c.State = []string{RootState}
	return c
}

// suite is the suite for containers of some kind.
func (b *bench) suite(t *testing.T, kind func() *Config) *drivertest.Suite {
	id := b.gateway()
	dir := t.TempDir()
	spec := func(t testing.TB) driver.Spec {
		return driver.Spec{Server: "fs", Session: "ses_1", Dir: filepath.Join(t.TempDir(), "instance"), StopGrace: time.Second, Options: kind()}
	}
	return &drivertest.Suite{
		Slow: true, Unheard: true, Beside: "/server", Env: []string{gatewayVar + "=" + id},
		New: func(maxFrame int) driver.Driver {
			return b.driver(Options{Gateway: id, Dir: dir, MaxFrame: maxFrame})
		},
		Spec: func(t testing.TB, _ string, args ...string) driver.Spec {
			s := spec(t)
			options(s).State = nil
			options(s).Command = append(options(s).Command, args...)
			return s
		},
		Stateful: func(t testing.TB, _, state string) driver.Spec {
			s := spec(t)
			s.State = state
			if options(s).State == nil {
				options(s).State = []string{"/data"}
			}
			s.Env = map[string]string{drivertest.StateVar: "/data"}
			return s
		},
		Kill: func(t testing.TB, inst driver.Instance) { b.kill(t, inst) },
		Left: func(t testing.TB, h driver.Handle) []string {
			return b.containers(t, labelInstance+"="+keyOf(h.Dir))
		},
	}
}

// kill ends a container behind the driver's back.
func (b *bench) kill(t testing.TB, inst driver.Instance) {
	t.Helper()
	rec, err := records.Parse(inst.Handle().Data)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := b.cli.ContainerInspect(t.Context(), rec.ref(), client.ContainerInspectOptions{}); err == nil && s.Container.State.Paused {
		// The kernel ends what is frozen when it goes on.
		b.cli.ContainerUnpause(t.Context(), rec.ref(), client.ContainerUnpauseOptions{})
	}
	if _, err := b.cli.ContainerKill(t.Context(), rec.ref(), client.ContainerKillOptions{Signal: "SIGKILL"}); err != nil {
		t.Fatal(err)
	}
}

// containers lists those with a label.
func (b *bench) containers(t testing.TB, label string) []string {
	t.Helper()
	l, err := b.cli.ContainerList(context.Background(), client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", label)})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range l.Items {
		all = append(all, strings.Join(c.Names, " ")+" "+c.Status)
	}
	return all
}
