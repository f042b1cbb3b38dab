package layer

import "fmt"

// Seal freezes what the state in dir holds, whether it is open or not, and the
// state goes on on top of it. The caller owns one reference. A state without
// changes gives the layer it stands on again; an empty one the zero Ref.
//
// It waits for a running Commit, and must not be called from within one.
func (s *Store) Seal(dir string) (Ref, error) {
	fail := func(err error) (Ref, error) { return Ref{}, fmt.Errorf("seal state %s: %w", dir, err) }
	st, err := s.lock(dir)
	if err != nil {
		return fail(err)
	}
	defer st.mu.Unlock()
	if err := st.settle(); err != nil {
		return fail(err)
	}
	own, parent := st.own, st.parent
	if own.count == 0 {
		if parent == nil {
			return Ref{}, nil
		}
		s.mu.Lock()
		parent.pins++
		s.mu.Unlock()
		if st.head != nil {
			parent.fold.set(st.head.sealed())
		}
		return Ref{parent.id}, nil
	}
	next := s.newLayer(own)
	// The one write that decides: before it own is the state's, after it own is
	// the parent. Either way every record is in the chain.
	if err := replaceHead(st.dir, headOf(next, false)); err != nil {
		return fail(err)
	}
	s.mu.Lock()
	own.kids, own.pins, own.by = 1, 1, st.serial // the state's hold on parent is now own's
	s.layers[own.id] = own
	s.mu.Unlock()
	st.own, st.parent, st.begun = next, own, false
	if st.head != nil {
		own.fold.set(st.head.sealed())
	}
	return Ref{own.id}, nil
}
