package parcel_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/tine-mcp/tine/internal/driver/parcel"
	"github.com/tine-mcp/tine/internal/driver/parcel/parceltest"
)

var form = parcel.Form{Name: "tine-test", Format: "tine test state", Version: 3, What: "a test's state"}

type head struct {
	Format  string   `json:"format"`
	Version int      `json:"version"`
	Dirs    []string `json:"dirs,omitempty"`
}

const goodHead = `{"format":"tine test state","version":3,"dirs":["a"]}`

// item is an entry of an archive.
type item struct {
	name, content string
	kind          byte // default a file
}

// archive is an archive of whatever is given, the way any program may write it.
func archive(t testing.TB, items ...item) []byte {
	t.Helper()
	var entries []parceltest.Entry
	for _, i := range items {
		e := parceltest.File(i.name, i.content)
		if i.kind != 0 {
			e.Typeflag = i.kind
		}
		entries = append(entries, e)
	}
	return parceltest.Archive(t, entries...)
}

// write is a parcel as we write it.
func write(t testing.TB, items ...item) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := form.Write(context.Background(), &b, head{form.Format, form.Version, []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range items {
		if err := w.Entry(&tar.Header{Typeflag: tar.TypeReg, Name: i.name, Size: int64(len(i.content)), Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, i.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// limits of the parcels that are read here.
const (
	maxBytes = 100
	maxFiles = 3
)

// read takes everything out of a parcel.
func read(ctx context.Context, from io.Reader) (h head, items []item, size int64, err error) {
	r, err := form.Read(ctx, from, maxBytes, maxFiles, &h)
	if err != nil {
		return h, nil, 0, err
	}
	err = r.Each(func(t *tar.Header) error {
		var b strings.Builder
		err := r.Copy(&b)
		items = append(items, item{t.Name, b.String(), t.Typeflag})
		return err
	})
	return h, items, r.Size, err
}

func TestRoundTrip(t *testing.T) {
	for name, want := range map[string][]item{
		"nothing":       nil,
		"some":          {{"a/x", "one", tar.TypeReg}, {"a/y", "", tar.TypeReg}},
		"all there may": {{"a/x", strings.Repeat("x", maxBytes-1), tar.TypeReg}, {"a/y", "y", tar.TypeReg}, {"a/z", "", tar.TypeReg}},
	} {
		t.Run(name, func(t *testing.T) {
			b := write(t, want...)
			for how, from := range map[string]io.Reader{
				"at once": bytes.NewReader(b), "slowly": iotest.OneByteReader(bytes.NewReader(b)), "with the end": iotest.DataErrReader(bytes.NewReader(b)),
			} {
				h, got, size, err := read(t.Context(), from)
				if err != nil {
					t.Fatalf("%s: %v", how, err)
				}
				if h.Format != form.Format || h.Version != form.Version || len(h.Dirs) != 1 || h.Dirs[0] != "a" {
					t.Errorf("%s: its head is %+v", how, h)
				}
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: got %q, want %q", how, got, want)
				}
				sum := int64(0)
				for _, i := range want {
					sum += int64(len(i.content))
				}
				if size != sum {
					t.Errorf("%s: it has %d bytes and not %d", how, size, sum)
				}
			}
		})
	}
}

// Others read what we write, and what was written long ago.
func TestFormat(t *testing.T) {
	r := tar.NewReader(bytes.NewReader(write(t, item{name: "a/x", content: "one"})))
	for _, want := range []item{{name: "tine-test.json", content: goodHead}, {name: "a/x", content: "one"}, {name: "tine-test.end", content: `{"entries":1}`}} {
		h, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(r); err != nil || h.Name != want.name || string(b) != want.content {
			t.Errorf("%s holds %s, %v; want %+v", h.Name, b, err, want)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Errorf("behind the end: %v", err)
	}
}

func TestReadRefuses(t *testing.T) {
	begin, x := item{name: "tine-test.json", content: goodHead}, item{name: "a/x", content: "one"}
	end := func(n int) item { return item{name: "tine-test.end", content: fmt.Sprintf(`{"entries":%d}`, n)} }
	named := func(content string) item { return item{name: "tine-test.json", content: content} }
	many := []item{begin}
	for n := range maxFiles + 1 {
		many = append(many, item{name: fmt.Sprint("a/", n)})
	}
	for name, test := range map[string]struct {
		stream []byte
		want   string
	}{
		"nothing":              {nil, "not a snapshot of a test's state"},
		"nonsense":             {bytes.Repeat([]byte("x"), 4096), "not a snapshot of a test's state"},
		"no entries":           {archive(t), "not a snapshot"},
		"no head":              {archive(t, x, end(1)), "not a snapshot"},
		"the head later":       {archive(t, x, begin, end(2)), "not a snapshot"},
		"the head of another":  {archive(t, item{name: "tine-other.json", content: goodHead}, end(0)), "not a snapshot"},
		"another format":       {archive(t, named(`{"format":"tine other state","version":3}`), end(0)), "not a snapshot"},
		"no format":            {archive(t, named(`{}`), end(0)), "not a snapshot"},
		"another version":      {archive(t, named(`{"format":"tine test state","version":4}`), end(0)), "version 4, and this Tine reads 3"},
		"a head of nonsense":   {archive(t, named(`{"format`), end(0)), "can't be read"},
		"a head of other keys": {archive(t, named(`{"format":"tine test state","version":3,"dirs":7}`), end(0)), "can't be read"},
		"no object":            {archive(t, named(`[]`), end(0)), "can't be read"},
		"a head too large":     {archive(t, named(goodHead+strings.Repeat(" ", 64<<10)), end(0)), `"tine-test.json" is not what it should be`},
		"a directory for it":   {archive(t, item{name: "tine-test.json", kind: tar.TypeDir}, end(0)), "not what it should be"},
		"no end":               {archive(t, begin, x), "cut off: its end is missing"},
		"the end of another":   {archive(t, begin, item{name: "tine-other.end", content: `{"entries":0}`}), "cut off"},
		"an end too large":     {archive(t, begin, item{name: "tine-test.end", content: `{"entries":0}` + strings.Repeat(" ", 64<<10)}), "not what it should be"},
		"an end of nonsense":   {archive(t, begin, item{name: "tine-test.end", content: `?`}), "can't be read"},
		"a file less":          {archive(t, begin, x, end(2)), "has 1 entries and says 2"},
		"a file more":          {archive(t, begin, x, end(0)), "has 1 entries and says 0"},
		"a file behind":        {archive(t, begin, end(0), x), "follows its end"},
		"an archive behind":    {append(write(t), write(t)...), "follows its end"},
		"a byte behind":        {append(write(t), 'x'), "follows its end"},
		"too many":             {archive(t, many...), "more than 3 files, which is the limit"},
		"too large":            {archive(t, begin, item{name: "a/x", content: strings.Repeat("x", maxBytes+1)}), `entry "a/x": it has more than 100 bytes, which is the limit`},
		"too large together":   {archive(t, begin, item{name: "a/x", content: strings.Repeat("x", maxBytes)}, x), `entry "a/x": it has more than 100 bytes`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, items, _, err := read(t.Context(), bytes.NewReader(test.stream)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, %v; want %q", items, err, test.want)
			}
		})
	}
}

// Wherever a parcel is cut it is not taken for a whole one, except for zeros at
// its end, which say nothing.
func TestReadCutShort(t *testing.T) {
	b := write(t, item{name: "a/x", content: "one"}, item{name: "a/y", content: "two"})
	for n := range len(bytes.TrimRight(b, "\x00")) {
		if _, _, _, err := read(t.Context(), bytes.NewReader(b[:n])); err == nil {
			t.Errorf("%d of %d bytes were taken", n, len(b))
		}
	}
	broken := errors.New("broken off")
	_, _, _, err := read(t.Context(), io.MultiReader(bytes.NewReader(b[:2048]), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) {
		t.Errorf("the reason is lost: %v", err)
	}
}

// What a driver says of an entry comes with the name of it.
func TestEachNamesTheEntry(t *testing.T) {
	r, err := form.Read(t.Context(), bytes.NewReader(write(t, item{name: "a/x"}, item{name: "a/y"})), maxBytes, maxFiles, &head{})
	if err != nil {
		t.Fatal(err)
	}
	odd := errors.New("it has no place")
	seen := 0
	err = r.Each(func(*tar.Header) error {
		seen++
		return odd
	})
	if !errors.Is(err, odd) || !strings.Contains(err.Error(), `"a/x"`) || seen != 1 {
		t.Errorf("after %d entries: %v", seen, err)
	}
}

func TestContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := write(t, item{name: "a/x", content: "one"})
	w, err := form.Write(ctx, io.Discard, head{form.Format, form.Version, nil})
	if err != nil {
		t.Fatal(err)
	}
	r, err := form.Read(ctx, bytes.NewReader(b), maxBytes, maxFiles, &head{})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Entry(&tar.Header{Typeflag: tar.TypeReg, Name: "a/x", Size: 1}); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := w.Write([]byte("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("content: %v", err)
	}
	if err := w.Entry(&tar.Header{Typeflag: tar.TypeReg, Name: "a/y"}); !errors.Is(err, context.Canceled) {
		t.Errorf("an entry: %v", err)
	}
	if err := r.Each(func(*tar.Header) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("reading on: %v", err)
	}
	if _, _, _, err := read(ctx, bytes.NewReader(b)); !errors.Is(err, context.Canceled) {
		t.Errorf("reading: %v", err)
	}
}

// Whatever comes, no more is taken than may be.
func FuzzRead(f *testing.F) {
	f.Add(write(f, item{name: "a/x", content: "one"}))
	f.Add(archive(f, item{name: "tine-test.json", content: goodHead}, item{name: "a", kind: tar.TypeDir}))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, items, size, _ := read(t.Context(), bytes.NewReader(b))
		if len(items) > maxFiles || size > maxBytes {
			t.Errorf("it took %d entries with %d bytes", len(items), size)
		}
	})
}
