package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

type object = map[string]any

// imageConfig says how the image is run and what it is.
func imageConfig(p program, version string, l layer) object {
	labels := object{
		"org.opencontainers.image.title":       "Tine",
		"org.opencontainers.image.description": "The MCP gateway whose sessions fork",
		"org.opencontainers.image.licenses":    "Apache-2.0",
		"org.opencontainers.image.source":      "https://github.com/tine-mcp/tine",
		"org.opencontainers.image.version":     version,
	}
	if p.revision != "" {
		labels["org.opencontainers.image.revision"] = p.revision
	}
	return object{
		"architecture": p.arch,
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
			"Labels":       labels,
			// OCI has no such thing; Docker takes it from here, others leave it.
			"Healthcheck": object{
				"Test":        []string{"CMD", "/usr/bin/tine", "status"},
				"Interval":    30 * time.Second,
				"Timeout":     10 * time.Second,
				"StartPeriod": 10 * time.Second,
				"Retries":     3,
			},
		},
		"rootfs": object{"type": "layers", "diff_ids": []string{l.diffID}},
	}
}

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// file of the archive, named by where it is in it.
type file struct {
	name string
	data []byte
}

// blob is content that is named by its digest.
func blob(mediaType string, data []byte) (descriptor, file) {
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	return descriptor{MediaType: mediaType, Digest: "sha256:" + digest, Size: len(data)}, file{"blobs/sha256/" + digest, data}
}

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // only maps, slices, strings and numbers are given
	}
	return data
}

// assemble puts blobs, an OCI index and a docker manifest into one archive.
func assemble(l layer, conf object, tags []string) ([]byte, error) {
	const prefix = "application/vnd.oci.image."
	config, configFile := blob(prefix+"config.v1+json", encode(conf))
	content, contentFile := blob(prefix+"layer.v1.tar+gzip", l.packed)
	manifest, manifestFile := blob(prefix+"manifest.v1+json", encode(object{
		"schemaVersion": 2,
		"mediaType":     prefix + "manifest.v1+json",
		"config":        config,
		"layers":        []descriptor{content},
	}))
	var named []descriptor
	for _, tag := range tags {
		d := manifest
		d.Annotations = map[string]string{"org.opencontainers.image.ref.name": tag}
		named = append(named, d)
	}
	index := encode(object{"schemaVersion": 2, "mediaType": prefix + "index.v1+json", "manifests": named})
	docker := encode([]object{{"Config": configFile.name, "RepoTags": tags, "Layers": []string{contentFile.name}}})

	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	var errs []error
	for _, f := range []file{
		{"oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)}, {"index.json", index}, {"manifest.json", docker},
		configFile, contentFile, manifestFile,
	} {
		err := w.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data)), Typeflag: tar.TypeReg})
		if err == nil {
			_, err = w.Write(f.data)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(append(errs, w.Close())...); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}
