package image

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// FuzzUnpack unpacks archives that mean harm: whatever is in them, nothing beside
// the folder of images changes, and nothing half is left.
func FuzzUnpack(f *testing.F) {
	f.Add(tarOf(f, reg("../x", "1")))
	f.Add(tarOf(f, sym("a", "/"), reg("a/x", "1"), hard("b", "a/x"), sym("c", "../../.."), reg("c/x", "2"), dir("c"), reg("c/y", "3")))
	f.Add(saved(f, tarOf(f, reg("a/b", "1"), sym("l", "..")), tarOf(f, reg("l/.wh.a", ""), reg("l/.wh..wh..opq", ""))))
	f.Add(oci(f, nil, tarOf(f, reg("a", "1"))))
	f.Add(zip(f, tarOf(f, reg("a", "1"))))
	f.Fuzz(func(t *testing.T, archive []byte) {
		s := newStore(t)
		s.Limits = Limits{Bytes: 4 << 20, Files: 1000}
		around := filepath.Dir(s.Dir)
		if err := os.WriteFile(filepath.Join(around, "x"), []byte("outside"), 0o600); err != nil {
			t.Fatal(err)
		}
		img, err := s.Get(t.Context(), place(t, archive))
		if err == nil {
			err = filepath.WalkDir(img.Dir, func(at string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() && !d.Type().IsRegular() && d.Type()&os.ModeSymlink == 0 {
					t.Errorf("%s is a %s", at, d.Type())
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		alone(t, s)
		entries, err := os.ReadDir(around)
		if err != nil || len(entries) != 2 {
			t.Errorf("there is %v, %v", entries, err)
		}
		out, err := os.Open(filepath.Join(around, "x"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if b, _ := io.ReadAll(out); string(b) != "outside" {
			t.Errorf("a file outside is %q", b)
		}
	})
}
