package layer

import (
	"math"
	"slices"
)

// A mark is a layer with its value. A Head can write again what has come after
// it, and go on from there: see Head.tidy.
type mark[T any] struct {
	layer *layer // nil: the empty state
	value *T
	due   int64 // how large the chain has to be for it to be worth a look
}

// A trail are marks of one chain, from the empty state to the layer whose trail
// it is. Values share most of what they hold, yet not all: of those in between
// only some are kept, the closer the nearer they are to the end. So there are a
// few dozen whatever the chain, and one for each order of magnitude of changes.
type trail[T any] []mark[T]

func (t trail[T]) last() *mark[T] { return &t[len(t)-1] }

// near is up to how many bytes apart marks are the same.
const near = 4 << 10

// extend adds a mark in place. Of three marks the middle one goes when from the
// end of the chain the first is no more than twice as far away as the last.
func (t trail[T]) extend(l *layer, value *T) trail[T] {
	t = append(t, mark[T]{l, value, l.top() + l.store.rewriteFrom})
	top := l.top()
	kept := t[:1]
	for i := 1; i < len(t); i++ {
		if i == len(t)-1 || top-kept.last().layer.top() > 2*(top-t[i+1].layer.top()+near) {
			kept = append(kept, t[i])
		}
	}
	clear(t[len(kept):])
	return kept
}

// cut drops the marks after t[i], since what they lead to was written again
// and takes saved bytes less.
func (t trail[T]) cut(i int, saved int64) trail[T] {
	clear(t[i+1:])
	t = t[:i+1]
	for j := range t {
		t[j].due -= saved
	}
	return t
}

// due is the least of those after top, or math.MaxInt64.
func (t trail[T]) due(top int64) int64 {
	next := int64(math.MaxInt64)
	for _, m := range t {
		if m.due > top {
			next = min(next, m.due)
		}
	}
	return next
}

func (t trail[T]) anyDue(top int64) bool {
	return slices.ContainsFunc(t, func(m mark[T]) bool { return m.due <= top })
}

// A span is what lies between a mark and the end of the chain.
type span struct {
	mark    int   // of the Head's
	size    int64 // in bytes
	sealed  int   // layers, without the Head's own
	inner   int   // of these, those that nothing holds but the chain
	largest int64 // of these, in bytes
}

// manyPins is how many layers that others hold are passed over in all.
const manyPins = 1024

// spans lists those of at most limit bytes, the shortest first, as far as they
// belong to this state alone and are not damaged. What it sealed itself may be pinned: a ring of
// snapshots is, all the time, but none of it for long.
func (h *Head[T]) spans(limit int64) []span {
	st := h.st
	st.store.mu.Lock()
	defer st.store.mu.Unlock()
	var all []span
	at := span{mark: len(h.marks) - 1}
	for l := st.parent; ; l = l.parent {
		at.size = st.own.top() - l.top()
		if at.size > limit {
			return all
		}
		if l == h.marks[at.mark].layer {
			all = append(all, at)
			at.mark--
		}
		if l == nil || l.damaged.Load() || l.kids > 1 || l.pins > 0 && l.by != st.serial || at.sealed-at.inner > manyPins {
			return all
		}
		at.sealed++
		at.largest = max(at.largest, l.end)
		if l.pins == 0 {
			at.inner++
		}
	}
}
