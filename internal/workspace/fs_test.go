package workspace

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

// An op does something and says how it went. In targets ROOT is the root's path.
type op struct {
	say  string
	do   func(f FS) (string, error)
	want string
}

func opWriteTo(name, content, want string) op {
	return op{"write " + name, func(f FS) (string, error) { return "", write(f, name, content) }, want}
}
func opReadFrom(name, want string) op {
	return op{"read " + name, func(f FS) (string, error) { return read(f, name) }, want}
}
func opCreate(name, content, want string) op {
	return op{"create " + name, func(f FS) (string, error) {
		return "", f.Create(name, strings.NewReader(content), int64(len(content)))
	}, want}
}
func opMake(name, want string) op {
	return op{"mkdir " + name, func(f FS) (string, error) { return "", f.Mkdir(name) }, want}
}
func opMakeAll(name, want string) op {
	return op{"mkdirall " + name, func(f FS) (string, error) { return "", f.MkdirAll(name) }, want}
}
func opMove(from, to, want string) op {
	return op{"rename " + from + " " + to, func(f FS) (string, error) { return "", f.Rename(from, to) }, want}
}
func opDelete(name, want string) op {
	return op{"remove " + name, func(f FS) (string, error) { return "", f.Remove(name) }, want}
}
func opDeleteAll(name, want string) op {
	return op{"removeall " + name, func(f FS) (string, error) { return "", f.RemoveAll(name) }, want}
}
func opSymlink(target, name, want string) op {
	return op{"symlink " + target + " " + name, func(f FS) (string, error) {
		return "", f.Symlink(strings.Replace(target, "ROOT", f.Root(), 1), name)
	}, want}
}
func opStatOf(name, want string) op {
	return op{"stat " + name, func(f FS) (string, error) { return describe(f.Stat(name)) }, want}
}
func opLstatOf(name, want string) op {
	return op{"lstat " + name, func(f FS) (string, error) { return describe(f.Lstat(name)) }, want}
}
func opList(name, want string) op {
	return op{"list " + name, func(f FS) (string, error) {
		list, err := f.ReadDir(name)
		var all []string
		for _, i := range list {
			all = append(all, i.Name)
		}
		return strings.Join(all, ","), err
	}, want}
}

func describe(i Info, err error) (string, error) {
	kind := map[fs.FileMode]string{0: "file", fs.ModeDir: "dir", fs.ModeSymlink: "link"}[i.Mode.Type()]
	return kind + ":" + i.Name, err
}

func (o op) run(f FS) string {
	text, err := o.do(f)
	if err != nil {
		var pe *fs.PathError
		if !errors.As(err, &pe) {
			return "no PathError: " + err.Error()
		}
		return class(err)
	}
	if text == "" {
		return "ok"
	}
	return text
}

func TestOperations(t *testing.T) {
	long := strings.Repeat("n", 255)
	deep := strings.Repeat("d/", 2047)
	for _, c := range []struct {
		name string
		ops  []op
	}{
		{"files", []op{
			opReadFrom("a", "missing"),
			opWriteTo("a", "one", "ok"), opReadFrom("a", "one"),
			opWriteTo("a", "", "ok"), opStatOf("a", "file:a"),
			opWriteTo("a", "three", "ok"), opReadFrom("a", "three"),
			opWriteTo("no/a", "x", "missing"), opWriteTo("a/b", "x", "not a directory"),
			opReadFrom("a/b", "not a directory"), opStatOf("a/b", "not a directory"),
			opMake("d", "ok"), opWriteTo("d", "x", "is a directory"), opReadFrom("d", "is a directory"),
			opWriteTo(".", "x", "is a directory"), opCreate("a", "x", "exists"), opCreate("d", "x", "exists"),
			opCreate("new", "x", "ok"), opReadFrom("new", "x"), opList(".", "a,d,new"),
		}},
		{"directories", []op{
			opMake("a", "ok"), opMake("a", "exists"), opMake(".", "exists"), opMake("b/c", "missing"),
			opMakeAll("b/c/d", "ok"), opMakeAll("b/c/d", "ok"), opMakeAll(".", "ok"),
			opWriteTo("f", "x", "ok"), opMakeAll("f", "not a directory"), opMakeAll("f/g", "not a directory"), opMake("f", "exists"),
			opList("b", "c"), opList("f", "not a directory"), opList("no", "missing"), opList("b/c/d", "ok"),
			opDelete("b", "not empty"), opDelete("b/c/d", "ok"), opDelete("b/c", "ok"), opDelete("b", "ok"), opDelete("b", "missing"),
			opDeleteAll("nothing", "ok"), opDeleteAll("no/thing", "ok"), opDeleteAll("f/x", "not a directory"),
			opMakeAll("x/y/z", "ok"), opDeleteAll("x", "ok"), opList(".", "a,f"),
			opDelete(".", "invalid"), opDeleteAll(".", "invalid"), opDelete("a/..", "invalid"), opDeleteAll("a/..", "invalid"),
			opMakeAll("p/../q", "ok"), opList(".", "a,f,p,q"),
		}},
		{"renames", []op{
			opWriteTo("a", "1", "ok"), opMove("a", "b", "ok"), opReadFrom("b", "1"), opReadFrom("a", "missing"),
			opMove("a", "c", "missing"), opWriteTo("c", "2", "ok"), opMove("b", "c", "exists"), opReadFrom("c", "2"), opMove("b", "b", "exists"),
			opMakeAll("d/e", "ok"), opMove("d", "d/f", "invalid"), opMove("d", "d/e/f", "invalid"), opMove("d", "d", "exists"),
			opMove("d", "b", "exists"), opMove("b", "d", "exists"), opMove("b", "d/e/b", "ok"), opMove("d", "g", "ok"), opReadFrom("g/e/b", "1"),
			opMove("g", "no/g", "missing"), opMove("c", "c/d", "not a directory"), opMove(".", "x", "invalid"), opMove("g", ".", "exists"),
			opMove("g/../c", "g/./c", "ok"), opList("g", "c,e"),
			opMake("dd", "ok"), opMake("d", "ok"), opMove("d", "dd/d", "ok"),
		}},
		{"links", []op{
			opMakeAll("d/e", "ok"), opWriteTo("d/f", "1", "ok"),
			opSymlink("d", "l", "ok"), opReadFrom("l/f", "1"), opStatOf("l", "dir:l"), opLstatOf("l", "link:l"), opList("l", "e,f"),
			opSymlink("x", "l", "exists"), opSymlink("x", "d", "exists"), opSymlink("", "y", "invalid"),
			opSymlink("f", "d/g", "ok"), opReadFrom("l/g", "1"), opWriteTo("l/g", "2", "ok"), opReadFrom("d/f", "2"), opLstatOf("d/g", "link:g"),
			opSymlink("../d/f", "d/h", "ok"), opReadFrom("d/h", "2"),
			opReadFrom("l/../d/f", "2"), opSymlink("d/e", "m", "ok"), opReadFrom("m/../f", "2"), opStatOf("m/..", "dir:.."), opStatOf("m/../..", "dir:.."),
			opSymlink("new", "dangling", "ok"), opReadFrom("dangling", "missing"), opStatOf("dangling", "missing"), opLstatOf("dangling", "link:dangling"),
			opCreate("dangling", "x", "exists"), opMake("dangling", "exists"), opMakeAll("dangling", "exists"), opMakeAll("dangling/x", "exists"),
			opWriteTo("dangling", "3", "ok"), opReadFrom("new", "3"), opLstatOf("dangling", "link:dangling"),
			opMakeAll("l", "ok"), opMakeAll("l/n/o", "ok"), opStatOf("d/n/o", "dir:o"), opMakeAll("dangling", "not a directory"),
			opMove("l", "k", "ok"), opLstatOf("k", "link:k"), opDelete("k", "ok"), opStatOf("d", "dir:d"),
			opSymlink("d", "k", "ok"), opDeleteAll("k", "ok"), opReadFrom("d/f", "2"),
			opSymlink(".", "self", "ok"), opReadFrom("self/self/d/f", "2"), opDelete("self/..", "escape"),
			opSymlink("no/where", "w", "ok"), opWriteTo("w", "x", "missing"),
			opMove("d", "self/d/z", "invalid"),
		}},
		{"loops", []op{
			opSymlink("b", "a", "ok"), opSymlink("a", "b", "ok"), opReadFrom("a", "loop"), opStatOf("a/x", "loop"), opWriteTo("a", "x", "loop"),
			opMakeAll("a/x", "loop"), opLstatOf("a", "link:a"), opDelete("a", "ok"), opReadFrom("b", "missing"),
			opSymlink("s/s", "s", "ok"), opReadFrom("s", "loop"), opDeleteAll("s/x", "loop"), opMove("s/x", "y", "loop"), opMove("b", "s/y", "loop"),
		}},
		{"ways out", []op{
			opReadFrom("..", "escape"), opReadFrom("../x", "escape"), opReadFrom("/etc/passwd", "escape"), opWriteTo("../x", "x", "escape"),
			opMake("d", "ok"), opReadFrom("d/../../x", "escape"), opReadFrom("no/../x", "missing"), opWriteTo("f", "x", "ok"), opReadFrom("f/../f", "not a directory"),
			opSymlink("../../etc", "d/up", "ok"), opReadFrom("d/up/passwd", "escape"), opStatOf("d/up", "escape"), opLstatOf("d/up", "link:up"), opWriteTo("d/up", "x", "escape"),
			opList("d/up", "escape"), opMakeAll("d/up/x", "escape"), opMake("d/up/x", "escape"), opCreate("d/up/x", "x", "escape"), opSymlink("x", "d/up/x", "escape"),
			opMove("f", "d/up/f", "escape"), opMove("d/up/f", "g", "escape"), opDelete("d/up/passwd", "escape"), opDeleteAll("d/up/passwd", "escape"),
			opSymlink("/etc/passwd", "abs", "ok"), opReadFrom("abs", "escape"), opWriteTo("abs", "x", "escape"), opDelete("abs", "ok"),
			opSymlink("/", "top", "ok"), opReadFrom("top/etc/passwd", "escape"), opSymlink("d/../..", "dots", "ok"), opStatOf("dots", "escape"),
			opMove("..", "x", "escape"), opMove("f", "../x", "escape"), opMove("f", "/tmp/x", "escape"), opDeleteAll("..", "escape"), opDeleteAll("../x", "escape"),
		}},
		{"names", []op{
			opWriteTo(long, "x", "ok"), opReadFrom(long, "x"), opWriteTo(long+"n", "x", "too long"), opReadFrom("d/"+long+"n", "too long"),
			opStatOf(deep+"d", "missing"), opStatOf(deep+"ddd", "too long"), opSymlink(long+"n", "l", "ok"), opReadFrom("l", "too long"),
			opSymlink(strings.Repeat("t", 4096), "m", "too long"),
			opReadFrom("", "invalid"), opReadFrom("a\x00b", "invalid"), opWriteTo("\xff", "x", "invalid"), opMake("a\xc3", "invalid"), opMakeAll("x/\xff", "invalid"),
			opSymlink("a\x00", "n", "invalid"), opSymlink("\xff", "n", "invalid"),
			opWriteTo("//a", "x", "escape"), opWriteTo("./a//", "x", "ok"), opReadFrom("a", "x"), opReadFrom("a/.", "x"),
			opWriteTo("...", "3", "ok"), opReadFrom("...", "3"), opWriteTo("a\\b", "x", "ok"), opWriteTo(" ", "x", "ok"), opWriteTo("a\nb", "x", "ok"), opWriteTo("-rf", "x", "ok"),
			// What looks like a way up or a separator, but is a name.
			opWriteTo("\uff0e\uff0e", "x", "ok"), opReadFrom("\u2025/x", "missing"), opReadFrom("..\u200b/x", "missing"), opReadFrom("a\u2215b", "missing"), opReadFrom("%2e%2e/x", "missing"), opReadFrom("..\\x", "missing"),
			// One character in two ways is two names.
			opWriteTo("\u00e9", "composed", "ok"), opReadFrom("e\u0301", "missing"), opWriteTo("e\u0301", "decomposed", "ok"), opReadFrom("\u00e9", "composed"),
			opWriteTo("Case", "upper", "ok"), opReadFrom("case", "missing"), opWriteTo("case", "lower", "ok"), opReadFrom("Case", "upper"),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, f FS) {
				if _, ok := f.(*folder); ok && c.name == "names" && runtime.GOOS != "linux" {
					t.Skip("what a name may be is the host's matter")
				}
				for _, o := range c.ops {
					if got := o.run(f); got != o.want {
						t.Fatalf("%.100s: %.200q, want %q", o.say, got, o.want)
					}
				}
			})
		})
	}
}

func TestAbsoluteLinkInside(t *testing.T) {
	eachKind(t, func(t *testing.T, f FS) {
		for _, o := range []op{
			opMake("d", "ok"), opWriteTo("d/f", "1", "ok"),
			opSymlink("ROOT/d/f", "abs", "ok"), opReadFrom("abs", "1"),
			opSymlink("ROOT", "top", "ok"), opReadFrom("top/d/f", "1"),
			opSymlink("ROOT/../x", "up", "ok"), opReadFrom("up", "escape"),
			opSymlink("ROOTd/f", "beside", "ok"), opReadFrom("beside", "escape"),
			opSymlink("ROOT/new", "dangling", "ok"), opWriteTo("d/../dangling", "2", "ok"), opReadFrom("new", "2"),
		} {
			if got := o.run(f); got != o.want {
				t.Fatalf("%s: %q, want %q", o.say, got, o.want)
			}
		}
	})
}

func TestWriteWholeOrNot(t *testing.T) {
	broken := errors.New("broken")
	big := bytes.Repeat([]byte("0123456789abcdef"), 3<<16) // three parts
	eachKind(t, func(t *testing.T, f FS) {
		mustWrite(t, f, "a", "before")
		for _, n := range []int64{5, chunkSize, 2*chunkSize + 17} {
			failing := io.MultiReader(bytes.NewReader(big[:n]), iotest.ErrReader(broken))
			if err := f.Write("a", failing, n+1); !errors.Is(err, broken) {
				t.Errorf("a reader that fails after %d: %v", n, err)
			}
			if err := f.Write("a", bytes.NewReader(big[:n]), n+1); class(err) != "short" {
				t.Errorf("a reader that ends after %d: %v", n, err)
			}
			if err := f.Create("b", bytes.NewReader(big[:n]), n+1); class(err) != "short" {
				t.Errorf("a reader that ends after %d: %v", n, err)
			}
		}
		if err := f.Write("a", strings.NewReader("x"), -1); class(err) != "invalid" {
			t.Errorf("a negative size: %v", err)
		}
		if got := contents(t, f); len(got) != 2 || !strings.HasSuffix(got["a"], "before") {
			t.Errorf("failed writes left %v", got)
		}
		if tr, ok := f.(*treeFS); ok {
			if v := tr.head.Value(); v.pending != 0 || v.uploads.Len() != 0 {
				t.Errorf("failed writes left %d bytes of %d uploads", v.pending, v.uploads.Len())
			}
		}
		for _, n := range []int{0, 1, chunkSize - 1, chunkSize, chunkSize + 1, 3 * chunkSize, len(big)} {
			if err := f.Write("a", bytes.NewReader(big[:n]), int64(n)); err != nil {
				t.Fatal(err)
			}
			if got, err := read(f, "a"); err != nil || got != string(big[:n]) {
				t.Fatalf("a file of %d bytes: read %d, %v", n, len(got), err)
			}
			if info, err := f.Stat("a"); err != nil || info.Size != int64(n) {
				t.Fatalf("a file of %d bytes has size %d, %v", n, info.Size, err)
			}
		}
	})
}

func TestReadAt(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 2<<17)
	eachKind(t, func(t *testing.T, f FS) {
		if err := f.Write("a", bytes.NewReader(content), int64(len(content))); err != nil {
			t.Fatal(err)
		}
		h, err := f.Open("a")
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		mustWrite(t, f, "a", "replaced while it is open")
		size := int64(len(content))
		for _, c := range []struct{ off, n int64 }{{0, 10}, {chunkSize - 3, 7}, {chunkSize, 1}, {5, 2 * chunkSize}, {size - 5, 5}, {size - 5, 6}, {size, 1}, {size + 9, 1}, {0, 0}} {
			p := make([]byte, c.n)
			n, err := h.ReadAt(p, c.off)
			want := content[min(c.off, size):min(c.off+c.n, size)]
			if !bytes.Equal(p[:n], want) || (err == io.EOF) != (int64(len(want)) < c.n) || err != nil && err != io.EOF {
				t.Errorf("at %d of %d: %d bytes, %v", c.off, c.n, n, err)
			}
		}
		if _, err := h.ReadAt(make([]byte, 1), -1); err == nil {
			t.Error("a negative offset is read")
		}
	})
}

func TestKeepsMode(t *testing.T) {
	f := newFS(t, KindFolder).(*folder)
	mustWrite(t, f, "a", "x")
	if err := f.root.Chmod("a", 0o751); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, f, "a", "y")
	if info, err := f.Stat("a"); err != nil || info.Mode != 0o751 {
		t.Errorf("mode %v, %v", info.Mode, err)
	}
	if err := f.root.Chmod("a", 0); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, f, "a", "z")
	if info, err := f.Stat("a"); err != nil || info.Mode != 0 {
		t.Errorf("mode %v, %v", info.Mode, err)
	}
}

func TestLeftoversOfWrites(t *testing.T) {
	f := newFS(t, KindFolder).(*folder)
	if err := f.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	h, err := f.root.Create("d/" + partialName())
	if err != nil {
		t.Fatal(err)
	}
	h.Close()
	if list, err := f.ReadDir("d"); err != nil || len(list) != 0 {
		t.Errorf("listed: %v, %v", list, err)
	}
	if err := f.Remove("d"); err != nil {
		t.Error(err)
	}
}

func TestLimits(t *testing.T) {
	dir := t.TempDir()
	f := open(t, newStore(t, dir, Options{MaxFiles: 3, MaxBytes: 2 * chunkSize}), dir+"/w", Seed{})
	for i, o := range []op{
		opMake("d", "ok"), opWriteTo("d/a", "x", "ok"), opSymlink("x", "l", "ok"),
		opWriteTo("b", "x", "full"), opMake("e", "full"), opMakeAll("d/e/f", "full"), opSymlink("x", "m", "full"), opCreate("b", "", "full"),
		opWriteTo("d/a", strings.Repeat("x", chunkSize), "ok"), opWriteTo("d/a", strings.Repeat("y", 2*chunkSize), "ok"), opWriteTo("d/a", strings.Repeat("z", 2*chunkSize), "ok"),
		opWriteTo("d/a", strings.Repeat("y", 2*chunkSize+1), "full"), opWriteTo("d/a", strings.Repeat("x", chunkSize), "ok"), opStatOf("d/a", "file:a"),
		opDelete("l", "ok"), opWriteTo("b", strings.Repeat("x", chunkSize), "ok"), opDelete("b", "ok"), opWriteTo("b", strings.Repeat("x", chunkSize+1), "full"),
		opWriteTo("d/a", "", "ok"), opWriteTo("b", strings.Repeat("x", 2*chunkSize), "ok"), opWriteTo("d/a", "x", "full"), opDeleteAll("d", "ok"), opMakeAll("q/r", "ok"),
	} {
		if got := o.run(f); got != o.want {
			t.Fatalf("step %d, %.100s: %.200q, want %q", i, o.say, got, o.want)
		}
	}
}

func TestErrorsAreOfTheHost(t *testing.T) {
	eachKind(t, func(t *testing.T, f FS) {
		f.Mkdir("d")
		mustWrite(t, f, "d/a", "x")
		if err := f.Remove("d"); !errors.Is(err, syscall.ENOTEMPTY) {
			t.Error(err)
		}
		var pe *fs.PathError
		if err := f.Rename("no", "x"); !errors.As(err, &pe) || pe.Path != "no" {
			t.Error(err)
		}
		if err := f.Rename("d", "d/a"); !errors.As(err, &pe) || pe.Path != "d/a" {
			t.Error(err)
		}
		list, err := f.ReadDir(".")
		if err != nil || !slices.IsSortedFunc(list, func(a, b Info) int { return strings.Compare(a.Name, b.Name) }) {
			t.Error(list, err)
		}
		info, err := f.Stat("d/a")
		if err != nil || info.Modified.IsZero() || info.Created.IsZero() || info.Accessed.IsZero() {
			t.Errorf("%+v, %v", info, err)
		}
		if root, err := f.Stat("."); err != nil || root.Modified.Year() < 2000 || !root.Mode.IsDir() || root.Name != "." {
			t.Errorf("%+v, %v", root, err)
		}
	})
}
