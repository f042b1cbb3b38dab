//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// A crowdMember is a session of the crowd and what is known of it. A value that
// was asked for and not answered may be there or not; one that was answered is.
type crowdMember struct {
	id      string
	shelves []*shelf
	turn    sync.Mutex // of calls to servers that can't have two at once

	mu    sync.Mutex
	sure  holding // answered
	maybe holding // asked for when the gateway was killed
	ended bool    // it is being closed
}

func newCrowdMember(id string, shelves []*shelf) *crowdMember {
	m := &crowdMember{id: id, shelves: shelves, sure: holding{}, maybe: holding{}}
	for _, s := range shelves {
		m.sure[s.server], m.maybe[s.server] = map[string]string{}, map[string]string{}
	}
	return m
}

// put stores a unique value, under a key of its own.
func (m *crowdMember) put(ctx context.Context, c *client.Client, s *shelf, word string) error {
	if s.serial {
		m.turn.Lock()
		defer m.turn.Unlock()
	}
	m.mu.Lock()
	m.maybe[s.server][word] = word
	m.mu.Unlock()
	err := s.put(ctx, s.on(c, m.id), word, word, false)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err == nil {
		delete(m.maybe[s.server], word)
		m.sure[s.server][word] = word
	}
	return err
}

// known is a copy of what is known now.
func (m *crowdMember) known() (sure, maybe holding) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sure.clone(), m.maybe.clone()
}

// child is what is known of one that was made from this session between two
// moments: all that was answered before it began, perhaps what was asked for
// until it ended.
func (m *crowdMember) child(id string, before holding) *crowdMember {
	c := newCrowdMember(id, m.shelves)
	sure, maybe := m.known()
	for server := range c.sure {
		c.sure[server] = maps.Clone(before[server])
		for _, more := range []map[string]string{sure[server], maybe[server]} {
			for key, value := range more {
				if _, ok := before[server][key]; !ok {
					c.maybe[server][key] = value
				}
			}
		}
	}
	return c
}

// check reads all that the session holds and settles what was not known, as far as it
// is there. What is not may come later, here and in forks: the gateway that was killed
// had sent the call, and its server may still be at it.
func (m *crowdMember) check(ctx context.Context, c *client.Client) error {
	var errs []error
	for _, s := range m.shelves {
		got, err := s.all(ctx, s.on(c, m.id))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		m.mu.Lock()
		want := maps.Clone(m.sure[s.server])
		for key, value := range m.maybe[s.server] {
			if _, ok := got[key]; ok {
				want[key] = value
				delete(m.maybe[s.server], key)
			}
		}
		if d := differ(got, want); d != "" {
			errs = append(errs, fmt.Errorf("%s of %s:%s", s.server, m.id, d))
		}
		m.sure[s.server] = want
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

// A crowd is many sessions under load.
type crowd struct {
	c *client.Client

	mu      sync.Mutex
	members []*crowdMember
	frozen  map[string]bool // snapshots that were answered
	counts  map[string]int
	words   int
}

func (w *crowd) count(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[what]++
}

func (w *crowd) word() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.words++
	return fmt.Sprintf("w%d", w.words)
}

func (w *crowd) add(m *crowdMember) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.members = append(w.members, m)
}

func (w *crowd) pick(rng *rand.Rand) *crowdMember {
	w.mu.Lock()
	defer w.mu.Unlock()
	return pick(rng, w.members)
}

// take picks one to be closed, and gives it to no other goroutine.
func (w *crowd) take(rng *rand.Rand) *crowdMember {
	w.mu.Lock()
	defer w.mu.Unlock()
	i := rng.IntN(len(w.members))
	m := w.members[i]
	w.members = slices.Delete(w.members, i, i+1)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	return m
}

func (w *crowd) size() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.members)
}

// over reports whether an error is that of a session which another caller closes
// meanwhile: it came too late, or it was running.
func (m *crowdMember) over(err error) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := kindOf(err)
	return m.ended && e != nil && slices.Contains([]api.Kind{api.KindRefused, api.KindInvalid, api.KindLost}, e.Kind)
}

// act does one thing at random. It returns an error only where the gateway
// answered something that it should not have.
func (w *crowd) act(ctx context.Context, rng *rand.Rand, size int) error {
	var err error
	what, m := "call", w.pick(rng)
	switch n := rng.IntN(100); {
	case n < 90 || w.size() < size/2:
		err = m.put(ctx, w.c, pick(rng, m.shelves), w.word())
	case n < 94:
		what = "fork"
		before, _ := m.known()
		var f *api.Forks
		if f, err = w.c.Fork(ctx, m.id, api.ForkRequest{Count: 1 + rng.IntN(2)}); err == nil {
			for _, s := range f.Sessions {
				w.add(m.child(s.ID, before))
			}
		}
	case n < 96:
		what = "snapshot"
		var s *api.Snapshot
		if s, err = w.c.MakeSnapshot(ctx, m.id, api.SnapshotRequest{}); err == nil {
			w.mu.Lock()
			w.frozen[s.ID] = true
			w.mu.Unlock()
		}
	case n < 98 || w.size() < size:
		what = "open"
		var s *api.OpenedSession
		if s, err = w.c.OpenSession(ctx, api.NewSession{Servers: serversOf(m.shelves)}); err == nil {
			w.add(newCrowdMember(s.ID, m.shelves))
		}
	default:
		what, m = "close", w.take(rng)
		err = w.c.CloseSession(ctx, m.id)
	}
	switch {
	case err == nil:
		w.count(what)
		return nil
	case errors.As(err, new(*wrongAnswer)):
		return err
	case kindOf(err) == nil: // the gateway was killed
		w.count(what + " unanswered")
		return ctx.Err()
	case m.over(err):
		w.count(what + " too late")
		return nil
	}
	return fmt.Errorf("%s: %w (%+v)", what, err, *kindOf(err))
}

func serversOf(shelves []*shelf) (servers []string) {
	for _, s := range shelves {
		servers = append(servers, s.server)
	}
	return servers
}

// check holds every session and snapshot against what was answered. What nobody
// was told of is closed.
func (w *crowd) check(ctx context.Context) error {
	there, err := openSessions(ctx, w.c, client.SessionQuery{})
	if err != nil {
		return err
	}
	results := make(chan error, len(w.members))
	places := make(chan struct{}, 8)
	for _, m := range w.members {
		if _, ok := there[m.id]; !ok {
			results <- fmt.Errorf("session %s is missing", m.id)
			continue
		}
		delete(there, m.id)
		go func() {
			places <- struct{}{}
			defer func() { <-places }()
			results <- m.check(ctx, w.c)
		}()
	}
	for range w.members {
		err = errors.Join(err, <-results)
	}
	for id := range there { // made by a request that was never answered, or to be closed by one
		err = errors.Join(err, w.c.CloseSession(ctx, id))
	}
	frozen := maps.Clone(w.frozen)
	for s, lerr := range w.c.AllSnapshots(ctx, client.SnapshotQuery{}) {
		if lerr != nil {
			return errors.Join(err, lerr)
		}
		if !frozen[s.ID] {
			err = errors.Join(err, w.c.DeleteSnapshot(ctx, s.ID))
		}
		delete(frozen, s.ID)
	}
	for id := range frozen {
		err = errors.Join(err, fmt.Errorf("snapshot %s is missing", id))
	}
	return err
}
