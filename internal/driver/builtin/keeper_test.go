package builtin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/internal/driver"
)

func TestStateOutlivesInstances(t *testing.T) {
	w := newWorld(t)
	w.seed("a", nil)
	w.add("a", "one", "two")
	w.want("a", "one", "two")
	w.again([]string{w.state("a")})
	w.want("a", "one", "two")
	w.add("a", "three")
	w.again([]string{w.state("a"), filepath.Join(w.dir, "not there")})
	w.want("a", "one", "two", "three")

	spec := w.spec("a")
	for range 2 {
		if err := w.Erase(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(spec.State); !errors.Is(err, os.ErrNotExist) || w.files() != 0 {
		t.Errorf("something is left: %v, %d layers", err, w.files())
	}
}

// TestForks forks states of which some run, over and over, against lists of
// names: what one remembers no other one knows.
func TestForks(t *testing.T) {
	w := newWorld(t)
	model := map[string][]string{"0": nil}
	w.seed("0", nil)
	names := []string{"0"}
	rng := rand.New(rand.NewPCG(1, 2))
	step := 0
	for len(names) < 60 {
		parent := names[rng.IntN(len(names))]
		if rng.IntN(3) == 0 {
			parent = names[len(names)-1] // deep as well as wide
		}
		var snap driver.Snapshot
		w.use(parent, func(inst driver.Instance, cs *mcp.ClientSession) {
			for range rng.IntN(3) {
				name := fmt.Sprint("e", step)
				step++
				if err := remember(cs, name); err != nil {
					t.Fatal(err)
				}
				model[parent] = append(slices.Clone(model[parent]), name)
			}
			release, err := inst.Hold(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			snap, err = w.Freeze(t.Context(), w.spec(parent), inst, filepath.Join(w.dir, "never made"))
			release()
			if err != nil {
				t.Fatal(err)
			}
			// The parent goes on and its children don't see it.
			frozen := model[parent]
			name := fmt.Sprint("later", step)
			if err := remember(cs, name); err != nil {
				t.Fatal(err)
			}
			model[parent] = append(slices.Clone(frozen), name)
			for range 1 + rng.IntN(3) {
				child := fmt.Sprint(len(names))
				names = append(names, child)
				model[child] = frozen
				w.seed(child, &snap)
			}
		})
		w.discard(snap)
		w.discard(snap)
		if rng.IntN(10) == 0 {
			var states []string
			for _, n := range names {
				states = append(states, w.state(n))
			}
			w.again(states)
		}
	}
	for _, n := range names {
		w.want(n, model[n]...)
	}
	// In any order, erasing one spares the others.
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for i, n := range names {
		if err := w.Erase(t.Context(), w.spec(n)); err != nil {
			t.Fatal(err)
		}
		if i%10 == 0 && i+1 < len(names) {
			w.want(names[i+1], model[names[i+1]]...)
		}
	}
	if n := w.files(); n != 0 {
		t.Errorf("%d layers are left", n)
	}
}

// TestSnapshots has several of the same moment, which are one layer: each is
// there until it is discarded, once.
func TestSnapshots(t *testing.T) {
	w := newWorld(t)
	w.seed("a", nil)
	empty := w.freeze("a")
	w.add("a", "one")
	first, second := w.freeze("a"), w.freeze("a")
	if first.Carries != driver.CarryMemory || first.Driver != Name || first.Server != "mem" || first.Size == 0 || empty.Size != 0 {
		t.Errorf("snapshots are %+v and %+v", first, empty)
	}
	w.discard(first)
	w.discard(first)
	if err := w.Erase(t.Context(), w.spec("a")); err != nil {
		t.Fatal(err)
	}
	w.seed("b", &second)
	w.want("b", "one")
	w.seed("c", &empty)
	w.want("c")

	w.again([]string{w.state("b"), w.state("c")}, empty, second, driver.Snapshot{Driver: "process", Data: []byte("x")})
	if err := w.Erase(t.Context(), w.spec("b")); err != nil {
		t.Fatal(err)
	}
	w.seed("d", &second)
	w.discard(second)
	w.discard(second)
	w.want("d", "one")
	// A state that is no longer named is gone after a restart.
	w.again(nil)
	if n := w.files(); n != 0 {
		t.Errorf("%d layers are left", n)
	}
}

func TestTransfer(t *testing.T) {
	w := newWorld(t)
	w.seed("a", nil)
	empty := w.freeze("a")
	w.add("a", "one")
	w.freeze("a")
	w.add("a", "two")
	full := w.freeze("a")
	for _, tt := range []struct {
		snap driver.Snapshot
		want []string
	}{{empty, nil}, {full, []string{"one", "two"}}} {
		var b bytes.Buffer
		if err := w.Export(t.Context(), tt.snap, &b); err != nil {
			t.Fatal(err)
		}
		other := newWorld(t)
		in, err := other.Import(t.Context(), "mem", filepath.Join(other.dir, "never made"), bytes.NewReader(b.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		other.seed("x", &in)
		other.discard(in)
		other.want("x", tt.want...)

		// Nothing that is cut off or changed passes, or leaves anything.
		whole := b.Bytes()
		files := other.files()
		for cut := 0; cut < len(whole); cut += 1 + len(whole)/97 {
			if snap, err := other.Import(t.Context(), "mem", "", bytes.NewReader(whole[:cut])); err == nil {
				t.Errorf("%d of %d bytes are accepted: %+v", cut, len(whole), snap)
			}
		}
		for at := 0; at < len(whole); at += 1 + len(whole)/97 {
			bent := bytes.Clone(whole)
			bent[at] ^= 0x41
			if snap, err := other.Import(t.Context(), "mem", "", bytes.NewReader(bent)); err == nil && at > 80 {
				t.Errorf("byte %d is changed and there is no error: %+v", at, snap)
			}
		}
		if n := other.files(); n > files+1 {
			t.Errorf("%d layers instead of %d", n, files)
		}
	}
	for _, bad := range []string{"", "\n", "{}\n", strings.Repeat("x", 1<<20), `{"format":"tine built-in server","version":9,"builtin":"memory"}` + "\n",
		`{"format":"tine built-in server","version":1,"builtin":"nope"}` + "\n"} {
		if _, err := w.Import(t.Context(), "mem", "", strings.NewReader(bad)); err == nil {
			t.Errorf("%.60q is accepted", bad)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Export(ctx, full, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("export after the end: err = %v", err)
	}
}

func TestStateless(t *testing.T) {
	f := newFixture()
	spec := driver.Spec{Server: "s", Builtin: "sample", State: filepath.Join(t.TempDir(), "state")}
	if got, _ := f.driver.Carries(spec); got != driver.CarryMemory {
		t.Errorf("carries %q", got)
	}
	if got, why := f.driver.Carries(driver.Spec{Server: "s", Builtin: "nope"}); got != driver.CarryNone || !strings.Contains(why, "servers.s.builtin") {
		t.Errorf("an unknown one carries %q: %s", got, why)
	}
	if err := f.driver.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(spec.State); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a state was made: %v", err)
	}
	snap, err := f.driver.Freeze(t.Context(), spec, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.driver.Seed(t.Context(), spec, driver.Source{From: &snap}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := f.driver.Export(t.Context(), snap, &b); err != nil {
		t.Fatal(err)
	}
	if snap, err = f.driver.Import(t.Context(), "s", "", &b); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.driver.Recover(t.Context(), nil, []driver.Snapshot{snap}, true), f.driver.Discard(t.Context(), snap), f.driver.Erase(t.Context(), spec)); err != nil {
		t.Error(err)
	}
	spec.Template = t.TempDir()
	if err := f.driver.Seed(t.Context(), spec, driver.Source{}); err == nil || !strings.Contains(err.Error(), "remove servers.s.template") {
		t.Errorf("template: err = %v", err)
	}
}

// TestLost has a layer go away: states that stand on it report it, and the others go
// on.
func TestLost(t *testing.T) {
	w := newWorld(t)
	w.seed("good", nil)
	w.add("good", "x")
	w.seed("bad", nil)
	w.add("bad", "one")
	snap := w.freeze("bad")
	f, err := thaw(snap)
	if err != nil {
		t.Fatal(err)
	}
	w.add("bad", "two")
	w.close()
	if err := os.Remove(filepath.Join(w.dir, "layers", f.Layer.ID+".log")); err != nil {
		t.Fatal(err)
	}
	w.again([]string{w.state("good"), w.state("bad")}, snap)
	_, err = w.Start(t.Context(), w.spec("bad"))
	if err == nil || !strings.Contains(err.Error(), "stored data is lost") || !strings.Contains(err.Error(), f.Layer.ID) {
		t.Errorf("start: err = %v", err)
	}
	err = w.Seed(t.Context(), w.spec("child"), driver.Source{From: &snap})
	if err == nil || !strings.Contains(err.Error(), "stored data is lost") || !strings.Contains(err.Error(), f.Layer.ID) {
		t.Errorf("seed: err = %v", err)
	}
	if _, err := os.Stat(w.state("child")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed seed leaves its folder: %v", err)
	}
	w.want("good", "x")
	if err := errors.Join(w.Discard(t.Context(), snap), w.Erase(t.Context(), w.spec("bad"))); err != nil {
		t.Error(err)
	}
	if _, err := w.Start(t.Context(), w.spec("never seeded")); err == nil || !strings.Contains(err.Error(), "stored data is lost") {
		t.Errorf("start without a state: err = %v", err)
	}
	if _, err := w.Start(t.Context(), driver.Spec{Server: "mem", Builtin: "memory"}); err == nil || !strings.Contains(err.Error(), "no folder") {
		t.Errorf("start without a folder: err = %v", err)
	}
}

func TestSeedRefuses(t *testing.T) {
	w := newWorld(t)
	for _, snap := range []driver.Snapshot{
		{Driver: "process", Data: []byte(`{}`)},
		{Driver: Name, Data: []byte(`{`)},
		{Driver: Name, Data: []byte(`{"builtin":"time"}`)},
		{Driver: Name, Data: []byte(`{"builtin":"memory","layer":{"id":"lyr_0123456789abcdef"}}`)},
		{Driver: Name, Data: []byte(`{"builtin":"memory","layer":{"id":"../../x"}}`)},
	} {
		if err := w.Seed(t.Context(), w.spec("a"), driver.Source{From: &snap}); err == nil {
			t.Errorf("%s is accepted", snap.Data)
		}
	}
	w.seed("a", nil)
	if err := w.Seed(t.Context(), w.spec("a"), driver.Source{}); err == nil {
		t.Error("a state is seeded twice")
	}
	w.want("a")
}
