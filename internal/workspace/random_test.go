package workspace

import (
	"fmt"
	"github.com/tine-mcp/tine/internal/torture"
	"maps"
	"math/rand/v2"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// randomOp is an operation on few names, so that they meet often. Its want is
// left out.
func randomOp(r *rand.Rand, links bool) op {
	elems := []string{"a", "b", "c", "d"}
	if links {
		elems = append(elems, "l", "m", ".", "..")
	}
	name := func() string {
		n := make([]string, 1+r.IntN(3))
		for i := range n {
			n[i] = elems[r.IntN(len(elems))]
		}
		return strings.Join(n, "/")
	}
	content := fmt.Sprint(r.IntN(1000))
	kinds := 11
	if links {
		kinds = 14
	}
	switch r.IntN(kinds) {
	case 0, 1:
		return opWriteTo(name(), content, "")
	case 2:
		return opCreate(name(), content, "")
	case 3:
		return opMake(name(), "")
	case 4:
		return opMakeAll(name(), "")
	case 5, 6:
		return opMove(name(), name(), "")
	case 7:
		return opDelete(name(), "")
	case 8:
		return opDeleteAll(name(), "")
	case 9:
		return opReadFrom(name(), "")
	case 10:
		return opList(name(), "")
	case 11:
		return opStatOf(name(), "")
	case 12:
		return opLstatOf(name(), "")
	}
	target := name()
	if r.IntN(8) == 0 {
		target = "ROOT/" + target
	}
	return opSymlink(target, name(), "")
}

// TestRandomSequences does the same to a tree and a folder, with links, and in
// between forks the tree and opens it again.
func TestRandomSequences(t *testing.T) {
	for seed := range torture.Or[uint64](10, 40) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		s := newStore(t, dir, Options{})
		at := filepath.Join(dir, "tree")
		if err := s.Seed(t.Context(), at, Seed{}); err != nil {
			t.Fatal(err)
		}
		w, err := s.Open(at)
		if err != nil {
			t.Fatal(err)
		}
		f := open(t, s, filepath.Join(dir, "folder"), Seed{Folder: true})
		var done []string
		for i := range 150 {
			if r.IntN(25) == 0 {
				frozen, err := s.Freeze(t.Context(), at, filepath.Join(dir, fmt.Sprint("frozen", i)))
				if err != nil {
					t.Fatal(err)
				}
				w.Close()
				at = filepath.Join(dir, fmt.Sprint("tree", i))
				if err := s.Seed(t.Context(), at, Seed{From: &frozen}); err != nil {
					t.Fatal(err)
				}
				if w, err = s.Open(at); err != nil {
					t.Fatal(err)
				}
			}
			o := randomOp(r, true)
			done = append(done, o.say)
			if a, b := o.run(w.FS()), o.run(f); a != b {
				t.Fatalf("seed %d: the tree says %q, the folder %q:\n%s", seed, a, b, strings.Join(done, "\n"))
			}
		}
		sameContents(t, fmt.Sprint("seed ", seed), contents(t, w.FS()), contents(t, f))
		checkTotals(t, w.FS().(*treeFS).head.Value().root)
		w.Close()
	}
}

// checkTotals compares what nodes say is below them with what is.
func checkTotals(t *testing.T, n *node) (count, bytes int64) {
	t.Helper()
	count = 1
	for _, p := range n.parts {
		bytes += p.Size()
	}
	n.each(func(_ string, c *node) error {
		cc, cb := checkTotals(t, c)
		count += cc
		bytes += cb
		return nil
	})
	if n.count != count || n.bytes != bytes {
		t.Fatalf("a node says %d entries and %d bytes; there are %d and %d", n.count, n.bytes, count, bytes)
	}
	return count, bytes
}

// A model is what an FS without links should be: contents by path, "/" for a
// directory.
type model map[string]string

func (m model) dirOf(name string) string {
	switch v, ok := m[path.Dir(name)]; {
	case ok && v == "/":
		return "ok"
	case ok:
		return "not a directory"
	}
	if path.Dir(name) == "." {
		return "ok"
	}
	if up := m.dirOf(path.Dir(name)); up != "ok" {
		return up
	}
	return "missing"
}

func (m model) below(name string) []string {
	var all []string
	for p := range m {
		if strings.HasPrefix(p, name+"/") {
			all = append(all, p)
		}
	}
	return all
}

func (m model) run(o op) string {
	args := strings.Split(o.say, " ")
	name := args[1]
	v, ok := m[name]
	if up := m.dirOf(name); up != "ok" && args[0] != "mkdirall" {
		if args[0] == "removeall" && up == "missing" {
			return "ok"
		}
		return up
	}
	switch args[0] {
	case "write":
		if v == "/" {
			return "is a directory"
		}
		m[name] = "file"
	case "create", "mkdir":
		if ok {
			return "exists"
		}
		m[name] = map[string]string{"create": "file", "mkdir": "/"}[args[0]]
	case "mkdirall":
		at := ""
		for _, e := range strings.Split(name, "/") {
			at = join(at, e)
			if m[at] == "file" {
				return "not a directory"
			}
			m[at] = "/"
		}
	case "remove":
		switch {
		case !ok:
			return "missing"
		case len(m.below(name)) > 0:
			return "not empty"
		}
		delete(m, name)
	case "removeall":
		for _, p := range append(m.below(name), name) {
			delete(m, p)
		}
	case "rename":
		to := args[2]
		_, taken := m[to]
		up := m.dirOf(to)
		switch {
		case up != "ok":
			return up
		case !ok:
			return "missing"
		case taken:
			return "exists"
		case strings.HasPrefix(to, name+"/"):
			return "invalid"
		}
		for _, p := range append(m.below(name), name) {
			m[to+strings.TrimPrefix(p, name)] = m[p]
			delete(m, p)
		}
	case "read":
		switch {
		case !ok:
			return "missing"
		case v == "/":
			return "is a directory"
		}
		return ""
	case "list":
		switch {
		case !ok:
			return "missing"
		case v != "/":
			return "not a directory"
		}
		return ""
	}
	return "ok"
}

func TestRandomAgainstModel(t *testing.T) {
	eachKind(t, func(t *testing.T, f FS) {
		r := rand.New(rand.NewPCG(7, 7))
		m := model{}
		for range 3000 {
			o := randomOp(r, false)
			got, want := o.run(f), m.run(o)
			if want != "" && got != want {
				t.Fatalf("%s: %q, the model says %q", o.say, got, want)
			}
		}
		got := model{}
		for name, text := range contents(t, f) {
			if name == "." {
				continue
			}
			got[name] = "file"
			if text[0] == 'd' {
				got[name] = "/"
			}
		}
		if !maps.Equal(got, m) {
			t.Errorf("there is %v, the model has %v", got, m)
		}
	})
}
