package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// file is an entry of a tar; a link leads to its text.
type file struct {
	name string
	kind byte
	text string
	mode int64
}

func reg(name, text string) file    { return file{name, tar.TypeReg, text, 0o644} }
func dir(name string) file          { return file{name, tar.TypeDir, "", 0o755} }
func sym(name, to string) file      { return file{name, tar.TypeSymlink, to, 0o777} }
func hard(name, to string) file     { return file{name, tar.TypeLink, to, 0o644} }
func (f file) with(mode int64) file { f.mode = mode; return f }

var written = time.Unix(1_700_000_000, 0)

func tarOf(t testing.TB, files ...file) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := &tar.Header{Name: f.name, Typeflag: f.kind, Mode: f.mode, ModTime: written}
		switch f.kind {
		case tar.TypeReg:
			h.Size = int64(len(f.text))
		case tar.TypeSymlink, tar.TypeLink:
			h.Linkname = f.text
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if f.kind == tar.TypeReg {
			if _, err := w.Write([]byte(f.text)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zip(t testing.TB, b []byte) []byte {
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

func hexOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

type object = map[string]any

// configOf is a config for layers as they are uncompressed.
func configOf(t testing.TB, layers ...[]byte) string {
	var ids []string
	for _, l := range layers {
		ids = append(ids, "sha256:"+hexOf(l))
	}
	return toJSON(t, object{
		"architecture": runtime.GOARCH, "os": "linux", "rootfs": object{"type": "layers", "diff_ids": ids},
		"config": object{"Entrypoint": []string{"/srv"}, "Cmd": []string{"-x"}, "Env": []string{"PATH=/bin", "A=b"}, "WorkingDir": "/app", "User": "1000"},
	})
}

// saved is what docker save writes.
func saved(t testing.TB, layers ...[]byte) []byte {
	config := configOf(t, layers...)
	var files []file
	var names []string
	for _, l := range layers {
		name := hexOf(l) + "/layer.tar"
		names = append(names, name)
		files = append(files, reg(name, string(l)))
	}
	name := hexOf([]byte(config)) + ".json"
	files = append(files, reg(name, config), reg("manifest.json", toJSON(t, []object{{"Config": name, "RepoTags": []string{"a:b"}, "Layers": names}})))
	return tarOf(t, files...)
}

// oci is an image layout, with compressed layers; change may spoil its files.
func oci(t testing.TB, change func(files map[string]string, index *[]object), layers ...[]byte) []byte {
	files := map[string]string{"oci-layout": `{"imageLayoutVersion": "1.0.0"}`}
	blob := func(b []byte) object {
		files["blobs/sha256/"+hexOf(b)] = string(b)
		return object{"digest": "sha256:" + hexOf(b), "size": len(b)}
	}
	var list []object
	for _, l := range layers {
		list = append(list, blob(zip(t, l)))
	}
	manifest := blob([]byte(toJSON(t, object{"schemaVersion": 2, "config": blob([]byte(configOf(t, layers...))), "layers": list})))
	manifest["platform"] = object{"os": "linux", "architecture": runtime.GOARCH}
	index := []object{manifest}
	if change != nil {
		change(files, &index)
	}
	files["index.json"] = toJSON(t, object{"schemaVersion": 2, "manifests": index})
	var entries []file
	for name, text := range files {
		entries = append(entries, reg(name, text))
	}
	slices.SortFunc(entries, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return tarOf(t, entries...)
}

// place writes an archive that was written a while ago.
func place(t testing.TB, b []byte) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "image.tar")
	replaceWith(t, name, b, time.Hour)
	return name
}

func replaceWith(t testing.TB, name string, b []byte, ago time.Duration) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o644); err != nil {
		t.Fatal(err)
	}
	at := time.Now().Add(-ago)
	if err := os.Chtimes(name, at, at); err != nil {
		t.Fatal(err)
	}
}

func newStore(t testing.TB) *Store {
	return &Store{Dir: filepath.Join(t.TempDir(), "images"), sync: func(string) error { return nil }}
}

// describe lists a tree: directories with a slash, links with where they lead,
// files with what is in them.
func describe(t testing.TB, root string) string {
	t.Helper()
	var lines []string
	err := filepath.WalkDir(root, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == root {
			return err
		}
		name, _ := filepath.Rel(root, at)
		switch {
		case d.IsDir():
			name += "/"
		case d.Type()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(at)
			name += "->" + to
		default:
			b, err := os.ReadFile(at)
			if err != nil {
				return err
			}
			name += "=" + string(b)
		}
		lines = append(lines, name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, " ")
}

// alone checks that nothing that is half is left in a store.
func alone(t testing.TB, s *Store) {
	t.Helper()
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".part") {
			t.Errorf("%s is left over", e.Name())
		}
	}
}
