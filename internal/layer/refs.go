package layer

import (
	"errors"
	"fmt"
	"os"
	"runtime"
)

// ErrUnknown is what there is for a Ref that names no layer.
var ErrUnknown = errors.New("no such layer")

// find gives the layer of a ref, nil for the zero Ref; s.mu is held.
func (s *Store) find(ref Ref) (*layer, error) {
	if err := s.usable(); err != nil {
		return nil, err
	}
	if ref.ID == "" {
		return nil, nil
	}
	l := s.layers[ref.ID]
	if l == nil {
		return nil, fmt.Errorf("%w: %q", ErrUnknown, ref.ID)
	}
	if l.broken != nil {
		return nil, l.broken
	}
	return l, nil
}

// Retain takes one more reference.
func (s *Store) Retain(ref Ref) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.find(ref)
	if err != nil {
		return fmt.Errorf("retain: %w", err)
	}
	if l != nil {
		l.pins++
	}
	return nil
}

// Release gives one reference back. A layer that nothing holds is removed, and
// lets go of the one it stands on.
func (s *Store) Release(ref Ref) error {
	if ref.ID == "" {
		return nil
	}
	s.mu.Lock()
	if err := s.usable(); err != nil {
		s.mu.Unlock()
		return fmt.Errorf("release: %w", err)
	}
	l := s.layers[ref.ID]
	switch {
	case l == nil:
		s.mu.Unlock()
		return fmt.Errorf("release: %w: %q", ErrUnknown, ref.ID)
	case l.pins == 0:
		s.mu.Unlock()
		return fmt.Errorf("release layer %s: no reference to it is held", ref.ID)
	}
	l.pins--
	return s.reap(l)
}

// abandon ends the hold of a state on its parent.
func (s *Store) abandon(parent *layer) error {
	if parent == nil {
		return nil
	}
	s.mu.Lock()
	parent.kids--
	return s.reap(parent)
}

// leave has a state that stands on from stand on to, which from stands on. Layers
// between that only it needed go when they have no reader any more.
func (s *Store) leave(from, to *layer) error {
	if from == to {
		return nil
	}
	s.mu.Lock()
	if to != nil {
		to.kids++
	}
	for l := from; l != to; l = l.parent {
		l.left = true
	}
	from.kids--
	return s.reap(from)
}

// reap removes l and what it stands on as far as nothing holds them. It is
// called with s.mu held and lets go of it. Chains are long: no recursion.
func (s *Store) reap(l *layer) error {
	var dead []*layer
	for ; l != nil; l = l.parent {
		if l.pins+l.kids > 0 {
			// With one kid and no pins no state can begin there any more, and the kid has
			// its own value.
			if l.pins == 0 && l.kids == 1 {
				l.fold.forget()
			}
			break
		}
		delete(s.layers, l.id)
		delete(s.broken, l.id)
		dead = append(dead, l)
		if l.parent != nil {
			l.parent.kids--
		}
	}
	s.mu.Unlock()
	// From the top down, so that dying on the way leaves whole chains.
	var errs []error
	for _, l := range dead {
		l.parent = nil // a reader of l does not keep the rest from going
		if l.left {
			s.supersede(l)
		} else if err := s.files.remove(l.id); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// chain lists l and what it stands on, the bottom last. The caller holds l.
func (l *layer) chain() []*layer {
	var all []*layer
	for ; l != nil; l = l.parent {
		all = append(all, l)
	}
	return all
}

// hold finds a layer and keeps it until the returned function is called.
func (s *Store) hold(ref Ref) (*layer, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.find(ref)
	if err != nil {
		return nil, nil, err
	}
	if l == nil {
		return nil, func() {}, nil
	}
	l.pins++
	return l, func() {
		s.mu.Lock()
		l.pins--
		if err := s.reap(l); err != nil {
			s.log.Warn("a layer could not be removed; the next start tries again", "layer", l.id, "error", err)
		}
	}, nil
}

// Sync brings the whole chain to the disk, so that it outlives a power failure.
func (s *Store) Sync(ref Ref) error {
	l, done, err := s.hold(ref)
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	defer done()
	any := false
	for _, l := range l.chain() {
		s.mu.Lock()
		synced := l.synced
		s.mu.Unlock()
		if synced {
			continue
		}
		any = true
		if err := s.files.sync(l.id); err != nil {
			return fmt.Errorf("sync layer %s: %w", l.id, err)
		}
	}
	if !any {
		return nil
	}
	if err := syncDir(s.files.dir); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for ; l != nil; l = l.parent {
		l.synced = true
	}
	return nil
}

func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // folders can't be synced there
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}

// Size is how many bytes a layer has on disk, alone and with all it stands on.
// It costs the same whatever that is.
func (s *Store) Size(ref Ref) (own, chain int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, err := s.find(ref)
	if err != nil {
		return 0, 0, fmt.Errorf("size: %w", err)
	}
	if l == nil {
		return 0, 0, nil
	}
	return l.end, l.top(), nil
}
