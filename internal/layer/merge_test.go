package layer

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/torture"
)

// usage is what the store's folder holds.
func (w *world) usage() (files int, size int64) {
	w.t.Helper()
	entries, err := os.ReadDir(w.files.dir)
	must(w.t, err)
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else it went just now
			files++
			size += info.Size()
		}
	}
	return files, size
}

// expectUsage waits for the collector to find the layers that no reader has any more.
func (w *world) expectUsage(files int, size int64) {
	w.t.Helper()
	testkit.Succeeds(w.t, fmt.Sprintf("at most %d files with %d bytes", files, size), func() error {
		runtime.GC()
		if n, bytes := w.usage(); n > files || bytes > size {
			return fmt.Errorf("%d files with %d bytes", n, bytes)
		}
		return nil
	})
}

// own is the own layer of a state.
func (w *world) own(name string) *layer {
	st := w.states[w.dir(name)]
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.own
}

func TestReleasedSealsDoNotFillTheDisk(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	h := w.open("a")
	body := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), 1<<20) }
	for i := range 200 {
		must(t, put(h, "x", body(i)))
		must(t, w.Release(w.seal("a")))
		if size := w.own("a").top(); size > 6<<20 {
			t.Fatalf("after %d times 1 MiB the chain has %d bytes", i+1, size)
		}
	}
	want := map[string]string{"x": body(199)}
	expect(t, h, want)
	w.expectUsage(6, 6<<20)
	w.restart([]string{"a"})
	expect(t, w.open("a"), want)
}

// A ring of snapshots, all of them right all the time, on a base that is large
// or small.
func TestRing(t *testing.T) {
	commits := torture.Or(500, 2000)
	for _, c := range []struct {
		name       string
		base, each int
		files      int
		size       int64
	}{
		{"small", 0, 100, 60, 1 << 20},
		{"large", 0, 50_000, 60, 16 << 20},
		{"small on a large base", 6 << 20, 100, 60, 7 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.create("a", Ref{})
			h := w.open("a")
			must(t, put(h, "base", strings.Repeat("b", c.base)))
			must(t, w.Release(w.seal("a")))
			want := contents(t, h.Value())
			type snapshot struct {
				ref  Ref
				want map[string]string
			}
			var ring []snapshot
			check := func(s snapshot) {
				t.Helper()
				w.create("look", s.ref)
				expect(t, w.open("look"), s.want)
				must(t, w.Remove(w.dir("look")))
			}
			for i := range commits {
				key, value := "k"+strconv.Itoa(i%7), strings.Repeat(strconv.Itoa(i%10), c.each+i%13)
				must(t, put(h, key, value))
				want = with(want, key, value)
				ring = append(ring, snapshot{w.seal("a"), want})
				if len(ring) > 8 {
					must(t, w.Release(ring[0].ref))
					ring = ring[1:]
				}
				if i%199 == 0 {
					for _, s := range ring {
						check(s)
					}
				}
				if own := w.own("a"); own.depth > c.files || own.top() > c.size {
					t.Fatalf("after %d commits the chain has %d layers and %d bytes", i, own.depth, own.top())
				}
			}
			expect(t, h, want)
			w.expectUsage(c.files, c.size)
			refs := make([]Ref, len(ring))
			for i, s := range ring {
				refs[i] = s.ref
			}
			w.restart([]string{"a"}, refs...)
			h = w.open("a")
			expect(t, h, want)
			for _, s := range ring {
				check(s)
				must(t, w.Release(s.ref))
			}
			must(t, w.Remove(w.dir("a")))
			w.expectUsage(0, 0)
		})
	}
}

// Each session is forked from the one before, which is closed then.
func TestClosedForksCollapse(t *testing.T) {
	for _, size := range []int{10, 200_000} {
		for _, open := range []bool{true, false} {
			t.Run(strconv.Itoa(size)+" "+strconv.FormatBool(open), func(t *testing.T) {
				w := newWorld(t)
				w.create("0", Ref{})
				want := map[string]string{}
				for i := range 100 {
					h := w.open(strconv.Itoa(i))
					key, value := "k"+strconv.Itoa(i%5), strings.Repeat(strconv.Itoa(i%10), size)
					must(t, put(h, key, value))
					want[key] = value
					ref := w.seal(strconv.Itoa(i))
					w.create(strconv.Itoa(i+1), ref)
					must(t, w.Release(ref))
				}
				last := w.own("100")
				if last.depth != 100 {
					t.Fatalf("%d deep while all are there", last.depth)
				}
				var h *Head[dict]
				if open {
					h = w.open("100")
				}
				for i := range 100 {
					must(t, w.Remove(w.dir(strconv.Itoa(i))))
				}
				if !open {
					w.restart([]string{"100"})
					h = w.open("100")
				}
				expect(t, h, want)
				w.expectFiles(100)
				must(t, put(h, "last", "1"))
				want["last"] = "1"
				expect(t, h, want)
				if own := w.own("100"); own.depth > mergeFrom {
					t.Errorf("%d deep when they are gone", own.depth)
				}
				w.expectUsage(mergeFrom, int64(size)*5+100<<10)
				w.restart([]string{"100"})
				expect(t, w.open("100"), want)
			})
		}
	}
}

// What others hold is not copied for each of them.
func TestSharedLayersAreNotCopied(t *testing.T) {
	w := newWorld(t)
	w.rewriteFrom = 64 << 10
	w.create("base", Ref{})
	h := w.openGrowing("base")
	for range 100 {
		must(t, put(h, "x", strings.Repeat("x", 10_000)))
		must(t, w.Release(w.seal("base")))
	}
	ref := w.seal("base")
	must(t, w.Remove(w.dir("base")))
	for i := range 10 {
		name := strconv.Itoa(i)
		w.create(name, ref)
		h = w.open(name)
		must(t, put(h, name, "1"))
		if own := w.own(name); own.depth != 100 || own.end > 1000 {
			t.Fatalf("a fork has copied %d bytes", own.end)
		}
	}
	must(t, w.Release(ref))
	for i := range 9 {
		must(t, w.Remove(w.dir(strconv.Itoa(i))))
	}
	// The last has it for itself.
	for i := range tidyEvery {
		must(t, put(h, "y", strconv.Itoa(i)))
	}
	if own := w.own("9"); own.depth != 0 {
		t.Errorf("%d deep", own.depth)
	}
	w.expectUsage(1, 64<<10)
}

// The holder of an old value goes on reading it, whatever became of its layers: they
// were merged, or passed over and released later.
func TestValuesOutliveTheirLayers(t *testing.T) {
	w := newWorld(t)
	w.mergeFrom = 4
	w.create("a", Ref{})
	h := w.open("a")
	var ring []Ref
	var old []dict
	var want []map[string]string
	now := map[string]string{}
	for i := range 60 {
		key := strconv.Itoa(i % 10)
		must(t, put(h, key, strconv.Itoa(i)))
		now = with(now, key, strconv.Itoa(i))
		old, want = append(old, h.Value()), append(want, now)
		if ring = append(ring, w.seal("a")); len(ring) > 3 {
			must(t, w.Release(ring[0]))
			ring = ring[1:]
		}
	}
	for _, ref := range ring {
		must(t, w.Release(ref))
	}
	must(t, put(h, "last", "1"))
	runtime.GC()
	for i, v := range old {
		got := contents(t, v)
		for key, value := range want[i] {
			if got[key] != value {
				t.Fatalf("value %d: %s is %q, want %q", i, key, got[key], value)
			}
		}
	}
	clear(old)
	w.expectUsage(16, 64<<10)
	expect(t, h, with(now, "last", "1"))
}

// What an earlier run left is merged by the first commit.
func TestMergeAfterRestart(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	h := w.openGrowing("a")
	must(t, put(h, "big", strings.Repeat("b", 20<<20)))
	for i := range 500 {
		must(t, w.Release(w.seal("a")))
		must(t, put(h, strconv.Itoa(i%50), strconv.Itoa(i)))
	}
	want := contents(t, h.Value())
	stream := export(t, w.Store, w.seal("a"))
	w.restart([]string{"a"})
	h = w.open("a")
	must(t, put(h, "x", "1"))
	if own := w.own("a"); own.depth > mergeFrom || own.end > 1<<20 {
		t.Errorf("%d deep, own has %d bytes", own.depth, own.end)
	}
	expect(t, h, with(want, "x", "1"))
	w.expectUsage(mergeFrom, 21<<20)

	// What is imported is merged as soon as it is the state's alone.
	ref, err := w.Import(bytes.NewReader(stream))
	must(t, err)
	w.create("b", ref)
	must(t, w.Release(ref))
	b := w.open("b")
	expect(t, b, want)
	must(t, put(b, "x", "2"))
	if own := w.own("b"); own.depth > mergeFrom {
		t.Errorf("%d deep", own.depth)
	}
	w.restart([]string{"a", "b"})
	expect(t, w.open("a"), with(want, "x", "1"))
	expect(t, w.open("b"), with(want, "x", "2"))
}

// A merge that fails costs nothing but room, and is not tried at every commit.
func TestFailedMerge(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	m := dictMachine()
	dump, fail, tries := m.Dump, true, 0
	m.Dump = func(base, v dict, emit func([]byte, io.Reader, int64) error) error {
		if err := dump(base, v, emit); err != nil || !fail {
			return err
		}
		tries++
		return syscall.ENOSPC
	}
	h, err := Open(w.Store, w.dir("a"), m)
	must(t, err)
	want := map[string]string{}
	step := func(i int) {
		t.Helper()
		must(t, put(h, strconv.Itoa(i%9), strconv.Itoa(i)))
		want[strconv.Itoa(i%9)] = strconv.Itoa(i)
		must(t, w.Release(w.seal("a")))
	}
	for i := range 200 {
		step(i)
	}
	w.expectFiles(200)
	if tries == 0 || tries > 200/mergeFrom {
		t.Errorf("%d tries", tries)
	}
	expect(t, h, want)
	fail = false
	for i := range mergeFrom + 1 {
		step(i)
	}
	expect(t, h, want)
	w.expectUsage(2*mergeFrom, 64<<10)
	w.restart([]string{"a"})
	expect(t, w.open("a"), want)
}

// Much that is in use at the bottom stays where it is when what is above it is
// rewritten.
func TestRewriteAboveWhatIsUsed(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	h := w.openGrowing("a")
	must(t, put(h, "base", strings.Repeat("b", 2<<20)))
	must(t, w.Release(w.seal("a")))
	for i := range 20 {
		must(t, put(h, "x", strings.Repeat(strconv.Itoa(i%10), 1<<20)))
		must(t, w.Release(w.seal("a")))
	}
	want := contents(t, h.Value())
	w.restart([]string{"a"})
	h = w.open("a")
	must(t, put(h, "y", "1"))
	// From where in between is a matter of which values are known.
	if own := w.own("a"); own.depth == 0 || own.depth > 15 || own.end > 1100<<10 {
		t.Errorf("own has %d bytes, %d deep", own.end, own.depth)
	}
	expect(t, h, with(want, "y", "1"))
	w.expectUsage(mergeFrom, 4*3<<20)
}
