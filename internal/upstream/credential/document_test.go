package credential

import (
	"context"
	"crypto"
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
