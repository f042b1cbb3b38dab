//go:build amd64 || arm64

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// entry is one of a tar.
type entry struct {
	name string
	mode int64
	data []byte
}

func tarOf(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		if err := w.WriteHeader(&tar.Header{Name: e.name, Typeflag: tar.TypeReg, Mode: e.mode, Size: int64(len(e.data))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(e.data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func encoded(t testing.TB, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// imageConfig is that of an image with these layers. Its PATH is searched for the
// program.
func imageConfig(t testing.TB, layers [][]byte) []byte {
	var ids []string
	for _, l := range layers {
		ids = append(ids, "sha256:"+sumOf(l))
	}
	return encoded(t, object{
		"architecture": runtime.GOARCH, "os": "linux", "rootfs": object{"type": "layers", "diff_ids": ids},
		"config": object{"Env": []string{"PATH=/opt/first:/opt/second"}},
	})
}

// savedImage is what docker save wrote for long: layers as they are, by their names
// in manifest.json.
func savedImage(t testing.TB, layers [][]byte) []byte {
	config := imageConfig(t, layers)
	entries := []entry{{sumOf(config) + ".json", 0o644, config}}
	var names []string
	for _, l := range layers {
		name := sumOf(l) + "/layer.tar"
		names = append(names, name)
		entries = append(entries, entry{name, 0o644, l})
	}
	manifest := encoded(t, []object{{"Config": sumOf(config) + ".json", "RepoTags": []string{"sand:dev"}, "Layers": names}})
	return tarOf(t, append(entries, entry{"manifest.json", 0o644, manifest})...)
}

// layoutImage is an OCI layout: compressed layers, all by their digests.
func layoutImage(t testing.TB, layers [][]byte) []byte {
	entries := []entry{{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)}}
	blob := func(b []byte) object {
		entries = append(entries, entry{"blobs/sha256/" + sumOf(b), 0o644, b})
		return object{"digest": "sha256:" + sumOf(b), "size": len(b)}
	}
	var list []object
	for _, l := range layers {
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(l); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		list = append(list, blob(packed.Bytes()))
	}
	manifest := blob(encoded(t, object{"schemaVersion": 2, "config": blob(imageConfig(t, layers)), "layers": list}))
	index := encoded(t, object{"schemaVersion": 2, "manifests": []object{manifest}})
	return tarOf(t, append(entries, entry{"index.json", 0o644, index})...)
}

// TestSandboxImage runs a server whose root is the archive of an image, of either
// kind: it is found there, called, forked live, goes on after a restart of the
// gateway, and nothing is left of it.
func TestSandboxImage(t *testing.T) {
	t.Parallel()
	program, err := sandServer()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	// The second layer takes away what would be found first.
	layers := [][]byte{
		tarOf(t, entry{"opt/first/sandserver", 0o755, []byte("no program")}, entry{"opt/second/sandserver", 0o755, data}),
		tarOf(t, entry{"opt/first/.wh.sandserver", 0o644, nil}),
	}
	for name, archive := range map[string]func(testing.TB, [][]byte) []byte{"docker": savedImage, "oci": layoutImage} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "sand.tar")
			if err := os.WriteFile(path, archive(t, layers), 0o644); err != nil {
				t.Fatal(err)
			}
			w := startCell(t, "servers:\n"+yamlServer(sand, "sandserver", nil, fmt.Sprintf("sandbox: {root: %q}", path)))
			c := w.client(t)
			parent := openSession(t, c, api.NewSession{}).ID
			sandShelf.mustPut(t, c, parent, "k", "v")
			was := mustLive(t, c, parent)
			wants := map[string]map[string]string{parent: {"k": "v", "late": parent}}
			for _, child := range fork(t, c, parent, 3) {
				sandShelf.mustHold(t, c, child.ID, map[string]string{"k": "v"})
				sandShelf.mustPut(t, c, child.ID, "own", child.ID)
				wants[child.ID] = map[string]string{"k": "v", "own": child.ID}
			}
			sandShelf.mustPut(t, c, parent, "late", parent)
			hold := func() {
				t.Helper()
				for id, want := range wants {
					sandShelf.mustHold(t, c, id, want)
					goesOn(t, c, id, was)
				}
			}
			hold()
			if code, err := w.stop(); err != nil || code != 0 {
				t.Fatalf("the gateway ended with %d, %v", code, err)
			}
			if err := w.start(); err != nil {
				t.Fatal(err)
			}
			c = w.client(t)
			hold()
			w.over(t)
			oneImage(t, w)
		})
	}
}

// oneImage holds that the image was unpacked once, whole, and stays for the next
// start.
func oneImage(t testing.TB, w *cell) {
	t.Helper()
	dir := filepath.Join(w.state(), "sandbox", "images")
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() || strings.HasSuffix(e.Name(), ".part") {
			names = append(names, e.Name())
		}
	}
	if len(names) != 1 || strings.Contains(names[0], ".") { // as what is half has
		t.Fatalf("there are %q among the images, want one", names)
	}
	root := filepath.Join(dir, names[0], "root", "opt")
	if _, err := os.Lstat(filepath.Join(root, "first", "sandserver")); err == nil {
		t.Error("what the second layer takes away is there")
	}
	if info, err := os.Lstat(filepath.Join(root, "second", "sandserver")); err != nil || info.Size() == 0 {
		t.Errorf("the program is not there: %v", err)
	}
}
