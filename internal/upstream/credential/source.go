package credential

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/oauth2"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/telemetry"
)

const (
	firstPause = time.Second
	maxPause   = time.Minute
	// earlyShare and earlyMost say when a token is renewed: when that part of its
	// life is left, or that much time, whichever is less.
	earlyShare = 5
	earlyMost  = time.Minute
)

// A token is what one Authorization header says. It does not change, apart from
// what servers answered to it.
type token struct {
	header  []string // of the request, as it is
	access  string
	expires time.Time // zero when only a 401 tells
	renew   time.Time // from then on it is renewed behind the calls; zero for never
	login   *binding  // what the login was made for; nil for client credentials
	prover  *prover   // what it is bound to; nil for a bearer token
	forced  bool      // fetched because its predecessor met a 401

	told sync.Once // Options.Learn

	accepted atomic.Bool // a server answered something else than 401
	rejected atomic.Bool // the last answer was a 401
	useless  bool        // it met a 401 although it was fetched for one; guarded by source.mu
}

// newToken makes a token that was got at now. Without renewable it is used until
// it expires. bound is the key it is bound to, nil for none.
func newToken(access string, now, expires time.Time, renewable bool, bound *prover) *token {
	t := &token{header: []string{"Bearer " + access}, access: access, expires: expires, prover: bound}
	if bound != nil {
		t.header = []string{"DPoP " + access}
	}
	if !expires.IsZero() && renewable {
		t.renew = expires.Add(-min(expires.Sub(now)/earlyShare, earlyMost))
	}
	return t
}

func (t *token) alive(now time.Time) bool { return t.expires.IsZero() || now.Before(t.expires) }
func (t *token) stale(now time.Time) bool { return !t.renew.IsZero() && !now.Before(t.renew) }

// answered notes what a server said to it. A call that goes well writes nothing
// after the first.
func (t *token) answered(ok bool) {
	if ok && !t.accepted.Load() {
		t.accepted.Store(true)
	}
	if t.rejected.Load() == ok {
		t.rejected.Store(!ok)
	}
}

// A renewer gets tokens for a source. renew returns one other than old, which
// may be nil, and has put it in the source's current before it returns. It is
// called once at a time.
type renewer interface {
	renew(ctx context.Context, set *Settings, old *token, forced bool) (*token, *fault)
}

// A source holds the current token, and renews it: one renewal at a time,
// whoever asks, which goes on when the one who asked gave up. Failures are
// followed by growing pauses in which everybody is told the last one.
type source struct {
	w       *Wallet
	server  string
	renewer renewer
	life    context.Context // ends renewals
	current atomic.Pointer[token]
	nonces  nonces
	bound   atomic.Bool // the server has refused a bearer token for being one

	mu       sync.Mutex
	flight   *flight // the renewal under way; nil for none
	failed   *fault
	failures int
	pause    time.Time // no renewal before it, since the last ones failed
	useless  int       // renewals in a row that a server answered with another 401
	hold     time.Time // no renewal for a 401 before it, since the last ones were useless
}

// A flight is one renewal. token and err are set when done is closed.
type flight struct {
	set   *Settings
	done  chan struct{}
	token *token
	err   *fault
}

// get returns a token that is good for all that is known. Its error is an
// *api.Error, or the cause of ctx.
func (s *source) get(ctx context.Context, set *Settings) (*token, error) {
	t := s.current.Load()
	if t != nil {
		now := s.w.now()
		if t.alive(now) {
			if t.stale(now) {
				s.renewBehind(set, t, false)
			}
			return t, nil
		}
	}
	return s.obtain(ctx, set, t, false)
}

// renewBehind starts a renewal that nobody waits for.
func (s *source) renewBehind(set *Settings, old *token, forced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.flight == nil && !s.w.now().Before(s.pause) && s.current.Load() == old {
		s.launch(set, old, forced, true)
	}
}

// obtain waits for a token other than old.
func (s *source) obtain(ctx context.Context, set *Settings, old *token, forced bool) (*token, error) {
	for {
		s.mu.Lock()
		now := s.w.now()
		if t := s.current.Load(); t != nil && t != old && t.alive(now) {
			s.mu.Unlock()
			return t, nil
		}
		f, mine := s.flight, false
		if f == nil {
			if wait := s.pause.Sub(now); wait > 0 {
				err := s.failed.error(wait)
				s.mu.Unlock()
				return nil, err
			}
			f, mine = s.launch(set, old, forced, false), true
		}
		s.mu.Unlock()
		if f == nil {
			return nil, errClosed(s.server)
		}
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		switch {
		case f.err == nil:
			return f.token, nil
		case !mine && f.err.local && f.set != set:
			continue // what stood in the way may be the other one's settings
		}
		return nil, f.err.error(f.err.after)
	}
}

// launch starts a renewal; s.mu is held. It returns nil after Close.
func (s *source) launch(set *Settings, old *token, forced, behind bool) *flight {
	f := &flight{set: set, done: make(chan struct{})}
	if !s.w.spawn(func() { s.fly(f, old, forced, behind) }) {
		return nil
	}
	s.flight = f
	return f
}

func (s *source) fly(f *flight, old *token, forced, behind bool) {
	ctx, cancel := context.WithTimeout(s.life, askTimeout)
	defer cancel()
	func() {
		defer telemetry.Contain(s.w.log, telemetry.InUpstream, s.server, func(err error) {
			f.token, f.err = nil, &fault{}
			if e := new(api.Error); errors.As(err, &e) {
				f.err.err = *e
			}
		})
		f.token, f.err = s.renewer.renew(ctx, f.set, old, forced)
	}()
	s.mu.Lock()
	s.flight = nil
	switch {
	case f.err == nil:
		s.failed, s.failures, s.pause = nil, 0, time.Time{}
	case !f.err.local:
		s.failures++
		f.err.after = max(f.err.after, pauseAfter(s.failures))
		s.failed, s.pause = f.err, s.w.now().Add(f.err.after)
	}
	s.mu.Unlock()
	close(f.done)
	if behind && f.err != nil && s.life.Err() == nil {
		s.w.log.Warn("a token could not be renewed ahead of time", "server", s.server, "err", f.err.err.Message)
	}
}

// replace returns another token after a server answered 401 to t. Both results
// are nil when a renewal would not help.
func (s *source) replace(ctx context.Context, set *Settings, t *token) (*token, error) {
	if !s.worthwhile(t) {
		return nil, nil
	}
	return s.obtain(ctx, set, t, true)
}

// worthwhile reports whether a renewal may help against a 401 to t. It does not
// when t is the fruit of one that did not, or the last ones were none too long
// ago.
func (s *source) worthwhile(t *token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.Load() != t {
		return true
	}
	now := s.w.now()
	if t.forced && !t.useless && !t.accepted.Load() {
		s.noteUseless(t, now)
	}
	return !now.Before(s.hold)
}

// resent hears how a server answered the token that replace gave.
func (s *source) resent(t *token, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ok {
		s.useless, s.hold = 0, time.Time{}
	} else if !t.useless {
		s.noteUseless(t, s.w.now())
	}
}

func (s *source) noteUseless(t *token, now time.Time) {
	t.useless = true
	s.useless++
	s.hold = now.Add(pauseAfter(s.useless))
}

// clear forgets failures, since what caused them is over.
func (s *source) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed, s.failures, s.pause = nil, 0, time.Time{}
	s.useless, s.hold = 0, time.Time{}
}

func pauseAfter(failures int) time.Duration {
	return min(firstPause<<min(failures-1, 10), maxPause)
}

// machine renews with client credentials.
type machine struct {
	w      *Wallet
	set    *Settings
	src    *source
	client client // its style is learned, and its signature made anew for each token; only the renewal under way touches it
}

func newMachine(w *Wallet, s *Settings) *machine {
	m := &machine{w: w, set: s, client: client{id: s.ClientID, secret: s.ClientSecret}}
	m.src = &source{w: w, server: s.Server, renewer: m, life: w.life}
	m.client.nonces = &m.src.nonces
	return m
}

func (m *machine) renew(ctx context.Context, set *Settings, _ *token, forced bool) (*token, *fault) {
	at := &found{issuer: set.Issuer, tokenURL: set.TokenURL, resource: set.Resource, scopes: set.Scopes}
	if set.TokenURL == "" {
		var f *fault
		if at, f = m.find(ctx, set); f != nil {
			return nil, f
		}
	}
	var err error
	if m.client, err = set.signs(m.client, at); err != nil {
		return nil, faultOf(set, err)
	}
	if f := m.client.bind(set, at, m.src); f != nil {
		return nil, f
	}
	params := make(map[string][]string, 4)
	for name, value := range map[string]string{"audience": set.Audience, "resource": at.resource, "scope": joinScopes(at.scopes)} {
		if value != "" {
			params[name] = []string{value}
		}
	}
	params["grant_type"] = []string{"client_credentials"}
	g, f := m.w.ask(ctx, set, at.tokenURL, &m.client, params)
	if f != nil {
		return nil, f
	}
	t := newToken(g.access, m.w.now(), g.expires, true, m.client.boundTo(g))
	t.forced = forced
	m.src.current.Store(t)
	return t, nil
}

// bind gives a client a key for proofs where the server was found to want one, or has
// refused a token without.
func (c *client) bind(set *Settings, at *found, src *source) *fault {
	required := at.required || src.bound.Load()
	if c.prover != nil || at.proof == "" && !required {
		return nil
	}
	var err error
	if c.prover, err = makeProver(cmp.Or(at.proof, proofAlgorithms[0]), required); err != nil {
		return &fault{err: *problem(api.KindInfrastructure, set.Server, false, "%v", err)}
	}
	return nil
}

// boundTo is the key that a grant is bound to; nil for none.
func (c *client) boundTo(g *grant) *prover {
	if !g.bound {
		return nil
	}
	return c.prover
}

// find asks the server where its tokens come from. It is asked again for each token:
// it may have moved.
func (m *machine) find(ctx context.Context, set *Settings) (*found, *fault) {
	hc, err := m.w.clients.get(set.CAFile)
	if err != nil {
		return nil, &fault{err: *problem(api.KindInfrastructure, set.Server, false, "%v; mend servers.%s.ca_file", err, set.Server)}
	}
	f, err := m.w.discover(ctx, hc, set)
	if err != nil {
		return nil, faultOf(set, err)
	}
	if m.client.style == oauth2.AuthStyleAutoDetect {
		m.client.style = styleOf(f.methods)
	}
	return f, nil
}
