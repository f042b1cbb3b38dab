package process

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/parcel/parceltest"
)

const goodHead = `{"format":"tine process state","version":1,"dirs":{"data":true}}`

type entry = parceltest.Entry

var file, other, archive = parceltest.File, parceltest.Other, parceltest.Archive

const (
	exportHead = "tine-process.json"
	exportEnd  = "tine-process.end"
)

// with is a whole export with these entries in the directory data.
func with(t testing.TB, entries ...entry) []byte {
	t.Helper()
	return parceltest.Whole(t, exportForm.Name, goodHead, append([]entry{other(tar.TypeDir, "state/data", "")}, entries...)...)
}

// What may be in the directories is tested where they are made.
func TestImportTrustsNothing(t *testing.T) {
	dir, sym := byte(tar.TypeDir), byte(tar.TypeSymlink)
	for name, test := range map[string]struct {
		stream []byte
		want   string
	}{
		"another format":    {archive(t, file(exportHead, `{"format":"x","version":1}`)), "not a snapshot"},
		"another version":   {archive(t, file(exportHead, `{"format":"tine process state","version":2}`)), "version 2, and this Tine reads 1"},
		"a head that leads": {archive(t, file(exportHead, `{"format":"tine process state","version":1,"dirs":{"..":true}}`)), "can't be called"},
		"no end":            {archive(t, file(exportHead, goodHead), other(dir, "state/data", "")), "cut off"},
		"upward":            {with(t, file("state/data/../../x", "x")), "no place"},
		"link to root":      {with(t, other(sym, "state/data/l", "/etc")), "leads out"},
		"a device":          {with(t, other(tar.TypeChar, "state/data/null", "")), "neither a file"},
		"too much":          {with(t, file("state/data/a", strings.Repeat("x", 600)), file("state/data/b", strings.Repeat("x", 600))), "more than 1000 bytes, which is the limit"},
		"too many":          {with(t, manyFiles()...), "more than 20 files, which is the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			d := New(Options{ImportBytes: 1000, ImportFiles: 20})
			_, err := d.Import(t.Context(), "db", filepath.Join(parent, "snap"), bytes.NewReader(test.stream))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `server "db"`) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			drivertest.Empty(t, parent)
		})
	}
}

func manyFiles() []entry {
	var out []entry
	for n := range 21 {
		out = append(out, file("state/data/f"+strconv.Itoa(n+1), ""))
	}
	return out
}

func TestExportAndImport(t *testing.T) {
	d, dir := New(Options{}), t.TempDir()
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state"), Dirs: []driver.StateDir{{Name: "data"}, {Name: "gone"}, {Name: "void"}}}
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	drivertest.Write(t, filepath.Join(spec.State, "data/a/b/c"), "c")
	// As an instance ends that has removed its own.
	if err := errors.Join(os.Remove(filepath.Join(spec.State, "gone")), dirs.Note(spec.State, spec.State, spec.Dirs)); err != nil {
		t.Fatal(err)
	}
	snap, err := d.Freeze(t.Context(), spec, nil, filepath.Join(dir, "snap"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := d.Export(t.Context(), snap, &out); err != nil {
		t.Fatal(err)
	}
	got, err := d.Import(t.Context(), "other", filepath.Join(dir, "deep/imported"), bytes.NewReader(out.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	if got.Server != "other" || got.Size != 1 || string(got.Data) != string(snap.Data) {
		t.Errorf("imported as %+v", got)
	}
	again := spec
	again.State = filepath.Join(dir, "again")
	if err := d.Seed(t.Context(), again, driver.Source{From: &got, Take: true}); err != nil {
		t.Fatal(err)
	}
	drivertest.Reads(t, filepath.Join(again.State, "data/a/b/c"), "c")
	drivertest.Empty(t, filepath.Join(again.State, "void"))
	if _, err := os.Lstat(filepath.Join(again.State, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was removed is back: %v", err)
	}
	if err := errors.Join(d.Discard(t.Context(), got), d.Discard(t.Context(), snap), d.Erase(t.Context(), again)); err != nil {
		t.Error(err)
	}
}
