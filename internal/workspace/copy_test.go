package workspace_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/layer"
	"github.com/tine-mcp/tine/internal/workspace"
)

// bothKinds runs a test on a tree and on a folder.
func bothKinds(t *testing.T, run func(t *testing.T, f workspace.FS)) {
	for _, folder := range []bool{false, true} {
		t.Run(fmt.Sprintf("folder %v", folder), func(t *testing.T) {
			layers, err := layer.OpenStore(layer.Options{Dir: t.TempDir()})
			if err != nil {
				t.Fatal(err)
			}
			s := workspace.NewStore(layers, workspace.Options{Dir: t.TempDir()})
			t.Cleanup(func() {
				if err := errors.Join(s.Close(), layers.Close()); err != nil {
					t.Error(err)
				}
			})
			dir := t.TempDir() + "/w"
			if err := s.Seed(t.Context(), dir, workspace.Seed{Folder: folder}); err != nil {
				t.Fatal(err)
			}
			w, err := s.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { w.Close() })
			run(t, w.FS())
		})
	}
}

type entry struct {
	name string
	kind byte
	mode int64
	text string // content, or where a link leads
}

func archive(t *testing.T, entries ...entry) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: e.mode}
		switch e.kind {
		case tar.TypeReg:
			h.Size = int64(len(e.text))
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = e.text
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if e.kind == tar.TypeReg {
			if _, err := io.WriteString(w, e.text); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// told is what an archive has, a line an entry.
func told(t *testing.T, r io.Reader) string {
	t.Helper()
	var lines []string
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if err == io.EOF {
			return strings.Join(lines, "\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %c %04o %s%s", h.Name, h.Typeflag, h.Mode, text, h.Linkname))
	}
}

// TestCopy puts a folder in and gets the same out, with its modes and links.
func TestCopy(t *testing.T) {
	bothKinds(t, func(t *testing.T, f workspace.FS) {
		in := []entry{
			{"./", tar.TypeDir, 0o755, ""}, {"d/", tar.TypeDir, 0o700, ""}, {"d/run", tar.TypeReg, 0o755, "#!"}, {"e/f/g", tar.TypeReg, 0o600, "deep"},
			{"l", tar.TypeSymlink, 0o777, "d/run"}, {"ro/", tar.TypeDir, 0o555, ""}, {"ro/x", tar.TypeReg, 0o444, "x"},
		}
		for range 2 { // again, over what is there
			done, err := workspace.Unpack(t.Context(), f, "at/here", archive(t, in...), workspace.Limits{})
			if err != nil || done.Files != 6 || done.Bytes != 7 {
				t.Fatalf("%+v, %v", done, err)
			}
			if err := f.Chmod("at/here/ro", 0o755); err != nil { // or only root could write there
				t.Fatal(err)
			}
		}
		if err := f.Chmod("at/here/ro", 0o555); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if _, err := workspace.Pack(t.Context(), f, "/at/here/", &out, workspace.Limits{}); err != nil {
			t.Fatal(err)
		}
		want := "./ 5 0755 \nd/ 5 0700 \nd/run 0 0755 #!\ne/ 5 0755 \ne/f/ 5 0755 \ne/f/g 0 0600 deep\nl 2 0777 d/run\nro/ 5 0555 \nro/x 0 0444 x"
		if got := told(t, &out); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
		out.Reset()
		if _, err := workspace.Pack(t.Context(), f, "at/here/l", &out, workspace.Limits{}); err != nil {
			t.Fatal(err)
		}
		if got := told(t, &out); got != "l 0 0755 #!" {
			t.Errorf("the link's file is %s", got)
		}
	})
}

// TestCopyStaysInside holds that nothing is put or got outside, and what is no file is not
// copied.
func TestCopyStaysInside(t *testing.T) {
	bothKinds(t, func(t *testing.T, f workspace.FS) {
		if err := f.Symlink("/etc", "out"); err != nil {
			t.Fatal(err)
		}
		if err := f.Symlink("../..", "up"); err != nil {
			t.Fatal(err)
		}
		for _, e := range []entry{
			{"../x", tar.TypeReg, 0o644, "x"}, {"/etc/x", tar.TypeReg, 0o644, "x"}, {"a/../../x", tar.TypeReg, 0o644, "x"},
			{"out/x", tar.TypeReg, 0o644, "x"}, {"up/x", tar.TypeReg, 0o644, "x"}, {"out/d/", tar.TypeDir, 0o755, ""},
			{"h", tar.TypeLink, 0o644, "/etc/passwd"}, {"p", tar.TypeFifo, 0o644, ""}, {"c", tar.TypeChar, 0o644, ""},
		} {
			if strings.HasPrefix(e.name, "/") { // which is taken from the root of the place
				continue
			}
			if done, err := workspace.Unpack(t.Context(), f, "", archive(t, e), workspace.Limits{}); err == nil {
				t.Errorf("%s: %+v", e.name, done)
			}
		}
		// A link that comes with the archive leads no further than one that was there.
		_, err := workspace.Unpack(t.Context(), f, "", archive(t, entry{"l", tar.TypeSymlink, 0o777, "/etc"}, entry{"l/x", tar.TypeReg, 0o644, "x"}), workspace.Limits{})
		if !errors.Is(err, workspace.ErrEscape) {
			t.Errorf("through a link of the archive: %v", err)
		}
		for _, at := range []string{"out/passwd", "up", "../x", "out"} {
			if _, err := workspace.Pack(t.Context(), f, at, io.Discard, workspace.Limits{}); !errors.Is(err, workspace.ErrEscape) {
				t.Errorf("%s: %v", at, err)
			}
		}
		for _, l := range []workspace.Limits{{Files: 1}, {Bytes: 3}} {
			two := archive(t, entry{"a", tar.TypeReg, 0o644, "aa"}, entry{"b", tar.TypeReg, 0o644, "bb"})
			if _, err := workspace.Unpack(t.Context(), f, "", two, l); !errors.Is(err, workspace.ErrLimit) {
				t.Errorf("%+v: %v", l, err)
			}
		}
	})
}

func TestDiffOfTrees(t *testing.T) {
	fill := func(t *testing.T, f workspace.FS, entries ...entry) {
		t.Helper()
		if _, err := workspace.Unpack(t.Context(), f, "", archive(t, entries...), workspace.Limits{}); err != nil {
			t.Fatal(err)
		}
	}
	var first workspace.FS
	bothKinds(t, func(t *testing.T, b workspace.FS) {
		bothKinds(t, func(t *testing.T, a workspace.FS) {
			first = a
			fill(t, a, entry{"same", tar.TypeReg, 0o644, "s"}, entry{"text", tar.TypeReg, 0o644, "old"}, entry{"mode", tar.TypeReg, 0o644, "m"}, entry{"gone/x", tar.TypeReg, 0o644, "x"}, entry{"l", tar.TypeSymlink, 0o777, "same"}, entry{"kind", tar.TypeReg, 0o644, ""})
			if err := b.RemoveAll("kind"); err != nil {
				t.Fatal(err)
			}
			if err := b.RemoveAll("l"); err != nil {
				t.Fatal(err)
			}
			fill(t, b, entry{"same", tar.TypeReg, 0o644, "s"}, entry{"text", tar.TypeReg, 0o644, "new"}, entry{"mode", tar.TypeReg, 0o600, "m"}, entry{"made", tar.TypeReg, 0o644, ""}, entry{"l", tar.TypeSymlink, 0o777, "text"}, entry{"kind/", tar.TypeDir, 0o755, ""})
			var got []string
			err := workspace.Diff(t.Context(), first, b, func(change, name string, _ workspace.Info) error {
				got = append(got, change+" "+name)
				return nil
			})
			want := "changed kind, changed l, added made, changed mode, changed text, removed gone, removed gone/x"
			if err != nil || strings.Join(got, ", ") != want {
				t.Errorf("%v, %v, want %s", got, err, want)
			}
		})
	})
}
