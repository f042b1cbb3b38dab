package layer

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestDieInMerge looks at what dying before and after each write of a merge would
// leave: all that was committed, and strays that the next start removes.
func TestDieInMerge(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	h := w.openGrowing("a")
	want := map[string]string{}
	change := func(i int) {
		t.Helper()
		key, value := strconv.Itoa(i%7), strings.Repeat(strconv.Itoa(i%10), 40*i)
		must(t, put(h, key, value))
		want[key] = value
	}
	var pins []Ref
	pinned := map[string]map[string]string{}
	for i := range mergeFrom + 4 {
		change(i)
		ref := w.seal("a")
		if i > mergeFrom { // the ring
			pins = append(pins, ref)
			pinned[ref.ID] = maps.Clone(want)
			continue
		}
		must(t, w.Release(ref))
	}
	must(t, h.Close())
	h = w.open("a")
	watching := false
	var dead []string
	die := func() {
		for watching {
			root := t.TempDir()
			err := os.CopyFS(root, os.DirFS(w.root))
			if errors.Is(err, fs.ErrNotExist) {
				continue // an unused layer was removed meanwhile
			}
			must(t, err)
			dead = append(dead, root)
			return
		}
	}
	open := w.files.open
	w.files.open = func(path string, flag int) (handle, error) {
		die()
		f, err := open(path, flag)
		if err != nil {
			return nil, err
		}
		return watched{f, die}, nil
	}
	watching = true
	before := maps.Clone(want)
	old := h.Value()
	change(77)
	die()
	watching = false
	merged := 0
	for i, root := range dead {
		after := &world{t: t, root: root}
		after.start()
		must(t, after.Recover([]string{after.dir("a")}, pins))
		if b := after.Broken(); len(b) > 0 {
			t.Fatalf("after %d writes: %v", i, b)
		}
		got := contents(t, after.open("a").Value())
		if !maps.Equal(got, want) && !maps.Equal(got, before) {
			t.Fatalf("after %d writes: %.300v", i, got)
		}
		own := after.own("a")
		used := map[string]bool{}
		if own.end > 0 {
			used[own.id] = true
		}
		for _, l := range append(own.parent.chain(), after.layers[pins[len(pins)-1].ID].chain()...) {
			used[l.id] = true
		}
		after.expectFiles(len(used))
		if own.depth < mergeFrom {
			merged++
		}
		for id, want := range pinned {
			after.create("look", Ref{id})
			expect(t, after.open("look"), want)
			must(t, after.Remove(after.dir("look")))
		}
		must(t, after.Close())
	}
	if merged == 0 || merged == len(dead) || len(dead) < 20 {
		t.Errorf("%d of %d are after the merge", merged, len(dead))
	}
	runtime.KeepAlive(old)
}

// watched tells of each write, before and after.
type watched struct {
	handle
	notify func()
}

func (f watched) WriteAt(p []byte, off int64) (int, error) {
	f.notify()
	defer f.notify()
	return f.handle.WriteAt(p, off)
}
