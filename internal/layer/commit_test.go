package layer

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

// failing is a file whose writes fail after some bytes, as on a full disk, and whose
// Truncate fails when it is set to.
type failing struct {
	handle
	left     *int // bytes that may be written; negative: any number
	truncate *error
}

func (f failing) WriteAt(p []byte, off int64) (int, error) {
	if *f.left < 0 || *f.left >= len(p) {
		if *f.left >= 0 {
			*f.left -= len(p)
		}
		return f.handle.WriteAt(p, off)
	}
	n, err := f.handle.WriteAt(p[:*f.left], off)
	*f.left = 0
	if err == nil {
		err = &fs.PathError{Op: "write", Path: "disk", Err: syscall.ENOSPC}
	}
	return n, err
}

func (f failing) Truncate(size int64) error {
	if *f.truncate != nil {
		return *f.truncate
	}
	return f.handle.Truncate(size)
}

// inject has all files of the world fail as left and truncate say.
func (w *world) inject() (left *int, truncate *error) {
	left, truncate = new(int), new(error)
	*left = -1
	open := w.files.open
	w.files.open = func(path string, flag int) (handle, error) {
		f, err := open(path, flag)
		if err != nil {
			return nil, err
		}
		return failing{f, left, truncate}, nil
	}
	return left, truncate
}

func TestFullDisk(t *testing.T) {
	w := newWorld(t)
	left, _ := w.inject()
	w.create("a", Ref{})
	h := w.open("a")
	want := map[string]string{}
	body := strings.Repeat("b", chunk+1000)
	for _, room := range []int{0, 10, headerSize, headerSize + 10, recordSize + 1, 5000, chunk, chunk + 500, recordSize + len(body) + 2, -1} {
		*left = room
		err := put(h, "big", body)
		if room >= 0 {
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("with room for %d bytes: %v", room, err)
			}
			wantError(t, err, "write", "layer lyr_", w.dir("a"))
		} else {
			must(t, err)
			want["big"] = body
		}
		expect(t, h, want)
		*left = -1
		must(t, put(h, "small", "1"))
		want["small"] = "1"
		expect(t, h, want)
		*left = 5
		if err := put(h, "small", "2"); !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		*left = -1
	}
	w.create("b", w.seal("a"))
	w.restart([]string{"a", "b"})
	expect(t, w.open("a"), want)
	expect(t, w.open("b"), want)
}

// What can't be undone blocks the state until it can, and is cut off by the next
// run if it never could.
func TestFailedUndo(t *testing.T) {
	w := newWorld(t)
	left, truncate := w.inject()
	w.create("a", Ref{})
	h := w.open("a")
	must(t, put(h, "x", "1"))
	*left, *truncate = 1000, errors.New("the disk is on fire")
	wantError(t, put(h, "y", strings.Repeat("b", 5000)), "on fire", "no space")
	*left = -1
	wantError(t, put(h, "y", "2"), "on fire")
	_, err := w.Seal(w.dir("a"))
	wantError(t, err, "on fire")
	expect(t, h, map[string]string{"x": "1"})

	w.restart([]string{"a"})
	expect(t, w.open("a"), map[string]string{"x": "1"})

	left, truncate = w.inject()
	h = w.reopen("a")
	*left, *truncate = 1000, errors.New("the disk is on fire")
	wantError(t, put(h, "y", strings.Repeat("b", 5000)), "on fire")
	*left, *truncate = -1, nil
	w.create("b", w.seal("a"))
	must(t, put(h, "y", "2"))
	w.restart([]string{"a", "b"})
	expect(t, w.open("a"), map[string]string{"x": "1", "y": "2"})
	expect(t, w.open("b"), map[string]string{"x": "1"})
}

// reopen opens the state again, with files that were opened after inject.
func (w *world) reopen(name string) *Head[dict] {
	w.t.Helper()
	w.files.mu.Lock()
	for w.files.evict() {
	}
	w.files.mu.Unlock()
	must(w.t, w.states[w.dir(name)].head.(*Head[dict]).Close())
	return w.open(name)
}

func TestRefusedCommits(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	h := w.open("a")
	must(t, put(h, "x", "1"))
	no := errors.New("no")
	commit := func(meta string, body io.Reader, size int64, err error) func() error {
		return func() error {
			_, got := h.Commit(func(dict) ([]byte, io.Reader, int64, error) { return []byte(meta), body, size, err })
			return got
		}
	}
	cases := map[string]struct {
		do   func() error
		want []string
	}{
		"the caller's own":     {commit("+y", nil, 0, no), []string{"no"}},
		"short body":           {commit("+y", strings.NewReader("abc"), 4, nil), []string{"after 3 of 4 bytes"}},
		"short large body":     {commit("+y", io.LimitReader(zeros{}, chunk*2), chunk*3, nil), []string{"524288 of 786432 bytes"}},
		"long body":            {commit("+y", strings.NewReader("abc"), 2, nil), []string{"more than its 2 bytes"}},
		"long large body":      {commit("+y", zeros{}, chunk*3, nil), []string{"more than its"}},
		"failing body":         {commit("+y", iotest.ErrReader(no), 2, nil), []string{"no"}},
		"failing at the end":   {commit("+y", io.MultiReader(strings.NewReader("ab"), iotest.ErrReader(no)), 2, nil), []string{"no"}},
		"no body":              {commit("+y", nil, 2, nil), []string{"without a reader"}},
		"negative":             {commit("+y", nil, -2, nil), []string{"-2 bytes"}},
		"huge meta":            {commit(strings.Repeat("+", maxMeta+1), nil, 0, nil), []string{"at most"}},
		"what can't be folded": {commit("?", strings.NewReader("abc"), 3, nil), []string{"unknown change"}},
		"panic": {func() (err error) {
			defer func() { err = recover().(error) }()
			return commit("+y", io.MultiReader(io.LimitReader(zeros{}, chunk), panics{no}), 2*chunk, nil)()
		}, []string{"no"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			wantError(t, c.do(), c.want...)
			expect(t, h, map[string]string{"x": "1"})
			must(t, put(h, "x", "1"))
		})
	}
	_, err := h.Commit(func(dict) ([]byte, io.Reader, int64, error) { return nil, nil, 0, nil })
	must(t, err)
	if err := commit("+y", nil, 0, no)(); err != no {
		t.Errorf("the caller's error came back as %v", err)
	}
	w.create("b", w.seal("a"))
	w.restart([]string{"a", "b"})
	expect(t, w.open("a"), map[string]string{"x": "1"})
	expect(t, w.open("b"), map[string]string{"x": "1"})
}

type panics struct{ err error }

func (p panics) Read([]byte) (int, error) { panic(p.err) }

func TestLargeMeta(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	h := w.open("a")
	key := strings.Repeat("k", chunk*2+7)
	must(t, put(h, key, "1"))
	must(t, put(h, "x", "2"))
	w.restart([]string{"a"})
	expect(t, w.open("a"), map[string]string{key: "1", "x": "2"})
}

func TestAfterClose(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	h := w.open("a")
	must(t, put(h, "x", "1"))
	_, err := Open(w.Store, w.dir("a"), dictMachine())
	wantError(t, err, "open already")
	must(t, h.Close())
	must(t, h.Close())
	if err := put(h, "x", "2"); !errors.Is(err, fs.ErrClosed) {
		t.Fatalf("commit after close: %v", err)
	}
	again := w.open("a")
	expect(t, again, map[string]string{"x": "1"})
	must(t, w.Close())
	must(t, w.Close())
	for name, err := range map[string]error{
		"commit": put(again, "x", "2"),
		"create": w.Create(w.dir("b"), Ref{}),
		"remove": w.Remove(w.dir("a")),
		"retain": w.Retain(Ref{newID()}),
	} {
		if !errors.Is(err, fs.ErrClosed) {
			t.Errorf("%s after the store was closed: %v", name, err)
		}
	}
	e, _ := again.Value().Get("x")
	if _, err := e.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("read after the store was closed: %v", err)
	}
	if _, err := os.Stat(w.dir("b")); err == nil {
		t.Error("a closed store made a folder")
	}
}

func TestExtent(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	h := w.open("a")
	must(t, put(h, "x", "0123456789"))
	e, _ := h.Value().Get("x")
	must(t, iotest.TestReader(e.Reader(), []byte("0123456789")))
	for _, c := range []struct {
		off, n int64
		want   string
	}{{0, 10, "0123456789"}, {2, 3, "234"}, {8, 100, "89"}, {20, 1, ""}, {-5, 2, "01"}, {3, -1, ""}} {
		b, err := io.ReadAll(e.Sub(c.off, c.n).Reader())
		if string(b) != c.want || err != nil {
			t.Errorf("Sub(%d, %d) reads %q, %v", c.off, c.n, b, err)
		}
	}
	if e.Sub(2, 5).Sub(1, 2) != e.Sub(3, 2) {
		t.Error("the same place is not equal")
	}
	if _, err := e.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("read before the beginning")
	}
	b := make([]byte, 4)
	if n, err := e.ReadAt(b, 8); n != 2 || err != io.EOF {
		t.Errorf("read over the end: %d, %v", n, err)
	}
	if n, err := (Extent{}).ReadAt(b, 0); n != 0 || err != io.EOF {
		t.Errorf("read of nothing: %d, %v", n, err)
	}
}
