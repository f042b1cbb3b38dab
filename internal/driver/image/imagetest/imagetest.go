// Package imagetest writes archives of images for tests.
package imagetest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// File is an entry of a tar; a link leads to its text.
type File struct {
	Name string
	Kind byte
	Text string
	Mode int64
}

// Reg is a plain file.
func Reg(name, text string) File { return File{name, tar.TypeReg, text, 0o644} }

// With is the file with another mode.
func (f File) With(mode int64) File { f.Mode = mode; return f }

// Written is when every file was.
var Written = time.Unix(1_700_000_000, 0)

// Tar is an archive of files.
func Tar(t testing.TB, files ...File) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Typeflag: f.Kind, Mode: f.Mode, ModTime: Written}
		switch f.Kind {
		case tar.TypeReg:
			h.Size = int64(len(f.Text))
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = f.Text
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if f.Kind == tar.TypeReg {
			if _, err := w.Write([]byte(f.Text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Zip compresses.
func Zip(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Hex is the SHA-256 of something.
func Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Object is one of JSON.
type Object = map[string]any

// JSON is something as that.
func JSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Config is that of an image for this machine, with layers as they are uncompressed
// and what is to be run.
func Config(t testing.TB, run Object, layers ...[]byte) string {
	var ids []string
	for _, l := range layers {
		ids = append(ids, "sha256:"+Hex(l))
	}
	return JSON(t, Object{
		"architecture": runtime.GOARCH, "os": "linux", "rootfs": Object{"type": "layers", "diff_ids": ids}, "config": run,
	})
}

// Saved is what docker save wrote for long: layers as they are, by their names in
// manifest.json.
func Saved(t testing.TB, run Object, layers ...[]byte) []byte {
	config := Config(t, run, layers...)
	var files []File
	var names []string
	for _, l := range layers {
		name := Hex(l) + "/layer.tar"
		names = append(names, name)
		files = append(files, Reg(name, string(l)))
	}
	name := Hex([]byte(config)) + ".json"
	files = append(files, Reg(name, config), Reg("manifest.json", JSON(t, []Object{{"Config": name, "RepoTags": []string{"a:b"}, "Layers": names}})))
	return Tar(t, files...)
}

// OCI is an image layout, with compressed layers; change may spoil its files.
func OCI(t testing.TB, run Object, change func(files map[string]string, index *[]Object), layers ...[]byte) []byte {
	files := map[string]string{"oci-layout": `{"imageLayoutVersion": "1.0.0"}`}
	blob := func(b []byte) Object {
		files["blobs/sha256/"+Hex(b)] = string(b)
		return Object{"digest": "sha256:" + Hex(b), "size": len(b)}
	}
	var list []Object
	for _, l := range layers {
		list = append(list, blob(Zip(t, l)))
	}
	manifest := blob([]byte(JSON(t, Object{"schemaVersion": 2, "config": blob([]byte(Config(t, run, layers...))), "layers": list})))
	manifest["platform"] = Object{"os": "linux", "architecture": runtime.GOARCH}
	index := []Object{manifest}
	if change != nil {
		change(files, &index)
	}
	files["index.json"] = JSON(t, Object{"schemaVersion": 2, "manifests": index})
	var entries []File
	for name, text := range files {
		entries = append(entries, Reg(name, text))
	}
	slices.SortFunc(entries, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return Tar(t, entries...)
}
