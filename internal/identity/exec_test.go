package identity_test

import (
	"fmt"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
)

// TestMayExec holds that with rules only what they name may be acted beside, and that
// without rules it is said that none does.
func TestMayExec(t *testing.T) {
	o := identity.Options{
		Tokens:    []identity.Token{{Name: "ada", Hash: identity.HashToken("a"), Role: api.RoleUser}, {Name: "bob", Hash: identity.HashToken("b"), Role: api.RoleOperator}},
		Separator: "__",
	}
	for _, tt := range []struct {
		name  string
		rules []identity.Rule
		want  string // ada at box and at fs, bob at box, ada into a place
	}{
		{"no rules", nil, "true false, true false, true false, true"},
		{"no right", []identity.Rule{{}}, "false false, false false, false false, false"},
		{"one server", []identity.Rule{{Principals: []string{"ada"}, Exec: []string{"box"}}}, "true true, false false, false false, false"},
		{"a server that it does not give", []identity.Rule{{Servers: []string{"fs"}, Exec: []string{"*"}}}, "false false, true true, false false, true"},
		{"a place beside servers", []identity.Rule{{Servers: []string{"fs"}, Exec: []string{"fs", "workspace"}}}, "false false, true true, false false, true"},
		{"beside another rule", []identity.Rule{{Servers: []string{"fs"}}, {Servers: []string{"box"}, Exec: []string{"b?x"}}}, "true true, false false, true true, false"},
	} {
		o.Rules = tt.rules
		g := identity.NewGuard(o)
		ada, _ := g.Identify(t.Context(), "Bearer a", resource)
		bob, _ := g.Identify(t.Context(), "Bearer b", resource)
		say := func(p identity.Principal, server string) string {
			may, ruled := p.MayExec(server)
			return fmt.Sprint(may, ruled)
		}
		got := say(ada, "box") + ", " + say(ada, "fs") + ", " + say(bob, "box") + fmt.Sprint(", ", ada.MayCopyInto("workspace"))
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		g.Close()
	}
	if may, _ := (identity.Principal{Name: "x"}).MayExec("box"); may {
		t.Error("a principal that nothing is known of may")
	}
}
