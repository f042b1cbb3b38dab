package identity_test

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
)

// sessions hand out tokens and take them back.
type sessions struct {
	mu    sync.Mutex
	pin   map[string][]byte // by hash
	id    map[string]string
	limit map[string]*identity.Limit
}

func newSessions() *sessions {
	return &sessions{pin: make(map[string][]byte), id: make(map[string]string), limit: make(map[string]*identity.Limit)}
}

func (s *sessions) open(id string, owner identity.Principal) (token string) {
	return s.limited(id, owner, nil)
}

func (s *sessions) limited(id string, owner identity.Principal, limit *identity.Limit) (token string) {
	token = identity.NewToken()
	sum := sha256.Sum256([]byte(token))
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := hex.EncodeToString(sum[:])
	s.pin[hash], s.id[hash], s.limit[hash] = identity.Pin(owner), id, limit
	return token
}

func (s *sessions) close(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.id, func(_, other string) bool { return other == id })
}

func (s *sessions) bound(hash string) (identity.Binding, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, ok := s.id[hash]
	return identity.Binding{Session: id, Pinned: s.pin[hash], Limit: s.limit[hash]}, ok
}

func TestSessionTokens(t *testing.T) {
	open := newSessions()
	c := newClock()
	o := staticOptions(c)
	o.Bound = open.bound
	o.Rules = []identity.Rule{
		{Principals: []string{"ada"}, Servers: []string{"fs"}, Role: api.RoleOperator},
		{Principals: []string{"bob"}, Servers: []string{"github"}},
	}
	g := identity.NewGuard(o)
	defer func() { g.Close() }()
	identify := func(token string) (identity.Principal, *identity.Refusal) {
		t.Helper()
		return g.Identify(t.Context(), "Bearer "+token, resource)
	}
	for _, tt := range []struct {
		owner string // a token
		want  string
		sees  string
		not   string
	}{
		{"s3cret-of-ada", "ada/user", "fs", "github"},
		{"s3cret-of-bob", "bob/user", "github", "fs"},
		{"0perator", "/user", "fs github", ""},
		{"s3cret-of-eve", "eve/user", "", "fs github"},
	} {
		owner, r := identify(tt.owner)
		if r != nil {
			t.Fatal(r)
		}
		token := open.open("ses_"+owner.Name, owner)
		p, r := identify(token)
		if r != nil || allOf(p) != tt.want || p.Session != "ses_"+owner.Name {
			t.Fatalf("%s: got %+v, %+v", tt.want, p, r)
		}
		for s := range strings.FieldsSeq(tt.sees) {
			if !p.MaySee(s) || !p.MayCall(s, "x") {
				t.Errorf("%s may not see %s", tt.want, s)
			}
		}
		for s := range strings.FieldsSeq(tt.not) {
			if p.MaySee(s) {
				t.Errorf("%s sees %s", tt.want, s)
			}
		}
		if owner.Session != "" {
			t.Errorf("%s itself is bound", tt.want)
		}
		// A session opened by a bound principal would be the same owner's.
		again := open.open("ses_other", p)
		if q, r := identify(again); r != nil || allOf(q) != tt.want || q.Session != "ses_other" {
			t.Errorf("%s handed on: %+v, %+v", tt.want, q, r)
		}
		if q, ok := g.Again(p); !ok || allOf(q) != tt.want || q.Session != p.Session {
			t.Errorf("%s again: %+v %v", tt.want, q, ok)
		}
		open.close(p.Session)
		if _, ok := g.Again(p); ok {
			t.Errorf("%s is let in again after the session's end", tt.want)
		}
		_, r = identify(token)
		if r == nil || r.Status != 401 || r.Reason != identity.ReasonUnknown || !strings.Contains(r.Message, "session") {
			t.Errorf("%s after the session's end: %+v", tt.want, r)
		}
		if r != nil && strings.Contains(r.Message+r.Challenge(""), token) {
			t.Error("the refusal repeats the token")
		}
	}

	// The rules of today decide, not those of when the session was opened.
	ada, _ := identify("s3cret-of-ada")
	token := open.open("ses_rules", ada)
	before, _ := identify(token)
	o.Rules = []identity.Rule{{Principals: []string{"ada"}, Servers: []string{"gitlab"}, Role: api.RoleViewer}}
	g = g.With(o)
	p, r := identify(token)
	if r != nil || p.MaySee("fs") || !p.MaySee("gitlab") || p.Role != api.RoleUser {
		t.Errorf("after a reload: %+v, %+v", p, r)
	}
	if q, ok := g.Again(before); !ok || q.MaySee("fs") || !q.MaySee("gitlab") {
		t.Errorf("after a reload, again: %+v %v", q, ok)
	}
	o.Bound = nil
	g = g.With(o)
	if _, ok := g.Again(before); ok {
		t.Error("let in where there are no sessions")
	}
}

// TestSessionTokenOfIssuer checks that a session's token outlives the token
// that opened the session, and that the rules see its claims.
func TestSessionTokenOfIssuer(t *testing.T) {
	open := newSessions()
	w := newWorld(t, func(o *identity.Options) {
		o.Bound = open.bound
		o.Rules = []identity.Rule{{Claims: map[string][]string{"groups": {"dev"}}, Servers: []string{"fs"}}}
	})
	signed := w.token(map[string]any{"groups": []string{"dev"}})
	p, _ := w.expect(t, signed, "oidc:ada")
	token := open.open("ses_a", p)
	w.Advance(48 * time.Hour)
	w.iss.Down(true)
	w.expect(t, signed, identity.ReasonExpired)
	q, r := w.expect(t, token, "oidc:ada")
	if r != nil || q.Session != "ses_a" || !q.MaySee("fs") || q.MaySee("github") {
		t.Errorf("got %+v, %+v", q, r)
	}
	if strings.Contains(string(identity.Pin(p)), signed) || strings.Contains(string(identity.Pin(p)), signed[strings.LastIndex(signed, ".")+1:]) {
		t.Error("the note holds the token")
	}
	// One that is none of ours any more is not shown to the issuer.
	open.close("ses_a")
	if _, r := w.expect(t, token, identity.ReasonUnknown); r != nil && r.Status != 401 {
		t.Errorf("got %+v", r)
	}
	// A token with an unreadable note is refused.
	bad := open.open("ses_b", p)
	for hash := range open.pin {
		open.pin[hash] = []byte(`{"claims":7}`)
	}
	w.expect(t, bad, identity.ReasonUnknown)
}

func TestSessionTokenOnOpenGateway(t *testing.T) {
	open := newSessions()
	g := identity.NewGuard(identity.Options{Bound: open.bound})
	defer g.Close()
	p, r := g.Identify(t.Context(), "", resource)
	if r != nil || !p.Anonymous() {
		t.Fatal(p, r)
	}
	token := open.open("ses_a", p)
	q, r := g.Identify(t.Context(), "Bearer "+token, resource)
	if r != nil || q.Session != "ses_a" || q.Name != "" || q.Is(api.RoleViewer) || !q.MaySee("fs") {
		t.Errorf("got %+v, %+v", q, r)
	}
	open.close("ses_a")
	if _, r := g.Identify(t.Context(), "Bearer "+token, resource); r == nil || r.Status != 401 {
		t.Errorf("after its end: %+v", r)
	}
	if _, ok := g.Again(q); ok {
		t.Error("admitted again")
	}
}

// TestSessionTokensOfTheRevoked checks that a session's token is refused while its
// owner is refused, and is good again when the owner is back.
func TestSessionTokensOfTheRevoked(t *testing.T) {
	open := newSessions()
	c := newClock()
	o := staticOptions(c)
	o.Bound = open.bound
	all := o.Tokens
	g := identity.NewGuard(o)
	defer func() { g.Close() }()
	identify := func(token string) (identity.Principal, *identity.Refusal) {
		t.Helper()
		return g.Identify(t.Context(), "Bearer "+token, resource)
	}
	owned := func(secret string) (token string) {
		t.Helper()
		p, r := identify(secret)
		if r != nil {
			t.Fatal(r)
		}
		return open.open("ses_of_"+secret, p)
	}
	ada, eve, local := owned("s3cret-of-ada"), owned("s3cret-of-eve"), owned("0perator")
	before, _ := identify(ada)
	forked := open.open("ses_forked", before)
	want := func(when, token string, good bool) {
		t.Helper()
		p, r := identify(token)
		if good != (r == nil) || r != nil && (r.Status != 401 || r.Reason != identity.ReasonRevoked || !strings.Contains(r.Message, "owner")) {
			t.Errorf("%s: %+v, %+v", when, p, r)
		}
	}
	o.Tokens = all[1:] // without ada
	g = g.With(o)
	for _, token := range []string{ada, forked} {
		want("while ada is revoked", token, false)
	}
	if _, ok := g.Again(before); ok {
		t.Error("what stays open goes on while ada is revoked")
	}
	want("while somebody else is revoked", eve, true)
	want("of the machine's user", local, true)
	// Another secret, another role: the principal is its name.
	o.Tokens = append(o.Tokens, identity.Token{Name: "ada", Hash: identity.HashToken("an0ther-of-ada"), Role: api.RoleViewer})
	g = g.With(o)
	want("when ada is back", ada, true)
	want("when ada is back", forked, true)
	// A token that ran out is no longer one.
	c.Advance(2 * time.Hour)
	want("when eve's token has run out", eve, false)
	o.Tokens = append(o.Tokens, identity.Token{Name: "eve", Hash: identity.HashToken("an0ther-of-eve")})
	g = g.With(o)
	want("when eve has a second one", eve, true)
	// On a gateway that is open to all callers ada is revoked too.
	o.Tokens, o.Operator = nil, ""
	g = g.With(o)
	want("without any token", ada, false)
}

// TestSessionTokensOfAnotherIssuer checks what ends a principal of an issuer.
func TestSessionTokensOfAnotherIssuer(t *testing.T) {
	open := newSessions()
	var o identity.Options
	w := newWorld(t, func(with *identity.Options) {
		with.Bound = open.bound
		o = *with
	})
	p, _ := w.expect(t, w.token(map[string]any{"email": "ada@example.org"}), "oidc:ada")
	token := open.open("ses_a", p)
	// An operator who forks what ada was given without asking knows the name alone.
	named := open.open("ses_b", identity.Principal{Name: "oidc:ada"})
	check := func(when string, o identity.Options, signed, byName bool) {
		t.Helper()
		g := identity.NewGuard(o)
		defer g.Close()
		for token, want := range map[string]bool{token: signed, named: byName} {
			if _, r := g.Identify(t.Context(), "Bearer "+token, resource); (r == nil) != want {
				t.Errorf("%s: %+v, want it to be good: %v", when, r, want)
			}
		}
	}
	if o.OIDC == nil {
		t.Fatal("the world has no issuer")
	}
	check("as it was", o, true, true)
	other := *o.OIDC
	other.Issuer = "https://elsewhere.example.org"
	with := o
	with.OIDC = &other
	check("with another issuer", with, false, true)
	claim := *o.OIDC
	claim.Principal = "email"
	with.OIDC = &claim
	check("where another claim names principals", with, false, true)
	with.OIDC = nil
	check("without an issuer", with, false, false)
}
