package workspace

import (
	"archive/tar"
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// archiveOf is a tar file in which every file has the same content.
func archiveOf(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content = "content"
			h.Size = int64(len(content))
		}
		h.Mode = 0o644
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, content)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestImportUntrusted(t *testing.T) {
	file := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeReg, Name: name} }
	dir := func(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name + "/"} }
	link := func(name, target string) tar.Header {
		return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
	}
	good := archiveOf(t, dir("."), dir("d"), file("d/a"), link("l", "../../out"))
	huge := archiveOf(t, file("a"))
	copy(huge[124:], "77777777777\x00") // eight gigabytes that are not there
	var sum int64
	copy(huge[148:], "        ")
	for _, b := range huge[:512] {
		sum += int64(b)
	}
	copy(huge[148:], []byte(octal(sum)))
	for _, c := range []struct {
		name    string
		archive []byte
		want    string
	}{
		{"good", good, ""},
		{"nothing", archiveOf(t), ""},
		{"up", archiveOf(t, file("../a")), "leads out"},
		{"up and down", archiveOf(t, dir("d"), file("d/../../a")), "leads out"},
		{"up inside", archiveOf(t, dir("d"), file("d/../a")), "leads out"},
		{"absolute", archiveOf(t, file("/etc/passwd")), "leads out"},
		{"through a link", archiveOf(t, link("l", "/tmp"), file("l/a")), "not a directory"},
		{"through a link inside", archiveOf(t, dir("d"), link("l", "d"), file("l/a")), "not a directory"},
		{"over a link", archiveOf(t, link("l", "/tmp/x"), file("l")), "exist"},
		{"twice", archiveOf(t, file("a"), file("a")), "exist"},
		{"file and directory", archiveOf(t, file("a"), dir("a")), "exist"},
		{"root twice", archiveOf(t, dir("."), dir(".")), "exist"},
		{"no directory", archiveOf(t, file("d/a")), "not exist"},
		{"hard link", archiveOf(t, file("a"), tar.Header{Typeflag: tar.TypeLink, Name: "b", Linkname: "a"}), "neither"},
		{"device", archiveOf(t, tar.Header{Typeflag: tar.TypeChar, Name: "b"}), "neither"},
		{"pipe", archiveOf(t, tar.Header{Typeflag: tar.TypeFifo, Name: "b"}), "neither"},
		{"root as a file", archiveOf(t, file(".")), "invalid"},
		{"not UTF-8", archiveOf(t, file("a\xff")), "invalid"},
		{"long", archiveOf(t, file(strings.Repeat("x", 256))), "too long"},
		{"many", archiveOf(t, file("1"), file("2"), file("3"), file("4"), file("5"), file("6")), "full"},
		{"huge", huge, "full"},
		{"cut off", good[:len(good)-1024], "cut off"},
		{"cut in a file", good[:512*3+3], "EOF"},
		{"no archive", []byte(strings.Repeat("no archive ", 100)), "read the archive"},
		{"empty", nil, "cut off"},
	} {
		t.Run(c.name, func(t *testing.T) {
			at := t.TempDir()
			s := newStore(t, at, Options{MaxFiles: 5, MaxBytes: 1 << 20})
			f, err := s.Import(t.Context(), filepath.Join(at, "into"), bytes.NewReader(c.archive))
			switch {
			case c.want == "" && err != nil:
				t.Fatal(err)
			case c.want != "" && !contains(err, c.want):
				t.Fatalf("%v, want an error with %q", err, c.want)
			case err == nil:
				err = s.Discard(t.Context(), f)
			}
			if files, _ := onDisk(t, at); files != 0 {
				t.Errorf("%d layers are left, %v", files, err)
			}
		})
	}
}

// octal is a checksum as tar writes it.
func octal(n int64) string {
	b := []byte("000000\x00 ")
	for i := 5; n > 0; i-- {
		b[i] = byte('0' + n%8)
		n /= 8
	}
	return string(b)
}

func FuzzImport(f *testing.F) {
	f.Add(archiveOf(f, tar.Header{Typeflag: tar.TypeDir, Name: "d/"}, tar.Header{Typeflag: tar.TypeReg, Name: "d/a"}, tar.Header{Typeflag: tar.TypeSymlink, Name: "l", Linkname: "d"}))
	dir := f.TempDir()
	s := newStore(f, dir, Options{MaxFiles: 20, MaxBytes: 1 << 16})
	f.Fuzz(func(t *testing.T, b []byte) {
		into := filepath.Join(dir, "into")
		if frozen, err := s.Import(t.Context(), into, bytes.NewReader(b)); err == nil {
			if err := s.Discard(t.Context(), frozen); err != nil {
				t.Error(err)
			}
		}
		if files, _ := onDisk(t, dir); files != 0 {
			t.Errorf("%d layers are left", files)
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add(change{op: opWrite, path: "a/b", mode: 0o644, modified: 5, created: -1, upload: 7}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := decode(b)
		if err != nil {
			return
		}
		if again, err := decode(c.encode()); err != nil || again != c {
			t.Errorf("%+v became %+v, %v", c, again, err)
		}
	})
}
