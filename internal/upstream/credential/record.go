package credential

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/store"
)

// A record is a login as the store keeps it. It is never changed: a renewed
// login is another record.
type record struct {
	binding
	Issuer     string `json:"issuer,omitempty"`
	Revocation string `json:"revocation,omitempty"`
	Resource   string `json:"resource,omitempty"`
	// Scopes are what the login asked for.
	Scopes []string `json:"scopes,omitempty"`

	// Registered is the client that was made for this login, where the config
	// names none. Style is how the client shows its secret, by its oauth2 name.
	Registered *registration    `json:"registered,omitempty"`
	Style      oauth2.AuthStyle `json:"style,omitempty"`
	// Signing is the algorithm of a client that signs who it is.
	Signing string `json:"signing,omitempty"`

	// Proof is the key that the login's tokens are bound to; nil for none.
	Proof  *proofKey `json:"proof,omitempty"`
	prover *prover   // of Proof

	Access  string    `json:"access,omitempty"`
	Refresh string    `json:"refresh,omitempty"`
	Got     time.Time `json:"got,omitzero"`
	Expires time.Time `json:"expires,omitzero"`

	Ended string `json:"ended,omitempty"` // why it no longer works
}

// A proofKey is the private key of a prover. Bound says that the access token is bound to
// it: one that is not may be renewed with it all the same.
type proofKey struct {
	Key      jose.JSONWebKey `json:"key"`
	Required bool            `json:"required,omitempty"`
	Bound    bool            `json:"bound,omitempty"`
}

// proves puts down what a client's tokens are bound to.
func (r *record) proves(c *client, g *grant) {
	if r.prover = c.prover; r.prover != nil {
		r.Proof = &proofKey{Key: c.prover.key, Required: c.prover.required, Bound: g.bound}
	}
}

// A registration is a client that an authorization server made for us. It is
// good for one redirect only: servers are meant to overlook the port of a
// loopback address, and some that are widely used do not.
type registration struct {
	Secret   string    `json:"secret,omitempty"`
	Expires  time.Time `json:"expires,omitzero"` // of the secret; zero for never
	Redirect string    `json:"redirect"`
}

// A binding is what a login was made for. Tokens are used for nothing else,
// whatever the config says later under the same name.
type binding struct {
	Origin       string `json:"origin"`
	TokenURL     string `json:"token_url"`
	ClientID     string `json:"client_id"`
	PerPrincipal bool   `json:"per_principal,omitempty"`
	// Document says that the client id is the URL of a metadata document.
	Document bool `json:"document,omitempty"`
	// Key names the key that the client was registered with; empty where it signs
	// nothing, or was not registered for the login.
	Key string `json:"key,omitempty"`
}

// misfit says what of the config has changed since the login; empty when
// nothing that matters has. origin is that of set.URL.
func (b *binding) misfit(set *Settings, origin string) string {
	changed := ""
	switch {
	case b.Origin != origin:
		changed = "url"
	case set.ClientID != "" && set.ClientID != b.ClientID:
		changed = "auth.client_id"
	case b.Document && set.ClientID == "" && set.ClientMetadataURL != b.ClientID:
		changed = "auth.client_metadata_url"
	case !b.Document && (set.ClientID == "" || b.Key != "") && set.thumbprint != b.Key:
		changed = "auth.private_key"
	case set.TokenURL != "" && set.TokenURL != b.TokenURL:
		changed = "auth.token_url"
	case set.PerPrincipal != b.PerPrincipal:
		changed = "credential"
	default:
		return ""
	}
	return fmt.Sprintf("servers.%s.%s has changed since the login", set.Server, changed)
}

// client is who renews the login.
func (r *record) client(set *Settings) (client, error) {
	c := client{id: r.ClientID, style: r.Style, document: r.Document, prover: r.prover}
	signs := r.Key != ""
	switch {
	case r.Registered != nil:
		c.secret = r.Registered.Secret
	case set.ClientID == r.ClientID || r.Document && set.ClientMetadataURL == r.ClientID: // never another client's secret
		c.secret = set.ClientSecret
		signs = set.PrivateKey != ""
	}
	if !signs {
		return c, nil
	}
	var err error
	c.signature, err = set.sign(cmp.Or(r.Issuer, set.Issuer), r.Signing, nil)
	return c, err
}

// token is the record as calls use it.
func (r *record) token() *token {
	var bound *prover
	if r.Proof != nil && r.Proof.Bound {
		bound = r.prover
	}
	t := newToken(r.Access, r.Got, r.Expires, r.Refresh != "", bound)
	t.login = &r.binding
	return t
}

func (r *record) alive(now time.Time) bool {
	return r.Access != "" && (r.Expires.IsZero() || now.Before(r.Expires))
}

// with is the record after a renewal.
func (r *record) with(g *grant, now time.Time, c *client) *record {
	next := *r
	next.Access, next.Expires, next.Got, next.Style = g.access, g.expires, now, c.style
	next.proves(c, g)
	if g.refresh != "" {
		next.Refresh = g.refresh
	}
	return &next
}

// without is the record after its login has ended. The client stays for the
// next one, unless it is what was refused.
func (r *record) without(why string, client bool) *record {
	next := *r
	next.Access, next.Refresh, next.Ended = "", "", why
	next.Proof, next.prover = nil, nil
	next.Got, next.Expires = time.Time{}, time.Time{}
	if !client {
		next.Registered = nil
	}
	return &next
}

func (w *Wallet) put(ctx context.Context, a account, r *record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write down the login: %w", err)
	}
	return w.store.PutCredential(ctx, store.Credential{Server: a.server, Principal: a.owner, Data: data, Changed: w.now()})
}

// read returns the record of an account; nil when there is none.
func (w *Wallet) read(ctx context.Context, a account) (*record, error) {
	c, ok, err := w.store.Credential(ctx, a.server, a.owner)
	if err != nil || !ok {
		return nil, err
	}
	r := new(record)
	if err := json.Unmarshal(c.Data, r); err != nil {
		// The decoder's text may quote what it could not read.
		return &record{Ended: "what was kept of the login can't be read"}, nil
	}
	if r.Proof != nil {
		if r.prover, err = newProver(r.Proof.Key, r.Proof.Required); err != nil {
			return &record{Ended: "what was kept of the login can't be read"}, nil
		}
	}
	return r, nil
}

// originOfServer is the origin that set.URL names; empty when it names none.
func originOfServer(set *Settings) (*url.URL, string) {
	u, err := serverURL(set.URL)
	if err != nil {
		return nil, ""
	}
	return u, driver.Origin(u)
}
