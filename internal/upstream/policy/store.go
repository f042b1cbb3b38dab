package policy

import (
	"bytes"
	"container/list"
	"sync"
	"time"

	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A cacheKey names one cached answer. The principal is in it as it is, not as part
// of a hash.
type cacheKey struct {
	chain  uint64 // or the target, for what its chains share
	age    uint64 // how often the server was forgotten before
	kind   listKind
	public bool // for every principal
	who    string
	sign   signature
}

// An entry is one cached answer. It never changes.
type entry struct {
	key    cacheKey
	scope  *scope
	at     *list.Element
	size   int64
	result []byte
	events bool
	ttl    wire.Span // where the result says how long it holds; absent where it does not
	born   time.Time
	until  time.Time
}

// A scope is a set of entries that are dropped together. It is guarded by its
// store.
type scope struct {
	epoch   uint64
	entries map[*entry]struct{}
}

// A store caches answers of one server: so many, so many bytes; the least recently
// used are dropped first.
type store struct {
	maxCount int
	maxBytes int64

	mu     sync.Mutex
	m      map[cacheKey]*entry
	used   *list.List // *entry, the last used first
	bytes  int64
	epoch  uint64
	sweeps *time.Timer // nil while there is nothing to sweep
	closed bool
}

const (
	sweepEvery = time.Minute
	// overhead is about what an entry costs besides its bytes.
	overhead = 512
)

func newStore(maxCount int, maxBytes int64) *store {
	return &store{maxCount: maxCount, maxBytes: maxBytes, m: make(map[cacheKey]*entry), used: list.New()}
}

// epoch is a moment in the life of a scope.
type epoch struct{ store, scope uint64 }

// now returns the scope's moment. An answer that is put with it later is cached
// only if the scope was not emptied in between.
func (s *store) now(sc *scope) epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return epoch{s.epoch, sc.epoch}
}

// get finds an answer that is still valid. An answer whose server did not say for
// how long is valid for at most the given time, which may have changed since.
func (s *store) get(key cacheKey, most time.Duration) (*entry, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.m[key]
	if e == nil {
		return nil, 0
	}
	now := time.Now()
	left := e.until.Sub(now)
	if !e.ttl.Ok() {
		left = min(left, e.born.Add(most).Sub(now))
	}
	if left <= 0 {
		s.remove(e)
		return nil, 0
	}
	s.used.MoveToFront(e.at)
	return e, left
}

// put caches an answer, unless its scope was emptied since the epoch.
func (s *store) put(sc *scope, at epoch, key cacheKey, res *upstream.Result, ttlAt wire.Span, ttl time.Duration) bool {
	size := int64(len(res.Result) + len(key.who) + overhead)
	if size > s.maxBytes || ttl <= 0 {
		return false
	}
	now := time.Now()
	e := &entry{
		key: key, scope: sc, size: size, events: res.Events, ttl: ttlAt,
		// Callers may change theirs, and it may be a small part of a large buffer.
		result: bytes.Clone(res.Result), born: now, until: now.Add(ttl),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || at != (epoch{s.epoch, sc.epoch}) {
		return false
	}
	if old := s.m[key]; old != nil {
		s.remove(old)
	}
	s.m[key] = e
	if sc.entries == nil {
		sc.entries = make(map[*entry]struct{})
	}
	sc.entries[e] = struct{}{}
	e.at = s.used.PushFront(e)
	s.bytes += size
	for len(s.m) > s.maxCount || s.bytes > s.maxBytes {
		s.remove(s.used.Back().Value.(*entry))
	}
	if s.sweeps == nil {
		s.sweeps = time.AfterFunc(sweepEvery, s.sweep)
	}
	return true
}

// drop empties a scope; answers that are being fetched for it are not cached.
func (s *store) drop(sc *scope) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc.epoch++
	for e := range sc.entries {
		s.remove(e)
	}
}

// clear empties all scopes.
func (s *store) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.epoch++
	for _, e := range s.m {
		s.remove(e)
	}
}

// remove takes an entry out. s.mu is held.
func (s *store) remove(e *entry) {
	delete(s.m, e.key)
	delete(e.scope.entries, e)
	s.used.Remove(e.at)
	s.bytes -= e.size
}

// sweep removes expired entries.
func (s *store) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for _, e := range s.m {
		if !now.Before(e.until) {
			s.remove(e)
		}
	}
	if s.closed || len(s.m) == 0 {
		s.sweeps = nil
		return
	}
	s.sweeps = time.AfterFunc(sweepEvery, s.sweep)
}

func (s *store) close() {
	s.clear()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.sweeps != nil {
		s.sweeps.Stop()
		s.sweeps = nil
	}
}
