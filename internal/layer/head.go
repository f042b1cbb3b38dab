package layer

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync/atomic"
)

// A Head is an open state: its value, and the way to change it. Value may be called
// by any goroutine at any time, also after Close.
type Head[T any] struct {
	st    *state
	m     *Machine[T]
	value atomic.Pointer[T]

	// Guarded by st.mu.
	marks   trail[T] // that of st.parent
	closed  bool
	due     int64 // size of the chain at which to tidy
	mergeAt int   // its depth from which on merging is tried
}

// Open opens the state in dir. Where a fork already has the value it is shared,
// else what an earlier run left is folded. A state is open once at a time. The
// error is fs.ErrNotExist where there is no state, and names the layer where one
// is missing or damaged. It is a *Cut, once, where changes are missing that an earlier
// run acknowledged: the next Open goes on without them.
func Open[T any](s *Store, dir string, m *Machine[T]) (*Head[T], error) {
	fail := func(err error) (*Head[T], error) { return nil, fmt.Errorf("open state %s: %w", dir, err) }
	st, err := s.lock(dir)
	if err != nil {
		return fail(err)
	}
	defer st.mu.Unlock()
	if st.broken != nil {
		return fail(st.broken)
	}
	if st.head != nil {
		return fail(errors.New("it is open already; close the other first"))
	}
	marks, err := trailOf(s, st.parent, m)
	if err != nil {
		return fail(err)
	}
	h := &Head[T]{st: st, m: m, marks: slices.Clone(marks)}
	value := *marks.last().value
	if err := st.replay(m.applyTo(&value)); err != nil {
		return fail(err)
	}
	h.value.Store(&value)
	st.head = h
	return h, nil
}

// Value is the current value.
func (h *Head[T]) Value() T { return *h.value.Load() }

// Commit makes one change. The function change sees the current value, with no
// other commit in between, and tells what to write: meta, and a body of exactly
// size bytes, which is streamed. An error of change is returned as it is, and a
// nil meta means that there is nothing to change. When anything fails, a full
// disk among it, nothing has happened and the Head goes on as it was.
//
// Change and the body's reader run while the state is locked: they may read
// anything, but not commit to or seal the same state.
func (h *Head[T]) Commit(change func(v T) (meta []byte, body io.Reader, size int64, err error)) (T, error) {
	st := h.st
	st.mu.Lock()
	defer st.mu.Unlock()
	old := h.value.Load()
	if h.closed {
		return *old, fmt.Errorf("commit to state %s: %w", st.dir, fs.ErrClosed)
	}
	meta, body, size, err := change(*old)
	if err != nil || meta == nil {
		return *old, err
	}
	next, err := h.write(meta, body, size, *old)
	if err != nil {
		return *old, fmt.Errorf("commit to state %s: %w", st.dir, err)
	}
	h.value.Store(next)
	h.tidy()
	return h.Value(), nil
}

func (h *Head[T]) write(meta []byte, body io.Reader, size int64, old T) (*T, error) {
	st := h.st
	if st.torn {
		if err := st.undo(); err != nil {
			return nil, err
		}
	}
	if err := st.begin(); err != nil {
		return nil, err
	}
	st.torn = true // until it is whole, also when a caller's function panics
	var next T
	end, err := st.own.append(meta, body, size, func(e Extent) (err error) {
		next, err = h.m.Apply(old, meta, e)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, st.undo())
	}
	st.own.end, st.torn = end, false
	st.own.count++
	return &next, nil
}

// Close lets go of the state; it stays, and can be opened again. Twice is fine.
func (h *Head[T]) Close() error {
	h.st.mu.Lock()
	defer h.st.mu.Unlock()
	if !h.closed {
		h.shut()
		h.st.head = nil
	}
	return nil
}

func (h *Head[T]) sealed() any {
	if parent := h.st.parent; h.marks.last().layer != parent {
		h.marks = h.marks.extend(parent, h.value.Load())
		h.due = h.marks.due(parent.top())
	}
	return slices.Clone(h.marks)
}

func (h *Head[T]) shut() {
	h.closed = true
	h.marks = nil
}
