package layer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
)

// fold keeps the value of a sealed layer, with the trail that leads to it, for states
// that begin there.
type fold struct {
	once  sync.Mutex // held by the goroutine that computes it
	trail atomic.Pointer[any]
}

func (f *fold) set(trail any) { f.trail.Store(&trail) }
func (f *fold) forget()       { f.trail.Store(nil) }

// get asserts that the value is of type T.
func get[T any](l *layer) (trail[T], error) {
	p := l.fold.trail.Load()
	if p == nil {
		return nil, nil
	}
	t, ok := (*p).(trail[T])
	if !ok {
		return nil, fmt.Errorf("layer %s is a state of another kind: it holds a %T, not a %T", l.id, *p, t)
	}
	return t, nil
}

// trailOf folds the chain up to l, which the caller holds, from the nearest
// layer on that has a value. Layers where several go on, and l itself, keep what
// was computed; a caller that needs one of them while it is computed waits for it, so
// that a thousand siblings fold what they share once. The caller does not change
// what it gets.
func trailOf[T any](s *Store, l *layer, m *Machine[T]) (trail[T], error) {
	t := trail[T]{{nil, &m.Empty, s.rewriteFrom}}
	var stages [][]*layer // each to be folded under the lock of its first, which keeps it
	for at := l; at != nil; at = at.parent {
		if at.broken != nil {
			return nil, at.broken
		}
		known, err := get[T](at)
		if err != nil {
			return nil, err
		}
		if known != nil {
			t = known
			break
		}
		if at == l || s.shared(at) {
			stages = append(stages, nil)
		}
		last := len(stages) - 1
		stages[last] = append(stages[last], at)
	}
	for i := len(stages) - 1; i >= 0; i-- {
		var err error
		if t, err = foldStage(stages[i], t, m); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// shared tells whether several may begin at l.
func (s *Store) shared(l *layer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.kids > 1 || l.pins > 0
}

func foldStage[T any](stage []*layer, base trail[T], m *Machine[T]) (trail[T], error) {
	keeper := stage[0]
	keeper.fold.once.Lock()
	defer keeper.fold.once.Unlock()
	if t, err := get[T](keeper); t != nil || err != nil {
		return t, err
	}
	t := slices.Clone(base)
	for i := len(stage) - 1; i >= 0; i-- {
		value := *t.last().value
		if err := stage[i].replay(m.applyTo(&value)); err != nil {
			return nil, err
		}
		t = t.extend(stage[i], &value)
	}
	keeper.fold.set(t)
	return t, nil
}

func (m *Machine[T]) applyTo(v *T) func(meta []byte, body Extent) error {
	return func(meta []byte, body Extent) error {
		next, err := m.Apply(*v, meta, body)
		if err != nil {
			return fmt.Errorf("apply: %w", err)
		}
		*v = next
		return nil
	}
}

func (l *layer) scanner() *scanner {
	return &scanner{l: l, r: at{l}, size: l.end}
}

// extents makes a scanner's callback of one that takes Extents.
func (l *layer) extents(each func(meta []byte, body Extent) error) func([]byte, int64, int64) error {
	if each == nil {
		return nil
	}
	return func(meta []byte, body, size int64) error { return each(meta, Extent{l, body, size}) }
}

// replay goes over the records of a sealed layer.
func (l *layer) replay(each func(meta []byte, body Extent) error) error {
	_, _, err := l.scanner().scan(l.extents(each))
	return l.sealedError(err)
}

// sealedError is what a scan's error means in a sealed layer, which was whole when
// it was sealed.
func (l *layer) sealedError(err error) error {
	var torn *tornError
	var cut *Cut
	var d *Damage
	switch {
	case errors.As(err, &torn):
		d = &torn.Damage
	case errors.As(err, &cut):
		d = &cut.Damage
	case errors.As(err, &d):
	default:
		return err
	}
	return l.found(d)
}
