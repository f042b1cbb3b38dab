package layer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The head of a state says which layer is its own and on which one it stands.
// It is one line of JSON and a checksum, padded to headSize so that a new one takes
// the place of the old one with a single write. That lies within one page and one
// sector: dying leaves the old or the new, as a rename would, at a hundredth of its
// price. Version 1 had no checksum.
const (
	headName       = "head"
	headVersion    = 2
	oldHeadVersion = 1
	headSize       = 256
	headSum        = 9 // bytes of the checksum: eight hex digits and the end of the line
)

type headFile struct {
	Version int    `json:"version"`
	Own     string `json:"own"`
	Begun   bool   `json:"begun,omitempty"` // own has a file; without it, a lost one would pass for an empty one
	Parent  Ref    `json:"parent,omitzero"`
}

// headOf describes a state by its own layer.
func headOf(own *layer, begun bool) headFile {
	h := headFile{Version: headVersion, Own: own.id, Begun: begun}
	if own.parent != nil {
		h.Parent.ID = own.parent.id
	}
	return h
}

// makeHead writes the first head of a state; replaceHead those after it.
func makeHead(dir string, h headFile) error    { return writeHead(dir, h, os.O_CREATE|os.O_TRUNC) }
func replaceHead(dir string, h headFile) error { return writeHead(dir, h, 0) }

// switchHead replaces a head and waits until that is on the disk.
func switchHead(dir string, h headFile) error { return writeHead(dir, h, os.O_SYNC) }

func writeHead(dir string, h headFile, flag int) error {
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	b = append(b, bytes.Repeat([]byte{' '}, headSize-headSum-len(b))...)
	b = fmt.Appendf(b, "%08x\n", crc(b))
	f, err := os.OpenFile(filepath.Join(dir, headName), os.O_WRONLY|flag, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(b, 0); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// readHead gives fs.ErrNotExist where there is no state.
func readHead(dir string) (headFile, error) {
	path := filepath.Join(dir, headName)
	b, err := os.ReadFile(path)
	if err != nil {
		return headFile{}, err
	}
	h, err := decodeHead(b)
	if err != nil {
		return headFile{}, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

func decodeHead(b []byte) (h headFile, err error) {
	if len(b) != headSize {
		return h, fmt.Errorf("%d bytes, a head has %d", len(b), headSize)
	}
	line, sum := b[:headSize-headSum], string(b[headSize-headSum:])
	if summed := fmt.Sprintf("%08x\n", crc(line)) == sum; !summed {
		if strings.TrimSpace(sum) != "" {
			return h, errors.New("its checksum is wrong")
		}
		line = b // of version 1, if it is one
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&h); err != nil {
		return h, err
	}
	if rest, err := io.ReadAll(dec.Buffered()); err != nil || len(bytes.TrimSpace(rest)) > 0 {
		return h, errors.New("there is more than a head in it")
	}
	switch {
	case len(line) == headSize && h.Version != oldHeadVersion:
		return h, fmt.Errorf("a head of version %d without a checksum", h.Version)
	case len(line) < headSize && h.Version != headVersion:
		return h, fmt.Errorf("head of version %d, this Tine reads version %d", h.Version, headVersion)
	}
	if _, err := parseID(h.Own); err != nil {
		return h, err
	}
	if h.Parent.ID != "" {
		if _, err := parseID(h.Parent.ID); err != nil {
			return h, err
		}
	}
	return h, nil
}

// removeHead removes the head in dir, if there is one, and dir where nothing else
// is in it.
func removeHead(dir string) error {
	if err := os.Remove(filepath.Join(dir, headName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	os.Remove(dir)
	return nil
}
