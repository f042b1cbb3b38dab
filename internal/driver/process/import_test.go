package process

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
	"github.com/tine-mcp/tine/internal/driver"
)

const goodHead = `{"format":"tine process state","version":1,"dirs":{"data":true}}`

// entry is one of a stream.
type entry struct {
	tar.Header
	content string
}

func reg(name, content string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content}
}

func other(kind byte, name, target string) entry {
	return entry{tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o755}, ""}
}

// archive makes an export of entries.
func archive(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := e.Header
		h.Size = int64(len(e.content))
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// with is a whole export with these entries in the directory data.
func with(t testing.TB, entries ...entry) []byte {
	t.Helper()
	all := append([]entry{reg(exportHead, goodHead), other(tar.TypeDir, "state/data", "")}, entries...)
	return archive(t, append(all, reg(exportEnd, `{"entries":`+strconv.Itoa(len(entries)+1)+`}`))...)
}

func TestImportTrustsNothing(t *testing.T) {
	dir, link, sym := byte(tar.TypeDir), byte(tar.TypeLink), byte(tar.TypeSymlink)
	for name, test := range map[string]struct {
		stream []byte
		want   string
	}{
		"no head":            {archive(t, other(dir, "state/data", "")), "not a snapshot"},
		"another format":     {archive(t, reg(exportHead, `{"format":"x","version":1}`)), "not a snapshot"},
		"another version":    {archive(t, reg(exportHead, `{"format":"tine process state","version":2}`)), "version 2, and this Tine reads 1"},
		"a head of nonsense": {archive(t, reg(exportHead, `{`)), "can't be read"},
		"a head too large":   {archive(t, reg(exportHead, strings.Repeat(" ", 1<<20))), "not what it should be"},
		"a head that leads":  {archive(t, reg(exportHead, `{"format":"tine process state","version":1,"dirs":{"..":true}}`)), "can't be called"},
		"no end":             {archive(t, reg(exportHead, goodHead), other(dir, "state/data", "")), "cut off"},
		"a directory less":   {archive(t, reg(exportHead, goodHead), reg(exportEnd, `{"entries":0}`)), `directory "data" is missing`},
		"an entry less":      {archive(t, reg(exportHead, goodHead), other(dir, "state/data", ""), reg(exportEnd, `{"entries":2}`)), "has 1 entries and says 2"},
		"after the end":      {archive(t, reg(exportHead, goodHead), other(dir, "state/data", ""), reg(exportEnd, `{"entries":1}`), reg("state/data/x", "x")), "follows its end"},
		"and after that":     {append(with(t), 'x'), "follows its end"},
		"a file for it":      {archive(t, reg(exportHead, goodHead), reg("state/data", "x"), reg(exportEnd, `{"entries":1}`)), "is missing"},
		"a link for it":      {archive(t, reg(exportHead, goodHead), other(sym, "state/data", "x"), reg(exportEnd, `{"entries":1}`)), "is missing"},
		"absolute":           {with(t, reg("/etc/passwd", "x")), "no place"},
		"upward":             {with(t, reg("state/data/../../x", "x")), "no place"},
		"upward and back":    {with(t, reg("state/data/../data/x", "x")), "no place"},
		"odd":                {with(t, reg("state/data//x", "x")), "no place"},
		"dotted":             {with(t, reg("state/data/./x", "x")), "no place"},
		"beside":             {with(t, reg("state/other/x", "x")), "no place"},
		"above":              {with(t, reg("x", "x")), "no place"},
		"the state itself":   {with(t, other(dir, "state", "")), "no place"},
		"without a parent":   {with(t, reg("state/data/d/x", "x")), "no place"},
		"below a file":       {with(t, reg("state/data/f", ""), reg("state/data/f/x", "x")), "no place"},
		"below a link":       {with(t, other(dir, "state/data/d", ""), other(sym, "state/data/l", "d"), reg("state/data/l/x", "x")), "no place"},
		"twice":              {with(t, reg("state/data/x", "1"), reg("state/data/x", "2")), "no place"},
		"a link, then file":  {with(t, other(sym, "state/data/x", "y"), reg("state/data/x", "2")), "no place"},
		"too long":           {with(t, reg("state/data/"+strings.Repeat("x/", 3000)+"x", "x")), "no place"},
		"link to root":       {with(t, other(sym, "state/data/l", "/etc")), "leads out"},
		"link upward":        {with(t, other(sym, "state/data/l", "..")), "leads out"},
		"link too far":       {with(t, other(dir, "state/data/d", ""), other(sym, "state/data/d/l", "../../x")), "leads out"},
		"link down and up":   {with(t, other(dir, "state/data/d", ""), other(sym, "state/data/d/l", ".."), other(sym, "state/data/m", "d/l/..")), "leads out"},
		"link to nothing":    {with(t, other(sym, "state/data/l", "")), "leads out"},
		"link of windows":    {with(t, other(sym, "state/data/l", `..\..\x`)), "leads out"},
		"hard link outside":  {with(t, other(link, "state/data/l", "/etc/passwd")), "no file before it"},
		"hard link upward":   {with(t, other(link, "state/data/l", "state/data/../../x")), "no file before it"},
		"hard link to link":  {with(t, other(sym, "state/data/s", "x"), other(link, "state/data/l", "state/data/s")), "no file before it"},
		"hard link to dir":   {with(t, other(link, "state/data/l", "state/data")), "no file before it"},
		"a device":           {with(t, other(tar.TypeChar, "state/data/null", "")), "neither a file"},
		"a disk":             {with(t, other(tar.TypeBlock, "state/data/sda", "")), "neither a file"},
		"a pipe":             {with(t, other(tar.TypeFifo, "state/data/p", "")), "neither a file"},
		"too much":           {with(t, reg("state/data/a", strings.Repeat("x", 600)), reg("state/data/b", strings.Repeat("x", 600))), "more than 1000 bytes, which is the limit"},
		"too many":           {with(t, manyFiles()...), "more than 20 files, which is the limit"},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			d := New(Options{ImportBytes: 1000, ImportFiles: 20})
			_, err := d.Import(t.Context(), "db", filepath.Join(parent, "snap"), bytes.NewReader(test.stream))
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), `server "db"`) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			wantEmpty(t, parent)
		})
	}
}

func manyFiles() []entry {
	var out []entry
	for n := range 21 {
		out = append(out, reg("state/data/f"+strconv.Itoa(n+1), ""))
	}
	return out
}

// tell lists a tree: names, modes, times, targets, contents.
func tell(t testing.TB, root string) string {
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
	d, dir := New(Options{}), t.TempDir()
	t.Cleanup(func() { clone.Remove(dir) })
	spec := driver.Spec{Server: "db", State: filepath.Join(dir, "state"), Dirs: []driver.StateDir{{Name: "data"}, {Name: "gone"}, {Name: "void"}}}
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(spec.State, "data")
	write(t, filepath.Join(data, "a/b/c"), "c")
	write(t, filepath.Join(data, "a/run"), "#!/bin/sh\n")
	write(t, filepath.Join(data, "odd \u00fc\n name"), "odd")
	write(t, filepath.Join(data, strings.Repeat("long", 50)), "long")
	write(t, filepath.Join(data, "zeros"), strings.Repeat("\x00", 200_000)+"end")
	if err := errors.Join(
		os.Symlink("b/c", filepath.Join(data, "a/l")), os.Symlink("../a", filepath.Join(data, "a/up")), os.Symlink("nowhere", filepath.Join(data, "dangling")),
		os.Link(filepath.Join(data, "a/b/c"), filepath.Join(data, "hard")),
		os.Chmod(filepath.Join(data, "a/run"), 0o755), os.Chmod(filepath.Join(data, "a/b/c"), 0o400), os.Chmod(filepath.Join(data, "a/b"), 0o550),
		os.Remove(filepath.Join(spec.State, "gone")),
		os.Chtimes(filepath.Join(data, "a"), time.Time{}, time.Unix(1_000_000_000, 123_456_789)),
	); err != nil {
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
	if got.Server != "other" || got.Size == 0 || string(got.Data) != string(snap.Data) {
		t.Errorf("imported as %+v", got)
	}
	if is, was := tell(t, filepath.Join(got.Dir, "data")), tell(t, filepath.Join(snap.Dir, "data")); is != was {
		t.Errorf("got\n%.3000s\nwant\n%.3000s", is, was)
	}
	a, errA := os.Stat(filepath.Join(got.Dir, "data/hard"))
	b, errB := os.Stat(filepath.Join(got.Dir, "data/a/b/c"))
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		t.Errorf("the two names are not one file any more: %v, %v", errA, errB)
	}
	again := spec
	again.State = filepath.Join(dir, "again")
	if err := d.Seed(t.Context(), again, driver.Source{From: &got, Take: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(again.State, "gone")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was removed is back: %v", err)
	}
	if err := errors.Join(d.Discard(t.Context(), got), d.Discard(t.Context(), snap), d.Erase(t.Context(), again)); err != nil {
		t.Error(err)
	}
}

// What nobody would want to run as somebody else comes without that.
func TestImportDropsSpecialModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "snap")
	e := reg("state/data/su", "x")
	e.Mode, e.Uid, e.Gid, e.Uname = 0o6755, 12345, 12345, "mallory"
	if _, err := New(Options{}).Import(t.Context(), "db", dir, bytes.NewReader(with(t, e))); err != nil {
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
	d := New(Options{ImportBytes: 1 << 20, ImportFiles: 100})
	f.Fuzz(func(t *testing.T, kind1 byte, name1, target1 string, kind2 byte, name2, target2 string) {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, e := range []entry{
			reg(exportHead, goodHead), other(tar.TypeDir, "state/data", ""), other(tar.TypeDir, "state/data/d", ""),
			other(kind1, name1, target1), other(kind2, name2, target2), reg(exportEnd, `{"entries":4}`),
		} {
			e.Size = int64(len(e.content))
			if w.WriteHeader(&e.Header) != nil {
				return // nobody can write that
			}
			io.WriteString(w, e.content)
		}
		w.Close()
		parent := t.TempDir()
		dir := filepath.Join(parent, "snap")
		s, err := d.Import(t.Context(), "db", dir, &b)
		if err != nil {
			wantEmpty(t, parent)
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
		if err := d.Export(t.Context(), s, io.Discard); err != nil {
			t.Errorf("what was imported can't be exported: %v", err)
		}
		if err := d.Discard(t.Context(), s); err != nil {
			t.Error(err)
		}
	})
}
