package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/layer"
)

// Frozen is a workspace as it was at one moment. It is durable: written down, it
// means the same to the next process.
type Frozen struct {
	Kind  string    `json:"kind"`           // KindTree or KindFolder
	Layer layer.Ref `json:"layer,omitzero"` // of a tree
	// Dir is the folder that was given for it. It tells frozen workspaces apart, also
	// those of trees, which have nothing in it.
	Dir  string `json:"dir"`
	Size int64  `json:"size"` // bytes that are there because of it, about
}

// check is for what was read from somewhere.
func (f Frozen) check() error {
	switch {
	case f.Kind != KindTree && f.Kind != KindFolder:
		return fmt.Errorf("frozen workspace of unknown kind %q", f.Kind)
	case f.Dir == "":
		return errors.New("frozen workspace without a folder")
	}
	return nil
}

// Freeze keeps the workspace in dir as it is now. A tree costs the same whatever is in
// it, and may be written to meanwhile; a folder is copied, and the caller holds its
// writers. into is a folder that does not exist.
func (s *Store) Freeze(ctx context.Context, dir, into string) (Frozen, error) {
	f, err := s.freeze(ctx, dir, into)
	if err != nil {
		return Frozen{}, fmt.Errorf("freeze workspace: %w", err)
	}
	return f, nil
}

func (s *Store) freeze(ctx context.Context, dir, into string) (Frozen, error) {
	if err := ctx.Err(); err != nil {
		return Frozen{}, err
	}
	into, err := filepath.Abs(into)
	if err != nil {
		return Frozen{}, err
	}
	kind, err := kindOf(dir)
	if err != nil {
		return Frozen{}, err
	}
	if kind == KindTree {
		return s.hold(into, func() (layer.Ref, error) { return s.layers.Seal(dir) })
	}
	if err := os.Mkdir(into, 0o700); err != nil {
		return Frozen{}, err
	}
	f := Frozen{Kind: KindFolder, Dir: into}
	err = clone.Tree(ctx, filepath.Join(into, filesName), filepath.Join(dir, filesName),
		clone.Options{Copied: func(size, _ int64) { f.Size = size }})
	if err != nil {
		return Frozen{}, errors.Join(err, os.Remove(into))
	}
	return f, nil
}

// hold keeps the reference that take takes under the name of a folder.
func (s *Store) hold(into string, take func() (layer.Ref, error)) (Frozen, error) {
	s.mu.Lock()
	_, taken := s.held[into]
	if !taken {
		s.held[into] = layer.Ref{}
	}
	s.mu.Unlock()
	if taken {
		return Frozen{}, fmt.Errorf("there is a frozen workspace for %s already", into)
	}
	ref, err := take()
	var own int64
	if err == nil {
		if own, _, err = s.layers.Size(ref); err != nil {
			err = errors.Join(err, s.layers.Release(ref))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.held, into)
		return Frozen{}, err
	}
	s.held[into] = ref
	return Frozen{Kind: KindTree, Layer: ref, Dir: into, Size: own}, nil
}

// Discard removes a frozen workspace. What was seeded from it stays. Discarding twice,
// or one that does not exist, is fine.
func (s *Store) Discard(ctx context.Context, f Frozen) error {
	if err := f.check(); err != nil {
		return fmt.Errorf("discard: %w", err)
	}
	if f.Kind == KindTree {
		s.mu.Lock()
		ref, ok := s.held[f.Dir]
		delete(s.held, f.Dir)
		s.mu.Unlock()
		if !ok {
			return nil
		}
		if err := s.layers.Release(ref); err != nil && !errors.Is(err, layer.ErrUnknown) {
			return fmt.Errorf("discard frozen workspace: %w", err)
		}
		return nil
	}
	if err := removeOwn(f.Dir); err != nil {
		return fmt.Errorf("discard frozen workspace: %w", err)
	}
	return nil
}

// removeOwn removes the folder of a workspace, with what is ours in it and
// nothing else.
func removeOwn(dir string) error {
	entries, err := os.ReadDir(dir)
	if missing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	errs := []error{clone.Sweep(dir)}
	for _, e := range entries {
		// A head that is still there is of a state that was unknown at the start.
		if e.Name() == filesName || e.Name() == headName || e.Name() == headName+".new" || isPartial(e.Name()) {
			errs = append(errs, clone.Remove(filepath.Join(dir, e.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !missing(err) {
		return err
	}
	return nil
}

// Erase removes the workspace in dir. A caller that still has it open gets errors from
// then on. Twice is fine.
func (s *Store) Erase(ctx context.Context, dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("erase workspace: %w", err)
	}
	s.mu.Lock()
	delete(s.open, dir) // the next one there is another
	s.mu.Unlock()
	if err := s.layers.Remove(dir); err != nil {
		return fmt.Errorf("erase workspace: %w", err)
	}
	if err := removeOwn(dir); err != nil {
		return fmt.Errorf("erase workspace: %w", err)
	}
	return nil
}

// Recover is called once at start, before anything else, with the folders of all
// workspaces and all frozen ones that stay. Layers that none of them needs are
// removed, and what a killed process left in the Store's own folder; without sure
// there may be others, and all layers stay.
func (s *Store) Recover(ctx context.Context, dirs []string, frozen []Frozen, sure bool) error {
	var states []string
	var errs []error
	for _, dir := range dirs {
		if err := ctx.Err(); err != nil {
			return err
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return fmt.Errorf("recover workspaces: %w", err)
		}
		if _, err := os.Lstat(filepath.Join(abs, filesName)); err == nil {
			errs = append(errs, clone.Sweep(abs))
			continue
		}
		states = append(states, abs)
	}
	var refs []layer.Ref
	held := map[string]layer.Ref{}
	for _, f := range frozen {
		if err := f.check(); err != nil {
			return fmt.Errorf("recover workspaces: %w", err)
		}
		if f.Kind != KindTree {
			errs = append(errs, clone.Sweep(f.Dir))
			continue
		}
		if f.Layer.ID != "" {
			refs = append(refs, f.Layer)
		}
		held[f.Dir] = f.Layer
	}
	if s.parent != "" {
		errs = append(errs, sweepWork(s.parent))
	}
	recover := s.layers.Recover
	if !sure {
		recover = s.layers.RecoverSome
	}
	if err := recover(states, refs); err != nil {
		return fmt.Errorf("recover workspaces: %w", err)
	}
	s.mu.Lock()
	s.held = held
	s.mu.Unlock()
	if err := errors.Join(errs...); err != nil {
		s.log.Warn("something of an earlier process could not be removed; the next start tries again", "error", err)
	}
	return nil
}

func sweepWork(parent string) error {
	entries, err := os.ReadDir(parent)
	if missing(err) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), workPrefix) {
			errs = append(errs, os.RemoveAll(filepath.Join(parent, e.Name())))
		}
	}
	return errors.Join(errs...)
}

func sizeOf(w *Workspace) (int64, error) {
	if t, ok := w.fs.(*treeFS); ok {
		return t.head.Value().root.bytes, nil
	}
	size, _, err := clone.Size(w.dir)
	return size, err
}
