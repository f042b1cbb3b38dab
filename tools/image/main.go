// Command image writes a container image as a tar archive that docker load,
// podman load and every tool that reads OCI layouts understand. It needs no
// container engine and no registry: the image is one layer with the static
// binary, the certificate authorities of the building machine and the folders
// the gateway writes to. It has no shell and does not run as root.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
)

const (
	user  = 65532 // the customary nobody of images without a user database
	state = "/var/lib/tine"
)

func main() {
	binary := flag.String("binary", "", "static tine binary for linux")
	tag := flag.String("tag", "tine:dev", "name and tag of the image")
	arch := flag.String("arch", runtime.GOARCH, "architecture of the binary")
	out := flag.String("o", "tine-image.tar", "file to write")
	flag.Parse()
	if err := write(*binary, *tag, *arch, *out); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %s for linux/%s; load it with: docker load -i %s\n", *out, *tag, *arch, *out)
}

func write(binary, tag, arch, out string) error {
	layer, diffID, err := packLayer(binary)
	if err != nil {
		return fmt.Errorf("pack the layer: %w", err)
	}
	archive, err := assemble(layer, diffID, tag, arch)
	if err != nil {
		return fmt.Errorf("assemble the archive: %w", err)
	}
	tmp := out + ".tmp"
	if err := os.WriteFile(tmp, archive, 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, out)
}

// packLayer returns the compressed layer and the digest of its plain form.
// Times are left at zero, so that the same input gives the same image.
func packLayer(binary string) (layer []byte, diffID string, err error) {
	data, err := os.ReadFile(binary)
	if err != nil {
		return nil, "", err
	}
	roots, err := authorities()
	if err != nil {
		return nil, "", err
	}
	var packed bytes.Buffer
	plain := sha256.New()
	zip := gzip.NewWriter(&packed)
	w := tar.NewWriter(io.MultiWriter(zip, plain))
	for _, f := range []struct {
		name string
		mode int64
		uid  int
		data []byte
	}{
		{"etc/", 0o755, 0, nil},
		{"etc/passwd", 0o644, 0, fmt.Appendf(nil, "tine:x:%d:%d::%s:/nonexistent\n", user, user, state)},
		{"etc/group", 0o644, 0, fmt.Appendf(nil, "tine:x:%d:\n", user)},
		{"etc/ssl/", 0o755, 0, nil},
		{"etc/ssl/certs/", 0o755, 0, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, 0, roots},
		{"etc/tine/", 0o755, 0, nil},
		{"tmp/", 0o1777, 0, nil},
		{"usr/", 0o755, 0, nil},
		{"usr/bin/", 0o755, 0, nil},
		{"usr/bin/tine", 0o755, 0, data},
		{"var/", 0o755, 0, nil},
		{"var/lib/", 0o755, 0, nil},
		{"var/lib/tine/", 0o700, user, nil},
	} {
		h := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.uid, Gid: f.uid, Size: int64(len(f.data)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if f.data == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, "", err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, "", err
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		return nil, "", err
	}
	return packed.Bytes(), "sha256:" + hex.EncodeToString(plain.Sum(nil)), nil
}

// authorities reads the certificate bundle that servers behind https need.
func authorities() ([]byte, error) {
	for _, name := range []string{
		"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem",
	} {
		data, err := os.ReadFile(name)
		if err == nil {
			return data, nil
		}
	}
	return nil, errors.New("no certificate bundle found; install ca-certificates")
}

// assemble puts blobs, an OCI index and a docker manifest into one archive.
func assemble(layer []byte, diffID, tag, arch string) ([]byte, error) {
	blobs := map[string][]byte{}
	type descriptor struct {
		MediaType   string            `json:"mediaType"`
		Digest      string            `json:"digest"`
		Size        int               `json:"size"`
		Annotations map[string]string `json:"annotations,omitempty"`
	}
	add := func(mediaType string, data []byte) descriptor {
		sum := sha256.Sum256(data)
		digest := hex.EncodeToString(sum[:])
		blobs["blobs/sha256/"+digest] = data
		return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(data)}
	}
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			panic(err) // only maps, slices, strings and numbers are given
		}
		return data
	}
	type object = map[string]any
	config := add("application/vnd.oci.image.config.v1+json", encode(object{
		"architecture": arch,
		"os":           "linux",
		"config": object{
			"User": fmt.Sprintf("%d:%d", user, user),
			// As variables, so that tine tools inside the container finds them too.
			"Env":          []string{"PATH=/usr/bin", "HOME=" + state, "TINE_STATE=" + state, "TINE_CONFIG=/etc/tine/tine.yaml"},
			"Entrypoint":   []string{"/usr/bin/tine"},
			"Cmd":          []string{"serve"},
			"WorkingDir":   state,
			"Volumes":      object{state: object{}},
			"ExposedPorts": object{"8463/tcp": object{}},
			"StopSignal":   "SIGTERM",
		},
		"rootfs": object{"type": "layers", "diff_ids": []string{diffID}},
	}))
	content := add("application/vnd.oci.image.layer.v1.tar+gzip", layer)
	manifest := add("application/vnd.oci.image.manifest.v1+json", encode(object{
		"schemaVersion": 2,
		"mediaType":     "application/vnd.oci.image.manifest.v1+json",
		"config":        config,
		"layers":        []descriptor{content},
	}))
	manifest.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag}
	index := encode(object{"schemaVersion": 2, "manifests": []descriptor{manifest}})
	docker := encode([]object{{
		"Config":   "blobs/sha256/" + config.Digest[len("sha256:"):],
		"RepoTags": []string{tag},
		"Layers":   []string{"blobs/sha256/" + content.Digest[len("sha256:"):]},
	}})

	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	put := func(name string, data []byte) error {
		err := w.WriteHeader(&tar.Header{Name: filepath.ToSlash(name), Mode: 0o644, Size: int64(len(data)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	var errs []error
	errs = append(errs, put("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)), put("index.json", index), put("manifest.json", docker))
	for _, d := range []descriptor{config, content, manifest} {
		name := "blobs/sha256/" + d.Digest[len("sha256:"):]
		errs = append(errs, put(name, blobs[name]))
	}
	if err := errors.Join(append(errs, w.Close())...); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
