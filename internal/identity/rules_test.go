package identity_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
)

func TestRules(t *testing.T) {
	claims := map[string]any{
		"sub": "ada", "groups": []any{"dev", "/platform/admins", 7}, "level": 3, "vip": true, "big": 12345678901234567,
		"realm_access": map[string]any{"roles": []string{"mcp"}}, "https://x.example/team": "core", "empty": []string{},
	}
	w := newWorld(t, nil)
	token := w.token(claims)
	type rules = []identity.Rule
	all := []string{"github", "gitlab", "fs", "a.b"}
	for _, tt := range []struct {
		name  string
		rules rules
		role  string
		sees  string // of all
		can   string // server.tool pairs it may call
		not   string
		whole string // servers of which nothing is hidden
	}{
		{name: "no rules", sees: "github gitlab fs a.b", can: "github:x fs:rm", whole: "github gitlab fs a.b"},
		{name: "a rule for everyone", rules: rules{{}}, sees: "github gitlab fs a.b", can: "github:x", whole: "github gitlab fs a.b"},
		{name: "no principal matches", rules: rules{{Principals: []string{"ada"}}}, not: "github:x fs:x"},
		{name: "by name", rules: rules{{Principals: []string{"bob", "oidc:a*"}, Servers: []string{"fs"}}}, sees: "fs", can: "fs:x", not: "github:x", whole: "fs"},
		{name: "servers by glob", rules: rules{{Servers: []string{"git*"}}}, sees: "github gitlab", can: "gitlab:x", not: "fs:x", whole: "github gitlab"},
		{name: "tools of one server", rules: rules{{Tools: []string{"github__*"}}}, sees: "github", can: "github:x github:a/b github:_", not: "gitlab:x fs:github__x"},
		{name: "exact tools", rules: rules{{Tools: []string{"github__read", "fs__a/b"}}}, sees: "github fs", can: "github:read fs:a/b", not: "github:reads github:rea fs:a fs:read github:github__read"},
		{name: "tools by glob", rules: rules{{Tools: []string{"github__read_*", "github__get_?"}}}, sees: "github", can: "github:read_file github:get_x github:read_", not: "github:write github:get_xy github:get_"},
		{name: "servers and tools", rules: rules{{Servers: []string{"git*"}, Tools: []string{"*__read"}}}, sees: "github gitlab", can: "github:read gitlab:read", not: "fs:read github:write"},
		{name: "glob before the separator", rules: rules{{Tools: []string{"git[hl]*__read", "?s__*"}}}, sees: "github gitlab fs", can: "github:read gitlab:read fs:rm", not: "github:x a.b:read"},
		{name: "glob over the separator", rules: rules{{Tools: []string{"g*b"}}}, sees: "github gitlab", can: "github:xb gitlab:b", not: "github:x fs:b"},
		{name: "everything by a star", rules: rules{{Tools: []string{"*"}}}, sees: "github gitlab fs a.b", can: "fs:x"},
		{name: "tools that no server can have", rules: rules{{Servers: []string{"fs"}, Tools: []string{"github__*"}}}, not: "github:x fs:x fs:github__x"},
		{name: "a server's name is no tool", rules: rules{{Tools: []string{"github", "github__", "github_"}}}, not: "github:x github:"},
		{name: "escaped", rules: rules{{Tools: []string{`fs__\*`, `github__[^a-c]`}}}, sees: "github fs", can: "fs:* github:d", not: "fs:x github:a"},
		{name: "union", rules: rules{{Tools: []string{"fs__a"}}, {Tools: []string{"fs__b", "github__c"}}, {Principals: []string{"bob"}}}, sees: "fs github", can: "fs:a fs:b github:c", not: "fs:c github:a"},
		{name: "malformed is nothing, not all", rules: rules{{Servers: []string{"[", "fs[a-"}, Tools: []string{"["}}}, not: "fs:x [:x"},
		{name: "group", rules: rules{{Claims: map[string][]string{"groups": {"ops", "dev"}}, Servers: []string{"fs"}}}, sees: "fs", can: "fs:x", whole: "fs"},
		{name: "group with slashes", rules: rules{{Claims: map[string][]string{"groups": {"/plat*"}}, Servers: []string{"fs"}}}, sees: "fs", whole: "fs"},
		{name: "other group", rules: rules{{Claims: map[string][]string{"groups": {"ops", "de", "devs"}}}}},
		{name: "two claims", rules: rules{{Claims: map[string][]string{"groups": {"dev"}, "vip": {"true"}}, Servers: []string{"fs"}}}, sees: "fs", whole: "fs"},
		{name: "one of two claims", rules: rules{{Claims: map[string][]string{"groups": {"dev"}, "vip": {"false"}}}}},
		{name: "numbers", rules: rules{{Claims: map[string][]string{"level": {"3"}, "groups": {"7"}, "big": {"12345678901234567"}}, Servers: []string{"fs"}}}, sees: "fs", whole: "fs"},
		{name: "nested", rules: rules{{Claims: map[string][]string{"realm_access.roles": {"mcp"}}, Servers: []string{"fs"}}}, sees: "fs", whole: "fs"},
		{name: "dots of its own", rules: rules{{Claims: map[string][]string{"https://x.example/team": {"core"}}, Servers: []string{"fs"}}}, sees: "fs", whole: "fs"},
		{name: "missing claim", rules: rules{{Claims: map[string][]string{"nope": {"*"}}}}},
		{name: "empty claim", rules: rules{{Claims: map[string][]string{"empty": {"*"}}}}},
		{name: "an object is no value", rules: rules{{Claims: map[string][]string{"realm_access": {"*"}}}}},
		{name: "no value will do", rules: rules{{Claims: map[string][]string{"groups": {}}}}},
		{name: "role", rules: rules{{Role: api.RoleOperator, Servers: []string{"fs"}}, {Role: api.RoleViewer}, {Principals: []string{"bob"}, Role: api.RoleOperator}}, role: api.RoleOperator,
			sees: "github gitlab fs a.b", whole: "github gitlab fs a.b"},
		{name: "a role widens nothing", rules: rules{{Role: api.RoleOperator, Servers: []string{"fs"}}}, role: api.RoleOperator, sees: "fs", not: "github:x", whole: "fs"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := w.opts
			o.Rules = tt.rules
			w.guard = w.guard.With(o)
			p, r := w.guard.Identify(t.Context(), "Bearer "+token, resource)
			if r != nil {
				t.Fatal(r)
			}
			if tt.role == "" {
				tt.role = api.RoleUser
			}
			if p.Role != tt.role {
				t.Errorf("role %s, want %s", p.Role, tt.role)
			}
			for range 2 {
				for _, s := range all {
					if got, want := p.MaySee(s), has(tt.sees, s); got != want {
						t.Errorf("sees %s: %v, want %v", s, got, want)
					}
					if got, want := p.Unlimited(s), has(tt.whole, s); got != want {
						t.Errorf("the whole of %s: %v, want %v", s, got, want)
					}
				}
				for _, pair := range strings.Fields(tt.can) {
					if s, tool, _ := strings.Cut(pair, ":"); !p.MayCall(s, tool) {
						t.Errorf("may not call %s", pair)
					}
				}
				for _, pair := range strings.Fields(tt.not) {
					if s, tool, _ := strings.Cut(pair, ":"); p.MayCall(s, tool) {
						t.Errorf("may call %s", pair)
					}
				}
			}
		})
	}
}

func has(list, word string) bool {
	for _, w := range strings.Fields(list) {
		if w == word {
			return true
		}
	}
	return false
}

// Rules hold for static tokens and for the anonymous too, never for the machine's
// own.
func TestRulesOfStaticTokens(t *testing.T) {
	o := identity.Options{
		Tokens: []identity.Token{
			{Name: "ada", Hash: identity.HashToken("a"), Role: api.RoleViewer},
			{Name: "bob", Hash: identity.HashToken("b"), Role: api.RoleOperator},
		},
		Operator:  identity.HashToken("op"),
		Separator: ".",
		Rules: []identity.Rule{
			{Principals: []string{"a*"}, Tools: []string{"fs.read"}, Role: api.RoleUser},
			{Claims: map[string][]string{"groups": {"*"}}, Role: api.RoleOperator},
		},
	}
	g := identity.NewGuard(o)
	defer g.Close()
	for token, want := range map[string]string{"a": "ada/viewer true false", "b": "bob/operator false false", "op": "/operator true true"} {
		p, r := g.Identify(t.Context(), "Bearer "+token, resource)
		if got := fmt.Sprint(allOf(p), " ", p.MayCall("fs", "read"), p.MayCall("fs", "write")); r != nil || got != want {
			t.Errorf("%s is %s, want %s", token, got, want)
		}
	}
	o.Tokens, o.Rules = nil, []identity.Rule{{Servers: []string{"fs"}}}
	open := identity.NewGuard(o)
	defer open.Close()
	if p, r := open.Identify(t.Context(), "", resource); r != nil || !p.MaySee("fs") || p.MaySee("github") || !p.Is(api.RoleOperator) {
		t.Errorf("%+v %+v", p, r)
	}
}

// Names of servers come from URLs: asking for many must not grow anything
// without end, and the answers stay right.
func TestManyServers(t *testing.T) {
	g := identity.NewGuard(identity.Options{Rules: []identity.Rule{{Servers: []string{"*7"}}}})
	defer g.Close()
	p, _ := g.Identify(t.Context(), "", resource)
	for i := range 10000 {
		if name := fmt.Sprint("s", i); p.MaySee(name) != strings.HasSuffix(name, "7") {
			t.Fatal(name)
		}
	}
}

// A rule with patterns for one kind of things gives nothing of the others.
func TestRulesByKind(t *testing.T) {
	w := newWorld(t, nil)
	token := w.token(map[string]any{"sub": "ada"})
	for _, tt := range []struct {
		name                              string
		rules                             []identity.Rule
		tool, prompt, other, read, hidden bool // fs__t, fs__p, fs__q, resources of fs; fs is not seen
	}{
		{name: "whole", rules: []identity.Rule{{Servers: []string{"fs"}}}, tool: true, prompt: true, other: true, read: true},
		{name: "tools", rules: []identity.Rule{{Tools: []string{"fs__t"}}}, tool: true},
		{name: "all tools", rules: []identity.Rule{{Tools: []string{"fs__*"}}}, tool: true},
		{name: "servers and all tools", rules: []identity.Rule{{Servers: []string{"fs"}, Tools: []string{"*"}}}, tool: true},
		{name: "prompts", rules: []identity.Rule{{Prompts: []string{"fs__p"}}}, prompt: true},
		{name: "all prompts", rules: []identity.Rule{{Prompts: []string{"fs__*"}}}, prompt: true, other: true},
		{name: "resources", rules: []identity.Rule{{Resources: []string{"f*"}}}, read: true},
		{name: "of another server", rules: []identity.Rule{{Resources: []string{"x"}, Prompts: []string{"x__*"}, Tools: []string{"x__*"}}}, hidden: true},
		{name: "of a server that is not given", rules: []identity.Rule{{Servers: []string{"x"}, Resources: []string{"*"}}}, hidden: true},
		{name: "in pieces", rules: []identity.Rule{{Tools: []string{"fs__t"}}, {Prompts: []string{"fs__p"}, Resources: []string{"fs"}}}, tool: true, prompt: true, read: true},
	} {
		o := w.opts
		o.Rules = tt.rules
		w.guard = w.guard.With(o)
		p, r := w.guard.Identify(t.Context(), "Bearer "+token, resource)
		if r != nil {
			t.Fatal(r)
		}
		some, all := p.Prompts("fs")
		if p.MayCall("fs", "t") != tt.tool || p.MayPrompt("fs", "p") != tt.prompt || p.MayPrompt("fs", "q") != tt.other || p.MayRead("fs") != tt.read ||
			p.MaySee("fs") == tt.hidden || some != tt.prompt || all != tt.other || p.Unlimited("fs") != (tt.name == "whole") {
			t.Errorf("%s: tool %v, prompts %v %v, resources %v, seen %v, unlimited %v", tt.name, p.MayCall("fs", "t"), p.MayPrompt("fs", "p"),
				p.MayPrompt("fs", "q"), p.MayRead("fs"), p.MaySee("fs"), p.Unlimited("fs"))
		}
	}
}
