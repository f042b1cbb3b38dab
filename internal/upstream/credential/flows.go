package credential

import (
	"crypto/rand"
	"crypto/subtle"
	"slices"
	"sync"
	"time"
)

const (
	flowLife = 10 * time.Minute
	// maxFlows bounds the logins under way, and maxOwnFlows those of one
	// principal at one server, whose oldest makes room.
	maxFlows    = 1000
	maxOwnFlows = 8
)

// A flow is a login that has begun: what is needed to finish it.
type flow struct {
	id        string // also the OAuth2 state
	principal string // who began it, and alone may finish it
	set       Settings
	expires   time.Time

	found    *found
	client   client
	made     *registration // nil for a client of the config
	redirect string
	verifier string
}

// flows are the logins under way, oldest first. They live in memory only: a
// person who is half way begins again after a restart.
type flows struct {
	mu   sync.Mutex
	list []*flow
}

// add gives a flow its id. It reports false when there are too many.
func (f *flows) add(fl *flow, now time.Time) bool {
	fl.id, fl.expires = rand.Text()+rand.Text(), now.Add(flowLife)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.list = slices.DeleteFunc(f.list, func(o *flow) bool { return !now.Before(o.expires) })
	own := 0
	first := -1
	for i, o := range f.list {
		if o.principal == fl.principal && o.set.Server == fl.set.Server {
			if own++; first < 0 {
				first = i
			}
		}
	}
	if own >= maxOwnFlows {
		f.list = slices.Delete(f.list, first, first+1)
	}
	if len(f.list) >= maxFlows {
		return false
	}
	f.list = append(f.list, fl)
	return true
}

// take returns a flow to the one who began it, once. The state must be the
// flow's own; a wrong one does not use it up, so that a stranger who sends the
// person's browser to us spoils nothing.
func (f *flows) take(id, state, server, principal string, now time.Time) *flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, fl := range f.list {
		if subtle.ConstantTimeCompare([]byte(fl.id), []byte(id)) != 1 {
			continue
		}
		if fl.principal != principal || fl.set.Server != server || !now.Before(fl.expires) ||
			subtle.ConstantTimeCompare([]byte(fl.id), []byte(state)) != 1 {
			return nil
		}
		f.list = slices.Delete(f.list, i, i+1)
		return fl
	}
	return nil
}
