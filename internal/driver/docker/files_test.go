package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/workspace"
)

// copyFiles puts files into a volume of a container and gets them out.
func copyFiles(t *testing.T, b *bench) {
	s := b.suite(t, b.stdio)
	d := s.New(0)
	spec := s.Stateful(t, s.Program(t), filepath.Join(t.TempDir(), "state"))
	if err := d.(driver.Keeper).Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the instance was stopped
		if err := d.(driver.Keeper).Erase(context.Background(), spec); err != nil {
			t.Error(err)
		}
	})
	inst := s.StartSpec(t, d, spec)
	f := inst.(driver.Filer)
	var in bytes.Buffer
	w := tar.NewWriter(&in)
	for _, h := range []*tar.Header{
		{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o700}, {Name: "d/x", Typeflag: tar.TypeReg, Mode: 0o640, Size: 3}, {Name: "l", Typeflag: tar.TypeSymlink, Linkname: "d/x"},
	} {
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(w, "abc"); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Close()
	done, err := f.PutFiles(t.Context(), spec, "/data", &in, workspace.Limits{})
	if err != nil || done.Files != 3 || done.Bytes != 3 {
		t.Fatalf("%+v, %v", done, err)
	}
	var out bytes.Buffer
	if _, err := f.GetFiles(t.Context(), spec, "data", &out, workspace.Limits{}); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = h.Mode
	}
	if got["d/x"] != 0o640 || got["d"] != 0o700 && got["d/"] != 0o700 || got["l"] == 0 {
		t.Errorf("it came back as %v", got)
	}
	for _, bad := range []string{"/nosuch", "/data/nosuch"} {
		if _, err := f.GetFiles(t.Context(), spec, bad, io.Discard, workspace.Limits{}); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", bad, err)
		}
	}
	s.Stop(t, inst)
}
