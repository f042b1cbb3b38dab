package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// build compiles a small program for linux.
func build(t *testing.T, arch string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	src := filepath.Join(dir, "main.go")
	if err := os.WriteFile(src, []byte("package main\n\nfunc main() {}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "tine")
	cmd := exec.Command("go", slices.Concat([]string{"build", "-o", bin}, flags, []string{src})...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return bin
}

// unpack returns the files of a tar archive by name.
func unpack(t *testing.T, r io.Reader) (map[string][]byte, map[string]*tar.Header) {
	t.Helper()
	files, headers := map[string][]byte{}, map[string]*tar.Header{}
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if err == io.EOF {
			return files, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name], headers[h.Name] = data, h
	}
}

func parse(t *testing.T, data []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%v: %s", err, data)
	}
}

func TestImage(t *testing.T) {
	bin := build(t, "arm64")
	sandbox := filepath.Join(filepath.Dir(bin), "tine-sandbox")
	if err := os.Rename(build(t, "amd64"), sandbox); err != nil {
		t.Fatal(err)
	}
	if _, err := write(bin, "tine:v1", "", filepath.Join(t.TempDir(), "image.tar")); err == nil || !strings.Contains(err.Error(), "amd64") {
		t.Errorf("programs for two processors: %v", err)
	}
	if err := os.Rename(build(t, "arm64"), sandbox); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "image.tar")
	arch, err := write(bin, "tine:v1", "tine:dev", out)
	if err != nil {
		t.Fatal(err)
	}
	if arch != "arm64" {
		t.Errorf("arch %s", arch)
	}
	archive, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := unpack(t, bytes.NewReader(archive))
	for name, data := range files {
		if want, ok := strings.CutPrefix(name, "blobs/sha256/"); ok {
			if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want {
				t.Errorf("%s is not what its name says", name)
			}
		}
	}

	var docker []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	parse(t, files["manifest.json"], &docker)
	if !slices.Equal(docker[0].RepoTags, []string{"tine:v1", "tine:dev"}) {
		t.Errorf("tags %q", docker[0].RepoTags)
	}
	var index struct {
		Manifests []struct {
			Digest      string
			Annotations map[string]string
		}
	}
	parse(t, files["index.json"], &index)
	for i, m := range index.Manifests {
		if files["blobs/sha256/"+strings.TrimPrefix(m.Digest, "sha256:")] == nil || m.Annotations["org.opencontainers.image.ref.name"] != docker[0].RepoTags[i] {
			t.Errorf("manifest %+v", m)
		}
	}
	var conf struct {
		Architecture string
		Config       struct {
			User   string
			Labels map[string]string
		}
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	parse(t, files[docker[0].Config], &conf)
	if conf.Architecture != "arm64" || conf.Config.User != "65532:65532" || conf.Config.Labels["org.opencontainers.image.version"] != "v1" {
		t.Errorf("config %+v", conf)
	}

	zip, err := gzip.NewReader(bytes.NewReader(files[docker[0].Layers[0]]))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(plain); conf.Rootfs.DiffIDs[0] != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Error("the layer is not the one the config names")
	}
	content, headers := unpack(t, bytes.NewReader(plain))
	for name, h := range headers {
		if h.Typeflag == tar.TypeReg && h.Mode&0o111 != 0 && name != "usr/bin/tine" && name != "usr/bin/tine-sandbox" {
			t.Errorf("another program is in the image: %s", name)
		}
		if h.Mode&0o6022 != 0 && name != "tmp/" {
			t.Errorf("%s has mode %o", name, h.Mode)
		}
	}
	if h := headers["var/lib/tine/"]; h == nil || h.Uid != user || h.Mode != 0o700 {
		t.Errorf("the state folder is %+v", h)
	}
	if !bytes.Contains(content["etc/ssl/certs/ca-certificates.crt"], []byte("BEGIN CERTIFICATE")) {
		t.Error("no certificate authorities")
	}

	if _, err := write(bin, "tine:v1", "tine:dev", out); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(out); err != nil || !bytes.Equal(again, archive) {
		t.Errorf("the same input gives another image, %v", err)
	}
}

func TestUnfitBinaries(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, path, want string }{
		{"none named", "", "-binary"},
		{"not there", filepath.Join(t.TempDir(), "none"), "none"},
		{"no program", text, "GOOS=linux"},
		{"another processor", build(t, "riscv64"), "RISCV"},
		{"dynamically linked", build(t, "amd64", "-buildmode=pie"), "CGO_ENABLED=0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := readProgram(tt.path); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
}
