package identity_test

import (
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/identity"
)

func BenchmarkIdentify(b *testing.B) {
	open := newSessions()
	w := newWorld(b, func(o *identity.Options) {
		o.Tokens = []identity.Token{{Name: "ada", Hash: identity.HashToken("s3cret")}}
		o.OIDC.Scopes = []string{"tools"}
		o.Bound = open.bound
		o.Rules = []identity.Rule{{Claims: map[string][]string{"groups": {"dev"}}, Servers: []string{"github"}, Tools: []string{"*__read_*"}}}
	})
	good := w.token(map[string]any{"scope": "tools", "groups": []string{"dev", "ops", "everyone"}, "email": "ada@example.com", "name": "Ada Lovelace"})
	ada, r := w.guard.Identify(b.Context(), "Bearer "+good, resource)
	if r != nil {
		b.Fatal(r)
	}
	for _, bb := range []struct {
		name, token string
		ok          bool
	}{
		{"static", "s3cret", true},
		{"jwt", good, true},
		{"session", open.open("ses_a", ada), true},
		{"run", open.limited("ses_a", ada, &identity.Limit{Token: "tok_a", Run: "run_a", Servers: []string{"github"}, Expires: w.Now().Add(time.Hour)}), true},
		{"refused", w.iss.WrongKey(aud(nil)), false},
	} {
		b.Run(bb.name, func(b *testing.B) {
			header, ctx := "Bearer "+bb.token, b.Context()
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, r := w.guard.Identify(ctx, header, resource); (r == nil) != bb.ok {
						b.Error(r)
						return
					}
				}
			})
		})
	}
	b.Run("may call", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !ada.MayCall("github", "read_file") {
				b.Fatal("may not")
			}
		}
	})
}
