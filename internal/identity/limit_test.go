package identity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
)

// TestLimitHoldsEverywhere asks every method that says what a principal may use.
func TestLimitHoldsEverywhere(t *testing.T) {
	open := newSessions()
	c := newClock()
	o := staticOptions(c)
	o.Bound = open.bound
	for name, rules := range map[string][]identity.Rule{
		"without rules": nil,
		"with rules":    {{Principals: []string{"ada"}, Servers: []string{"fs", "git", "mail"}, Exec: []string{"*"}, Role: api.RoleOperator}, {Tools: []string{"db__read_*"}, Prompts: []string{"db__*"}, Resources: []string{"db"}}},
	} {
		o.Rules = rules
		g := identity.NewGuard(o)
		defer g.Close()
		owner, r := g.Identify(t.Context(), "Bearer s3cret-of-ada", resource)
		if r != nil {
			t.Fatal(r)
		}
		all := []string{"fs", "git", "mail", "db", "workspace", "other"}
		for _, servers := range [][]string{nil, {}, {"fs"}, {"db", "fs"}, {"other"}} {
			token := open.limited("ses_1", owner, &identity.Limit{Token: "tok_1", Run: "run_1", Servers: servers})
			p, r := g.Identify(t.Context(), "Bearer "+token, resource)
			if r != nil || p.Session != "ses_1" || p.Run != "run_1" || p.Token() != "tok_1" || allOf(p) != "ada/user" {
				t.Fatalf("%s, %q: %+v, %+v", name, servers, p, r)
			}
			again, ok := g.Again(p)
			if !ok || again.Run != "run_1" || again.Token() != "tok_1" {
				t.Errorf("%s, %q, again: %+v, %v", name, servers, again, ok)
			}
			unlimited, _ := g.Identify(t.Context(), "Bearer "+open.open("ses_1", owner), resource)
			if unlimited.Run != "" || unlimited.Token() != "" || unlimited.Limit() != nil {
				t.Errorf("%s: the session's own token has the limit %+v", name, unlimited.Limit())
			}
			for _, server := range all {
				within := servers == nil || strings.Contains(" "+strings.Join(servers, " ")+" ", " "+server+" ")
				for _, p := range []identity.Principal{p, again} {
					for what, may := range map[string]func(identity.Principal) bool{
						"MaySee":       func(p identity.Principal) bool { return p.MaySee(server) },
						"MayCall":      func(p identity.Principal) bool { return p.MayCall(server, "read_file") },
						"MayPrompt":    func(p identity.Principal) bool { return p.MayPrompt(server, "p") },
						"Prompts":      func(p identity.Principal) bool { some, _ := p.Prompts(server); return some },
						"all Prompts":  func(p identity.Principal) bool { _, all := p.Prompts(server); return all },
						"MayRead":      func(p identity.Principal) bool { return p.MayRead(server) },
						"Unlimited":    func(p identity.Principal) bool { return p.Unlimited(server) },
						"MayExec":      func(p identity.Principal) bool { may, _ := p.MayExec(server); return may },
						"MayExec rule": func(p identity.Principal) bool { _, ruled := p.MayExec(server); return ruled },
						"MayCopyInto":  func(p identity.Principal) bool { return p.MayCopyInto(server) },
					} {
						if got, want := may(p), within && may(unlimited); got != want {
							t.Errorf("%s, servers %q: %s of %s is %v, want %v", name, servers, what, server, got, want)
						}
					}
				}
			}
		}
	}
}

func TestLimitedTokenExpires(t *testing.T) {
	open := newSessions()
	c := newClock()
	o := staticOptions(c)
	o.Bound = open.bound
	g := identity.NewGuard(o)
	defer g.Close()
	owner, _ := g.Identify(t.Context(), "Bearer s3cret-of-ada", resource)
	token := open.limited("ses_1", owner, &identity.Limit{Token: "tok_1", Expires: c.Now().Add(time.Hour)})
	p, r := g.Identify(t.Context(), "Bearer "+token, resource)
	if r != nil {
		t.Fatal(r)
	}
	c.Advance(time.Hour - 1)
	if _, ok := g.Again(p); !ok {
		t.Error("it is refused before its time")
	}
	c.Advance(1)
	if _, ok := g.Again(p); ok {
		t.Error("what stays open goes on after the token's time")
	}
	if _, r := g.Identify(t.Context(), "Bearer "+token, resource); r == nil || r.Status != 401 || r.Reason != identity.ReasonExpired || !strings.Contains(r.Message, "owner") || strings.Contains(r.Message, token) {
		t.Errorf("after its time: %+v", r)
	}
	if _, r := g.Identify(t.Context(), "Bearer "+open.open("ses_1", owner), resource); r != nil {
		t.Errorf("the session's own token: %+v", r)
	}
}
