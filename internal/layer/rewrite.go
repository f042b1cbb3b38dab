package layer

import (
	"fmt"
	"io"
	"math"
	"runtime"
)

const (
	rewriteFrom   = 4 << 20  // less is not worth it
	rewriteFactor = 4        // nor is that of which more than a quarter is used
	mergeFrom     = 16       // layers that nothing else needs are too many
	mergeMost     = 16 << 20 // bytes are merged at once
	mergeFactor   = 4
	mergeEach     = 512 // bytes that one layer less may cost
	tidyEvery     = 64  // commits

	collectFrom = 256 << 20
	collectFile = 64 << 10 // what a file weighs at least
)

// tidy is called after a commit. It replaces own, together with layers below it
// that belong to this state alone, by a layer with only what the value needs:
//
//   - when most of what they hold is no longer needed, so that writing the same
//     over and over does not fill the disk, whether or not it was sealed in between;
//   - when they are many, so that neither do seals which were released again.
//
// Either way what it copies has been paid for, by bytes written since or by
// layers made. That it fails is no failure of the commit which caused it.
//
// What is copied is verified as it is read, so that damage fails the rewrite and is
// never given a new checksum; layers that are known to be damaged stay as they are.
//
// Values from before may still be read and point into the old files. These are
// removed when the garbage collector finds that none does.
func (h *Head[T]) tidy() {
	own := h.st.own
	top := own.top()
	if top < h.due && own.count%tidyEvery != 1 || own.damaged.Load() {
		return
	}
	due := h.marks.anyDue(top)
	many := own.depth >= max(h.mergeAt, h.st.store.mergeFrom)
	if h.m.Dump == nil || h.m.Live == nil || !due && !many {
		h.due = h.marks.due(top)
		return
	}
	limit := int64(mergeMost)
	if due {
		limit = math.MaxInt64
	}
	spans := h.spans(limit)
	if !(due && h.shrink(spans)) && many {
		h.merge(spans)
	}
	h.due = h.marks.due(h.st.own.top())
}

// shrink rewrites a span that is mostly unused: of several the one where most
// goes for what is copied, so that much in use at the bottom stays where it is.
func (h *Head[T]) shrink(spans []span) bool {
	top, value := h.st.own.top(), h.value.Load()
	best, gain := -1, 0.0
	for i := len(spans) - 1; i >= 0; i-- {
		size, m := spans[i].size, &h.marks[spans[i].mark]
		if top < m.due {
			continue
		}
		m.due = top + max(size/4, 1)
		live := h.m.Live(*m.value, *value)
		if g := float64(size) / float64(live+near); size > rewriteFactor*live && g > gain {
			best, gain = spans[i].mark, g
		}
	}
	return best >= 0 && h.rewrite(best)
}

// merge rewrites the longest span of many layers that is cheap: small for their
// number, or else without one that makes up most of it. So what was merged is
// merged again only together with several times as much.
func (h *Head[T]) merge(spans []span) {
	for i := len(spans) - 1; i >= 0; i-- {
		s := spans[i]
		switch {
		case s.inner < h.st.store.mergeFrom:
			return
		case s.size > mergeMost, s.inner < s.sealed-s.inner,
			s.size > mergeEach*int64(s.inner) && s.size < mergeFactor*s.largest:
			continue
		}
		// A dump can be larger than what it replaces, where a change of a part is
		// written as one of the whole.
		if h.m.Live(*h.marks[s.mark].value, *h.value.Load()) > s.size || !h.rewrite(s.mark) {
			h.mergeAt = h.st.own.depth + h.st.store.mergeFrom
		}
		return
	}
}

// rewrite has the state go on from a mark, with an own layer that leads from
// there to the value.
func (h *Head[T]) rewrite(i int) bool {
	st, m := h.st, h.marks[i]
	s, old, parent := st.store, st.own, st.parent
	fresh := s.newLayer(m.layer)
	next, err := h.dump(fresh, *m.value)
	if err == nil {
		// What it takes the place of may be on the disk for long: a power cut must
		// not find that gone and this not there.
		err = s.files.sync(fresh.id)
	}
	if err == nil {
		// The one write that decides: before it fresh is a stray, after it old is,
		// and with it what only old needed.
		err = switchHead(st.dir, headOf(fresh, true))
	}
	if err != nil {
		s.files.remove(fresh.id)
		s.log.Warn("a layer could not be rewritten and keeps what is no longer needed",
			"state", st.dir, "layer", old.id, "bytes", old.end, "error", err)
		return false
	}
	st.own, st.parent = fresh, m.layer
	h.value.Store(next)
	h.marks = h.marks.cut(i, old.top()-fresh.top())
	h.marks[i].due = m.layer.top() + max(s.rewriteFrom, rewriteFactor*fresh.end)
	h.mergeAt = 0
	old.parent = nil
	s.supersede(old)
	if err := s.leave(parent, m.layer); err != nil {
		s.log.Warn("a layer could not be removed; the next start tries again", "state", st.dir, "error", err)
	}
	return true
}

func (h *Head[T]) dump(into *layer, base T) (*T, error) {
	if err := into.create(); err != nil {
		return nil, err
	}
	next := base
	err := h.m.Dump(base, h.Value(), func(meta []byte, body io.Reader, size int64) error {
		end, err := into.append(meta, body, size, func(e Extent) (err error) {
			next, err = h.m.Apply(next, meta, e)
			return err
		})
		if err != nil {
			return err
		}
		into.end = end
		into.count++
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("dump: %w", err)
	}
	return &next, nil
}

// supersede removes a layer when no Extent in it can be reached any more. The
// collector runs by itself when memory is used, not when disk is, so it is
// called for every collectFrom bytes that wait for it.
func (s *Store) supersede(l *layer) {
	runtime.AddCleanup(l, s.forget, l.id)
	weight := max(l.end, collectFile)
	s.mu.Lock()
	s.superseded[l.id] = weight
	s.heldBytes += weight
	collect := s.heldBytes >= max(collectFrom, s.collectAt)
	if collect {
		s.collectAt = s.heldBytes * 2
	}
	s.mu.Unlock()
	if collect {
		runtime.GC()
	}
}

func (s *Store) forget(id string) {
	s.mu.Lock()
	size, ok := s.superseded[id]
	delete(s.superseded, id)
	s.heldBytes -= size
	s.collectAt = min(s.collectAt, s.heldBytes*2)
	s.mu.Unlock()
	if !ok {
		return
	}
	if err := s.files.remove(id); err != nil {
		s.log.Warn("a rewritten layer could not be removed; the next start tries again", "layer", id, "error", err)
	}
}
