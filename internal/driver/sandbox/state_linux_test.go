//go:build amd64 || arm64

package sandbox

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/sandbox/layout"
)

func TestRestAndTake(t *testing.T) {
	d := keeper(t, Options{})
	spec := specAt(filepath.Join(t.TempDir(), "state"))
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	for _, thought := range []string{"first", "second"} { // the second time one is in the way
		if err := d.suspended(t.Context(), newBrain(thought), spec.State, greetingText); err != nil {
			t.Fatal(err)
		}
		holds(t, spec.State, stateName, dirsName, imageName)
		reads(t, filepath.Join(imageOf(spec.State), "pages.img"), thought)
		r, err := d.stateOf(spec)
		if err != nil || r.Image == nil || r.Forked || string(r.Hello) != string(greetingText) {
			t.Errorf("it rests as %+v: %v", r, err)
		}
	}
	for range 2 {
		if err := d.took(spec.State); err != nil {
			t.Fatal(err)
		}
		holds(t, spec.State, stateName, dirsName)
		if r := recorded(t, spec.State); r.Image != nil || len(r.Hello) > 0 {
			t.Errorf("it is still there: %+v", r)
		}
	}
	if err := errors.Join(d.took(""), d.took(t.TempDir())); err != nil {
		t.Errorf("where nothing is, nothing is taken: %v", err)
	}
}

func TestRestThatFails(t *testing.T) {
	for name, test := range map[string]struct {
		change func(b *brain)
		hello  string
		want   string
	}{
		"no greeting":   {nil, "", "handshake is not known"},
		"null greeting": {nil, "null", "handshake is not known"},
		"no memory":     {func(b *brain) { b.err = errors.New("no space left") }, "{}", "no space left"},
		"half a memory": {func(b *brain) { b.change = func(_ context.Context, i *imageInfo) { i.Size++ } }, "{}", "damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			d := keeper(t, Options{})
			spec := specAt(filepath.Join(t.TempDir(), "state"))
			if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
				t.Fatal(err)
			}
			b := newBrain("x")
			if test.change != nil {
				test.change(b)
			}
			if err := d.suspended(t.Context(), b, spec.State, []byte(test.hello)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			holds(t, spec.State, stateName, dirsName)
			if r := recorded(t, spec.State); r.Image != nil {
				t.Errorf("it rests: %+v", r)
			}
		})
	}
	if err := keeper(t, Options{}).suspended(t.Context(), newBrain("x"), "/no/such", []byte("{}")); err == nil {
		t.Error("it rests nowhere")
	}
}

func TestStateOf(t *testing.T) {
	d := keeper(t, Options{Log: slog.New(slog.DiscardHandler)})
	if r, err := d.stateOf(driver.Spec{}); err != nil || r.Image != nil {
		t.Errorf("without a folder: %+v, %v", r, err)
	}
	if r, err := d.stateOf(driver.Spec{State: "/no/such"}); err != nil || r.Image != nil {
		t.Errorf("without a state: %+v, %v", r, err)
	}
	if _, err := d.stateOf(specAt("")); err == nil || !strings.Contains(err.Error(), "no folder") {
		t.Errorf("with directories and without a folder: %v", err)
	}
	if _, err := d.stateOf(specAt("/no/such")); err == nil || !strings.Contains(err.Error(), "stored data is lost: its state /no/such is gone") {
		t.Errorf("without its directories: %v", err)
	}
	dir := t.TempDir()
	for text, ok := range map[string]bool{
		"":                   true, // a power cut
		"{":                  false,
		`{"kind":"process"}`: false,
		`{"kind":"sandbox","image":{"runsc":"../../x"}}`:                     false,
		`{"kind":"sandbox","dirs":{"..":true}}`:                              false,
		`{"kind":"sandbox"}`:                                                 true,
		`{"kind":"sandbox","hello":"` + strings.Repeat("x", maxState) + `"}`: false,
	} {
		put(t, filepath.Join(dir, stateName), text)
		if _, err := d.stateOf(specAt(dir)); (err == nil) != ok {
			t.Errorf("%.60q: %v", text, err)
		}
	}
}

// What is gone of a state is damage, and nothing empty takes its place.
func TestAStateThatVanished(t *testing.T) {
	for _, below := range []string{"", dirsName, dirsName + "/data"} {
		d, dir := keeper(t, Options{}), t.TempDir()
		spec := specAt(filepath.Join(dir, "state"))
		if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
			t.Fatal(err)
		}
		reports := 0
		spec.OnDamage = func(error) { reports++ }
		if err := os.RemoveAll(filepath.Join(spec.State, below)); err != nil {
			t.Fatal(err)
		}
		for _, carry := range []string{driver.CarryMemory, driver.CarryFiles} {
			spec.Carry = carry
			if _, err := d.Freeze(t.Context(), spec, nil, filepath.Join(dir, "snap")); !errors.As(err, new(*driver.DamageError)) {
				t.Errorf("without %q: %v", below, err)
			}
		}
		if _, err := d.stateOf(spec); !errors.As(err, new(*driver.DamageError)) || reports != 2 {
			t.Errorf("without %q: %v, reported %d times", below, err, reports)
		}
	}
}

// A state without directories is a memory and its record. One without a record is not
// an empty one.
func TestARecordThatVanished(t *testing.T) {
	d := keeper(t, Options{Log: slog.New(slog.DiscardHandler)})
	for name, change := range map[string]func(record string) error{
		"gone": os.Remove, "empty": func(record string) error { return os.Truncate(record, 0) },
	} {
		spec := driver.Spec{Server: "box", State: filepath.Join(t.TempDir(), "state")}
		if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
			t.Fatal(err)
		}
		if err := d.suspended(t.Context(), newBrain("x"), spec.State, greetingText); err != nil {
			t.Fatal(err)
		}
		record := filepath.Join(spec.State, stateName)
		if err := change(record); err != nil {
			t.Fatal(err)
		}
		if _, err := d.stateOf(spec); !errors.As(err, new(*driver.DamageError)) || !strings.Contains(err.Error(), record) {
			t.Errorf("%s: %v", name, err)
		}
		if err := os.RemoveAll(imageOf(spec.State)); err != nil {
			t.Fatal(err)
		}
		if _, err := d.stateOf(spec); errors.As(err, new(*driver.DamageError)) != (name == "gone") {
			t.Errorf("%s, without a memory: %v", name, err)
		}
	}
}

// A gateway may be killed at any moment.
func TestRecover(t *testing.T) {
	d, dir := keeper(t, Options{}), t.TempDir()
	spec := specAt(filepath.Join(dir, "state"))
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	put(t, dirsOf(spec.State, "data", "x"), "x")
	b := newBrain("x")
	b.change = func(_ context.Context, i *imageInfo) { i.Runsc = "00000000000000aa" }
	snap := frozen(t, d, spec, b)
	resting := specAt(filepath.Join(dir, "resting"))
	if err := d.Seed(t.Context(), resting, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	b = newBrain("y")
	b.change = func(_ context.Context, i *imageInfo) { i.Runsc = "00000000000000bb" }
	if err := d.suspended(t.Context(), b, resting.State, greetingText); err != nil {
		t.Fatal(err)
	}
	for _, left := range []string{
		imageOf(spec.State) + "/pages.img",           // used up, and not removed
		imageOf(spec.State) + ".part/checkpoint.img", // going to rest
		filepath.Join(spec.State, stateName+".1.part"),
		dirsOf(spec.State, ".clone-half/x"),
		imageOf(resting.State) + ".part/checkpoint.img",
	} {
		put(t, left, "half")
	}

	next := keeper(t, Options{})
	states := []string{spec.State, resting.State, filepath.Join(dir, "none")}
	if err := next.Recover(t.Context(), states, []driver.Snapshot{snap, {Driver: driverName}, {Driver: "docker", Dir: "/no/such"}}, true); err != nil {
		t.Fatal(err)
	}
	holds(t, spec.State, stateName, dirsName)
	holds(t, dirsOf(spec.State), "data")
	holds(t, resting.State, stateName, dirsName, imageName)
	holds(t, snap.Dir, stateName, dirsName, imageName)
	reads(t, filepath.Join(imageOf(resting.State), "pages.img"), "y")

	want := map[string]bool{"00000000000000aa": true, "00000000000000bb": true}
	if got := next.referenced(); len(got) != 2 || !got["00000000000000aa"] || !got["00000000000000bb"] {
		t.Errorf("binaries %v are needed, want %v", got, want)
	}
	// What is made since counts, what is gone does not.
	if err := next.took(resting.State); err != nil {
		t.Fatal(err)
	}
	frozen(t, next, spec, newBrain("z"))
	if got := next.referenced(); len(got) != 2 || !got["00000000000000aa"] || !got[builtHash] {
		t.Errorf("binaries %v are needed", got)
	}
}

func TestLinkWhereThereAreNoLinks(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "image")
	put(t, filepath.Join(from, "pages.img"), "x")
	// A directory can't be linked: what comes of it is a copy.
	if err := os.Mkdir(filepath.Join(from, "zzz"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := linkImage(t.Context(), to, from); err != nil {
		t.Fatal(err)
	}
	reads(t, filepath.Join(to, "pages.img"), "x")
	holds(t, to, "pages.img", "zzz")
}

func TestSuits(t *testing.T) {
	p := &plan{args: []string{"srv"}, base: "a", stamp: "old", needs: map[string]string{layout.NeedsConfig: "1", "/srv/x": "2", "/srv/y": "3"}}
	for name, test := range map[string]struct {
		image imageInfo
		want  string
	}{
		"the same":           {imageInfo{Base: "a", Program: p.program()}, ""},
		"an earlier version": {imageInfo{Base: "old", Program: p.program()}, ""},
		"not known":          {imageInfo{}, ""},
		"another root":       {imageInfo{Base: "x"}, "the root has changed since it was made (the program or its packages"},
		"another file":       {imageInfo{Base: "x", Needs: map[string]string{layout.NeedsConfig: "1", "/srv/x": "0", "/srv/z": "0"}}, "(/srv/x is another, /srv/z is gone, /srv/y is new)"},
		"another config":     {imageInfo{Base: "x", Needs: map[string]string{layout.NeedsConfig: "0", "/srv/x": "2", "/srv/y": "3"}}, "(what its config shows it"},
		"another program":    {imageInfo{Base: "a", Program: "x"}, "another program since"},
	} {
		err := test.image.suits(p)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseFeatures(t *testing.T) {
	x86 := "processor\t: 0\nflags\t\t: fpu sse2 pti avx512f aes retpoline sse2 constant_tsc\nbugs\t: x\nflags\t: amx_tile\n"
	if got := parseFeatures([]byte(x86), "amd64"); !slices.Equal(got, []string{"aes", "avx512f", "sse2"}) {
		t.Errorf("got %q", got)
	}
	if got := parseFeatures([]byte("Features\t: fp asimd sha2\n"), "arm64"); !slices.Equal(got, []string{"asimd", "fp", "sha2"}) {
		t.Errorf("got %q", got)
	}
	if len(cpuFeatures()) == 0 {
		t.Error("this CPU can nothing")
	}
}
