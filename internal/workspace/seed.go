package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/layer"
)

// A Seed says what a workspace is and what is in it at first.
type Seed struct {
	// Folder is whether a program must see it: a folder of the host instead of a
	// tree.
	Folder bool
	// Template is a directory of the host that it begins as a copy of. For a tree
	// it is read once in the life of the Store: what is changed in it later is in
	// no workspace before the next start.
	Template string
	// From is a frozen workspace, of either kind, that it continues instead.
	From *Frozen
	// Take says that From is not needed afterwards, so that its files may be
	// moved; it must still be discarded.
	Take bool
	// Progress hears how many bytes are there of how many, one call at a time.
	Progress func(done, total int64)
}

// Seed makes a workspace in the folder dir, which does not exist or is empty, and
// is its own (0700) from then on. What fails leaves nothing.
func (s *Store) Seed(ctx context.Context, dir string, seed Seed) error {
	if err := s.seed(ctx, dir, seed); err != nil {
		return fmt.Errorf("seed workspace: %w", err)
	}
	return nil
}

func (s *Store) seed(ctx context.Context, dir string, seed Seed) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	switch kind, err := kindOf(dir); {
	case err == nil:
		return fmt.Errorf("there is a %s in %s already: %w", kind, dir, fs.ErrExist)
	case !missing(err):
		return err
	}
	if !seed.Folder {
		return s.seedTree(ctx, dir, seed)
	}
	made := os.Mkdir(dir, 0o700)
	if missing(made) {
		made = os.MkdirAll(dir, 0o700)
	}
	if made != nil && !errors.Is(made, fs.ErrExist) {
		return made
	}
	if err := s.seedFolder(ctx, filepath.Join(dir, filesName), seed); err != nil {
		if made == nil {
			os.Remove(dir)
		}
		return err
	}
	return nil
}

func (s *Store) seedTree(ctx context.Context, dir string, seed Seed) error {
	switch {
	case seed.From != nil && seed.From.Kind == KindTree:
		return s.layers.Create(dir, seed.From.Layer)
	case seed.From != nil:
		if err := seed.From.check(); err != nil {
			return err
		}
		ref, err := s.fromFolder(ctx, filepath.Join(seed.From.Dir, filesName), seed.Progress)
		if err != nil {
			return err
		}
		return errors.Join(s.layers.Create(dir, ref), s.layers.Release(ref))
	case seed.Template != "":
		return s.fromTemplate(ctx, seed.Template, seed.Progress, func(ref layer.Ref) error {
			return s.layers.Create(dir, ref)
		})
	}
	return s.layers.Create(dir, layer.Ref{})
}

func (s *Store) seedFolder(ctx context.Context, files string, seed Seed) error {
	switch {
	case seed.From != nil && seed.From.Kind == KindTree:
		return s.withTree(seed.From.Layer, func(t *treeFS) error {
			return materialize(ctx, files, t.head.Value(), seed.Progress)
		})
	case seed.From != nil:
		if err := seed.From.check(); err != nil {
			return err
		}
		from := filepath.Join(seed.From.Dir, filesName)
		if seed.Take {
			// It fails where they lie on different filesystems.
			if err := os.Rename(from, files); err == nil {
				return nil
			}
		}
		return clone.Tree(ctx, files, from, clone.Options{Progress: seed.Progress})
	case seed.Template != "":
		from, err := templatePath(seed.Template)
		if err != nil {
			return err
		}
		return clone.Tree(ctx, files, from, clone.Options{Progress: seed.Progress})
	}
	return os.Mkdir(files, dirMode)
}

// withTree lets read see the tree of a sealed layer.
func (s *Store) withTree(ref layer.Ref, read func(t *treeFS) error) (err error) {
	dir, err := s.scratch()
	if err != nil {
		return err
	}
	if err := s.layers.Create(dir, ref); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.layers.Remove(dir)) }()
	head, err := layer.Open(s.layers, dir, s.machine)
	if err != nil {
		return err
	}
	defer head.Close()
	return read(&treeFS{head: head, opened: time.Now().UnixNano()})
}

// build makes a sealed layer of a tree that fill fills.
func (s *Store) build(fill func(t *treeFS) error) (ref layer.Ref, err error) {
	dir, err := s.scratch()
	if err != nil {
		return layer.Ref{}, err
	}
	if err := s.layers.Create(dir, layer.Ref{}); err != nil {
		return layer.Ref{}, err
	}
	defer func() { err = errors.Join(err, s.layers.Remove(dir)) }()
	t, err := s.openTree(dir)
	if err != nil {
		return layer.Ref{}, err
	}
	defer t.head.Close()
	if err := fill(t); err != nil {
		return layer.Ref{}, err
	}
	return s.layers.Seal(dir) // with the head open, so that the value is kept for workspaces that begin there
}

// fromFolder makes a layer of a folder that does not change meanwhile.
func (s *Store) fromFolder(ctx context.Context, dir string, progress func(done, total int64)) (layer.Ref, error) {
	f, err := openFolder(dir)
	if err != nil {
		return layer.Ref{}, err
	}
	defer f.Close()
	return s.importFolder(ctx, f, progress)
}
