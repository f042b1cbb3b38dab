package layer

import (
	"errors"
	"maps"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// TestFullFilesystem fills a real one, heads and all.
func TestFullFilesystem(t *testing.T) {
	root := t.TempDir()
	if err := syscall.Mount("tine-test", root, "tmpfs", 0, "size=1m,nr_inodes=64"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("can't mount a small filesystem: %v", err)
		}
		t.Skipf("can't mount a small filesystem: %v", err)
	}
	defer syscall.Unmount(root, syscall.MNT_DETACH)
	w := &world{t: t, root: root}
	w.start()
	defer func() { w.Close() }()
	w.create("a", Ref{})
	h := w.open("a")
	want := map[string]string{}
	states := []string{"a"}
	room := func() {
		t.Helper()
		must(t, drop(h, "k0"))
		delete(want, "k0")
		expect(t, h, want)
	}
	for i := 0; ; i++ {
		key, body := "k"+strconv.Itoa(i), strings.Repeat("b", 30_000)
		if err := put(h, key, body); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			break
		}
		want[key] = body
	}
	expect(t, h, want)
	for i := range 100 { // the inodes, too
		name := "s" + strconv.Itoa(i)
		if err := w.Create(w.dir(name), Ref{}); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			if _, err := os.Stat(w.dir(name)); err == nil {
				t.Error("a state that was not made left its folder")
			}
			break
		}
		states = append(states, name)
	}
	last := w.open(states[len(states)-1])
	for err := error(nil); err == nil; {
		err = put(last, "x", strings.Repeat("b", 4000))
		if err != nil && !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	expect(t, h, want)
	for _, name := range states[len(states)-5:] {
		must(t, w.Remove(w.dir(name)))
	}
	states = states[:len(states)-5]
	room()
	ref := w.seal("a")
	kept := maps.Clone(want)
	must(t, put(h, "after", "1"))
	want["after"] = "1"
	w.restart(states, ref)
	expect(t, w.open("a"), want)
	w.create("b", ref)
	expect(t, w.open("b"), kept)
}
