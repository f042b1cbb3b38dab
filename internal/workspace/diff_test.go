package workspace

import (
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/layer"
)

// TestDiff applies what diff emits to the base and compares.
func TestDiff(t *testing.T) {
	for seed := range uint64(30) {
		f := newFS(t, KindTree).(*treeFS)
		r := rand.New(rand.NewPCG(seed, 2))
		for range 60 {
			randomOp(r, true).run(f)
		}
		base := f.head.Value()
		for range 60 {
			randomOp(r, true).run(f)
		}
		if err := f.Write("big", io.LimitReader(&repeated{text: strings.Repeat("x", 1000)}, 2*chunkSize), 2*chunkSize); err != nil {
			t.Fatal(err)
		}
		f.commit([]byte("half"), func(*tree) (change, error) { return change{op: opPart, upload: 9}, nil })
		v := f.head.Value()
		got := base
		err := diff(base, v, func(c change, parts []layer.Extent) error {
			var body layer.Extent
			for i, p := range parts {
				if i == len(parts)-1 {
					body = p
					break
				}
				c.upload = 77
				var err error
				if got, err = got.next(change{op: opPart, upload: 77}, p); err != nil {
					return err
				}
			}
			next, err := got.next(c, body)
			if err == nil {
				got = next
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := sameNodes("", got.root, v.root); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got.pending != v.pending || got.uploads.Len() != v.uploads.Len() {
			t.Errorf("%d bytes are pending, want %d", got.pending, v.pending)
		}
		if want := v.pending + 2*chunkSize; live(base, v) < want {
			t.Errorf("%d bytes are live, want %d at least", live(base, v), want)
		}
	}
}

func sameNodes(path string, a, b *node) error {
	if a.mode != b.mode || a.modified != b.modified || a.created != b.created || a.target != b.target || a.count != b.count || a.bytes != b.bytes || len(a.parts) != len(b.parts) {
		return fmt.Errorf("%q is %+v, want %+v", path, a, b)
	}
	return b.each(func(name string, n *node) error {
		c, err := a.child(name)
		if err != nil {
			return fmt.Errorf("%q: %w", join(path, name), err)
		}
		return sameNodes(join(path, name), c, n)
	})
}

// TestRewritten writes the same over and over: the disk does not fill, and what
// else is there stays, also for a fork and the next process.
func TestRewritten(t *testing.T) {
	dir := t.TempDir()
	s := newStore(t, dir, Options{})
	at := filepath.Join(dir, "w")
	f := open(t, s, at, Seed{Template: sample(t)})
	mustWrite(t, f, "kept", "yes")
	if err := f.Rename("src", "moved"); err != nil {
		t.Fatal(err)
	}
	want := contents(t, f)
	h, err := f.Open("moved/a.go")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for i := range 60 {
		want["again"] = "-rw-r--r-- " + strings.Repeat(fmt.Sprint(i%10), chunkSize+i)
		mustWrite(t, f, "again", want["again"][len("-rw-r--r-- "):])
	}
	if own, err := s.layers.StateSize(at); err != nil || own > 40*chunkSize {
		t.Errorf("60 times a megabyte takes %d bytes, %v", own, err)
	}
	sameContents(t, "rewritten", contents(t, f), want)
	frozen, err := s.Freeze(t.Context(), at, filepath.Join(dir, "frozen"))
	if err != nil {
		t.Fatal(err)
	}
	sameContents(t, "forked", contents(t, open(t, s, filepath.Join(dir, "x"), Seed{From: &frozen})), want)
	b := make([]byte, 9)
	if _, err := h.ReadAt(b, 0); err != nil || string(b) != "package a" {
		t.Errorf("a file that was open: %q, %v", b, err)
	}
}
