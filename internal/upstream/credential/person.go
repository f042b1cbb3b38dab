package credential

import (
	"cmp"
	"context"
	"net/url"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// storeTimeout bounds a write that must not be given up with its caller.
const storeTimeout = 10 * time.Second

// person renews the login of one account.
//
// The record in memory and the token in the source change together, under mu,
// after the store has the record. A renewal works without mu; when gen has moved
// meanwhile, somebody logged in or out and its result is dropped.
type person struct {
	w   *Wallet
	who account
	src *source

	held int // by those who may change it; guarded by Wallet.mu

	mu     sync.Mutex
	loaded bool
	rec    *record // nil: nobody has logged in
	gen    int
	over   time.Time // when the login ended or was forgotten; zero where that is not known
	wants  []string  // scopes that the server wants beside those of the login
	// unsaved is a renewed login that the store did not take. Its predecessor's
	// refresh token may be used up, so it is not dropped, and not used before it
	// is kept.
	unsaved *record
}

func newPerson(w *Wallet, who account) *person {
	p := &person{w: w, who: who}
	p.src = &source{w: w, server: who.server, renewer: p, life: w.grace}
	return p
}

func (p *person) renew(ctx context.Context, set *Settings, old *token, forced bool) (*token, *fault) {
	_, origin := originOfServer(set)
	for {
		t, rec, gen, f := p.look(ctx, set, origin, old)
		if t != nil || f != nil {
			return t, f
		}
		if rec.Refresh == "" {
			if rec.alive(p.w.now()) {
				return nil, wantsLogin(set, "the server refuses the login's token, which can't be renewed")
			}
			return nil, wantsLogin(set, "the login has expired and can't be renewed")
		}
		params := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {rec.Refresh}}
		if rec.Resource != "" {
			params.Set("resource", rec.Resource)
		}
		c, err := rec.client(set)
		if err != nil {
			return nil, faultOf(set, err)
		}
		c.nonces = &p.src.nonces
		if f := c.bind(set, &found{}, p.src); f != nil {
			return nil, f
		}
		g, f := p.w.ask(ctx, set, rec.TokenURL, &c, params)
		if f != nil && (f.code == codeInvalidGrant || rec.Registered != nil && (f.code == codeInvalidClient || f.code == codeUnauthorized)) {
			if f, ok := p.lose(ctx, set, rec, gen, f.code); ok {
				return nil, f
			}
			continue
		}
		if f != nil {
			return nil, f
		}
		if t, f, ok := p.keep(ctx, set, rec.with(g, p.w.now(), &c), gen, forced); ok {
			return t, f
		}
	}
}

// blank reports whether it is known that there is no login. One that is busy is
// not.
func (p *person) blank() bool {
	if !p.mu.TryLock() {
		return false
	}
	defer p.mu.Unlock()
	return p.loaded && p.rec == nil && p.unsaved == nil
}

// look returns a token other than old where there is one, or the record to renew
// and its generation.
func (p *person) look(ctx context.Context, set *Settings, origin string, old *token) (*token, *record, int, *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(ctx); err != nil {
		return nil, nil, 0, &fault{err: *problem(api.KindInfrastructure, set.Server, true, "the login could not be read: %v", err)}
	}
	if p.unsaved != nil {
		if err := p.save(ctx); err != nil {
			return nil, nil, 0, unsavedFault(set.Server, err)
		}
	}
	rec := p.rec
	if why := unusable(rec, set, origin); why != "" {
		return nil, nil, 0, wantsLogin(set, why)
	}
	if (old == nil || old.access != rec.Access) && rec.alive(p.w.now()) {
		t := rec.token()
		p.src.current.Store(t)
		return t, nil, 0, nil
	}
	return nil, rec, p.gen, nil
}

const nobody = "nobody has logged in"

// unusable says why a record is no login; empty when it is one.
func unusable(rec *record, set *Settings, origin string) string {
	switch {
	case rec == nil:
		return nobody
	case rec.Ended != "":
		return rec.Ended
	}
	return rec.misfit(set, origin)
}

// load reads the record once; mu is held.
func (p *person) load(ctx context.Context) error {
	if p.loaded {
		return nil
	}
	rec, err := p.w.read(ctx, p.who)
	if err != nil {
		return err
	}
	p.rec, p.loaded = rec, true
	return nil
}

// save keeps what the store refused before; mu is held.
func (p *person) save(ctx context.Context) error {
	if err := p.w.put(ctx, p.who, p.unsaved); err != nil {
		return err
	}
	p.rec, p.unsaved = p.unsaved, nil
	return nil
}

// saveLast is the last chance of what the store refused before.
func (p *person) saveLast() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unsaved == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	if err := p.save(ctx); err != nil {
		p.w.log.Error("a renewed login is lost, since the store did not take it", "server", p.who.server, "err", err)
	}
}

func unsavedFault(server string, err error) *fault {
	return &fault{err: *problem(api.KindInfrastructure, server, true, "the login was renewed and could not be kept: %v", err)}
}

// keep stores a renewed login, then uses it. It reports false when the login is
// no longer the one that was renewed.
func (p *person) keep(ctx context.Context, set *Settings, next *record, gen int, forced bool) (*token, *fault, bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gen != gen {
		return nil, nil, false
	}
	if err := p.w.put(ctx, p.who, next); err != nil {
		if next.Refresh != p.rec.Refresh {
			p.unsaved = next
			return nil, unsavedFault(set.Server, err), true
		}
		// What is kept still renews it, so nothing is lost by using it.
		p.w.log.Warn("a renewed login could not be kept; it is used all the same", "server", p.who.server, "err", err)
	}
	p.rec = next
	t := next.token()
	t.forced = forced
	p.src.current.Store(t)
	return t, nil, true
}

// lose ends a login whose renewal was refused.
func (p *person) lose(ctx context.Context, set *Settings, rec *record, gen int, code string) (*fault, bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gen != gen {
		return nil, false
	}
	why := "the login has ended: its renewal was refused (" + code + ")"
	next := rec.without(why, code == codeInvalidGrant)
	if err := p.w.put(ctx, p.who, next); err != nil {
		// After a restart the renewal is refused again, and that is tried again.
		p.w.log.Warn("the end of a login could not be kept", "server", p.who.server, "err", err)
	}
	p.rec, p.over = next, p.w.now()
	p.src.current.Store(nil)
	return wantsLogin(set, why), true
}

// replaceBy makes next the login of the account: durable first. A nil next ends
// it for good. It returns what was there before.
func (p *person) replaceBy(ctx context.Context, next *record) (*record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.load(ctx) // what can't be read can be replaced all the same
	old := p.rec
	if p.unsaved != nil {
		old = p.unsaved
	}
	var err error
	if next == nil {
		err = p.w.store.DeleteCredential(ctx, p.who.server, p.who.owner)
	} else {
		err = p.w.put(ctx, p.who, next)
	}
	if err != nil {
		return nil, err
	}
	p.gen++
	p.rec, p.unsaved, p.wants, p.loaded = next, nil, nil, true
	if next == nil {
		p.over = p.w.now()
		p.src.current.Store(nil)
	} else {
		p.src.current.Store(next.token())
	}
	p.src.clear()
	return old, nil
}

// State says whether a principal is logged in to a server that wants a person.
func (w *Wallet) State(ctx context.Context, s Settings, principal string) api.LoginState {
	s = s.prepared()
	state := api.LoginState{Credential: config.CredentialShared}
	if s.PerPrincipal {
		state.Credential = config.CredentialPerPrincipal
	}
	_, origin := originOfServer(&s)
	p, letGo := w.person(&s, principal)
	defer letGo()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.load(ctx); err != nil {
		state.Reason = "the login could not be read: " + err.Error()
		return state
	}
	if p.rec == nil {
		return state
	}
	t := p.src.current.Load()
	state.Reason = unusable(p.rec, &s, origin)
	switch {
	case state.Reason != "":
	case p.rec.Refresh == "" && !p.rec.alive(w.now()):
		state.Reason = "the login has expired and can't be renewed"
	case p.rec.Refresh == "" && t != nil && t.rejected.Load():
		state.Reason = "the server refuses the login's token, which can't be renewed"
	default:
		state.LoggedIn, state.Expires = true, p.rec.Expires
	}
	return state
}

// Missing says why the calls of everyone at a server fail for want of a login, and since
// when, where that is known. It is empty where there is a login, and where each principal
// has its own.
func (w *Wallet) Missing(ctx context.Context, s Settings) (why string, since time.Time) {
	if s.Type != config.AuthLogin || s.PerPrincipal {
		return "", time.Time{}
	}
	state := w.State(ctx, s, "")
	if state.LoggedIn {
		return "", time.Time{}
	}
	p, letGo := w.person(&s, "")
	defer letGo()
	p.mu.Lock()
	defer p.mu.Unlock()
	return cmp.Or(state.Reason, nobody) + "; " + loginAdvice(s.Server), p.over
}
