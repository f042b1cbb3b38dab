package image

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"regexp"
	"runtime"
	"strings"
)

// Bounds of what an image may be made of.
const (
	maxLayers  = 512
	maxNesting = 4 // indexes in indexes
)

// contents are the layers of an image, in order, and what it says of itself.
type contents struct {
	config Config
	layers []layer // none for a root filesystem, which is the archive itself
}

type layer struct {
	name   string // in the archive
	digest string // of it as it is there; empty where it is not given
	diff   string // of it uncompressed
	size   int64  // -1 where it is not given
}

// contents finds out what an archive holds.
func (a *archive) contents() (contents, error) {
	if _, ok := a.find("manifest.json"); ok {
		if c, ok, err := a.saved(); ok || err != nil {
			return c, err
		}
	}
	_, layout := a.find("oci-layout")
	if _, index := a.find("index.json"); layout && index {
		return a.oci()
	}
	return contents{}, nil
}

// configFile is what an image says of itself, as all formats have it.
type configFile struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		Env []string
	} `json:"config"`
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

var hexName = regexp.MustCompile(`(?:^|/)([0-9a-f]{64})(?:\.json|$)`)

// saved reads what docker save and podman save write. A root filesystem may have
// a file of that name, which is another thing.
func (a *archive) saved() (contents, bool, error) {
	b, err := a.text("manifest.json")
	if err != nil {
		return contents{}, false, err
	}
	var images []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if json.Unmarshal(b, &images) != nil || len(images) == 0 || images[0].Config == "" {
		return contents{}, false, nil
	}
	if len(images) > 1 {
		var tags []string
		for _, i := range images {
			tags = append(tags, i.RepoTags...)
		}
		return contents{}, false, fmt.Errorf("%w: it has %d images (%.200s); save only the one that is wanted", ErrFormat, len(images), strings.Join(tags, ", "))
	}
	image := images[0]
	text, err := a.text(image.Config)
	if err != nil {
		return contents{}, false, err
	}
	if m := hexName.FindStringSubmatch(image.Config); m != nil {
		if err := checkSum("its config", "sha256:"+m[1], text); err != nil {
			return contents{}, false, err
		}
	}
	layers := make([]layer, len(image.Layers))
	for i, name := range image.Layers {
		layers[i] = layer{name: name, size: -1}
		if m := hexName.FindStringSubmatch(name); m != nil && strings.HasPrefix(name, "blobs/sha256/") {
			layers[i].digest = "sha256:" + m[1]
		}
	}
	c, err := combine(text, layers)
	return c, true, err
}

// combine checks a config and its layers against each other and this machine.
func combine(text []byte, layers []layer) (contents, error) {
	var file configFile
	if err := json.Unmarshal(text, &file); err != nil {
		return contents{}, fmt.Errorf("%w: its config can't be read: %w", ErrFormat, err)
	}
	switch {
	case len(layers) == 0:
		return contents{}, fmt.Errorf("%w: it has no layers; save one that has files", ErrFormat)
	case len(layers) > maxLayers:
		return contents{}, fmt.Errorf("%w: it has %d layers, more than %d; squash it", ErrLimit, len(layers), maxLayers)
	case file.OS != "" && file.OS != "linux":
		return contents{}, fmt.Errorf("%w: it is for %q, and a sandbox is Linux; use one for linux", ErrFormat, file.OS)
	case file.Architecture != "" && file.Architecture != runtime.GOARCH:
		return contents{}, fmt.Errorf("%w: it is for %q, and this machine is %s; save the one for linux/%s", ErrFormat, file.Architecture, runtime.GOARCH, runtime.GOARCH)
	case len(file.RootFS.DiffIDs) != 0 && len(file.RootFS.DiffIDs) != len(layers):
		return contents{}, fmt.Errorf("%w: its config names %d layers, and it has %d; write it anew", ErrFormat, len(file.RootFS.DiffIDs), len(layers))
	}
	for i, id := range file.RootFS.DiffIDs {
		layers[i].diff = id
	}
	return contents{Config{file.Config.Env}, layers}, nil
}

// descriptor is how OCI files name each other.
type descriptor struct {
	Digest   string `json:"digest"`
	Size     int64  `json:"size"`
	Platform *struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	} `json:"platform"`
}

func (d descriptor) fits() bool {
	return d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH
}

// manifest is an OCI manifest or index: which it is shows in what it has.
type manifest struct {
	Manifests []descriptor `json:"manifests"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

// oci reads an image layout.
func (a *archive) oci() (contents, error) {
	text, err := a.text("index.json")
	if err != nil {
		return contents{}, err
	}
	for range maxNesting {
		var m manifest
		if err := json.Unmarshal(text, &m); err != nil {
			return contents{}, fmt.Errorf("%w: its index can't be read: %w", ErrFormat, err)
		}
		if len(m.Manifests) == 0 && m.Config.Digest != "" {
			return a.fromManifest(m)
		}
		var fitting []descriptor
		for _, d := range m.Manifests {
			if d.fits() {
				fitting = append(fitting, d)
			}
		}
		switch {
		case len(fitting) == 0:
			return contents{}, fmt.Errorf("%w: it has nothing for linux/%s; save it for that platform", ErrFormat, runtime.GOARCH)
		case len(fitting) > 1:
			return contents{}, fmt.Errorf("%w: it has %d images; save only the one that is wanted", ErrFormat, len(fitting))
		}
		if text, err = a.blob(fitting[0]); err != nil {
			return contents{}, err
		}
	}
	return contents{}, fmt.Errorf("%w: its indexes are nested too deep", ErrFormat)
}

func (a *archive) fromManifest(m manifest) (contents, error) {
	text, err := a.blob(m.Config)
	if err != nil {
		return contents{}, err
	}
	layers := make([]layer, len(m.Layers))
	for i, d := range m.Layers {
		name, err := blobName(d.Digest)
		if err != nil {
			return contents{}, err
		}
		layers[i] = layer{name: name, digest: d.Digest, size: d.Size}
	}
	return combine(text, layers)
}

// blob reads a small blob.
func (a *archive) blob(d descriptor) ([]byte, error) {
	name, err := blobName(d.Digest)
	if err != nil {
		return nil, err
	}
	b, err := a.text(name)
	if err != nil {
		return nil, err
	}
	return b, checkSum(name, d.Digest, b)
}

var digestName = regexp.MustCompile(`^(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})$`)

func blobName(digest string) (string, error) {
	if !digestName.MatchString(digest) {
		return "", fmt.Errorf("%w: the digest %.150q in it is not known", ErrFormat, digest)
	}
	return "blobs/" + strings.Replace(digest, ":", "/", 1), nil
}

// sumOf makes the hash of a digest.
func sumOf(digest string) hash.Hash {
	if strings.HasPrefix(digest, "sha512:") {
		return sha512.New()
	}
	return sha256.New()
}

func checkSum(what, digest string, b []byte) error {
	sum := sumOf(digest)
	sum.Write(b)
	return equal(what, digest, sum)
}

func equal(what, digest string, sum hash.Hash) error {
	_, want, _ := strings.Cut(digest, ":")
	if got := hex.EncodeToString(sum.Sum(nil)); got != want {
		return fmt.Errorf("%w: %s is not what its digest says, so that it was damaged or changed; write it anew", ErrFormat, what)
	}
	return nil
}
