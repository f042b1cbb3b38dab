package layer

import (
	"bytes"
	"errors"
	"maps"
	"os"
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

func TestTornTailIsCutOff(t *testing.T) {
	w := newWorld(t)
	path, whole := left(t, w)
	file, err := os.ReadFile(path)
	must(t, err)
	last := int64(bytes.Index(file, []byte("+z"))) - recordSize
	without := maps.Clone(whole)
	delete(without, "z")

	cases := map[string][]byte{
		"in the last body":            file[:len(file)-1],
		"in the first page of it":     file[:last+recordSize+10],
		"after the header":            file[:last+recordSize],
		"in the header":               file[:last+recordSize-1],
		"one byte of a header":        file[:last+1],
		"body flipped":                flip(file, len(file)-10),
		"meta flipped":                flip(file, int(last)+recordSize),
		"header flipped":              flip(file, int(last)+5),
		"zeros instead of a record":   append(bytes.Clone(file[:last]), make([]byte, 5000)...),
		"rubbish instead of a record": append(bytes.Clone(file[:last]), bytes.Repeat([]byte("hole"), 999)...),
	}
	for name, damaged := range cases {
		t.Run(name, func(t *testing.T) {
			must(t, w.Close())
			must(t, os.WriteFile(path, damaged, 0o600))
			w.start()
			must(t, w.Recover([]string{w.dir("a")}, nil))
			h := w.open("a")
			expect(t, h, without)
			must(t, put(h, "new", "4"))
			w.restart([]string{"a"})
			expect(t, w.open("a"), with(without, "new", "4"))
		})
	}

	t.Run("the one before it, too", func(t *testing.T) {
		must(t, w.Close())
		damaged := flip(file, int(last)-20)
		must(t, os.WriteFile(path, damaged[:len(damaged)-1], 0o600))
		w.start()
		must(t, w.Recover([]string{w.dir("a")}, nil))
		for range 2 {
			expect(t, w.open("a"), map[string]string{"x": "1"})
			w.restart([]string{"a"})
		}
	})

	t.Run("sealing without opening", func(t *testing.T) {
		must(t, w.Close())
		must(t, os.WriteFile(path, file[:len(file)-1], 0o600))
		w.start()
		must(t, w.Recover([]string{w.dir("a")}, nil))
		w.create("b", w.seal("a"))
		expect(t, w.open("b"), without)
	})
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
		must(t, os.WriteFile(path, flip(file, len(file)-10), 0o600))
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
