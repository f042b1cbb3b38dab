package credential

import (
	"context"
	"crypto"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

const document = "https://tine.example/client.json"

// Who Tine is: the client of the config, else its metadata document where that is
// supported, else a client that is registered.
func TestClientOrder(t *testing.T) {
	for name, tt := range map[string]struct {
		clientID, url string
		supported     bool
		want          string
		registered    int
	}{
		"config first":      {"robot", document, true, "robot", 0},
		"document":          {"", document, true, document, 0},
		"not supported":     {"", document, false, "client-1", 1},
		"none":              {"", "", true, "client-1", 1},
		"URL as client id":  {document, "", false, document, 0},
		"URL and supported": {document, "", true, document, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.peer.secrets = map[string]string{"robot": "", document: ""}
			r.peer.documents = tt.supported
			s := r.login()
			s.ClientID, s.ClientMetadataURL = tt.clientID, tt.url
			r.enroll(s, "", "ann")
			rt := r.Wrap(s, "", r.next)
			r.must(rt, "a", "ann:a")
			r.clock.Advance(2 * time.Hour)
			r.must(rt, "b", "ann:b")
			form := r.peer.form()
			if form.Get("client_id") != tt.want || form.Has("client_secret") || len(r.peer.registered) != tt.registered {
				t.Errorf("the client is %q, and %d were registered; want %q and %d", form.Get("client_id"), len(r.peer.registered), tt.want, tt.registered)
			}
		})
	}
}

// A document takes the place of a client that was registered before, and a login
// with a document ends with it.
func TestDocumentComesAndGoes(t *testing.T) {
	r := newRig(t)
	r.peer.secrets[document] = ""
	s := r.login()
	r.enroll(s, "", "ann")
	r.peer.documents = true
	s.ClientMetadataURL = document
	r.must(r.Wrap(s, "", r.next), "a", "ann:a") // that login goes on
	r.enroll(s, "", "bob")
	if got := r.peer.form().Get("client_id"); got != document {
		t.Errorf("the next login is by %q", got)
	}
	r.open(r.shelf)
	r.must(r.Wrap(s, "", r.next), "b", "bob:b")
	s.ClientMetadataURL = document + "/other"
	_, _, err := r.call(r.Wrap(s, "", r.next), "c")
	refused(t, err, api.KindRefused, false, "servers.x.auth.client_metadata_url has changed since the login; run: tine login x")
	r.peer.documents, r.peer.noRegister = true, true
	s.ClientMetadataURL = ""
	_, err = r.Begin(context.Background(), s, "", here)
	refused(t, err, api.KindInvalid, false, "or set client_metadata_url there, which it supports")
}

// A document can say that its client signs.
func TestDocumentWithKey(t *testing.T) {
	r := newRig(t)
	key := newEC(t)
	r.peer.secrets[document] = ""
	r.peer.keys = map[string]crypto.PublicKey{document: key.Public()}
	r.peer.documents, r.peer.methods = true, []string{"none", "private_key_jwt"}
	s := r.login()
	s.ClientMetadataURL, s.PrivateKey = document, pemOf(t, key)
	r.enroll(s, "", "ann")
	r.clock.Advance(2 * time.Hour)
	r.must(r.Wrap(s, "", r.next), "a", "ann:a")
	if n := len(r.peer.signed); n != 2 {
		t.Errorf("%d requests were signed, want the login and its renewal", n)
	}
}

// Where metadata documents are not supported, a client with a key is registered with it,
// and signs. It never shows itself in another way.
func TestRegisteredWithKey(t *testing.T) {
	r := newRig(t)
	key := newEC(t)
	r.peer.methods = []string{"none", "private_key_jwt"}
	s := r.login()
	r.enroll(s, "", "ann") // without a key, as a client that shows nothing
	s.ClientMetadataURL, s.PrivateKey = document, pemOf(t, key)
	_, _, err := r.call(r.Wrap(s, "", r.next), "a")
	refused(t, err, api.KindRefused, false, "servers.x.auth.private_key has changed since the login; run: tine login x")

	r.enroll(s, "", "ann")
	r.open(r.shelf)
	rt := r.Wrap(s, "", r.next)
	r.clock.Advance(2 * time.Hour)
	r.must(rt, "a", "ann:a")
	if n := len(r.peer.signed); n != 2 || len(r.peer.registered) != 2 {
		t.Errorf("%d requests were signed by %d clients, want the login and its renewal by a second client", n, len(r.peer.registered))
	}
	ask := r.peer.registered[1]
	if got := fmt.Sprint(ask["token_endpoint_auth_method"], ask["token_endpoint_auth_signing_alg"], ask["jwks"]); !strings.Contains(got, "private_key_jwtES256map[keys:[map[") || strings.Contains(got, " d:") {
		t.Errorf("registered %s", got)
	}
	r.enroll(s, "", "ann")
	if n := len(r.peer.registered); n != 2 {
		t.Errorf("%d clients were registered for one key", n-1)
	}

	s.PrivateKey = pemOf(t, newEC(t))
	_, _, err = r.call(r.Wrap(s, "", r.next), "b")
	refused(t, err, api.KindRefused, false, "servers.x.auth.private_key has changed since the login; run: tine login x")
	r.enroll(s, "", "bob")
	r.must(r.Wrap(s, "", r.next), "c", "bob:c")
}

func TestNotRegisteredWithKey(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*peer)
		kind   api.Kind
		part   string
	}{
		"not listed":     {func(p *peer) { p.methods = []string{"none"} }, api.KindInvalid, "does not list private_key_jwt"},
		"nothing listed": {func(p *peer) { p.methods = nil }, api.KindInvalid, "or remove private_key"},
		"another method": {func(p *peer) { p.madeMethod = "none" }, api.KindInfrastructure, "shows itself by none, where private_key_jwt was asked for"},
		"algorithm":      {func(p *peer) { p.algorithms = []string{"RS256"} }, api.KindInvalid, "ES256"},
		"no endpoint":    {func(p *peer) { p.noRegister = true }, api.KindInvalid, "set servers.x.auth.client_id"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.peer.methods = []string{"none", "private_key_jwt"}
			tt.change(r.peer)
			s := r.login()
			s.ClientMetadataURL, s.PrivateKey = document, pemOf(t, newEC(t))
			_, err := r.Begin(context.Background(), s, "", here)
			refused(t, err, tt.kind, false, tt.part)
		})
	}
}
