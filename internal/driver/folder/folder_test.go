package folder_test

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/tine-mcp/tine/internal/driver/folder"
)

func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		out = append(out, e.Name())
	}
	return out
}

func TestWrite(t *testing.T) {
	for name, write := range map[string]func(string, []byte) error{"plain": folder.Write, "synced": folder.WriteSynced} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "record")
			for _, text := range []string{"first", "second"} {
				if err := write(file, []byte(text)); err != nil {
					t.Fatal(err)
				}
				if b, err := os.ReadFile(file); err != nil || string(b) != text {
					t.Errorf("it holds %q, %v", b, err)
				}
			}
			if got := names(t, dir); len(got) != 1 {
				t.Errorf("left beside it: %v", got)
			}
			// What can't take the place of the old one leaves that, and nothing else.
			taken := filepath.Join(dir, "taken")
			if err := os.MkdirAll(filepath.Join(taken, "x"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := write(taken, []byte("x")); err == nil {
				t.Error("a file took the place of a folder")
			}
			if got := names(t, dir); len(got) != 2 {
				t.Errorf("left beside it: %v", got)
			}
			if err := write(filepath.Join(dir, "none", "record"), nil); err == nil {
				t.Error("written into a folder that is not there")
			}
		})
	}
}

func TestMakeAndNew(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	if err := folder.New(dir); err != nil {
		t.Fatal(err)
	}
	if err := folder.New(dir); err == nil {
		t.Error("a folder that is there is new")
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := folder.Make(dir); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}

// Of many writes at once, the last one is there whole.
func TestWriteAtOnce(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "record")
	var wg sync.WaitGroup
	for n := range 8 {
		wg.Go(func() {
			for range 20 {
				if err := folder.Write(file, bytes.Repeat([]byte{byte('0' + n)}, 1<<10*(n+1))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b, err := os.ReadFile(file)
	if err != nil || len(b) == 0 || len(b) != 1<<10*int(b[0]-'0'+1) || len(bytes.Trim(b, string(b[:1]))) != 0 {
		t.Errorf("it holds %d bytes, %v", len(b), err)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left beside it: %v", got)
	}
}

func TestRemoveEmpty(t *testing.T) {
	for name, test := range map[string]struct {
		files, dirs []string
		gone        bool
	}{
		"nothing":                     {gone: true},
		"what was being written":      {files: []string{"record.part", "record.123.part"}, gone: true},
		"a record":                    {files: []string{"record", "record.part"}},
		"a folder that is named like": {dirs: []string{"x.part"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for _, f := range test.files {
				if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, d := range test.dirs {
				if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if got := folder.RemoveEmpty(dir); got != test.gone {
				t.Errorf("removed: %v", got)
			}
			if test.gone {
				if _, err := os.Lstat(dir); !os.IsNotExist(err) {
					t.Errorf("it is there: %v", err)
				}
			} else if got := names(t, dir); len(got) != len(test.files)+len(test.dirs) {
				t.Errorf("left in it: %v", got)
			}
		})
	}
	if folder.RemoveEmpty(filepath.Join(t.TempDir(), "none")) {
		t.Error("removed what is not there")
	}
}

// The record goes last: with the rest of a folder that can't be removed it stays.
func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	if err := folder.Make(filepath.Join(dir, "sub")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"record", "z", "sub/x"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // twice is fine
		if err := folder.Remove(dir, "record"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("it is there: %v", err)
	}
}
