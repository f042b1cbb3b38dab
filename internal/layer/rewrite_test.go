package layer

import (
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/testkit"
)

func TestOverwritingDoesNotFillTheDisk(t *testing.T) {
	w := newWorld(t)
	w.rewriteFrom = 1 << 20
	w.create("base", Ref{})
	h := w.open("base")
	must(t, put(h, "inherited", "0"))
	must(t, put(h, "dropped", "0"))
	w.create("a", w.seal("base"))
	h = w.open("a")
	must(t, drop(h, "dropped"))
	must(t, put(h, "kept", "1"))
	var old dict
	body := func(i int) string { return strings.Repeat(strconv.Itoa(i%10), 100_000) }
	for i := range 100 {
		must(t, put(h, "x", body(i)))
		if i == 5 {
			old = h.Value()
		}
	}
	size, err := w.StateSize(w.dir("a"))
	if err != nil || size > 3<<20 {
		t.Fatalf("10 MB of overwriting take %d bytes, %v", size, err)
	}
	want := map[string]string{"inherited": "0", "kept": "1", "x": body(99)}
	expect(t, h, want)
	// The holder of an old value goes on reading it.
	if got := contents(t, old)["x"]; got != body(5) {
		t.Fatal("an old value changed")
	}
	if n := len(w.ids()); n < 3 {
		t.Fatalf("%d files: the one of the old value is gone", n)
	}
	runtime.KeepAlive(old)
	old = nil
	testkit.Eventually(t, "rewritten layers are removed", func() bool {
		runtime.GC()
		return len(w.ids()) == 2
	})
	w.create("b", w.seal("a"))
	must(t, put(h, "x", "2"))
	w.restart([]string{"a", "b"})
	expect(t, w.open("a"), with(want, "x", "2"))
	expect(t, w.open("b"), want)
}

func TestCloseRemovesRewritten(t *testing.T) {
	w := newWorld(t)
	w.rewriteFrom = 1 << 10
	w.create("a", Ref{})
	h := w.open("a")
	var all []dict
	for range 100 {
		must(t, put(h, "x", strings.Repeat("x", 100)))
		all = append(all, h.Value())
	}
	for _, v := range all {
		contents(t, v)
	}
	must(t, w.Close())
	w.expectFiles(1)
}

// A rewrite that fails costs nothing but room.
func TestFailedRewrite(t *testing.T) {
	w := newWorld(t)
	w.rewriteFrom = 1 << 10
	w.create("a", Ref{})
	m := dictMachine()
	m.Dump = func(_, _ dict, emit func([]byte, io.Reader, int64) error) error {
		if err := emit([]byte("+y"), nil, 0); err != nil {
			return err
		}
		return emit([]byte("+x"), strings.NewReader("short"), 10)
	}
	h, err := Open(w.Store, w.dir("a"), m)
	must(t, err)
	for range 100 {
		must(t, put(h, "x", strings.Repeat("x", 100)))
	}
	expect(t, h, map[string]string{"x": strings.Repeat("x", 100)})
	w.expectFiles(1)
	w.restart([]string{"a"})
	expect(t, w.open("a"), map[string]string{"x": strings.Repeat("x", 100)})
}

// Without Dump a layer only grows.
func TestNoRewriteWithoutDump(t *testing.T) {
	w := newWorld(t)
	w.rewriteFrom = 1 << 10
	w.create("a", Ref{})
	h := w.openGrowing("a")
	for range 100 {
		must(t, put(h, "x", strings.Repeat("x", 100)))
	}
	info, err := os.Stat(w.files.path(w.ids()[0]))
	must(t, err)
	if info.Size() < 100*100 {
		t.Fatal("it shrank")
	}
}
