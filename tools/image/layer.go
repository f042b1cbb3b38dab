package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	_ "embed" // for startConfig
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	user  = 65532 // the customary nobody of images without a user database
	state = "/var/lib/tine"
)

//go:embed tine.yaml
var startConfig []byte

// layer is the one of the image.
type layer struct {
	packed []byte
	diffID string // digest of its plain form
}

// packLayer puts all files into a layer. Times are left at zero, so that the same
// input gives the same image.
func packLayer(tine, sandbox, roots []byte) (layer, error) {
	var packed bytes.Buffer
	plain := sha256.New()
	zip := gzip.NewWriter(&packed)
	w := tar.NewWriter(io.MultiWriter(zip, plain))
	for _, f := range []struct {
		name string
		mode int64
		uid  int
		data []byte // nil for a folder
	}{
		{"etc/", 0o755, 0, nil},
		{"etc/passwd", 0o644, 0, fmt.Appendf(nil, "tine:x:%d:%d::%s:/nonexistent\n", user, user, state)},
		{"etc/group", 0o644, 0, fmt.Appendf(nil, "tine:x:%d:\n", user)},
		{"etc/ssl/", 0o755, 0, nil},
		{"etc/ssl/certs/", 0o755, 0, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, 0, roots},
		{"etc/tine/", 0o755, 0, nil},
		{"etc/tine/tine.yaml", 0o644, 0, startConfig},
		{"tmp/", 0o1777, 0, nil},
		{"usr/", 0o755, 0, nil},
		{"usr/bin/", 0o755, 0, nil},
		{"usr/bin/tine", 0o755, 0, tine},
		{"usr/bin/tine-sandbox", 0o755, 0, sandbox},
		{"var/", 0o755, 0, nil},
		{"var/lib/", 0o755, 0, nil},
		{"var/lib/tine/", 0o700, user, nil},
	} {
		h := &tar.Header{Name: f.name, Mode: f.mode, Uid: f.uid, Gid: f.uid, Size: int64(len(f.data)), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if f.data == nil {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return layer{}, err
		}
		if _, err := w.Write(f.data); err != nil {
			return layer{}, err
		}
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		return layer{}, err
	}
	return layer{packed.Bytes(), "sha256:" + hex.EncodeToString(plain.Sum(nil))}, nil
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
