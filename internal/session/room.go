package session

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// Every instance of an opened session holds room of the budget while it runs.
// What an open or a fork starts is reserved for all of it at once, before
// anything is made, and each instance takes over its part; a server that starts
// at its first call waits for room then. What sessions share, and what clients
// have without asking, is not counted.

// needOf is what one instance of the server may use.
func needOf(e *catalog.Entry) need {
	n := need{memory: e.Budget.Memory}
	if !e.Runner.Info().Light {
		n.instances = 1
	}
	return n
}

// bounds are those of a config.
func bounds(c *config.Config) need {
	return need{memory: c.Sessions.Memory, instances: c.Sessions.Instances}
}

// limit has the budget keep to a config.
func (r *Registry) limit(c *config.Config) { r.budget.set(bounds(c), c.Sessions.Share) }

// payer is the session whose owner the room of an instance is counted for; nil
// where it is not counted.
func (by owned) payer() *Session {
	s := by.s
	if s == nil {
		s = by.user
	}
	if s == nil || s.Kind != KindOpened {
		return nil
	}
	return s
}

// roomFor returns what an Upstream asks for room with; nil where none is
// counted. An instance that is adopted has it already.
func (r *Registry) roomFor(e *catalog.Entry, by owned, adopted bool) func(context.Context) (func(), error) {
	s := by.payer()
	if s == nil || !e.Own() {
		return nil
	}
	n := needOf(e)
	if adopted {
		r.budget.force(s.Owner, n)
	}
	return func(ctx context.Context) (func(), error) {
		held := n
		if adopted {
			adopted = false // one after the other: an Upstream makes one attempt at a time
		} else if reserved, ok := s.claim(e.ID); ok {
			held = reserved
		} else {
			q := &request{owner: s.Owner, servers: map[string]need{e.ID: n}}
			if err := r.takeRoom(ctx, q, r.Catalog().Config.Sessions.Wait); err != nil {
				return nil, err
			}
		}
		return sync.OnceFunc(func() { r.budget.release(s.Owner, held) }), nil
	}
}

// takeRoom takes room for a request, waiting for it. What is made ahead gives
// way.
func (r *Registry) takeRoom(ctx context.Context, q *request, wait time.Duration) error {
	if short := r.budget.missing(q.total()); short > 0 {
		r.stock.giveWay(short)
	}
	return r.budget.reserve(ctx, q, wait)
}

// claim hands the room that was reserved for a member over to its instance.
func (s *Session) claim(member string) (need, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, ok := s.reserved[member]
	delete(s.reserved, member)
	return n, ok
}

// unreserve gives back what was reserved for members and is not claimed: of all,
// or of those that choose says.
func (s *Session) unreserve(choose func(member string) bool) {
	var n need
	s.mu.Lock()
	maps.DeleteFunc(s.reserved, func(member string, one need) bool {
		if choose != nil && !choose(member) {
			return false
		}
		n = n.plus(one)
		return true
	})
	s.mu.Unlock()
	s.r.budget.release(s.Owner, n)
}

// patience is how long a request waits: as long as it asks for, within
// sessions.max_wait, or as the config says where it asks for nothing. explain
// adds that to the error of one that asked for more.
func (r *Registry) patience(asked, fallback time.Duration) (wait time.Duration, explain func(error) error) {
	most := r.Catalog().Config.Sessions.MaxWait
	if asked == 0 || asked <= most {
		return choose(asked, fallback), func(err error) error { return err }
	}
	return most, func(err error) error {
		var ours *api.Error
		if !errors.As(err, &ours) || !ours.Retryable {
			return err
		}
		e := *ours
		e.Message = fmt.Sprintf("%s (it waited %s instead of %s, as sessions.max_wait says; ask again to wait longer)", e.Message, most, asked)
		return &e
	}
}
