package layer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// The head of a state says which layer is its own and on which one it stands.
// It is one line of JSON, padded to headSize so that a new one takes the place
// of the old one with a single write. That lies within one page and one sector:
// dying leaves the old or the new, as a rename would, at a hundredth of its price.
// An empty file is a state that was never made.
const (
	headName    = "head"
	headVersion = 1
	headSize    = 256
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
	b = append(b, bytes.Repeat([]byte{' '}, headSize-1-len(b))...)
	f, err := os.OpenFile(filepath.Join(dir, headName), os.O_WRONLY|flag, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(append(b, '\n'), 0); err != nil {
		return errors.Join(err, f.Close())
	}
	return f.Close()
}

// readHead gives fs.ErrNotExist where there is no state.
func readHead(dir string) (headFile, error) {
	path := filepath.Join(dir, headName)
	info, err := os.Stat(path)
	if err != nil {
		return headFile{}, err
	}
	switch info.Size() {
	case 0:
		return headFile{}, fmt.Errorf("%s: empty: %w", path, fs.ErrNotExist)
	case headSize:
	default:
		return headFile{}, fmt.Errorf("%s: %d bytes, a head has %d", path, info.Size(), headSize)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return headFile{}, err
	}
	var h headFile
	if err := json.Unmarshal(b, &h); err != nil {
		return headFile{}, fmt.Errorf("%s: %w", path, err)
	}
	if h.Version != headVersion {
		return headFile{}, fmt.Errorf("%s: head of version %d, this Tine reads version %d", path, h.Version, headVersion)
	}
	if _, err := parseID(h.Own); err != nil {
		return headFile{}, fmt.Errorf("%s: %w", path, err)
	}
	if h.Parent.ID != "" {
		if _, err := parseID(h.Parent.ID); err != nil {
			return headFile{}, fmt.Errorf("%s: %w", path, err)
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
