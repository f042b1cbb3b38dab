package layer

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/benbjohnson/immutable"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(victimEnv) != "" {
		victim()
		return
	}
	goleak.VerifyTestMain(m)
}

// dict is a map from names to bodies: the machine of these tests.
type dict = *immutable.Map[string, Extent]

func dictMachine() *Machine[dict] {
	return &Machine[dict]{
		Empty: immutable.NewMap[string, Extent](nil),
		Apply: func(v dict, meta []byte, body Extent) (dict, error) {
			switch op, key := meta[0], string(meta[1:]); op {
			case '+':
				return v.Set(key, body), nil
			case '-':
				return v.Delete(key), nil
			default:
				return nil, errors.New("unknown change")
			}
		},
		Dump: func(base, v dict, emit func([]byte, io.Reader, int64) error) error {
			for it := base.Iterator(); !it.Done(); {
				key, _, _ := it.Next()
				if _, ok := v.Get(key); !ok {
					if err := emit([]byte("-"+key), nil, 0); err != nil {
						return err
					}
				}
			}
			for it := v.Iterator(); !it.Done(); {
				key, e, _ := it.Next()
				if was, ok := base.Get(key); !ok || was != e {
					if err := emit([]byte("+"+key), e.Reader(), e.Size()); err != nil {
						return err
					}
				}
			}
			return nil
		},
		Live: func(base, v dict) (n int64) {
			for it := v.Iterator(); !it.Done(); {
				key, e, _ := it.Next()
				if was, ok := base.Get(key); !ok || was != e {
					n += e.Size()
				}
			}
			return n
		},
	}
}

// growing is a machine whose layers are never rewritten nor merged.
func growing() *Machine[dict] {
	m := dictMachine()
	m.Dump = nil
	return m
}

func put(h *Head[dict], key, content string) error {
	_, err := h.Commit(func(dict) ([]byte, io.Reader, int64, error) {
		return []byte("+" + key), strings.NewReader(content), int64(len(content)), nil
	})
	return err
}

func drop(h *Head[dict], key string) error {
	_, err := h.Commit(func(dict) ([]byte, io.Reader, int64, error) { return []byte("-" + key), nil, 0, nil })
	return err
}

func contents(t testing.TB, v dict) map[string]string {
	t.Helper()
	all := map[string]string{}
	for it := v.Iterator(); !it.Done(); {
		key, e, _ := it.Next()
		b, err := io.ReadAll(e.Reader())
		if err != nil {
			t.Fatalf("read %s: %v", key, err)
		}
		all[key] = string(b)
	}
	return all
}

func expect(t testing.TB, h *Head[dict], want map[string]string) {
	t.Helper()
	if got := contents(t, h.Value()); !maps.Equal(got, want) {
		t.Fatalf("got %.300v, want %.300v", got, want)
	}
}

// world is a store with its folders.
type world struct {
	t    testing.TB
	root string
	*Store
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, root: t.TempDir()}
	w.start()
	t.Cleanup(func() { w.Close() })
	return w
}

func (w *world) start() {
	w.t.Helper()
	s, err := OpenStore(Options{Dir: filepath.Join(w.root, "layers")})
	must(w.t, err)
	w.Store = s
}

// restart is what the next run does.
func (w *world) restart(states []string, refs ...Ref) {
	w.t.Helper()
	must(w.t, w.Close())
	w.start()
	dirs := make([]string, len(states))
	for i, name := range states {
		dirs[i] = w.dir(name)
	}
	must(w.t, w.Recover(dirs, refs))
}

func (w *world) dir(name string) string { return filepath.Join(w.root, "states", name) }

func (w *world) create(name string, from Ref) {
	w.t.Helper()
	must(w.t, w.Create(w.dir(name), from))
}

func (w *world) open(name string) *Head[dict] {
	w.t.Helper()
	h, err := Open(w.Store, w.dir(name), dictMachine())
	must(w.t, err)
	return h
}

func (w *world) openGrowing(name string) *Head[dict] {
	w.t.Helper()
	h, err := Open(w.Store, w.dir(name), growing())
	must(w.t, err)
	return h
}

func (w *world) seal(name string) Ref {
	w.t.Helper()
	ref, err := w.Seal(w.dir(name))
	must(w.t, err)
	return ref
}

// files are the ids of the layers on disk.
func (w *world) ids() []string {
	w.t.Helper()
	ids, err := layerFiles(w.files.dir)
	must(w.t, err)
	return ids
}

func (w *world) expectFiles(n int) {
	w.t.Helper()
	entries, err := os.ReadDir(w.files.dir)
	must(w.t, err)
	if len(entries) != n {
		w.t.Fatalf("%d files in the store's folder, want %d: %v", len(entries), n, entries)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t testing.TB, err error, parts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", parts)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) {
			t.Fatalf("error %q lacks %q", err, p)
		}
	}
}

func export(t testing.TB, s *Store, ref Ref) []byte {
	t.Helper()
	var b bytes.Buffer
	must(t, s.Export(ref, &b))
	return b.Bytes()
}
