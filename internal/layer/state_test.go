package layer

import (
	"errors"
	"io/fs"
	"os"
	"testing"
)

func TestForksAreApart(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	a := w.open("a")
	must(t, put(a, "x", "1"))
	ref := w.seal("a")
	w.create("b", ref)
	w.create("c", ref)
	must(t, w.Release(ref))
	b, c := w.open("b"), w.open("c")
	must(t, put(a, "x", "2"))
	must(t, put(b, "y", "3"))
	must(t, drop(c, "x"))
	check := func() {
		t.Helper()
		expect(t, a, map[string]string{"x": "2"})
		expect(t, b, map[string]string{"x": "1", "y": "3"})
		expect(t, c, map[string]string{})
	}
	check()
	w.restart([]string{"a", "b", "c"})
	a, b, c = w.open("a"), w.open("b"), w.open("c")
	check()
	for _, name := range []string{"a", "b", "c", "c"} {
		must(t, w.Remove(w.dir(name)))
	}
	w.expectFiles(0)
	err := put(a, "z", "")
	if !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("commit to a removed state: %v", err)
	}
}

func TestNothingChangedMakesNoFile(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	if ref := w.seal("a"); ref != (Ref{}) {
		t.Fatalf("an empty state seals to %v", ref)
	}
	must(t, put(w.open("a"), "x", "1"))
	first := w.seal("a")
	if again := w.seal("a"); again != first {
		t.Fatalf("unchanged, yet %v became %v", first, again)
	}
	w.create("b", first)
	if ref := w.seal("b"); ref != first {
		t.Fatalf("a fresh fork of %v seals to %v", first, ref)
	}
	w.expectFiles(1)
	must(t, w.Remove(w.dir("a")))
	must(t, w.Remove(w.dir("b")))
	for range 3 {
		w.expectFiles(1)
		must(t, w.Release(first))
	}
	w.expectFiles(0)
	wantError(t, w.Release(first), "no such layer", first.ID)
	wantError(t, w.Retain(first), "no such layer", first.ID)
	wantError(t, w.Create(w.dir("c"), first), "no such layer", first.ID)
	if _, err := os.Stat(w.dir("c")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a state that could not be made left its folder: %v", err)
	}
}
