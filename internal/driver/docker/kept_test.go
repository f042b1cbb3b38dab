package docker

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

func itoa(n int) string { return strconv.Itoa(n) }

// What a gateway that was killed left is found by its folder, and where that is
// gone too by its labels. What is known stays, and so does what is another's.
func testSweep(t *testing.T, w *world) {
	start := func(name string) driver.Handle {
		c := w.http() // which outlives the gateway everywhere
		inst, err := w.d.Start(t.Context(), w.spec(name, c))
		if err != nil {
			t.Fatal(err)
		}
		if err := inst.Leave(); err != nil {
			t.Fatal(err)
		}
		return inst.Handle()
	}
	known, folder, labels := start("known"), start("folder"), start("labels")
	if err := os.RemoveAll(labels.Dir); err != nil {
		t.Fatal(err)
	}
	other := w.bench.world(t)
	stranger := other.start(t, other.spec("stranger", other.stdio()))
	next := w.next()
	gone, err := next.Sweep(t.Context(), filepath.Join(w.dir, "instances"), map[string]bool{known.Dir: true})
	if err != nil || len(gone) != 1 || gone[0] != folder.Dir {
		t.Errorf("swept %q, %v", gone, err)
	}
	if left := w.containers(t, labelGateway+"="+w.id); len(left) != 1 {
		t.Errorf("left: %q", left)
	}
	inst, err := next.Adopt(t.Context(), known, nil)
	if err != nil {
		t.Fatalf("adopt: %v", err)
	}
	if got := drivertest.Dial(t, inst).Call(t, "echo", map[string]any{"text": "still"}); got != "still" {
		t.Errorf("echo said %q", got)
	}
	if err := inst.Stop(t.Context()); err != nil {
		t.Errorf("stop: %v", err)
	}
	if got := drivertest.Dial(t, stranger).Call(t, "echo", map[string]any{"text": "mine"}); got != "mine" {
		t.Errorf("echo said %q", got)
	}
}

func testRecover(t *testing.T, w *world) {
	c := w.stdio()
	c.State = []string{"/data"}
	kept := w.spec("kept", c)
	_, p := w.open(t, kept, driver.Source{})
	remember(t, p, "k", "v")
	lost := w.spec("lost", c)
	if err := w.d.Seed(t.Context(), lost, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	root := w.spec("root", w.root())
	if err := w.d.Seed(t.Context(), root, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	inst := w.start(t, root)
	snap := w.freeze(t, root, inst, "snap")
	if err := inst.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{lost.State, root.State, snap.Dir} { // as the session does
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.next().Recover(t.Context(), []string{kept.State}, nil, true); err != nil {
		t.Fatalf("recover: %v", err)
	}
	volumes, err := w.cli.VolumeList(t.Context(), client.VolumeListOptions{Filters: w.d.ours()})
	if err != nil || len(volumes.Items) != 1 {
		t.Errorf("%d volumes are left, %v", len(volumes.Items), err)
	}
	images, err := w.cli.ImageList(t.Context(), client.ImageListOptions{Filters: w.d.ours()})
	if err != nil || len(images.Items) != 0 {
		t.Errorf("images are left: %v, %v", images.Items, err)
	}
	recall(t, p, "k", "+v")
}

func template(t *testing.T) string {
	dir := t.TempDir()
	for name, text := range map[string]string{"k": "of the template", "sub/file": "deep"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func testTemplateVolume(t *testing.T, w *world) {
	c := w.stdio()
	c.State = []string{"/data"}
	spec := w.spec("a", c)
	spec.Template = template(t)
	inst, p := w.open(t, spec, driver.Source{})
	recall(t, p, "k", "+of the template")
	remember(t, p, "k", "changed")
	snap := w.freeze(t, spec, inst, "snap")
	// The child has a volume of its own, and the template is as it was.
	child := w.spec("b", c)
	_, q := w.open(t, child, driver.Source{From: &snap})
	recall(t, q, "k", "+changed")
	remember(t, q, "k", "of the child")
	recall(t, p, "k", "+changed")
	again := w.spec("c", c)
	again.Template = spec.Template
	_, r := w.open(t, again, driver.Source{})
	recall(t, r, "k", "+of the template")
}

// What a template brings is in the image, and not only in a mount: a commit keeps
// it. Images go with their last user.
func testTemplateRoot(t *testing.T, w *world) {
	c := w.root()
	c.TemplatePath = "/data"
	from := template(t)
	images := func() int {
		l, err := w.cli.ImageList(t.Context(), client.ImageListOptions{Filters: w.d.ours()})
		if err != nil {
			t.Fatal(err)
		}
		return len(l.Items)
	}
	spec := w.spec("a", c)
	spec.Template = from
	inst, p := w.open(t, spec, driver.Source{})
	recall(t, p, "k", "+of the template")
	twin := w.spec("twin", c)
	twin.Template = from
	if err := w.d.Seed(t.Context(), twin, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	if n := images(); n != 1 {
		t.Errorf("two of one template have %d images", n)
	}
	remember(t, p, "more", "m")
	snap := w.freeze(t, spec, inst, "snap")
	child := w.spec("b", c)
	child.Template = from
	kid, q := w.open(t, child, driver.Source{From: &snap})
	recall(t, q, "k", "+of the template")
	recall(t, q, "more", "+m")
	if err := w.d.Discard(t.Context(), snap); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return kid.Stop(t.Context()) },
		func() error { return w.d.Erase(t.Context(), child) },
		func() error { return inst.Stop(t.Context()) },
		func() error { return w.d.Erase(t.Context(), spec) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	if n := images(); n != 1 { // the twin's
		t.Errorf("%d images are there with one user left", n)
	}
	if err := w.d.Erase(t.Context(), twin); err != nil {
		t.Fatal(err)
	}
	if n := images(); n != 0 {
		t.Errorf("%d images are left", n)
	}
}

// What an image declares as a volume is not in its root, and a commit leaves it
// out.
func testImageVolumes(t *testing.T, w *world) {
	name := strings.Replace(w.image, "drivertest", "drivertest-volume", 1)
	w.load(t, name, `VOLUME ["/data"]`, map[string]string{"data/": "", "data/k": "of the image"})
	t.Cleanup(func() {
		w.cli.ImageRemove(context.Background(), name, client.ImageRemoveOptions{Force: true, PruneChildren: true})
	})
	c := w.root()
	c.Image = name
	spec := w.spec("a", c)
	inst, p := w.open(t, spec, driver.Source{})
	recall(t, p, "k", "+of the image")
	remember(t, p, "k", "changed")
	snap := w.freeze(t, spec, inst, "snap")
	remember(t, p, "k", "since")
	child := w.spec("b", c)
	kid, q := w.open(t, child, driver.Source{From: &snap})
	recall(t, q, "k", "+changed")
	for _, i := range []driver.Instance{kid, inst} {
		if err := i.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, s := range []driver.Spec{child, spec} {
		if err := w.d.Erase(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	w.d.Discard(t.Context(), snap)
}

// Engines fill an empty volume with what the image has there: once.
func testEmptyVolume(t *testing.T, w *world) {
	name := strings.Replace(w.image, "drivertest", "drivertest-filled", 1)
	w.load(t, name, "", map[string]string{"data/": "", "data/k": "of the image"})
	t.Cleanup(func() {
		w.cli.ImageRemove(context.Background(), name, client.ImageRemoveOptions{Force: true, PruneChildren: true})
	})
	c := w.stdio()
	c.Image, c.State = name, []string{"/data"}
	spec := w.spec("a", c)
	inst, p := w.open(t, spec, driver.Source{})
	recall(t, p, "k", "+of the image")
	h, err := readHolding(spec.State)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := w.d.engine(w.host)
	dir, ok := e.hostPath(t.Context(), h.Volumes[0].Volume)
	if !ok {
		t.Fatal("the volume's files can't be reached")
	}
	if err := os.Remove(filepath.Join(dir, "k")); err != nil { // as the server might
		t.Fatal(err)
	}
	snap := w.freeze(t, spec, inst, "snap")
	child := w.spec("b", c)
	kid, q := w.open(t, child, driver.Source{From: &snap})
	recall(t, q, "k", "")
	kid.Stop(t.Context())
	w.d.Erase(t.Context(), child)
	inst.Stop(t.Context())
	w.d.Erase(t.Context(), spec)
	w.d.Discard(t.Context(), snap)
}

func testFlatten(t *testing.T, w *world) {
	c := w.root()
	spec := w.spec("f0", c)
	inst, p := w.open(t, spec, driver.Source{})
	for n := range 6 { // the driver allows four layers
		remember(t, p, "k"+itoa(n), "v")
		snap := w.freeze(t, spec, inst, "snap"+itoa(n))
		h, err := readHolding(snap.Dir)
		if err != nil {
			t.Fatal(err)
		}
		image, err := w.cli.ImageInspect(t.Context(), h.Image)
		if err != nil {
			t.Fatal(err)
		}
		if layers := len(image.RootFS.Layers); layers > 4 {
			t.Errorf("%d layers", layers)
		}
		spec = w.spec("f"+itoa(n+1), c)
		inst, p = w.open(t, spec, driver.Source{From: &snap, Take: true})
		for k := range n + 1 {
			recall(t, p, "k"+itoa(k), "+v")
		}
	}
}

// Without capabilities a server may only write to what is its own.
func testUser(t *testing.T, w *world) {
	for _, user := range []string{"1234:2345", "somebody"} {
		for _, from := range []string{"", template(t)} {
			c := w.stdio()
			c.State, c.User = []string{"/data/deep"}, user
			spec := w.spec(strings.ReplaceAll(user, ":", "-")+itoa(len(from)), c)
			spec.Env = map[string]string{drivertest.StateVar: "/data/deep"}
			spec.Template = from
			_, p := w.open(t, spec, driver.Source{})
			remember(t, p, "k", "mine")
			recall(t, p, "k", "+mine")
		}
	}
}

// An engine whose files are not ours to reach is asked for them.
func testArchive(t *testing.T, w *world) {
	c := w.stdio()
	c.State = []string{"/data"}
	spec := w.spec("a", c)
	inst, p := w.open(t, spec, driver.Source{})
	remember(t, p, "k", strings.Repeat("v", 300_000))
	h, err := readHolding(spec.State)
	if err != nil {
		t.Fatal(err)
	}
	e, err := w.d.engine(w.host)
	if err != nil {
		t.Fatal(err)
	}
	m := w.d.newMaking(e, spec, spec.State)
	to, err := m.volume(t.Context(), "/data")
	if err != nil {
		t.Fatal(err)
	}
	defer m.undo(context.Background())
	release, err := inst.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	n, err := e.copyThrough(t.Context(), spec, w.image, h.Volumes[0].Volume, to.Volume, nil)
	if err != nil || n != 300_000 {
		t.Fatalf("copied %d bytes, %v", n, err)
	}
	dir, ok := e.hostPath(t.Context(), to.Volume)
	if !ok {
		t.Fatal("the volume's files can't be reached")
	}
	if b, err := os.ReadFile(filepath.Join(dir, "k")); err != nil || len(b) != 300_000 {
		t.Errorf("the copy has %d bytes, %v", len(b), err)
	}
}
