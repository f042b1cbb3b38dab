package store

import (
	"slices"
	"sync"
	"sync/atomic"
)

// A Hub wakes followers of what is written: events, and calls of the journal. A writer
// tells it after a write, and followers then read what they lack where it was written. It
// also hands on events that are stored nowhere, of which it has the last few. A writer
// never waits for a follower. The zero Hub is ready; a nil one has no followers.
type Hub struct {
	following atomic.Int32
	written   atomic.Int64 // how often events were

	mu        sync.Mutex
	followers map[chan struct{}]struct{}
	passing   []Event // the last ones
	passed    int64   // how many there were before those
}

// keptPassing is how many events that are stored nowhere a follower may lag behind.
const keptPassing = 256

// Wrote says that events were written.
func (h *Hub) Wrote() {
	if h != nil {
		h.written.Add(1)
		h.Raise()
	}
}

// Written grows whenever events were written: a follower that has read all since it was
// the same has nothing to read.
func (h *Hub) Written() int64 {
	if h == nil {
		return 0
	}
	return h.written.Load()
}

// Raise wakes the followers.
func (h *Hub) Raise() {
	if h == nil || h.following.Load() == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake()
}

func (h *Hub) wake() {
	for f := range h.followers {
		select {
		case f <- struct{}{}:
		default: // it has not looked since it was woken before
		}
	}
}

// Pass hands followers an event that is stored nowhere.
func (h *Hub) Pass(e Event) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.passing) == keptPassing {
		h.passing = slices.Delete(h.passing, 0, 1)
		h.passed++
	}
	h.passing = append(h.passing, e)
	h.wake()
}

// Passing returns the events after the first so many that are stored nowhere, how many
// there were by now, and how many of those between are no longer kept.
func (h *Hub) Passing(after int64) (all []Event, now, missed int64) {
	if h == nil {
		return nil, 0, 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	now = h.passed + int64(len(h.passing))
	missed = max(0, h.passed-after)
	if from := max(0, after-h.passed); from < int64(len(h.passing)) {
		all = slices.Clone(h.passing[from:])
	}
	return all, now, missed
}

// Follow returns a channel that has a value whenever there may be something new since it
// was last received from. The caller must call leave.
func (h *Hub) Follow() (woken <-chan struct{}, leave func()) {
	f := make(chan struct{}, 1)
	if h == nil {
		return f, func() {}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.followers == nil {
		h.followers = make(map[chan struct{}]struct{})
	}
	h.followers[f] = struct{}{}
	h.following.Add(1)
	return f, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if _, there := h.followers[f]; there {
			delete(h.followers, f)
			h.following.Add(-1)
		}
	}
}

// Followers returns how many there are.
func (h *Hub) Followers() int { return int(h.following.Load()) }
