package image

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver/folder"
)

const (
	recordName = "image.json"
	rootName   = "root"
	// version changes when the same archive would be unpacked in another way.
	version = 1
)

// record is what is beside an unpacked root. It is there when the root is whole.
type record struct {
	Version int    `json:"version"`
	Digest  string `json:"digest"`
	Config  Config `json:"config"`
}

// image returns what is unpacked of a hash, or unpacks it.
func (s *Store) image(ctx context.Context, was stamp, hash string) (Image, error) {
	dir := filepath.Join(s.Dir, hash)
	if img, ok := load(dir, hash); ok {
		return img, nil
	}
	part := filepath.Join(s.Dir, hash+"."+strings.ToLower(rand.Text()[:12])+folder.Part)
	s.hold(part, true)
	defer s.hold(part, false)
	config, err := s.unpack(ctx, was, part)
	if err == nil {
		err = s.finish(part, dir, hash, config)
	}
	if removed := clone.Remove(part); removed != nil && err == nil {
		s.log().Warn("can't remove what is left of an image", "folder", part, "error", removed)
	}
	if err != nil {
		return Image{}, err
	}
	img, ok := load(dir, hash)
	if !ok {
		return Image{}, errors.New("it was removed while it was unpacked; try again")
	}
	return img, nil
}

func load(dir, hash string) (Image, bool) {
	b, err := readFile(filepath.Join(dir, recordName), maxRecord)
	var r record
	if err != nil || json.Unmarshal(b, &r) != nil || r.Version != version || r.Digest != "sha256:"+hash {
		return Image{}, false
	}
	root := filepath.Join(dir, rootName)
	if info, err := os.Lstat(root); err != nil || !info.IsDir() {
		return Image{}, false
	}
	return Image{Dir: root, Digest: r.Digest, Config: r.Config}, true
}

// finish puts what is whole into its place.
func (s *Store) finish(part, dir, hash string, config Config) error {
	b, err := json.Marshal(record{version, "sha256:" + hash, config})
	if err == nil {
		err = folder.Write(filepath.Join(part, recordName), b)
	}
	tree, names := syncTree, folder.Sync
	if s.sync != nil {
		tree, names = s.sync, s.sync
	}
	if err == nil {
		err = tree(part)
	}
	if err != nil {
		return fmt.Errorf("keep what was unpacked: %w", err)
	}
	err = os.Rename(part, dir)
	if err != nil {
		if _, ok := load(dir, hash); ok {
			return nil // another was first
		}
		// What is there is of another version, or damaged.
		if err := s.remove(dir); err != nil {
			return fmt.Errorf("replace what was unpacked before: %w", err)
		}
		err = os.Rename(part, dir)
	}
	if err == nil {
		err = names(s.Dir)
	}
	if err != nil {
		return fmt.Errorf("keep what was unpacked: %w", err)
	}
	return nil
}

// remove takes an image away: all of it is gone for others at once.
func (s *Store) remove(dir string) error {
	part := dir + "." + strings.ToLower(rand.Text()[:12]) + folder.Part
	if err := os.Rename(dir, part); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return clone.Remove(part)
}

func (s *Store) hold(part string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.parts == nil {
		s.parts = map[string]bool{}
	}
	if on {
		s.parts[part] = true
	} else {
		delete(s.parts, part)
	}
}

func (s *Store) held(part string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.parts[part]
}

// Sweep removes what a killed process was unpacking or removing.
func (s *Store) Sweep() error {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look through the images: %w", err)
	}
	var errs []error
	for _, e := range entries {
		path := filepath.Join(s.Dir, e.Name())
		if !strings.HasSuffix(e.Name(), folder.Part) || s.held(path) {
			continue
		}
		if err := clone.Remove(path); err != nil {
			errs = append(errs, fmt.Errorf("remove what is left of an image: %w", err))
		}
	}
	return errors.Join(errs...)
}
