// Package credential holds what Tine shows to servers: OAuth2 client
// credentials, and the tokens of a person who logged in with an authorization
// code and PKCE.
//
// # From the outside in
//
//	Wallet     everything of one gateway: it wraps transports, logs in and out
//	transport  sets Authorization, and sends once more after a 401
//	source     one current token and its renewal, one at a time whoever asks
//	machine    renews with client credentials
//	person     renews with a refresh token, and keeps the login in the store
//	prover     the key that a token is bound to, where the server wants that
//
// A call with a good token reads one atomic pointer. Whatever a token endpoint
// says reaches no one unread: only its OAuth error code and description are
// passed on, cut, with secrets masked.
package credential

import (
	"context"
	"crypto"
	"encoding/base64"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/store"
)

const (
	// askTimeout bounds one renewal, and what Begin and Finish do in all.
	askTimeout = 30 * time.Second
	// closeGrace is how long Close lets a refresh finish: one that is cut off
	// may have used up its refresh token.
	closeGrace = 5 * time.Second
	// keptMachines is how many client credentials of one server stay cached when
	// its settings change; sessions that hold older ones go on with them.
	keptMachines = 8
	// leastPeople is how many accounts are remembered at least, with or without a
	// login. All who come have one at a server that wants a login of each.
	leastPeople = 256
)

// Options of a Wallet.
type Options struct {
	Store store.Credentials
	// HTTP makes the client that talks to token endpoints and reads metadata;
	// caFile is empty for the system's authorities. Redirects are never followed
	// to another origin, whatever the client says. Nil for one with timeouts.
	HTTP func(caFile string) (*http.Client, error)
	// Learn is told every token before it is first sent, so that it is masked where
	// it comes back; nil for nobody.
	Learn func(token string)
	Log   *slog.Logger     // nil for none
	Now   func() time.Time // nil for time.Now
}

// Settings say how Tine shows itself to one server.
type Settings struct {
	Server       string
	URL          string
	Type         string // config.AuthClientCredentials or config.AuthLogin
	TokenURL     string
	AuthURL      string
	ClientID     string
	ClientSecret string `json:"-"`
	PrivateKey   string `json:"-"` // instead of ClientSecret, as config.SigningKey reads it
	Issuer       string // where TokenURL is given: for which PrivateKey signs
	// ClientMetadataURL is the client id where the authorization server reads client
	// id metadata documents, and ClientID is empty.
	ClientMetadataURL string
	Scopes            []string
	Audience          string
	Resource          string
	Redirect          string
	PerPrincipal      bool
	CAFile            string

	thumbprint string // of PrivateKey; empty for none, and until prepared
}

// prepared is a copy of the settings that is ready for use.
func (s Settings) prepared() Settings {
	s.Scopes = slices.Clone(s.Scopes)
	if s.PrivateKey == "" {
		return s
	}
	s.thumbprint = "unreadable"
	if key, err := config.SigningKey(s.PrivateKey); err == nil {
		if sum, err := key.Thumbprint(crypto.SHA256); err == nil {
			s.thumbprint = base64.RawURLEncoding.EncodeToString(sum)
		}
	}
	return s
}

// String leaves the secret out, so that logging settings does no harm.
func (s Settings) String() string { return s.Type + " of server " + s.Server }

// GoString does the same for %#v.
func (s Settings) GoString() string { return s.String() }

// owner is whose credential a principal uses.
func (s *Settings) owner(principal string) string {
	if s.PerPrincipal {
		return principal
	}
	return ""
}

// same reports whether two settings ask for the same tokens.
func (s *Settings) same(o *Settings) bool {
	return s.Server == o.Server && s.URL == o.URL && s.Type == o.Type && s.TokenURL == o.TokenURL &&
		s.AuthURL == o.AuthURL && s.ClientID == o.ClientID && s.ClientSecret == o.ClientSecret &&
		s.PrivateKey == o.PrivateKey && s.Issuer == o.Issuer && s.ClientMetadataURL == o.ClientMetadataURL &&
		slices.Equal(s.Scopes, o.Scopes) && s.Audience == o.Audience && s.Resource == o.Resource &&
		s.Redirect == o.Redirect && s.PerPrincipal == o.PerPrincipal && s.CAFile == o.CAFile
}

// account is whose login at which server.
type account struct{ server, owner string }

// A Wallet holds the credentials of a gateway. Its methods may run at once. The
// store must stay open until Close has returned.
type Wallet struct {
	learn   func(token string)
	store   store.Credentials
	clients *clients
	log     *slog.Logger
	now     func() time.Time
	flows   flows

	mu       sync.Mutex
	machines map[string][]*machine // by server, newest last
	people   map[account]*person
	sweepAt  int // how many people there are when those without a login go
	closed   bool
	work     sync.WaitGroup

	life, grace       context.Context
	endLife, endGrace context.CancelFunc
}

// New returns a wallet. Nothing is fetched before somebody needs it.
func New(o Options) *Wallet {
	w := &Wallet{
		store: o.Store, clients: &clients{make: o.HTTP}, log: o.Log, now: o.Now,
		machines: make(map[string][]*machine), people: make(map[account]*person),
	}
	if w.learn = o.Learn; w.learn == nil {
		w.learn = func(string) {}
	}
	if w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.now == nil {
		w.now = time.Now
	}
	w.life, w.endLife = context.WithCancel(context.Background())
	w.grace, w.endGrace = context.WithCancel(context.Background())
	return w
}

// Close ends what is under way and waits for it. A refresh gets a moment to
// finish, so that its rotated token is not lost. It may be called twice.
func (w *Wallet) Close() {
	w.mu.Lock()
	first := !w.closed
	w.closed = true
	people := make([]*person, 0, len(w.people))
	for _, p := range w.people {
		people = append(people, p)
	}
	w.mu.Unlock()
	w.endLife()
	cut := time.AfterFunc(closeGrace, w.endGrace)
	w.work.Wait()
	cut.Stop()
	w.endGrace()
	if first {
		for _, p := range people {
			p.saveLast()
		}
	}
	w.clients.close()
}

// spawn runs f as work that Close waits for. It reports false after Close.
func (w *Wallet) spawn(f func()) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return false
	}
	w.work.Go(f)
	return true
}

// enter makes Close wait for the caller until it leaves.
func (w *Wallet) enter() (leave func(), ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil, false
	}
	w.work.Add(1)
	return w.work.Done, true
}

// machine returns the source of tokens for client credentials.
func (w *Wallet) machine(s *Settings) *source {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.machines[s.Server]
	for _, m := range list {
		if m.set.same(s) {
			return m.src
		}
	}
	m := newMachine(w, s)
	if len(list) >= keptMachines {
		list = slices.Delete(list, 0, 1)
	}
	w.machines[s.Server] = append(list, m)
	return m.src
}

// person returns an account, which stays the one of its kind until it is let
// go. Who only reads its tokens may do so for longer: see transport.source.
func (w *Wallet) person(s *Settings, principal string) (p *person, letGo func()) {
	key := account{s.Server, s.owner(principal)}
	w.mu.Lock()
	defer w.mu.Unlock()
	p = w.people[key]
	if p == nil {
		if len(w.people) >= max(w.sweepAt, leastPeople) {
			w.sweep()
		}
		p = newPerson(w, key)
		w.people[key] = p
	}
	p.held++
	return p, func() {
		w.mu.Lock()
		p.held--
		w.mu.Unlock()
	}
}

// sweep takes out the people that nobody holds and that have no login: there is
// nothing about them that the store does not say too. mu is held.
func (w *Wallet) sweep() {
	for key, p := range w.people {
		if p.held == 0 && p.blank() {
			delete(w.people, key)
		}
	}
	w.sweepAt = 2 * len(w.people)
}

func errClosed(server string) *api.Error {
	return problem(api.KindInfrastructure, server, true, "the gateway is stopping")
}
