package storetest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func testTokens(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	if all := got(s.Tokens(ctx)); len(all) != 0 {
		t.Fatalf("a new store holds %v", all)
	}
	a := store.Token{Name: "ann", Hash: "ab12", Role: "operator", Created: day, Expires: day.Add(time.Hour)}
	b := store.Token{Name: "bob", Hash: "cd34", Role: "user", Created: day, Unconfirmed: true}
	must(t, s.PutToken(ctx, b))
	must(t, s.PutToken(ctx, store.Token{Name: "ann", Hash: "old", Expires: day}))
	must(t, s.PutToken(ctx, a))
	must(t, s.PutToken(ctx, store.Token{Name: "cid"}))
	must(t, s.DeleteToken(ctx, "cid"))
	must(t, s.DeleteToken(ctx, "cid"))
	s = reopen()
	same(t, got(s.Tokens(ctx)), []store.Token{a, b})
	if all := got(s.Tokens(ctx)); !all[1].Expires.IsZero() {
		t.Errorf("a token without an end expires %v", all[1].Expires)
	}
}

func testCredentials(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	shared := store.Credential{Server: "a", Data: json.RawMessage(`{"refresh_token" : "r"}`), Changed: day}
	anns := store.Credential{Server: "a", Principal: "ann", Data: json.RawMessage(`{"refresh_token":"x"}`), Changed: day.Add(1)}
	other := store.Credential{Server: "b", Principal: "ann"}
	must(t, s.PutCredential(ctx, anns))
	must(t, s.PutCredential(ctx, store.Credential{Server: "a", Data: json.RawMessage(`1`)}))
	must(t, s.PutCredential(ctx, shared))
	must(t, s.PutCredential(ctx, other))
	must(t, s.PutCredential(ctx, store.Credential{Server: "a", Principal: "bob"}))
	must(t, s.DeleteCredential(ctx, "a", "bob"))
	must(t, s.DeleteCredential(ctx, "a", "bob"))
	s = reopen()
	same(t, got(s.CredentialsOf(ctx, "a")), []store.Credential{shared, anns})
	same(t, got(s.CredentialsOf(ctx, "b")), []store.Credential{other})
	same(t, got(s.CredentialsOf(ctx, "c")), nil)

	for _, want := range []store.Credential{shared, anns, other} {
		c, ok, err := s.Credential(ctx, want.Server, want.Principal)
		must(t, err)
		if !ok {
			t.Errorf("no credential of %q for %q", want.Server, want.Principal)
		}
		same(t, []store.Credential{c}, []store.Credential{want})
	}
	// A shared credential is not a principal's own.
	for _, none := range [][2]string{{"a", "bob"}, {"b", ""}, {"c", "ann"}} {
		if c, ok, err := s.Credential(ctx, none[0], none[1]); ok || err != nil {
			t.Errorf("credential of %q: %v, %v, %v", none, c, ok, err)
		}
	}
}
