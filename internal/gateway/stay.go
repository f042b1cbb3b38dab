package gateway

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
)

// A stream that stays open outlives the request that was let in. Before anything
// is sent on it, its principal is looked at again, and when its token is revoked
// or runs out the stream ends.

// hears reports whether a principal that listens may be told something of a
// server, by method, as the rules and tokens are now; the empty server is the
// gateway itself.
func (g *Gateway) hears(who identity.Principal, server, method string) bool {
	now, ok := g.guard.Load().Again(who)
	return ok && (server == "" || mayList(now, access.Base(server), method))
}

// signal is raised once.
type signal struct{ up chan struct{} }

func newSignal() *signal { return &signal{make(chan struct{})} }

func (s *signal) raise() { close(s.up) }

// lookAgain is how often a token's time is looked at while its stream is open.
const lookAgain = 15 * time.Second

// whileAdmitted derives the context of a stream: it ends when its principal may
// no longer come in, and with the session it is of; nil for one of none. The
// returned function ends the looking and waits for it.
func (g *Gateway) whileAdmitted(ctx context.Context, who identity.Principal, sess *session.Session) (context.Context, func()) {
	return g.whileThere(ctx, sess, func() bool {
		_, ok := g.guard.Load().Again(who)
		return ok
	})
}

// whileThere is whileAdmitted without a principal: it ends with the session, if there is
// one, and when something does not hold any more.
func (g *Gateway) whileThere(ctx context.Context, sess *session.Session, holds func() bool) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	leave := g.stays.add(sess, cancel)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer cancel()
		tick := time.NewTicker(lookAgain)
		defer tick.Stop()
		for {
			changed := g.guarded.Load().up
			if !holds() || sess != nil && g.reg.Get(sess.ID) != sess {
				return
			}
			select {
			case <-changed:
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() {
		leave()
		cancel()
		<-done
	}
}

// stays are the streams of each session, so that one that is closed ends its
// own at once.
type stays struct {
	mu sync.Mutex
	of map[*session.Session]map[*context.CancelFunc]struct{}
}

func (s *stays) add(sess *session.Session, cancel context.CancelFunc) (leave func()) {
	if sess == nil {
		return func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of == nil {
		s.of = make(map[*session.Session]map[*context.CancelFunc]struct{})
	}
	all := s.of[sess]
	if all == nil {
		all = make(map[*context.CancelFunc]struct{})
		s.of[sess] = all
	}
	all[&cancel] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if delete(all, &cancel); len(all) == 0 {
			delete(s.of, sess)
		}
	}
}

// end ends the streams of a session.
func (s *stays) end(sess *session.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for cancel := range s.of[sess] {
		(*cancel)()
	}
}

// alone refuses to take a session that connections share away from others than the one
// who asks.
func (g *Gateway) alone(s *session.Session, asks *client, what string) error {
	if !s.Shared() {
		return nil
	}
	n, quiet := 0, api.ClientAway // quiet is how long nothing was heard of any of them
	g.mu.Lock()
	for _, c := range g.clients {
		since := time.Since(time.Unix(0, c.used.Load()))
		if !c.idle() {
			since = 0
		}
		if (c.sess == s || c.sess.UsesOf(s)) && c != asks && since < api.ClientAway {
			n, quiet = n+1, min(quiet, since)
		}
	}
	for _, d := range g.channels {
		if (d.sess == s || d.sess.UsesOf(s)) && (asks == nil || asks.out != d.out) {
			n, quiet = n+1, 0
		}
	}
	g.mu.Unlock()
	if n == 0 {
		return nil
	}
	e := &api.Error{
		Kind: api.KindRefused, Status: http.StatusConflict, Retryable: true,
		Message: fmt.Sprintf("session %s can't be %s while others are connected to it (%d); they share it, and would lose what they do in it", s.ID, what, n),
	}
	if quiet > 0 { // they may have left without a word
		e.Message += fmt.Sprintf("; the last was heard of %s ago, and a client counts for %.0fm", quiet.Round(time.Second), api.ClientAway.Minutes())
		e.RetryAfter = max(1, int((api.ClientAway - quiet).Seconds()))
	}
	return e
}

// endSession closes a session, with its clients and their streams. An error says
// that its end is not written down yet; it is over all the same.
func (g *Gateway) endSession(ctx context.Context, s *session.Session) error {
	err := g.reg.CloseSession(ctx, s)
	g.stays.end(s)
	g.mu.Lock()
	var clients []*client
	for _, c := range g.clients {
		if c.sess == s {
			clients = append(clients, c)
		}
	}
	g.mu.Unlock()
	for _, c := range clients {
		g.dismiss(ctx, c)
	}
	return err
}
