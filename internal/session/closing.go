package session

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/upstream"
)

// CloseSession ends a session and what it owns. What is shared stays. Closing
// twice is fine.
func (r *Registry) CloseSession(ctx context.Context, s *Session) error {
	return r.closeSession(ctx, s, "")
}

func (r *Registry) closeSession(ctx context.Context, s *Session, reason string) error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	if first {
		s.ended = time.Now().UTC()
		s.facts.Reason = reason
		if s.expiry != nil {
			s.expiry.Stop()
		}
	}
	s.mu.Unlock()
	if !first {
		return nil
	}
	ctx, cancel := afterwards(ctx)
	defer cancel()
	s.gate.close(s.gone())
	err := r.recordEnd(ctx, s)
	r.mu.Lock()
	delete(r.sessions, s.ID)
	delete(r.tokens, s.token)
	for _, m := range s.minted {
		delete(r.tokens, m.rec.Hash)
	}
	s.minted = nil
	if key := defaultKey(s.Owner, s.name); r.defaults[key] == s {
		delete(r.defaults, key)
	}
	if err != nil {
		r.unrecorded[s.ID] = s
	}
	r.mu.Unlock()
	if err != nil {
		// It would be back after a restart, and must not be empty then. What runs
		// ends; the rest waits for the reaper.
		r.finish(s, suspending(ctx, ""))
		return &api.Error{Kind: api.KindInfrastructure, Retryable: true, Message: fmt.Sprintf("the end of session %s could not be written down, and is tried again: %v", s.ID, err)}
	}
	r.removeSession(ctx, s)
	return nil
}

// removeSession removes what a session had whose end is written down.
func (r *Registry) removeSession(ctx context.Context, s *Session) {
	r.note(ctx, r.event(s.ID, eventClosed, eventData{Reason: s.known().Reason}))
	r.removeState(ctx, s)
	r.trimRing(ctx, &s.auto, "", 0)
	r.unopen(s)
	r.dropServers(ctx, s.pinned())
	if r.o.Closed != nil {
		r.o.Closed(s.ID)
	}
}

// recordEnd writes the end of a session down, before anything of it is removed:
// what a gateway that dies now leaves is removed by the next one.
func (r *Registry) recordEnd(ctx context.Context, s *Session) error {
	s.changing.Lock() // a change that is being written would bring it back
	defer s.changing.Unlock()
	f := s.known()
	if f.Rev > 0 || s.Kind != KindOpened {
		f.Rev++ // the reason is not in the folder's record
	}
	rec, err := s.record(f)
	if err != nil {
		return err
	}
	s.mu.Lock()
	rec.Closed = s.ended
	s.mu.Unlock()
	return r.o.Shared.PutSessions(ctx, rec)
}

// finish lets go of all of a session's parts, its own ones with end.
func (r *Registry) finish(s *Session, end func(*upstream.Upstream)) {
	s.mu.Lock()
	s.closed = true
	parts := s.parts
	s.parts = make(map[string]*part)
	var copies []*spare
	for id := range s.ahead {
		copies = append(copies, s.forgetSpare(id))
	}
	s.mu.Unlock()
	r.stock.retire(copies...)
	var wg sync.WaitGroup
	for _, p := range parts {
		if p.unhear != nil {
			p.unhear()
		}
		if s.owns(p) {
			wg.Go(func() { end(p.up) })
		}
	}
	wg.Wait()
}

// Between two tries to stop an instance that could not be stopped.
const (
	stopPause    = time.Second
	maxStopPause = time.Minute
)

// stopLater tries until an instance is stopped, such as one whose engine was away. What is
// left when the registry closes, the next start ends.
func (r *Registry) stopLater(stop func(context.Context) error) {
	r.background(func() {
		for pause := stopPause; ; pause = min(2*pause, maxStopPause) {
			select {
			case <-time.After(pause):
			case <-r.life.Done():
				return
			}
			ctx, cancel := context.WithTimeout(r.life, time.Minute)
			err := stop(ctx)
			cancel()
			if err == nil {
				return
			}
		}
	})
}

// Close ends the registry. Sessions are remembered. With keep, instances that the
// next gateway can adopt are left running; without, what they have in memory is
// kept where that can be done, as long as ctx lasts. It returns a moment after
// ctx is over whatever does not end.
func (r *Registry) Close(ctx context.Context, keep bool) {
	// A change that runs starts what is waited for below; none comes after.
	r.changing.Lock()
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		r.changing.Unlock()
		return
	}
	r.closed = true
	sessions := make([]*Session, 0, len(r.sessions))
	for _, s := range r.sessions {
		sessions = append(sessions, s)
	}
	shared := make([]*upstream.Upstream, 0, len(r.shared)+len(r.joints))
	for _, p := range r.shared {
		shared = append(shared, p.up)
	}
	for _, l := range r.joints {
		if l.up != nil {
			shared = append(shared, l.up)
		}
	}
	r.mu.Unlock()
	r.changing.Unlock()
	r.end()
	r.stopLeases()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.endAll(ctx, sessions, shared, keep)
	}()
	select {
	case <-done:
		return
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-time.After(endGrace):
		r.o.Log.Warn("not all servers have ended in time; the next gateway ends what is left of them")
	}
}

// endGrace is how long servers have that are only ended, once their time to keep
// what they know is over.
const endGrace = 5 * time.Second

func (r *Registry) endAll(ctx context.Context, sessions []*Session, shared []*upstream.Upstream, keep bool) {
	end := suspending(ctx, whyStopped) // all sessions are there again at the next start
	if keep {
		end = func(up *upstream.Upstream) { up.Leave(whyStopped) }
	}
	r.touch(ctx)
	var wg sync.WaitGroup
	for _, s := range sessions {
		wg.Go(func() {
			s.gate.close(errStopping)
			r.finish(s, end)
			s.closeWorkspaces(s.spaces.take())
			s.own.Close()
		})
	}
	wg.Wait()
	for _, up := range shared {
		wg.Go(func() { end(up) })
	}
	wg.Wait()
	r.dropLearners(nil)
	r.retiring.Wait()
	r.reaper.Wait()
	r.stock.close()
	r.dropGovernors(nil)
}
