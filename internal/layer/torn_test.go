package layer

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// left makes a state with three records in one layer, the last with a body
// beyond one chunk, and gives its file.
func left(t *testing.T, w *world) (path string, whole map[string]string) {
	t.Helper()
	w.create("a", Ref{})
	h := w.open("a")
	whole = map[string]string{"x": "1", "y": strings.Repeat("2", 50), "z": strings.Repeat("3", chunk+100)}
	for _, key := range []string{"x", "y", "z"} {
		must(t, put(h, key, whole[key]))
	}
	return w.files.path(w.ids()[0]), whole
}

// leaveOpen gives the file of left as a death in the write of its last record
// leaves it: with n bytes of that record.
func leaveOpen(t *testing.T, w *world, file []byte, n int) []byte {
	t.Helper()
	h, err := decodeFileHeader(file)
	must(t, err)
	last := bytes.Index(file, []byte("+z")) - recordSize
	r, ok := decodeRecord(file[last:], h.salt)
	if !ok {
		t.Fatal("there is no record")
	}
	file = bytes.Clone(file)
	r.kind, r.bodyCRC = kindOpen, 0
	r.encode(file[last:], h.salt)
	return file[:min(last+n, len(file))]
}

func TestUnfinishedRecordIsCutOff(t *testing.T) {
	w := newWorld(t)
	path, whole := left(t, w)
	file, err := os.ReadFile(path)
	must(t, err)
	without := maps.Clone(whole)
	delete(without, "z")
	for name, n := range map[string]int{
		"the header alone": recordSize, "in the meta": recordSize + 1, "in the body": recordSize + 5000,
		"all but the end marker": len(file), "before the last write": 1 << 30,
	} {
		t.Run(name, func(t *testing.T) {
			must(t, w.Close())
			must(t, os.WriteFile(path, leaveOpen(t, w, file, n), 0o600))
			w.start()
			must(t, w.Recover([]string{w.dir("a")}, nil))
			h := w.open("a")
			expect(t, h, without)
			must(t, put(h, "new", "4"))
			w.restart([]string{"a"})
			expect(t, w.open("a"), with(without, "new", "4"))
		})
	}
	t.Run("sealing without opening", func(t *testing.T) {
		must(t, w.Close())
		must(t, os.WriteFile(path, leaveOpen(t, w, file, 100), 0o600))
		w.start()
		must(t, w.Recover([]string{w.dir("a")}, nil))
		w.create("b", w.seal("a"))
		expect(t, w.open("b"), without)
	})
}

// TestMissingEndIsReportedOnce is about logs that lost what was acknowledged: the first
// caller that opens or seals the state gets an error, and the next one goes on with
// what is left.
func TestMissingEndIsReportedOnce(t *testing.T) {
	w := newWorld(t)
	path, whole := left(t, w)
	file, err := os.ReadFile(path)
	must(t, err)
	last := int64(bytes.Index(file, []byte("+z"))) - recordSize
	without := maps.Clone(whole)
	delete(without, "z")

	cases := map[string]struct {
		file []byte
		left map[string]string
	}{
		"without the end marker":      {file[:len(file)-recordSize], whole},
		"in the end marker":           {file[:len(file)-1], whole},
		"in the last body":            {file[:len(file)-100], without},
		"in the first page of it":     {file[:last+recordSize+10], without},
		"after the header":            {file[:last+recordSize], without},
		"in the header":               {file[:last+recordSize-1], without},
		"at a record":                 {file[:last], without},
		"zeros instead of a record":   {append(bytes.Clone(file[:last]), make([]byte, 5000)...), without},
		"rubbish instead of a record": {append(bytes.Clone(file[:last]), bytes.Repeat([]byte("hole"), 999)...), without},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			must(t, w.Close())
			must(t, os.WriteFile(path, c.file, 0o600))
			for range 2 { // a death before anything was written down changes nothing
				w.start()
				must(t, w.Recover([]string{w.dir("a")}, nil))
				_, err := Open(w.Store, w.dir("a"), dictMachine())
				var cut *Cut
				if !errors.As(err, &cut) || cut.File != path || !IsLost(err) {
					t.Fatalf("got %v, want a cut", err)
				}
				if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, c.file) {
					t.Fatal("the file was changed before the loss could be written down")
				}
				must(t, w.Close())
			}
			w.start()
			must(t, w.Recover([]string{w.dir("a")}, nil))
			if _, err := w.Seal(w.dir("a")); !errors.As(err, new(*Cut)) {
				t.Fatalf("sealed: %v", err)
			}
			h := w.open("a")
			expect(t, h, c.left)
			must(t, put(h, "new", "4"))
			w.restart([]string{"a"})
			expect(t, w.open("a"), with(c.left, "new", "4"))
			kept, err := filepath.Glob(filepath.Join(w.root, "layers", "*"+cutSuffix))
			must(t, err)
			if rest := c.file[min(cutAt(file, c.left, last), int64(len(c.file))):]; len(rest) == 0 && len(kept) == 0 {
				return
			} else if len(kept) != 1 {
				t.Fatalf("kept of the damaged end: %v", kept)
			} else if b, err := os.ReadFile(kept[0]); err != nil || !bytes.Equal(b, rest) {
				t.Fatalf("%d bytes of the damaged end are kept, %d were there (%v)", len(b), len(rest), err)
			}
			must(t, os.Remove(kept[0]))
		})
	}
}

// cutAt is where the whole records end.
func cutAt(file []byte, left map[string]string, last int64) int64 {
	if _, all := left["z"]; all {
		return int64(len(file)) - recordSize
	}
	return last
}

func TestDamageInTheMiddleIsSaid(t *testing.T) {
	w := newWorld(t)
	path, whole := left(t, w)
	file, err := os.ReadFile(path)
	must(t, err)
	second := bytes.Index(file, []byte("+y")) - recordSize
	w.create("other", Ref{})
	must(t, put(w.open("other"), "x", "1"))

	cases := map[string][]byte{
		"header":     flip(file, second+3),
		"checksum":   flip(file, second+30),
		"meta":       flip(file, second+recordSize),
		"lost page":  append(append(bytes.Clone(file[:second]), make([]byte, recordSize)...), file[second+recordSize:]...),
		"moved up":   append(bytes.Clone(file[:second]), file[align(int64(second)+recordSize+2+50):]...),
		"other salt": flip(file, 33),
	}
	for name, damaged := range cases {
		t.Run(name, func(t *testing.T) {
			must(t, w.Close())
			must(t, os.WriteFile(path, damaged, 0o600))
			w.start()
			must(t, w.Recover([]string{w.dir("a"), w.dir("other")}, nil))
			_, err := Open(w.Store, w.dir("a"), dictMachine())
			var d *Damage
			if !errors.As(err, &d) || !strings.Contains(path, d.Layer) {
				t.Fatalf("got %v, want the damage", err)
			}
			if _, err := w.Seal(w.dir("a")); !errors.As(err, &d) {
				t.Fatalf("sealed: %v", err)
			}
			expect(t, w.open("other"), map[string]string{"x": "1"})
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, damaged) {
				t.Fatal("the damaged file was changed")
			}
		})
	}
	must(t, w.Close())
	must(t, os.WriteFile(path, file, 0o600))
	w.start()
	must(t, w.Recover([]string{w.dir("a")}, nil))
	expect(t, w.open("a"), whole)
}

func TestSealedLayersHaveNoTail(t *testing.T) {
	w := newWorld(t)
	path, whole := left(t, w)
	ref := w.seal("a")
	file, err := os.ReadFile(path)
	must(t, err)
	for name, damaged := range map[string][]byte{
		"cut":   file[:len(file)-1],
		"flip":  flip(file, headerSize+recordSize),
		"added": append(bytes.Clone(file), "more than there was, by far, far, far"...),
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.WriteFile(path, damaged, 0o600))
			w.restart([]string{"a"}, ref)
			_, err := Open(w.Store, w.dir("a"), dictMachine())
			var d *Damage
			if !errors.As(err, &d) || d.Layer != ref.ID {
				t.Fatalf("got %v, want the damage", err)
			}
		})
	}
	t.Run("a body is checked before it leaves", func(t *testing.T) {
		must(t, os.WriteFile(path, flip(file, len(file)-1000), 0o600))
		w.restart([]string{"a"}, ref)
		wantError(t, w.Export(ref, new(bytes.Buffer)), ref.ID, "body")
	})
	must(t, os.WriteFile(path, file, 0o600))
	w.restart([]string{"a"}, ref)
	expect(t, w.open("a"), whole)
}

func flip(b []byte, i int) []byte {
	b = bytes.Clone(b)
	b[i] ^= 0x10
	return b
}

func with(m map[string]string, key, value string) map[string]string {
	m = maps.Clone(m)
	m[key] = value
	return m
}
