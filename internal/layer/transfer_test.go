package layer

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
)

// exported is a chain of two layers, small.
func exported(t testing.TB) []byte {
	w := newWorld(t)
	w.create("a", Ref{})
	h := w.open("a")
	must(t, put(h, "x", "first"))
	must(t, put(h, "y", "second"))
	must(t, w.Release(w.seal("a")))
	must(t, put(h, "x", "third"))
	return export(t, w.Store, w.seal("a"))
}

func TestExportImport(t *testing.T) {
	w := newWorld(t)
	w.create("a", Ref{})
	a := w.open("a")
	want := map[string]string{"x": "2", "big": strings.Repeat("0123456789", 70_000)}
	must(t, put(a, "x", "1"))
	must(t, put(a, "big", want["big"]))
	must(t, w.Release(w.seal("a")))
	must(t, put(a, "x", "2"))
	stream := export(t, w.Store, w.seal("a"))

	other := newWorld(t)
	got, err := other.Import(iotest.HalfReader(bytes.NewReader(stream)))
	must(t, err)
	again, err := other.Import(bytes.NewReader(stream))
	must(t, err)
	if got == again {
		t.Error("two imports are one layer")
	}
	must(t, other.Release(again))
	other.create("b", got)
	must(t, other.Release(got))
	b := other.open("b")
	expect(t, b, want)
	must(t, put(b, "new", "3"))
	other.restart([]string{"b"})
	expect(t, other.open("b"), with(want, "new", "3"))
	other.expectFiles(3)

	none, err := w.Import(bytes.NewReader(export(t, w.Store, Ref{})))
	if err != nil || none != (Ref{}) {
		t.Errorf("the empty state came back as %v, %v", none, err)
	}
	full := errors.New("full")
	if err := w.Export(w.seal("a"), iotest.TruncateWriter(failingWriter{full}, 0)); err != nil {
		t.Errorf("a writer that takes all: %v", err)
	}
	if err := w.Export(w.seal("a"), failingWriter{full}); !errors.Is(err, full) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

func TestImportRefuses(t *testing.T) {
	good := exported(t)
	first := int(order.Uint64(good[streamHead:]))
	second := streamHead + 8 + first + sha256.Size
	// mend makes the checksums of the first layer fit again, so that the check
	// behind them is reached.
	mend := func(b []byte) []byte {
		sum := sha256.Sum256(b[streamHead+8:][:first])
		copy(b[streamHead+8+first:], sum[:])
		return b
	}
	set := func(at int, b ...byte) []byte {
		c := bytes.Clone(good)
		copy(c[at:], b)
		return c
	}
	cases := map[string]struct {
		stream []byte
		want   string
	}{
		"nothing":               {nil, "read the beginning"},
		"something else":        {set(0, 'x'), "no export"},
		"later version":         {set(8, 9), "version 9"},
		"too many":              {set(12, 0xff, 0xff, 0xff), "at most"},
		"one too few":           {good[:second], "unexpected EOF"},
		"one too many":          {set(12, 1), "more after the last"},
		"trailing":              {append(bytes.Clone(good), 0), "more after the last"},
		"too short":             {set(streamHead, 3, 0, 0), "3 bytes"},
		"huge":                  {set(streamHead, 0, 0, 0, 0, 0, 0, 0, 0xff), "bytes"},
		"long":                  {set(streamHead, 0, 0, 0, 0, 1), "unexpected EOF"},
		"not a layer":           {set(streamHead+8, 'x'), "not a layer"},
		"layer's header":        {flip(good, streamHead+8+20), "header damaged"},
		"sum":                   {flip(good, second-1), "SHA-256"},
		"body":                  {flip(good, second-sha256.Size-1), "SHA-256"},
		"body, sum made to fit": {mend(flip(good, bytes.Index(good, []byte("first")))), "body is wrong"},
		"record, sum made to fit": {
			mend(flip(good, streamHead+8+headerSize+4)), "header is wrong",
		},
		"not in line": {append(set(12, 1)[:streamHead:streamHead], good[second:]...), "stands on"},
		"twice":       {append(bytes.Clone(good[:second]), good[streamHead:second]...), "stands on"},
		"empty layer": {emptyLayer(), "empty"},
	}
	w := newWorld(t)
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := w.Import(bytes.NewReader(c.stream))
			wantError(t, err, c.want)
			w.expectFiles(0)
		})
	}
	for cut := range good {
		if _, err := w.Import(bytes.NewReader(good[:cut])); err == nil {
			t.Fatalf("the first %d of %d bytes were taken", cut, len(good))
		}
	}
	t.Run("full disk", func(t *testing.T) {
		w := newWorld(t)
		left, _ := w.inject()
		for *left = range len(good) - 2*(sha256.Size+8) - streamHead {
			if _, err := w.Import(bytes.NewReader(good)); !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
		}
		w.expectFiles(0)
	})
	if len(w.layers) > 0 {
		t.Errorf("layers are known: %v", w.layers)
	}
}

func emptyLayer() []byte {
	b := append([]byte(streamMagic), streamVersion, 0, 0, 0, 1, 0, 0, 0, headerSize, 0, 0, 0, 0, 0, 0, 0)
	h := fileHeader{version: oldVersion, id: newID(), salt: 1}.encode()
	sum := sha256.Sum256(h)
	return append(append(b, h...), sum[:]...)
}

func FuzzImport(f *testing.F) {
	good := exported(f)
	f.Add(good)
	f.Add(good[:len(good)/2])
	f.Add(emptyLayer())
	f.Add(flip(good, streamHead+8+headerSize+9))
	f.Fuzz(func(t *testing.T, stream []byte) {
		w := newWorld(t)
		ref, err := w.Import(bytes.NewReader(stream))
		if err != nil || ref == (Ref{}) {
			w.expectFiles(0)
			return
		}
		// What was taken is good: it can be folded, up to what the machine makes of
		// it, and comes out again.
		all := &Machine[int64]{Apply: func(n int64, _ []byte, e Extent) (int64, error) {
			m, err := io.Copy(io.Discard, e.Reader())
			return n + m, err
		}}
		must(t, w.Create(w.dir("a"), ref))
		_, err = Open(w.Store, w.dir("a"), all)
		must(t, err)
		must(t, w.Export(ref, io.Discard))
		must(t, w.Remove(w.dir("a")))
		must(t, w.Release(ref))
		w.expectFiles(0)
	})
}

func FuzzScan(f *testing.F) {
	const salt = 7
	record := func(h recordHeader, meta, body string) []byte {
		h.metaLen, h.bodyLen, h.metaCRC, h.bodyCRC = uint32(len(meta)), int64(len(body)), crc([]byte(meta)), crc([]byte(body))
		b := make([]byte, recordSize)
		h.encode(b, salt)
		b = append(append(b, meta...), body...)
		return append(b, make([]byte, align(int64(len(b)))-int64(len(b)))...)
	}
	one := record(recordHeader{kind: kindWhole}, "meta", "body")
	two := record(recordHeader{kind: kindWhole, number: 1}, "", strings.Repeat("b", 100))
	open := record(recordHeader{kind: kindOpen, number: 1}, "m", "b")
	huge := make([]byte, recordSize)
	recordHeader{kind: kindWhole, metaLen: maxMeta, bodyLen: maxBody}.encode(huge, salt)
	for _, b := range [][]byte{nil, one, append(bytes.Clone(one), two...), append(bytes.Clone(one), open...), huge, make([]byte, 100)} {
		f.Add(b)
	}
	end := endMarker(1, salt)
	for _, b := range [][]byte{append(bytes.Clone(one), end...), append(append(bytes.Clone(one), end...), two...), end} {
		f.Add(b)
	}
	store := &Store{files: newFiles("", 1), log: slog.New(slog.DiscardHandler)}
	f.Fuzz(func(t *testing.T, records []byte) {
		file := append(make([]byte, headerSize), records...)
		for _, version := range []uint32{oldVersion, fileVersion} {
			for _, bodies := range []bool{false, true} {
				fuzzScan(t, file, &layer{store: store, id: "x", version: version, salt: salt}, bodies)
			}
		}
	})
}

// fuzzScan checks that a scan stays within the file, and that what it calls whole
// is whole when the rest is cut off.
func fuzzScan(t *testing.T, file []byte, l *layer, bodies bool) {
	scan := func(file []byte) (end int64, n uint32, err error) {
		size := int64(len(file))
		sc := scanner{l: l, r: bytes.NewReader(file), size: size, bodies: bodies}
		at := int64(headerSize)
		end, n, err = sc.scan(func(meta []byte, body, length int64) error {
			if body-int64(len(meta))-recordSize != align(at) || body+length > size {
				t.Fatalf("a record at %d has its body at %d, %d long, of %d", at, body, length, size)
			}
			at = body + length + tableSize(l.version, length)
			return nil
		})
		want := at
		if l.version != oldVersion {
			want = align(at) + recordSize
		}
		if end != want {
			t.Fatalf("ends at %d after a record that ends at %d", end, at)
		}
		return end, n, err
	}
	end, n, err := scan(file)
	if err == nil {
		return
	}
	whole := file
	if l.version == oldVersion {
		whole = file[:end]
	} else {
		whole = append(append(bytes.Clone(file), make([]byte, 2*recordSize)...)[:end-recordSize], endMarker(n, l.salt)...)
	}
	if end2, n2, err2 := scan(whole); end2 != end || n2 != n || err2 != nil {
		t.Fatalf("%d records to %d (%v), then %d to %d: %v", n, end, err, n2, end2, err2)
	}
}
