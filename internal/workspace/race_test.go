package workspace

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// TestPipe has a program put a pipe where a file is expected: no call hangs.
func TestPipe(t *testing.T) {
	dir := t.TempDir()
	if err := makePipe(filepath.Join(dir, "pipe")); err != nil {
		t.Fatal(err)
	}
	f, err := Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Open("pipe"); class(err) != "invalid" {
		t.Error(err)
	}
	if err := write(f, "pipe", "x"); class(err) != "invalid" {
		t.Error(err)
	}
	var listed []string
	each := func(name string, info Info) error {
		listed = append(listed, name)
		return nil
	}
	for _, all := range []bool{false, true} {
		if err := List(t.Context(), f, ".", all, each); err != nil {
			t.Error(err)
		}
	}
	if err := Diff(t.Context(), f, f, func(string, string, Info) error { return errors.New("it is another") }); err != nil || len(listed) != 2 {
		t.Errorf("listed %q, compared: %v", listed, err)
	}
	if done, err := Pack(t.Context(), f, ".", io.Discard, Limits{Files: 9, Bytes: 9}); err != nil || !slices.Equal(done.LeftOut, []string{"pipe"}) {
		t.Errorf("a copy of a folder with a pipe: %+v, %v", done, err)
	}
	if _, err := Pack(t.Context(), f, "pipe", io.Discard, Limits{Files: 9, Bytes: 9}); err == nil || !contains(err, "it is a FIFO") {
		t.Errorf("a copy of a pipe: %v", err)
	}
	s := newStore(t, t.TempDir(), Options{})
	if err := s.Seed(t.Context(), filepath.Join(t.TempDir(), "w"), Seed{Template: dir}); err == nil || !contains(err, "pipe") {
		t.Errorf("a template with a pipe: %v", err)
	}
}

// TestWritersAtOnce has many write to one workspace.
func TestWritersAtOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, f FS) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		made := 0
		for n := range 8 {
			wg.Go(func() {
				for i := range 30 {
					dir := "d" + strconv.Itoa(i)
					if err := f.MkdirAll(dir + "/e"); err != nil {
						t.Error(err)
					}
					if err := write(f, dir+"/e/"+strconv.Itoa(n), "x"); err != nil {
						t.Error(err)
					}
					err := f.Create(dir+"/once", os.Stdin, 0)
					if err == nil {
						mu.Lock()
						made++
						mu.Unlock()
					} else if class(err) != "exists" {
						t.Error(err)
					}
					if err := f.Rename(dir+"/e/"+strconv.Itoa(n), dir+"/moved"); err != nil && class(err) != "exists" {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if made != 30 {
			t.Errorf("%d files were made by Create, want 30", made)
		}
		for i := range 30 {
			list, err := f.ReadDir("d" + strconv.Itoa(i) + "/e")
			if err != nil || len(list) != 7 {
				t.Errorf("%d files are left, %v", len(list), err)
			}
		}
	})
}
