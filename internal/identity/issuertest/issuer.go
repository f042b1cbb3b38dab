// Package issuertest is a whole OpenID Connect issuer and OAuth 2.1
// authorization server on loopback, for tests, benchmarks and the helper
// programs of end-to-end tests.
//
// It publishes its metadata and keys, approves every request at its authorization
// endpoint at once, hands out signed access tokens and rotating refresh tokens, and
// registers clients. It counts requests, and can be told to fail in the ways that
// issuers fail.
//
//	iss := issuertest.New(t, issuertest.Options{Registration: true})
//	token := iss.Token(map[string]any{"sub": "ada", "aud": "http://127.0.0.1:8463/mcp"})
//	iss.Rotate()
//	iss.Down(true)
//
// It is not secure.
package issuertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Options say what the issuer is like. The zero value is an issuer without
// clients that signs with ES256.
type Options struct {
	// Listen is the address it listens on; default a free port of 127.0.0.1.
	Listen string
	// Path is what follows the host in the issuer's URL, such as /realms/acme.
	Path string
	// Algorithm of signatures: ES256 unless given, or RS256, PS256, EdDSA and so on.
	Algorithm string
	// Clients that are known from the start.
	Clients []Client
	// Registration lets any caller register a client.
	Registration bool
	// Subject is who approves at the authorization endpoint; default ada.
	Subject string
	// Claims are put into every access token of the token endpoint.
	Claims map[string]any
	// Audience of tokens that are asked for without resource and audience;
	// default the client's id.
	Audience string
	// Scopes that exist. Others are not granted; a request without a scope gets
	// all of them. Without Scopes everything asked for is granted.
	Scopes []string
	// Lifetime of access tokens; default one hour.
	Lifetime time.Duration
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// A Client may use the token endpoint. Without a secret it is a public one,
// which sends nothing but its id.
type Client struct {
	ID        string
	Secret    string
	Redirects []string // where codes may go; a loopback one matches with any port
}

// Endpoints, as Count, Fail and Hold name them.
const (
	Discovery = "discovery" // both well-known documents
	JWKS      = "jwks"
	Authorize = "authorize"
	Token     = "token"
	Register  = "register"
)

// An Issuer is one that runs. All methods may be called at any time from any
// goroutine.
type Issuer struct {
	opts   Options
	origin string // http://127.0.0.1:PORT
	server *http.Server
	served sync.WaitGroup // the accept loop and the running requests
	closed chan struct{}

	mu        sync.Mutex
	closing   bool
	keys      []signingKey // the last one signs
	stranger  signingKey   // never published
	clients   map[string]Client
	codes     map[string]grant
	refreshes map[string]refresh
	revoked   map[string]bool
	counts    map[string]int
	fail      map[string]int
	holds     map[string]chan struct{}
	delay     time.Duration
	lifetime  time.Duration
	claims    map[string]any
	subject   string
	down      bool
	denying   bool
	noRefresh bool
}

// New starts an issuer that ends with the test.
func New(t testing.TB, o Options) *Issuer {
	t.Helper()
	i, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(i.Close)
	return i
}

// Start starts an issuer that runs until Close.
func Start(o Options) (*Issuer, error) {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Algorithm == "" {
		o.Algorithm = string(jose.ES256)
	}
	if o.Lifetime == 0 {
		o.Lifetime = time.Hour
	}
	if o.Subject == "" {
		o.Subject = "ada"
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Path = strings.TrimSuffix(o.Path, "/")
	i := &Issuer{
		opts: o, closed: make(chan struct{}), lifetime: o.Lifetime, subject: o.Subject, claims: maps.Clone(o.Claims),
		clients: map[string]Client{}, codes: map[string]grant{}, refreshes: map[string]refresh{}, revoked: map[string]bool{},
		counts: map[string]int{}, fail: map[string]int{}, holds: map[string]chan struct{}{},
	}
	for _, c := range o.Clients {
		i.clients[c.ID] = c
	}
	first, err := newKey(o.Algorithm)
	if err != nil {
		return nil, err
	}
	stranger, err := newKey(o.Algorithm)
	if err != nil {
		return nil, err
	}
	i.keys, i.stranger = []signingKey{first}, stranger
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	i.origin = "http://" + ln.Addr().String()
	i.server = &http.Server{Handler: i.handler(), ReadHeaderTimeout: time.Minute}
	i.served.Go(func() {
		if err := i.server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("issuertest: serving on %s: %v", ln.Addr(), err))
		}
	})
	return i, nil
}

// Close ends it and waits for running requests. It may be called twice.
func (i *Issuer) Close() {
	i.mu.Lock()
	if !i.closing {
		i.closing = true
		close(i.closed)
	}
	i.mu.Unlock()
	_ = i.server.Close()
	i.served.Wait()
}

// URL is the issuer, as it stands in iss.
func (i *Issuer) URL() string { return i.origin + i.opts.Path }

// TokenURL is the token endpoint.
func (i *Issuer) TokenURL() string { return i.URL() + "/token" }

// AuthorizeURL is the authorization endpoint.
func (i *Issuer) AuthorizeURL() string { return i.URL() + "/authorize" }

// AddClient makes a client known, or replaces it.
func (i *Issuer) AddClient(c Client) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.clients[c.ID] = c
}

// Count tells how often an endpoint was asked, failures included. Count(Token +
// ":refresh_token") and the like count by grant type.
func (i *Issuer) Count(endpoint string) int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.counts[endpoint]
}

// Down makes every connection end without an answer, or lets them be answered
// again.
func (i *Issuer) Down(down bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.down = down
}

// Fail makes an endpoint answer with a status and nothing of use; with 0 it
// works again.
func (i *Issuer) Fail(endpoint string, status int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.fail[endpoint] = status
}

// Hold lets requests of an endpoint arrive, be counted and wait until release
// is called or the issuer closes.
func (i *Issuer) Hold(endpoint string) (release func()) {
	gate := make(chan struct{})
	i.mu.Lock()
	defer i.mu.Unlock()
	i.holds[endpoint] = gate
	return sync.OnceFunc(func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.holds[endpoint] == gate {
			delete(i.holds, endpoint)
		}
		close(gate)
	})
}

// Slow delays every answer.
func (i *Issuer) Slow(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.delay = d
}

// Deny makes the person at the authorization endpoint say no.
func (i *Issuer) Deny(deny bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.denying = deny
}

// RefuseRefresh makes refresh tokens useless, as after a logout.
func (i *Issuer) RefuseRefresh(refuse bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.noRefresh = refuse
}

// SetLifetime changes how long access tokens live from now on.
func (i *Issuer) SetLifetime(d time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.lifetime = d
}

// SetSubject changes who approves, and the claims of the tokens they get.
func (i *Issuer) SetSubject(subject string, claims map[string]any) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.subject, i.claims = subject, maps.Clone(claims)
}

// handler counts and fails before it lets an endpoint answer.
func (i *Issuer) handler() http.Handler {
	mux := http.NewServeMux()
	on := func(pattern, endpoint string, h http.HandlerFunc) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if !i.enter() {
				panic(http.ErrAbortHandler)
			}
			defer i.served.Done()
			if i.admit(w, endpoint) {
				w.Header().Set("Cache-Control", "no-store")
				h(w, r)
			}
		})
	}
	path := i.opts.Path
	documents := []string{
		path + "/.well-known/openid-configuration",
		path + "/.well-known/oauth-authorization-server",
		"/.well-known/openid-configuration" + path,
		"/.well-known/oauth-authorization-server" + path,
	}
	slices.Sort(documents)
	for _, doc := range slices.Compact(documents) {
		on("GET "+doc, Discovery, i.serveMetadata)
	}
	on("GET "+path+"/jwks", JWKS, i.serveKeys)
	on(path+"/authorize", Authorize, i.serveAuthorize)
	on("POST "+path+"/token", Token, i.serveToken)
	on("POST "+path+"/register", Register, i.serveRegister)
	return mux
}

// enter counts a request among those Close waits for. It takes the lock because a
// WaitGroup must not grow from zero while Close waits for it.
func (i *Issuer) enter() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closing {
		return false
	}
	i.served.Add(1)
	return true
}

func (i *Issuer) admit(w http.ResponseWriter, endpoint string) bool {
	i.mu.Lock()
	i.counts[endpoint]++
	down, status, gate, delay := i.down, i.fail[endpoint], i.holds[endpoint], i.delay
	i.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler)
	}
	if gate != nil {
		select {
		case <-gate:
		case <-i.closed:
			panic(http.ErrAbortHandler)
		}
	}
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-i.closed:
			panic(http.ErrAbortHandler)
		}
	}
	if status != 0 {
		http.Error(w, "told to fail", status)
		return false
	}
	return true
}
