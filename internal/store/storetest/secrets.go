package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

// PutToken writes a token, whatever there is of its name.
func PutToken(ctx context.Context, s store.Tokens, t store.Token) error {
	return s.ChangeToken(ctx, t.Name, func(*store.Token) (*store.Token, error) { return &t, nil })
}

// DeleteToken removes a token.
func DeleteToken(ctx context.Context, s store.Tokens, name string) error {
	return s.ChangeToken(ctx, name, func(*store.Token) (*store.Token, error) { return nil, nil })
}

// PutOverride writes an override, whatever there is of its server.
func PutOverride(ctx context.Context, s store.Overrides, server string, o store.Override) error {
	return s.ChangeOverride(ctx, server, func(store.Override) (store.Override, error) { return o, nil })
}

func testTokens(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	if all := got(s.Tokens(ctx)); len(all) != 0 {
		t.Fatalf("a new store holds %v", all)
	}
	a := store.Token{Name: "ann", Hash: "ab12", Role: "operator", Created: day, Expires: day.Add(time.Hour)}
	b := store.Token{Name: "bob", Hash: "cd34", Role: "user", Created: day, Unconfirmed: true}
	must(t, PutToken(ctx, s, b))
	must(t, PutToken(ctx, s, store.Token{Name: "ann", Hash: "old", Expires: day}))
	must(t, PutToken(ctx, s, a))
	must(t, PutToken(ctx, s, store.Token{Name: "cid"}))
	must(t, DeleteToken(ctx, s, "cid"))
	must(t, DeleteToken(ctx, s, "cid"))
	must(t, s.ChangeToken(ctx, "bob", func(had *store.Token) (*store.Token, error) {
		same(t, []store.Token{*had}, []store.Token{b})
		had.Role = "viewer"
		return had, nil
	}))
	b.Role = "viewer"
	refused := errors.New("no")
	for _, name := range []string{"ann", "dan"} {
		err := s.ChangeToken(ctx, name, func(had *store.Token) (*store.Token, error) {
			if (had != nil) != (name == "ann") {
				t.Errorf("%s is %v", name, had)
			}
			return &store.Token{Hash: "wrong"}, refused
		})
		if err != refused {
			t.Errorf("a change that is refused: %v", err)
		}
	}
	// Of many who take a name at once one has it.
	var took atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			err := s.ChangeToken(ctx, "eve", func(had *store.Token) (*store.Token, error) {
				if had != nil {
					return nil, refused
				}
				return &store.Token{}, nil
			})
			if err == nil {
				took.Add(1)
			}
		})
	}
	all.Wait()
	if n := took.Load(); n != 1 {
		t.Errorf("%d have taken the name", n)
	}
	must(t, DeleteToken(ctx, s, "eve"))
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
