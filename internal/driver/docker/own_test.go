package docker

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

// run runs the tests that are not the suite's.
func (b *bench) run(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"labels and limits", testConfined},
		{"plain", testPlain},
		{"missing image", testMissingImage},
		{"missing program", testMissingProgram},
		{"dying at start", testDying},
		{"published port", testPublished},
		{"nothing listens", testNothingListens},
		{"killed behind our back", testKilled},
		{"removed behind our back", testRemoved},
		{"sweep after a crash", testSweep},
		{"recover what has no owner", testRecover},
		{"a volume that vanished", testVanished},
		{"template on a volume", testTemplateVolume},
		{"template in the root", testTemplateRoot},
		{"image volumes belong to the root", testImageVolumes},
		{"an empty volume stays empty", testEmptyVolume},
		{"layers are made one", testFlatten},
		{"a user's files", testUser},
		{"volumes without the host", testArchive},
		{"the engine goes away", testCut},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, b.world(t)) })
	}
}

// world is a driver with a gateway of its own.
type world struct {
	*bench
	d   *Driver
	id  string
	dir string
}

func (b *bench) world(t *testing.T) *world {
	w := &world{bench: b, id: b.gateway(), dir: t.TempDir()}
	w.d = w.next()
	return w
}

// next is the driver of the next gateway on the same state folder.
func (w *world) next() *Driver {
	return w.driver(Options{Gateway: w.id, Dir: filepath.Join(w.dir, "docker"), ListenWait: 3 * time.Second, MaxLayers: 4})
}

func (w *world) spec(name string, c *Config) driver.Spec {
	s := driver.Spec{
		Server: "fs", Session: "ses_9", Ordinal: 2, Dir: filepath.Join(w.dir, "instances", name), StopGrace: time.Second, Options: c,
		Env: map[string]string{drivertest.StateVar: "/data"},
	}
	if len(c.State) > 0 {
		s.State = filepath.Join(w.dir, "states", name)
	}
	return s
}

func (w *world) start(t *testing.T, spec driver.Spec) driver.Instance {
	t.Helper()
	inst, err := w.d.Start(t.Context(), spec)
	if err != nil {
		t.Fatalf("start: %v", err)
	}
	t.Cleanup(func() { inst.Stop(context.Background()) })
	return inst
}

// open seeds a state and starts an instance on it.
func (w *world) open(t *testing.T, spec driver.Spec, src driver.Source) (driver.Instance, *drivertest.Peer) {
	t.Helper()
	if err := w.d.Seed(t.Context(), spec, src); err != nil {
		t.Fatalf("seed: %v", err)
	}
	t.Cleanup(func() {
		if err := w.d.Erase(context.Background(), spec); err != nil {
			t.Errorf("erase: %v", err)
		}
	})
	inst := w.start(t, spec)
	return inst, drivertest.Dial(t, inst)
}

// freeze takes a snapshot that is discarded at the end.
func (w *world) freeze(t *testing.T, spec driver.Spec, inst driver.Instance, name string) driver.Snapshot {
	t.Helper()
	release, err := inst.Hold(t.Context())
	if err != nil {
		t.Fatalf("hold: %v", err)
	}
	defer release()
	snap, err := w.d.Freeze(t.Context(), spec, inst, filepath.Join(w.dir, "snapshots", name))
	if err != nil {
		t.Fatalf("freeze: %v", err)
	}
	t.Cleanup(func() { w.d.Discard(context.Background(), snap) })
	return snap
}

func (w *world) inspect(t *testing.T, inst driver.Instance) client.ContainerInspectResult {
	t.Helper()
	rec, err := records.Parse(inst.Handle().Data)
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.cli.ContainerInspect(t.Context(), rec.ref(), client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

func recall(t *testing.T, p *drivertest.Peer, key, want string) {
	t.Helper()
	if got := p.Call(t, "recall", map[string]any{"key": key}); got != want {
		t.Errorf("%s is %q, want %q", key, got, want)
	}
}

func remember(t *testing.T, p *drivertest.Peer, key, value string) {
	t.Helper()
	if got := p.Call(t, "remember", map[string]any{"key": key, "value": value}); got != "ok" {
		t.Fatalf("remember: %s", got)
	}
}

// says looks that an error has these words.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) && !strings.Contains(driver.Words(err), word) {
			t.Errorf("the error does not say %q: %v, with the words %q", word, err, driver.Words(err))
		}
	}
}

// empty looks that a folder has nothing in it, or is not there.
func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("%s is left", filepath.Join(dir, e.Name()))
	}
}

func testConfined(t *testing.T, w *world) {
	c := w.stdio()
	c.Memory, c.CPUs, c.Pids, c.CapAdd, c.User = 64<<20, 0.5, 50, []string{"CHOWN"}, "1000:1000"
	c.Labels = map[string]string{"mine": "yes"}
	spec := w.spec("a", c)
	inst := w.start(t, spec)
	if got := drivertest.Dial(t, inst).Call(t, "echo", map[string]any{"text": "x"}); got != "x" {
		t.Errorf("echo said %q", got)
	}
	got := w.inspect(t, inst).Container
	for label, want := range map[string]string{
		labelGateway: w.id, labelSession: "ses_9", labelServer: "fs", labelOrdinal: "2", labelInstance: keyOf(spec.Dir), labelRole: roleInstance, "mine": "yes",
	} {
		if got.Config.Labels[label] != want {
			t.Errorf("label %s is %q, want %q", label, got.Config.Labels[label], want)
		}
	}
	h := got.HostConfig
	if h.Memory != 64<<20 || h.NanoCPUs != 5e8 && h.CPUQuota != 50_000 || h.PidsLimit == nil || *h.PidsLimit != 50 {
		t.Errorf("memory %d, CPUs %d, processes %v", h.Memory, h.NanoCPUs, h.PidsLimit)
	}
	if !h.ReadonlyRootfs || h.Privileged || h.NetworkMode != "none" || got.Config.User != "1000:1000" || h.LogConfig.Type != "none" {
		t.Errorf("root read-only %v, privileged %v, network %s, user %q, log %s", h.ReadonlyRootfs, h.Privileged, h.NetworkMode, got.Config.User, h.LogConfig.Type)
	}
	if !slices.ContainsFunc(h.SecurityOpt, func(o string) bool { return strings.HasPrefix(o, "no-new-privileges") }) {
		t.Errorf("security options %q", h.SecurityOpt)
	}
	if _, tmp := h.Tmpfs["/tmp"]; !tmp {
		t.Errorf("memory file systems %v", h.Tmpfs)
	}
	// What the kernel says counts: the set that can ever be had is CHOWN alone.
	b, err := os.ReadFile(filepath.Join("/proc", itoa(got.State.Pid), "status"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"CapBnd:\t0000000000000001", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the process does not have %q:\n%s", want, b)
		}
	}
}

func testPlain(t *testing.T, w *world) {
	c := w.stdio()
	c.Plain = true
	inst := w.start(t, w.spec("a", c))
	drivertest.Dial(t, inst)
	h := w.inspect(t, inst).Container.HostConfig
	if h.ReadonlyRootfs || h.Memory != 0 || h.NetworkMode == "none" || slices.Contains(h.CapDrop, "ALL") {
		t.Errorf("the engine's own defaults are not there: %+v", h)
	}
}

func testMissingImage(t *testing.T, w *world) {
	c := w.stdio()
	c.Image = "localhost/tine-drivertest-is-not-there:latest"
	spec := w.spec("a", c)
	_, err := w.d.Start(t.Context(), spec)
	says(t, err, `"fs"`, c.Image, "docker.pull")
	empty(t, filepath.Dir(spec.Dir))
}

func testMissingProgram(t *testing.T, w *world) {
	c := w.stdio()
	c.Entrypoint = []string{"/not-there"}
	spec := w.spec("a", c)
	_, err := w.d.Start(t.Context(), spec)
	says(t, err, `"fs"`, "/not-there")
	empty(t, filepath.Dir(spec.Dir))
	if left := w.containers(t, labelGateway+"="+w.id); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func testDying(t *testing.T, w *world) {
	c := w.http()
	c.Command = []string{"die", "the licence has expired"}
	spec := w.spec("a", c)
	_, err := w.d.Start(t.Context(), spec)
	says(t, err, "status 3", "the licence has expired")
	empty(t, filepath.Dir(spec.Dir))
	// A server that speaks stdio is there for a moment, and its end is reported.
	c = w.stdio()
	c.Command = []string{"die", "the licence has expired"}
	inst := w.start(t, w.spec("b", c))
	drivertest.Ended(t, inst)
	says(t, inst.Err(), "status 3", "the licence has expired")
}

func testPublished(t *testing.T, w *world) {
	c := w.http()
	c.Reach = ReachPort
	inst := w.start(t, w.spec("a", c))
	link, err := inst.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(link.HTTP.URL, "http://127.0.0.1:") || !strings.HasSuffix(link.HTTP.URL, "/mcp") {
		t.Errorf("it is at %s", link.HTTP.URL)
	}
	if got := drivertest.Dial(t, inst).Call(t, "echo", map[string]any{"text": "x"}); got != "x" {
		t.Errorf("echo said %q", got)
	}
}

func testNothingListens(t *testing.T, w *world) {
	for _, reach := range []string{ReachAddress, ReachPort} {
		c := w.http()
		c.Reach, c.Port = reach, 8081
		spec := w.spec(reach, c)
		_, err := w.d.Start(t.Context(), spec)
		says(t, err, "8081", "docker.port")
		empty(t, filepath.Dir(spec.Dir))
	}
}

func testKilled(t *testing.T, w *world) {
	inst := w.start(t, w.spec("a", w.stdio()))
	w.kill(t, inst)
	drivertest.Ended(t, inst)
	says(t, inst.Err(), "signal 9")
	if errors.Is(inst.Err(), driver.ErrLost) {
		t.Error("the engine was there all the time, and yet it is lost")
	}
}

func testRemoved(t *testing.T, w *world) {
	inst := w.start(t, w.spec("a", w.stdio()))
	rec, _ := records.Parse(inst.Handle().Data)
	if _, err := w.cli.ContainerRemove(t.Context(), rec.Container, client.ContainerRemoveOptions{Force: true}); err != nil {
		t.Fatal(err)
	}
	drivertest.Ended(t, inst)
	if inst.Err() == nil {
		t.Error("there is no reason for its end")
	}
	if err := inst.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if _, err := w.d.Adopt(t.Context(), inst.Handle(), nil); !errors.Is(err, driver.ErrGone) {
		t.Errorf("adopt: %v", err)
	}
}
