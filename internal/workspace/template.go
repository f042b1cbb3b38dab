package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/layer"
)

// A template is a directory of the host as a sealed layer. Ref and err are fixed
// when done is closed.
type template struct {
	done chan struct{}
	ref  layer.Ref
	err  error
}

// templatePath is the directory itself, where the config may name a link to it.
func templatePath(dir string) (string, error) {
	actual, err := filepath.EvalSymlinks(dir)
	if err == nil {
		actual, err = filepath.Abs(actual)
	}
	if err != nil {
		return "", fmt.Errorf("template %s: %w", dir, err)
	}
	return actual, nil
}

// fromTemplate gives the layer of a directory to use. The first caller that asks for
// it makes it. It is held until the Store is closed, or use has returned.
func (s *Store) fromTemplate(ctx context.Context, dir string, progress func(done, total int64), use func(layer.Ref) error) error {
	actual, err := templatePath(dir)
	if err != nil {
		return err
	}
	for {
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return fmt.Errorf("workspace store: %w", fs.ErrClosed)
		}
		t, mine := s.templates[actual], false
		if t == nil {
			t, mine = &template{done: make(chan struct{})}, true
			s.templates[actual] = t
		}
		s.mu.Unlock()
		if mine {
			t.ref, t.err = s.fromFolder(ctx, actual, progress)
			if t.err != nil {
				s.mu.Lock()
				if s.templates[actual] == t {
					delete(s.templates, actual) // the next caller tries again
				}
				s.mu.Unlock()
			}
			close(t.done)
		}
		select {
		case <-t.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		switch {
		case t.err == nil:
			return use(t.ref)
		case mine || !errors.Is(t.err, context.Canceled) && !errors.Is(t.err, context.DeadlineExceeded):
			return fmt.Errorf("template %s: %w", dir, t.err)
		}
		// The caller that made it gave up, which is no reason for us to.
	}
}

// importFolder makes a layer of what is in a folder. A change meanwhile is an error: a
// mix of old and new was never the template.
func (s *Store) importFolder(ctx context.Context, f *folder, progress func(done, total int64)) (layer.Ref, error) {
	before, err := survey(ctx, f)
	if err != nil {
		return layer.Ref{}, err
	}
	if before.files > s.limits.files || before.bytes > s.limits.bytes {
		return layer.Ref{}, fmt.Errorf("%s has %d files and directories and %d bytes: %w: it may have %d and %d",
			f.name, before.files, before.bytes, ErrFull, s.limits.files, s.limits.bytes)
	}
	ref, err := s.build(func(t *treeFS) error {
		g := grower{fs: t, progress: progress, total: before.bytes}
		err := walkFS(ctx, f, func(name string, info Info) error {
			if !info.Mode.IsRegular() {
				return g.add(name, info, nil)
			}
			h, err := f.Open(name)
			if err != nil {
				return err
			}
			defer h.Close()
			return g.add(name, info, contentOf(h, info.Size))
		})
		if err == nil {
			err = g.finish()
		}
		if err != nil {
			return err
		}
		after, err := survey(ctx, f)
		if err == nil && after != before {
			err = fmt.Errorf("%s was changed while it was read; try again when it is at rest", f.name)
		}
		return err
	})
	return ref, err
}

// A surveyed is what a folder looks like without reading it.
type surveyed struct {
	print        [sha256.Size]byte // of names, modes, sizes, times and targets
	files, bytes int64
}

func survey(ctx context.Context, f *folder) (surveyed, error) {
	var s surveyed
	h := sha256.New()
	var b []byte
	err := walkFS(ctx, f, func(name string, info Info) error {
		b = appendText(b[:0], name)
		b = binary.AppendUvarint(b, uint64(info.Mode))
		b = binary.AppendVarint(b, info.Size)
		b = binary.AppendVarint(b, info.Modified.UnixNano())
		b = appendText(b, info.Target)
		h.Write(b)
		if name != "." {
			s.files++
		}
		if info.Mode.IsRegular() {
			s.bytes += info.Size
		}
		return nil
	})
	h.Sum(s.print[:0])
	return s, err
}

// walkFS visits all that is in an FS, a directory before what is in it, the root
// first and as ".". What is neither file, directory nor link is refused.
func walkFS(ctx context.Context, f FS, visit func(name string, info Info) error) error {
	root, err := f.Stat(".")
	if err != nil {
		return err
	}
	if err := visit(".", root); err != nil {
		return err
	}
	return walkDir(ctx, f, "", func(name string, info Info) error {
		if err := plain(name, info); err != nil {
			return err
		}
		return visit(name, info)
	})
}

// plain refuses what is neither file, directory nor link.
func plain(name string, info Info) error {
	if t := info.Mode.Type(); t != 0 && t != fs.ModeDir && t != fs.ModeSymlink {
		return &fs.PathError{Op: "read", Path: name, Err: special(info.Mode, 0)}
	}
	return nil
}

func walkDir(ctx context.Context, f FS, dir string, visit func(name string, info Info) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	at := dir
	if at == "" {
		at = "."
	}
	list, err := f.ReadDir(at)
	if err != nil {
		return err
	}
	for _, info := range list {
		name := join(dir, info.Name)
		if err := visit(name, info); err != nil {
			return err
		}
		if info.Mode.IsDir() {
			if err := walkDir(ctx, f, name, visit); err != nil {
				return err
			}
		}
	}
	return nil
}
