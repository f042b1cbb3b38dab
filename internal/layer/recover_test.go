package layer

import (
	"bytes"
	"errors"
	"github.com/tine-mcp/tine/internal/torture"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

func TestRecoverComesFirst(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	must(t, put(w.open("a"), "x", "1"))
	ref := w.seal("a")
	wantError(t, w.Recover(nil, nil), "in use already")
	must(t, w.Close())
	w.start()
	for _, err := range []error{
		w.Create(w.dir("b"), ref), w.Remove(w.dir("a")), w.Retain(ref), w.Release(ref), w.Sync(ref), w.Export(ref, nil),
	} {
		wantError(t, err, "call Recover first")
	}
	if _, err := w.Import(bytes.NewReader(nil)); err == nil {
		t.Error("imported before Recover")
	}
	w.expectFiles(1)
	must(t, w.Recover([]string{w.dir("a"), w.dir("a"), w.dir("never")}, []Ref{ref, ref, {}}))
	if b := w.Broken(); len(b) > 0 {
		t.Errorf("broken: %v", b)
	}
	if _, err := Open(w.Store, w.dir("never"), dictMachine()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a state that never was: %v", err)
	}
	must(t, w.Remove(w.dir("a")))
	must(t, w.Release(ref))
	w.expectFiles(1)
	must(t, w.Release(ref))
	w.expectFiles(0)
}

func TestRecoverRemovesStrays(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"kept", "forgotten"} {
		w.create(name, Ref{})
		h := w.open(name)
		must(t, put(h, "x", name))
		must(t, w.Release(w.seal(name)))
		must(t, put(h, "y", name))
	}
	foreign := filepath.Join(w.files.dir, "README")
	must(t, os.WriteFile(foreign, nil, 0o600))
	w.restart([]string{"kept"})
	if len(w.ids()) != 2 {
		t.Fatalf("layers: %v", w.ids())
	}
	expect(t, w.open("kept"), map[string]string{"x": "kept", "y": "kept"})
	if _, err := os.Stat(foreign); err != nil {
		t.Errorf("a file that is none of ours: %v", err)
	}
	// The head that was not named is of no use, and gives way.
	_, err := Open(w.Store, w.dir("forgotten"), dictMachine())
	if !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a state without its layers: %v", err)
	}
	w.create("forgotten", Ref{})
	expect(t, w.open("forgotten"), map[string]string{})
	w.restart([]string{"kept"})
	must(t, w.Remove(w.dir("forgotten")))
	if _, err := os.Stat(w.dir("forgotten")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
}

// family makes root <- mid <- the states a and b, and a state of its own; a's own
// layer has a change.
func family(t *testing.T, w *world) (root, mid Ref) {
	w.create("base", Ref{})
	h := w.open("base")
	must(t, put(h, "r", "1"))
	root = w.seal("base")
	must(t, put(h, "m", "2"))
	mid = w.seal("base")
	must(t, w.Remove(w.dir("base")))
	w.create("a", mid)
	w.create("b", mid)
	w.create("alone", Ref{})
	must(t, put(w.open("a"), "a", "3"))
	must(t, put(w.open("alone"), "x", "4"))
	return root, mid
}

func TestBroken(t *testing.T) {
	cases := map[string]struct {
		do     func(t *testing.T, w *world, root, mid Ref, own string)
		broken []string // states
		refs   []string // of "root" and "mid"
		layer  string   // that errors name: root, mid or own
	}{
		"root missing": {
			func(t *testing.T, w *world, root, mid Ref, own string) { must(t, os.Remove(w.files.path(root.ID))) },
			[]string{"a", "b"}, []string{"root", "mid"}, "root",
		},
		"header of mid damaged": {
			func(t *testing.T, w *world, root, mid Ref, own string) {
				b, err := os.ReadFile(w.files.path(mid.ID))
				must(t, err)
				must(t, os.WriteFile(w.files.path(mid.ID), flip(b, 20), 0o600))
			},
			[]string{"a", "b"}, []string{"mid"}, "mid",
		},
		"mid empty": {
			func(t *testing.T, w *world, root, mid Ref, own string) {
				must(t, os.Truncate(w.files.path(mid.ID), 10))
			},
			[]string{"a", "b"}, []string{"mid"}, "mid",
		},
		"own missing": {
			func(t *testing.T, w *world, root, mid Ref, own string) { must(t, os.Remove(w.files.path(own))) },
			[]string{"a"}, nil, "own",
		},
		"own is another's file": {
			func(t *testing.T, w *world, root, mid Ref, own string) {
				b, err := os.ReadFile(w.files.path(root.ID))
				must(t, err)
				must(t, os.WriteFile(w.files.path(own), b, 0o600))
			},
			[]string{"a"}, nil, "own",
		},
		"stands on itself": {
			func(t *testing.T, w *world, root, mid Ref, own string) {
				b, err := os.ReadFile(w.files.path(root.ID))
				must(t, err)
				h, err := decodeFileHeader(b)
				must(t, err)
				h.parent = mid.ID
				copy(b, h.encode())
				must(t, os.WriteFile(w.files.path(root.ID), b, 0o600))
			},
			[]string{"a", "b"}, []string{"root", "mid"}, "",
		},
		"head unreadable": {
			func(t *testing.T, w *world, root, mid Ref, own string) {
				must(t, os.WriteFile(filepath.Join(w.dir("a"), headName), bytes.Repeat([]byte("x"), headSize), 0o600))
			},
			[]string{"a"}, nil, "",
		},
		"head of a later version": {
			func(t *testing.T, w *world, root, mid Ref, own string) {
				must(t, makeHead(w.dir("a"), headFile{Version: 9, Own: own, Begun: true, Parent: mid}))
			},
			[]string{"a"}, nil, "",
		},
		"folder copied": {
			func(t *testing.T, w *world, root, mid Ref, own string) {
				must(t, makeHead(w.dir("b"), headFile{Version: headVersion, Own: own, Begun: true, Parent: mid}))
			},
			[]string{"a", "b"}, nil, "own",
		},
		"head from before a seal": {
			func(t *testing.T, w *world, root, mid Ref, own string) {
				must(t, makeHead(w.dir("b"), headFile{Version: headVersion, Own: mid.ID, Begun: true, Parent: root}))
			},
			[]string{"b"}, nil, "mid",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			root, mid := family(t, w)
			own := w.states[w.dir("a")].own.id
			must(t, w.Close())
			c.do(t, w, root, mid, own)
			files, err := layerFiles(w.files.dir)
			must(t, err)
			w.start()
			must(t, w.Recover([]string{w.dir("a"), w.dir("b"), w.dir("alone")}, []Ref{root, mid}))
			if len(w.ids()) != len(files) {
				t.Errorf("layers were removed though something is broken")
			}

			isBroken := map[string]bool{}
			for _, name := range c.broken {
				isBroken[w.dir(name)] = true
			}
			byName := map[string]string{"root": root.ID, "mid": mid.ID, "own": own}
			for _, name := range c.refs {
				isBroken[byName[name]] = true
			}
			for key, err := range w.Broken() {
				if !isBroken[key] {
					t.Errorf("%s is broken: %v", key, err)
				}
				delete(isBroken, key)
			}
			if len(isBroken) > 0 {
				t.Errorf("not reported: %v", isBroken)
			}
			for _, name := range c.broken {
				_, err := Open(w.Store, w.dir(name), dictMachine())
				wantError(t, err, w.dir(name), byName[c.layer])
				_, err = w.Seal(w.dir(name))
				wantError(t, err, byName[c.layer])
			}
			for _, name := range c.refs {
				ref := Ref{byName[name]}
				wantError(t, w.Create(w.dir("new"), ref), byName[c.layer])
				wantError(t, w.Retain(ref), byName[c.layer])
			}
			expect(t, w.open("alone"), map[string]string{"x": "4"})

			for _, name := range []string{"a", "b", "alone"} {
				must(t, w.Remove(w.dir(name)))
			}
			must(t, w.Release(root))
			must(t, w.Release(mid))
			if b := w.Broken(); len(b) > 0 {
				t.Errorf("still broken when all is gone: %v", b)
			}
			w.restart(nil)
			w.expectFiles(0)
		})
	}
}

func TestDeepChain(t *testing.T) {
	depth := torture.Or(2000, 10_000)
	w := newWorld(t)
	w.create("a", Ref{})
	h := w.openGrowing("a")
	for i := range depth {
		must(t, put(h, strconv.Itoa(i%100), strconv.Itoa(i)))
		must(t, w.Release(w.seal("a")))
	}
	want := contents(t, h.Value())
	w.restart([]string{"a"})
	expect(t, w.openGrowing("a"), want)
	ref := w.seal("a")
	if _, chain, err := w.Size(ref); err != nil || chain < int64(depth*headerSize) {
		t.Fatalf("size %d, %v", chain, err)
	}
	must(t, w.Sync(Ref{}))
	must(t, w.Remove(w.dir("a")))
	w.expectFiles(depth)
	must(t, w.Release(ref))
	w.expectFiles(0)
}

func TestSyncAndSizes(t *testing.T) {
	w := newWorld(t)
	root, mid := family(t, w)
	must(t, w.Sync(mid))
	must(t, w.Sync(mid))
	own, chain, err := w.Size(root)
	if err != nil || own != chain || own == 0 {
		t.Fatalf("root: %d, %d, %v", own, chain, err)
	}
	onDisk := func(id string) int64 {
		info, err := os.Stat(w.files.path(id))
		must(t, err)
		return info.Size()
	}
	own, chain, err = w.Size(mid)
	if err != nil || own != onDisk(mid.ID) || chain != own+onDisk(root.ID) {
		t.Fatalf("mid: %d, %d, %v", own, chain, err)
	}
	if size, err := w.StateSize(w.dir("b")); err != nil || size != 0 {
		t.Fatalf("an unchanged state: %d, %v", size, err)
	}
	if size, err := w.StateSize(w.dir("a")); err != nil || size != onDisk(w.states[w.dir("a")].own.id) {
		t.Fatalf("a changed state: %d, %v", size, err)
	}
	for _, f := range append(w.ids(), "") {
		path := w.files.path(f)
		if f == "" {
			path = filepath.Join(w.dir("a"), headName)
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o077 != 0 && os.PathSeparator == '/' {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
}
