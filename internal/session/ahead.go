package session

import (
	"context"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/internal/clone"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// A server with fork_ahead is copied in the background when its session has
// nothing to do, so that a fork is a hand-over. A copy is never wrong: the fork
// asks, with everything held, whether a single message went to the server or came
// from it since, and takes its own snapshot then.

const (
	// aheadPause is for how long a session must have done nothing before it is
	// copied: who makes one call after the other is not to wait for a copy each
	// time.
	aheadPause = 25 * time.Millisecond
	// aheadTries is how often that is looked for after a call.
	aheadTries = 20
	// aheadFailures is how many copies may fail before no more are made.
	aheadFailures = 3
	// aheadHold is how long a member may take to be held.
	aheadHold = 2 * time.Second
)

// ahead is the copy of one member. The session's lock guards it.
type ahead struct {
	have   *spare
	mark   string // of the moment that have is of, as in Upstream.Mark
	making bool
	again  bool // something happened since
	failed int
}

// copyAhead has copies made of the members that may have changed. It waits for
// nothing.
func (s *Session) copyAhead() {
	for _, e := range s.Catalog().Ahead {
		s.mu.Lock()
		all := s.ahead[e.ID]
		if all == nil {
			all = &ahead{}
			s.ahead[e.ID] = all
		}
		idle := !s.closed && s.parts[e.ID] != nil && all.failed < aheadFailures
		if idle && all.making {
			all.again, idle = true, false // only the last one matters
		}
		if idle {
			all.making = true
		}
		s.mu.Unlock()
		if idle && !s.r.background(func() { s.copyMember(e, all) }) {
			return
		}
	}
}

// copyMember makes copies of a member until nothing happens meanwhile.
func (s *Session) copyMember(e *catalog.Entry, all *ahead) {
	for {
		err := s.makeSpare(s.r.life, e, all)
		s.mu.Lock()
		if err != nil && s.r.life.Err() == nil {
			all.failed++
		}
		last := all.failed >= aheadFailures
		if last || s.closed || !all.again {
			all.making, all.again = false, false
			s.mu.Unlock()
			if last {
				s.r.o.Log.Warn("server is not copied ahead any more in this session", "server", e.ID, "session", s.ID, "err", err)
			}
			return
		}
		all.again = false
		s.mu.Unlock()
	}
}

// makeSpare copies a member once it is quiet, if no call is inside and it changed.
func (s *Session) makeSpare(ctx context.Context, e *catalog.Entry, all *ahead) error {
	up := s.Peek(e.ID)
	if up == nil {
		return nil
	}
	quiet := false
	for range aheadTries {
		before := up.Mark()
		select {
		case <-time.After(aheadPause):
		case <-ctx.Done():
			return nil
		}
		if quiet = before != "" && up.Mark() == before; quiet {
			break
		}
	}
	s.mu.Lock()
	same := all.have != nil && all.mark == up.Mark()
	s.mu.Unlock()
	if !quiet || same {
		return nil
	}
	sp, mark, err := s.takeSpare(ctx, e)
	if sp == nil {
		return err
	}
	if err := s.r.stock.ready(e, *sp.snap, 1); err != nil {
		s.r.stock.retire(sp)
		return err
	}
	s.mu.Lock()
	old := all.have
	if p := s.parts[e.ID]; s.closed || p == nil || p.up != up {
		old = sp // it is over meanwhile
	} else {
		all.have, all.mark, all.failed = sp, mark, 0
	}
	s.mu.Unlock()
	s.r.stock.retire(old)
	return nil
}

// takeSpare freezes a member if no call is inside; otherwise it returns nil. The
// mark is of the moment, as in Upstream.Mark.
func (s *Session) takeSpare(ctx context.Context, e *catalog.Entry) (sp *spare, mark string, err error) {
	thaw, ok := s.gate.freezeNow()
	if !ok {
		return nil, "", nil // it is tried again after the call that is inside
	}
	defer thaw()
	up := s.Peek(e.ID)
	if up == nil {
		return nil, "", nil
	}
	still, cancel := context.WithTimeout(ctx, aheadHold)
	defer cancel()
	inst, release, err := up.Hold(still)
	if err != nil {
		return nil, "", err
	}
	defer release()
	mark = up.Mark()
	if inst == nil || mark == "" {
		return nil, "", nil
	}
	dir := filepath.Join(s.r.snapshotHome(), "tmp_"+newID()[len("ses_"):])
	if err := makeFolder(dir); err != nil {
		return nil, "", err
	}
	snap, err := s.freezeMember(ctx, e, inst, filepath.Join(dir, e.ID))
	if err != nil {
		_ = clone.Remove(dir)
		return nil, "", err
	}
	sp = &spare{e: e, snap: &snap, dir: dir}
	if up.Mark() != mark || snap.Carries != driver.CarryMemory {
		s.r.stock.retire(sp)
		return nil, "", nil
	}
	return sp, mark, nil
}

// useSpares returns the copies of members that are as good as ones made now, to be
// given back. The gate is frozen.
func (s *Session) useSpares() map[string]*spare {
	ready := make(map[string]*spare)
	for _, e := range s.members() {
		if sp := s.useSpare(e); sp != nil {
			ready[e.ID] = sp
		}
	}
	return ready
}

// releaseAll releases the spares that were not used.
func (s *Session) releaseAll(ready map[string]*spare) {
	for _, sp := range ready {
		s.r.stock.release(sp)
	}
}

// useSpare returns a copy of a member, as useSpares does; nil where there is none.
func (s *Session) useSpare(e *catalog.Entry) *spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.ahead[e.ID]
	if all == nil || all.have == nil {
		return nil
	}
	sp := all.have
	if p := s.parts[e.ID]; p != nil && p.up.Mark() == all.mark && sp.e.Hash == e.Hash {
		s.r.stock.use(sp)
		return sp
	}
	all.have = nil
	if !s.r.background(func() { s.r.stock.retire(sp) }) {
		s.r.stock.retire(sp)
	}
	return nil
}

// forgetSpare takes a member's copy away, for the caller to drop. s.mu is held.
func (s *Session) forgetSpare(id string) *spare {
	all := s.ahead[id]
	if all == nil {
		return nil
	}
	delete(s.ahead, id)
	return all.have
}
