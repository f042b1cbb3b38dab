//go:build amd64 || arm64

package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

// builtHash is that of a binary which is there in the tests of states: a file
// without anything in it, for nothing runs.
const builtHash = "0123456789abcdef"

var greetingText = json.RawMessage(`{"serverInfo":{"name":"x"}}`)

// keeper is a driver that starts nothing.
func keeper(t testing.TB, o Options) *Driver {
	t.Helper()
	o.Dir = t.TempDir()
	d := New(o)
	d.helpers.current = builtHash
	put(t, d.helpers.path(builtHash), "")
	t.Cleanup(d.cancel)
	return d
}

func put(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

var reads, gone = drivertest.Reads, drivertest.Absent

// holds looks that a folder has these entries and no other.
func holds(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.Name() != ".made" { // the list of directories
			names = append(names, e.Name())
		}
	}
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("%s has %q, want %q", dir, names, want)
	}
}

func recorded(t testing.TB, dir string) stateRecord {
	t.Helper()
	r, err := readState(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// brain is an instance that is nothing but memory.
type brain struct {
	driver.Instance
	knows  string
	unread string
	hello  json.RawMessage
	done   chan struct{}
	err    error                                       // of a checkpoint
	change func(ctx context.Context, i *imageInfo)     // of what it says
	during func(ctx context.Context, dir string) error // the checkpoint
}

func newBrain(knows string) *brain { return &brain{knows: knows, done: make(chan struct{})} }

func (b *brain) Done() <-chan struct{}            { return b.done }
func (b *brain) Err() error                       { return errors.New("it fell over") }
func (b *brain) Greeted() (json.RawMessage, bool) { return b.hello, false }

func (b *brain) checkpoint(ctx context.Context, dir string) (imageInfo, error) {
	if err := os.WriteFile(filepath.Join(dir, "checkpoint.img"), []byte("kernel"), 0o600); err != nil {
		return imageInfo{}, err
	}
	if b.during != nil {
		if err := b.during(ctx, dir); err != nil {
			return imageInfo{}, err
		}
	}
	if b.err != nil {
		return imageInfo{}, b.err
	}
	for name, content := range map[string]string{"pages.img": b.knows, "pages_meta.img": "meta"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return imageInfo{}, err
		}
	}
	i := imageInfo{
		ID: rand.Text(), Runsc: builtHash, GVisor: "v1", Arch: runtime.GOARCH, CPU: cpuFeatures(), Unread: []byte(b.unread),
		Base: "aaaaaaaaaaaaaaaa", Program: "bbbbbbbbbbbbbbbb", Size: int64(len("kernel") + len(b.knows) + len("meta")),
	}
	if b.change != nil {
		b.change(ctx, &i)
	}
	return i, nil
}

// specAt is a server with a directory whose state is in a folder.
func specAt(state string) driver.Spec {
	return driver.Spec{Server: "db", State: state, Dirs: []driver.StateDir{{Name: "data"}}}
}

// frozen freezes an instance, and tells what a session would.
func frozen(t testing.TB, d *Driver, spec driver.Spec, inst driver.Instance) driver.Snapshot {
	t.Helper()
	snap, err := d.Freeze(t.Context(), spec, inst, filepath.Join(t.TempDir(), "deep/snap"))
	if err != nil {
		t.Fatal(err)
	}
	if inst != nil && snap.Carries == driver.CarryMemory {
		snap.Hello = greetingText
	}
	return snap
}

func TestForkCarriesMemoryAndDirectories(t *testing.T) {
	d, dir := keeper(t, Options{}), t.TempDir()
	template := t.TempDir()
	put(t, filepath.Join(template, "x"), "of the template")
	spec := specAt(filepath.Join(dir, "ses/state"))
	spec.Dirs[0].Template = template
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	holds(t, spec.State, stateName, dirsName)
	if r := recorded(t, spec.State); r.Image != nil || r.Forked {
		t.Errorf("a new state has %+v", r)
	}
	reads(t, dirsOf(spec.State, "data", "x"), "of the template")
	put(t, dirsOf(spec.State, "data", "x"), "changed")

	b := newBrain("a thought")
	b.unread = "half a li"
	snap := frozen(t, d, spec, b)
	if snap.Carries != driver.CarryMemory || snap.Size != int64(len("kernel"+"a thought"+"meta"+"changed")) {
		t.Errorf("snapshot %+v", snap)
	}
	put(t, dirsOf(spec.State, "data", "x"), "changed since")

	id := recorded(t, snap.Dir).Image.ID
	for _, take := range []bool{false, false, true} {
		child := spec
		child.State = filepath.Join(t.TempDir(), "child")
		if err := d.Seed(t.Context(), child, driver.Source{From: &snap, Take: take}); err != nil {
			t.Fatal(err)
		}
		reads(t, dirsOf(child.State, "data", "x"), "changed")
		reads(t, filepath.Join(imageOf(child.State), "pages.img"), "a thought")
		r := recorded(t, child.State)
		if r.Image == nil || r.Image.ID != id || string(r.Image.Unread) != "half a li" || !r.Forked || string(r.Hello) != string(greetingText) {
			t.Errorf("the child has %+v", r)
		}
		if err := d.Erase(t.Context(), child); err != nil {
			t.Error(err)
		}
		gone(t, child.State)
	}
	if err := errors.Join(d.Discard(t.Context(), snap), d.Discard(t.Context(), snap), d.Erase(t.Context(), spec), d.Erase(t.Context(), spec)); err != nil {
		t.Error(err)
	}
	gone(t, snap.Dir)
	gone(t, spec.State)
}

// The files of a memory exist once, however many states have them.
func TestMemoriesAreLinks(t *testing.T) {
	d, dir := keeper(t, Options{}), t.TempDir()
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state")}
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	snap, err := d.Freeze(t.Context(), spec, newBrain("x"), filepath.Join(dir, "snap"))
	if err != nil {
		t.Fatal(err)
	}
	snap.Hello = greetingText
	child := spec
	child.State = filepath.Join(dir, "child")
	if err := d.Seed(t.Context(), child, driver.Source{From: &snap}); err != nil {
		t.Fatal(err)
	}
	again, err := d.Freeze(t.Context(), child, nil, filepath.Join(dir, "again"))
	if err != nil {
		t.Fatal(err)
	}
	if string(again.Hello) != string(greetingText) || recorded(t, again.Dir).Forked {
		t.Errorf("a snapshot of what has not started yet is %+v", again)
	}
	first, err := os.Stat(filepath.Join(imageOf(snap.Dir), "pages.img"))
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{child.State, again.Dir} {
		if st, err := os.Stat(filepath.Join(imageOf(other), "pages.img")); err != nil || !os.SameFile(st, first) {
			t.Errorf("%s has a copy: %v", other, err)
		}
	}
	if err := d.Discard(t.Context(), snap); err != nil {
		t.Fatal(err)
	}
	reads(t, filepath.Join(imageOf(child.State), "pages.img"), "x")
}

func TestCarries(t *testing.T) {
	d := keeper(t, Options{})
	host := &Config{Network: NetworkHost}
	const network = `server "s" is on the network of the host, and such a one can't be copied while it runs; set servers.s.sandbox.network to none or to the domains it needs`
	for name, test := range map[string]struct {
		spec driver.Spec
		want string
		why  string
	}{
		"a program":               {driver.Spec{Options: &Config{Network: NetworkNone}}, driver.CarryMemory, ""},
		"with domains":            {driver.Spec{Options: &Config{Domains: []string{"a.org"}}}, driver.CarryMemory, ""},
		"on the host's network":   {driver.Spec{Options: host}, driver.CarryNone, network + "; or name its directories with servers.s.state: [NAME] and ${state.NAME} in its args or env"},
		"there, with directories": {driver.Spec{Options: host, Dirs: []driver.StateDir{{Name: "a"}}}, driver.CarryFiles, network},
	} {
		test.spec.Server = "s"
		if got, why := d.Carries(test.spec); got != test.want || why != test.why {
			t.Errorf("%s carries %q: %s", name, got, why)
		}
	}
	// What carries nothing has no folder.
	spec := driver.Spec{Server: "db", Options: host, State: filepath.Join(t.TempDir(), "state")}
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	gone(t, spec.State)
}

func TestCarryFiles(t *testing.T) {
	d := keeper(t, Options{})
	spec := specAt(filepath.Join(t.TempDir(), "state"))
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	put(t, dirsOf(spec.State, "data", "x"), "x")
	only := spec
	only.Carry = driver.CarryFiles
	b := newBrain("x")
	b.err = errors.New("it must not be asked for")
	snap := frozen(t, d, only, b)
	if snap.Carries != driver.CarryFiles || len(snap.Hello) > 0 {
		t.Errorf("snapshot %+v", snap)
	}
	holds(t, snap.Dir, stateName, dirsName)

	// And of a snapshot that has more.
	whole := frozen(t, d, spec, newBrain("x"))
	only.State = filepath.Join(t.TempDir(), "child")
	if err := d.Seed(t.Context(), only, driver.Source{From: &whole}); err != nil {
		t.Fatal(err)
	}
	holds(t, only.State, stateName, dirsName)
	reads(t, dirsOf(only.State, "data", "x"), "x")
}

func TestSnapshotOfNothing(t *testing.T) {
	d, dir := keeper(t, Options{}), t.TempDir()
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state")}
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	snap, err := d.Freeze(t.Context(), spec, nil, filepath.Join(dir, "snap"))
	if err != nil {
		t.Fatal(err)
	}
	if snap.Carries != driver.CarryMemory || snap.Dir != "" {
		t.Errorf("snapshot %+v", snap)
	}
	child := spec
	child.State = filepath.Join(dir, "child")
	if err := d.Seed(t.Context(), child, driver.Source{From: &snap, Take: true}); err != nil {
		t.Fatal(err)
	}
	if r := recorded(t, child.State); r.Image != nil || r.Forked {
		t.Errorf("the child has %+v", r)
	}
	if err := d.Discard(t.Context(), snap); err != nil {
		t.Error(err)
	}
	holds(t, dir, "state", "child")
}

func TestSeedRefusesByName(t *testing.T) {
	other := "arm64"
	if runtime.GOARCH == other {
		other = "amd64"
	}
	for name, test := range map[string]struct {
		change func(*imageInfo)
		wreck  func(t *testing.T, s *driver.Snapshot, spec *driver.Spec)
		want   string
	}{
		"another machine": {change: func(i *imageInfo) { i.Arch = other }, want: "another kind of machine (" + other},
		"another CPU":     {change: func(i *imageInfo) { i.CPU = append(slices.Clone(i.CPU), "avx9000") }, want: "the CPU here lacks avx9000; make it again, or set servers.db.fork: files"},
		"another build":   {change: func(i *imageInfo) { i.Runsc, i.GVisor = "fedcba9876543210", "v0" }, want: "another build of Tine, with gVisor v0, and this one has v1"},
		"no greeting":     {wreck: func(_ *testing.T, s *driver.Snapshot, _ *driver.Spec) { s.Hello = nil }, want: "said in its handshake is not known"},
		"another driver":  {wreck: func(_ *testing.T, s *driver.Snapshot, _ *driver.Spec) { s.Driver = "docker" }, want: `of the driver "docker"`},
		"gone":            {wreck: func(_ *testing.T, s *driver.Snapshot, _ *driver.Spec) { s.Dir = "/no/such" }, want: "the snapshot is gone"},
		"no record": {wreck: func(t *testing.T, s *driver.Snapshot, _ *driver.Spec) {
			put(t, filepath.Join(s.Dir, stateName), "")
		}, want: "its record is empty"},
		"a record of another": {wreck: func(t *testing.T, s *driver.Snapshot, _ *driver.Spec) {
			put(t, filepath.Join(s.Dir, stateName), `{"kind":"docker"}`)
		}, want: "not one of a sandbox"},
		"cut off": {wreck: func(t *testing.T, s *driver.Snapshot, _ *driver.Spec) {
			put(t, filepath.Join(imageOf(s.Dir), "pages.img"), "")
		}, want: "damaged"},
		"something else in it": {wreck: func(t *testing.T, s *driver.Snapshot, _ *driver.Spec) {
			put(t, filepath.Join(imageOf(s.Dir), "more"), "")
		}, want: `there is "more" among its files`},
		"no memory": {wreck: func(t *testing.T, s *driver.Snapshot, _ *driver.Spec) {
			if err := os.RemoveAll(imageOf(s.Dir)); err != nil {
				t.Fatal(err)
			}
		}, want: "its memory is gone"},
		"a directory less": {wreck: func(_ *testing.T, _ *driver.Snapshot, spec *driver.Spec) { spec.Dirs = nil }, want: `the directory "data", which would be lost`},
		"on the host's network": {wreck: func(_ *testing.T, _ *driver.Snapshot, spec *driver.Spec) {
			spec.Options = &Config{Network: NetworkHost}
		}, want: "on the network of the host"},
		"nowhere to": {wreck: func(_ *testing.T, _ *driver.Snapshot, spec *driver.Spec) { spec.State = "" }, want: "no folder for it"},
		"it is there": {wreck: func(t *testing.T, _ *driver.Snapshot, spec *driver.Spec) {
			spec.State = t.TempDir()
			put(t, filepath.Join(spec.State, "x"), "x")
		}, want: "something in its place"},
		"a part less": {wreck: func(t *testing.T, s *driver.Snapshot, _ *driver.Spec) {
			if err := os.RemoveAll(dirsOf(s.Dir, "data")); err != nil {
				t.Fatal(err)
			}
		}, want: `directory "data"`},
	} {
		t.Run(name, func(t *testing.T) {
			d, dir := keeper(t, Options{}), t.TempDir()
			d.helpers.running = map[string]*helper{builtHash: {gvisor: "v1", done: make(chan struct{})}}
			d.helpers.making = make(map[string]*sync.Mutex)
			spec := specAt(filepath.Join(t.TempDir(), "state"))
			if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
				t.Fatal(err)
			}
			b := newBrain("x")
			if test.change != nil {
				b.change = func(_ context.Context, i *imageInfo) { test.change(i) }
			}
			snap := frozen(t, d, spec, b)
			at := snap.Dir
			child := spec
			child.State = filepath.Join(dir, "child")
			if test.wreck != nil {
				test.wreck(t, &snap, &child)
			}
			before, err := os.ReadDir(at)
			if err != nil {
				t.Fatal(err)
			}
			for _, take := range []bool{false, true} {
				err := d.Seed(t.Context(), child, driver.Source{From: &snap, Take: take})
				if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `server "db"`) {
					t.Errorf("got %v, want %q", err, test.want)
				}
			}
			holds(t, dir)
			// What was taken is given back.
			if after, err := os.ReadDir(at); err != nil || len(after) != len(before) {
				t.Errorf("the snapshot has %v, and had %v: %v", after, before, err)
			}
		})
	}
}

func TestFreezeThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		inst func(b *brain)
		want string
		lost bool
	}{
		"no memory":     {func(b *brain) { b.err = errors.New("no space left") }, "no space left", false},
		"half a memory": {func(b *brain) { b.change = func(_ context.Context, i *imageInfo) { i.Size++ } }, "damaged", false},
		"it ended":      {func(b *brain) { close(b.done) }, "it fell over", true},
		"its directories": {func(b *brain) {
			// The other half fails, and this one hears of it.
			b.during = func(ctx context.Context, _ string) error { <-ctx.Done(); return ctx.Err() }
		}, `directory "data"`, false},
	} {
		t.Run(name, func(t *testing.T) {
			d, dir := keeper(t, Options{}), t.TempDir()
			spec := specAt(filepath.Join(t.TempDir(), "state"))
			if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
				t.Fatal(err)
			}
			if name == "its directories" {
				if err := errors.Join(os.Remove(dirsOf(spec.State, "data")), os.Symlink("/", dirsOf(spec.State, "data"))); err != nil {
					t.Fatal(err)
				}
			}
			b := newBrain("x")
			test.inst(b)
			_, err := d.Freeze(t.Context(), spec, b, filepath.Join(dir, "snap"))
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, driver.ErrLost) != test.lost {
				t.Errorf("got %v, want %q", err, test.want)
			}
			holds(t, dir)
		})
	}
	d := keeper(t, Options{})
	if _, err := d.Freeze(t.Context(), specAt(t.TempDir()), nil, filepath.Join(t.TempDir(), "snap")); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("what was never seeded was frozen: %v", err)
	}
}

// A snapshot of a root that has changed is refused before anything is made; a root that
// was just running is not looked at again.
func TestSeedLooksAtTheRoot(t *testing.T) {
	d, dir := keeper(t, Options{}), t.TempDir()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state"), Command: program, Options: box()}
	p, err := d.plan(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	snap := frozen(t, d, spec, newBrain("x"))
	spec.State = filepath.Join(dir, "sibling")
	if err := d.Seed(t.Context(), spec, driver.Source{From: &snap}); err != nil {
		t.Errorf("its own sibling is refused: %v", err)
	}

	next := keeper(t, Options{})
	next.opts.Dir, next.opts.Hide = d.opts.Dir, d.opts.Hide
	spec.State = filepath.Join(dir, "later")
	if err := next.Seed(t.Context(), spec, driver.Source{From: &snap}); !errors.Is(err, driver.ErrUnfit) || !strings.Contains(err.Error(), "the root has changed since") {
		t.Errorf("got %v", err)
	}
	gone(t, spec.State)
	b := newBrain("x")
	b.change = func(_ context.Context, i *imageInfo) { i.Base = p.base }
	snap = frozen(t, d, spec, b)
	if err := next.Seed(t.Context(), spec, driver.Source{From: &snap}); err != nil {
		t.Errorf("the same root is refused: %v", err)
	}
}
