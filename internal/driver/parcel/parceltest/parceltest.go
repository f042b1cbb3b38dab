// Package parceltest writes any parcel, also hostile ones, for tests of what reads them.
package parceltest

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"testing"
)

// Entry is one of an archive.
type Entry struct {
	tar.Header
	Content string
}

// File is an ordinary file.
func File(name, content string) Entry {
	return Entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644}, content}
}

// Other is anything else: a directory, a link to target, a device.
func Other(kind byte, name, target string) Entry {
	return Entry{tar.Header{Typeflag: kind, Name: name, Linkname: target, Mode: 0o755}, ""}
}

// Write writes entries, with the sizes that they have, and no end.
func Write(w *tar.Writer, entries ...Entry) error {
	for _, e := range entries {
		e.Size = int64(len(e.Content))
		if err := w.WriteHeader(&e.Header); err != nil {
			return err
		}
		if _, err := io.WriteString(w, e.Content); err != nil {
			return err
		}
	}
	return nil
}

// Archive has these entries and nothing else.
func Archive(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := Write(w, entries...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Whole is an archive of a form's name with this head, whose end is right.
func Whole(t testing.TB, name, head string, entries ...Entry) []byte {
	t.Helper()
	all := append([]Entry{File(name+".json", head)}, entries...)
	return Archive(t, append(all, File(name+".end", fmt.Sprintf(`{"entries":%d}`, len(entries))))...)
}
