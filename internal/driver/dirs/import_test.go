package dirs

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/parcel"
	"github.com/tine-mcp/tine/internal/driver/parcel/parceltest"
)

// form is that of the tests.
var form = parcel.Form{Name: "test", Format: "test", Version: 1, What: "a test"}

type head struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Dirs    Set    `json:"dirs"`
}

const goodHead = `{"format":"test","version":1,"dirs":{"data":true}}`

// unpack imports a stream into a folder, as a driver does.
func unpack(t testing.TB, folder string, r io.Reader, bytes int64, files int) (Set, error) {
	t.Helper()
	var h head
	in, err := form.Read(t.Context(), r, bytes, files, &h)
	if err != nil {
		return nil, err
	}
	i, err := Import(in, "state", h.Dirs, folder)
	if err != nil {
		return nil, err
	}
	defer i.Close()
	if err := in.Each(i.Entry); err != nil {
		return nil, err
	}
	return h.Dirs, i.Finish()
}

// pack exports a folder.
func pack(t testing.TB, set Set, folder string, w io.Writer) error {
	t.Helper()
	out, err := form.Write(t.Context(), w, head{"test", 1, set})
	if err != nil {
		return err
	}
	if err := Export(out, "state", set, folder); err != nil {
		return err
	}
	return out.Close()
}

type entry = parceltest.Entry

var file, other, archive = parceltest.File, parceltest.Other, parceltest.Archive

const (
	exportHead = "test.json"
	exportEnd  = "test.end"
)

// with is a whole export with these entries in the directory data.
func with(t testing.TB, entries ...entry) []byte {
	t.Helper()
	return parceltest.Whole(t, form.Name, goodHead, append([]entry{other(tar.TypeDir, "state/data", "")}, entries...)...)
}

func TestImportTrustsNothing(t *testing.T) {
	dir, link, sym := byte(tar.TypeDir), byte(tar.TypeLink), byte(tar.TypeSymlink)
	for name, test := range map[string]struct {
		stream []byte
		want   string
	}{
		"a head that leads": {archive(t, file(exportHead, `{"format":"test","version":1,"dirs":{"..":true}}`)), "can't be called"},
		"a directory less":  {archive(t, file(exportHead, goodHead), file(exportEnd, `{"entries":0}`)), `directory "data" is missing`},
		"a file for it":     {archive(t, file(exportHead, goodHead), file("state/data", "x"), file(exportEnd, `{"entries":1}`)), "is missing"},
		"a link for it":     {archive(t, file(exportHead, goodHead), other(sym, "state/data", "x"), file(exportEnd, `{"entries":1}`)), "is missing"},
		"absolute":          {with(t, file("/etc/passwd", "x")), "no place"},
		"upward":            {with(t, file("state/data/../../x", "x")), "no place"},
		"upward and back":   {with(t, file("state/data/../data/x", "x")), "no place"},
		"odd":               {with(t, file("state/data//x", "x")), "no place"},
		"dotted":            {with(t, file("state/data/./x", "x")), "no place"},
		"beside":            {with(t, file("state/other/x", "x")), "no place"},
		"above":             {with(t, file("x", "x")), "no place"},
		"the state itself":  {with(t, other(dir, "state", "")), "no place"},
		"without a parent":  {with(t, file("state/data/d/x", "x")), "no place"},
		"below a file":      {with(t, file("state/data/f", ""), file("state/data/f/x", "x")), "no place"},
		"below a link":      {with(t, other(dir, "state/data/d", ""), other(sym, "state/data/l", "d"), file("state/data/l/x", "x")), "no place"},
		"twice":             {with(t, file("state/data/x", "1"), file("state/data/x", "2")), "no place"},
		"a link, then file": {with(t, other(sym, "state/data/x", "y"), file("state/data/x", "2")), "no place"},
		"too long":          {with(t, file("state/data/"+strings.Repeat("x/", 3000)+"x", "x")), "no place"},
		"link to root":      {with(t, other(sym, "state/data/l", "/etc")), "leads out"},
		"link upward":       {with(t, other(sym, "state/data/l", "..")), "leads out"},
		"link too far":      {with(t, other(dir, "state/data/d", ""), other(sym, "state/data/d/l", "../../x")), "leads out"},
		"link down and up":  {with(t, other(dir, "state/data/d", ""), other(sym, "state/data/d/l", ".."), other(sym, "state/data/m", "d/l/..")), "leads out"},
		"link to nothing":   {with(t, other(sym, "state/data/l", "")), "leads out"},
		"link of windows":   {with(t, other(sym, "state/data/l", `..\..\x`)), "leads out"},
		"hard link outside": {with(t, other(link, "state/data/l", "/etc/passwd")), "no file before it"},
		"hard link upward":  {with(t, other(link, "state/data/l", "state/data/../../x")), "no file before it"},
		"hard link to link": {with(t, other(sym, "state/data/s", "x"), other(link, "state/data/l", "state/data/s")), "no file before it"},
		"hard link to dir":  {with(t, other(link, "state/data/l", "state/data")), "no file before it"},
		"a device":          {with(t, other(tar.TypeChar, "state/data/null", "")), "neither a file"},
		"a disk":            {with(t, other(tar.TypeBlock, "state/data/sda", "")), "neither a file"},
		"a pipe":            {with(t, other(tar.TypeFifo, "state/data/p", "")), "neither a file"},
		"too much":          {with(t, file("state/data/a", strings.Repeat("x", 600)), file("state/data/b", strings.Repeat("x", 600))), "more than 1000 bytes, which is the limit"},
		"too many":          {with(t, manyFiles()...), "more than 20 files, which is the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := unpack(t, t.TempDir(), bytes.NewReader(test.stream), 1000, 20)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
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

// describe lists a tree: names, modes, times, targets, contents.
func describe(t testing.TB, root string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := e.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, path)
		out.WriteString(name + " " + st.Mode().String())
		if e.Type()&fs.ModeSymlink == 0 {
			out.WriteString(" " + st.ModTime().UTC().String())
		}
		switch {
		case e.Type().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			out.WriteString(" " + string(b))
		case e.Type()&fs.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			out.WriteString(" -> " + target)
		}
		out.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestExportKeepsWhatMatters(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { clone.Remove(dir) })
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	data := filepath.Join(from, "data")
	drivertest.Write(t, filepath.Join(data, "a/b/c"), "c")
	drivertest.Write(t, filepath.Join(data, "a/run"), "#!/bin/sh\n")
	drivertest.Write(t, filepath.Join(data, "odd \u00fc\n name"), "odd")
	drivertest.Write(t, filepath.Join(data, strings.Repeat("long", 50)), "long")
	drivertest.Write(t, filepath.Join(data, "zeros"), strings.Repeat("\x00", 200_000)+"end")
	if err := errors.Join(
		os.Mkdir(filepath.Join(from, "void"), 0o700), os.Mkdir(to, 0o700),
		os.Symlink("b/c", filepath.Join(data, "a/l")), os.Symlink("../a", filepath.Join(data, "a/up")), os.Symlink("nowhere", filepath.Join(data, "dangling")),
		os.Link(filepath.Join(data, "a/b/c"), filepath.Join(data, "hard")),
		os.Chmod(filepath.Join(data, "a/run"), 0o755), os.Chmod(filepath.Join(data, "a/b/c"), 0o400), os.Chmod(filepath.Join(data, "a/b"), 0o550),
		os.Chtimes(filepath.Join(data, "a"), time.Time{}, time.Unix(1_000_000_000, 123_456_789)),
	); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := pack(t, Set{"data": true, "gone": false, "void": true}, from, &out); err != nil {
		t.Fatal(err)
	}
	set, err := unpack(t, to, &out, 1<<30, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if gone, known := set["gone"]; len(set) != 3 || gone || !known {
		t.Errorf("imported %v", set)
	}
	for _, name := range []string{"data", "void"} {
		if is, was := describe(t, filepath.Join(to, name)), describe(t, filepath.Join(from, name)); is != was {
			t.Errorf("got\n%.3000s\nwant\n%.3000s", is, was)
		}
	}
	a, errA := os.Stat(filepath.Join(to, "data/hard"))
	b, errB := os.Stat(filepath.Join(to, "data/a/b/c"))
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		t.Errorf("the two names are not one file any more: %v, %v", errA, errB)
	}
}

// Setuid and setgid bits are not imported.
func TestImportDropsSpecialModes(t *testing.T) {
	dir := t.TempDir()
	e := file("state/data/su", "x")
	e.Mode, e.Uid, e.Gid, e.Uname = 0o6755, 12345, 12345, "mallory"
	if _, err := unpack(t, dir, bytes.NewReader(with(t, e)), 1000, 20); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(filepath.Join(dir, "data/su")); err != nil || st.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
		t.Errorf("mode %v, %v", st.Mode(), err)
	}
}

// FuzzImport makes up two entries, for in bytes made up every checksum is wrong.
func FuzzImport(f *testing.F) {
	f.Add(byte(tar.TypeDir), "state/data/d", "", byte(tar.TypeSymlink), "state/data/d/l", "../x")
	f.Add(byte(tar.TypeReg), "state/data/f", "text", byte(tar.TypeLink), "state/data/g", "state/data/f")
	f.Add(byte(tar.TypeSymlink), "state/data/l", "..", byte(tar.TypeReg), "state/data/l/x", "")
	f.Add(byte(tar.TypeSymlink), "state/data/a", "./b//c/", byte(tar.TypeDir), "state/data/b/", "")
	f.Fuzz(func(t *testing.T, kind1 byte, name1, target1 string, kind2 byte, name2, target2 string) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		err := parceltest.Write(w,
			file(exportHead, goodHead), other(tar.TypeDir, "state/data", ""), other(tar.TypeDir, "state/data/d", ""),
			other(kind1, name1, target1), other(kind2, name2, target2), file(exportEnd, `{"entries":4}`))
		if err != nil {
			return // no writer can write that
		}
		w.Close()
		dir := t.TempDir()
		set, err := unpack(t, dir, &b, 1<<20, 100)
		if err != nil {
			return
		}
		// Every link leads to something inside, or to nothing.
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			t.Fatal(err)
		}
		filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if to, err := filepath.EvalSymlinks(path); err == nil && to != real && !strings.HasPrefix(to, filepath.Join(real, "data")) {
				t.Errorf("%s leads to %s", path, to)
			}
			return nil
		})
		if err := pack(t, set, dir, io.Discard); err != nil {
			t.Errorf("what was imported can't be exported: %v", err)
		}
	})
}
