package identity

import (
	"log/slog"
	"slices"

	"github.com/tine-mcp/tine/api"
)

// A Rule gives the principals it matches a role, and servers, or only parts of
// them. All of its patterns are globs. Without tools, prompts and resources it
// gives all of its servers; with any of these no more than they name.
type Rule struct {
	Principals []string            // names; empty for all
	Claims     map[string][]string // each claim must hold one of these
	Role       string              // user unless given
	Servers    []string            // empty for all
	Tools      []string            // server, separator, tool
	Prompts    []string            // server, separator, prompt
	Resources  []string            // servers whose resources it gives
	Exec       []string            // servers beside which it lets commands be run, and files be copied
	Rate       Rate                // bounds the calls of each principal; the highest of several rules holds
}

// A Rate bounds the calls of a principal in time. The zero Rate bounds none.
type Rate struct {
	Calls float64 // a second
	Burst int     // at once
}

// ruleset is rules made ready. Without rules every principal may use everything.
type ruleset struct {
	separator string
	rules     []*rule
	open      *access // of all principals, if there are no rules
}

type rule struct {
	principals []glob
	claims     map[string][]glob
	role       string
	servers    []glob
	tools      []glob
	prompts    []glob
	resources  []glob
	exec       []glob
	rate       Rate
}

func newRuleset(rules []Rule, separator string, log *slog.Logger) *ruleset {
	rs := &ruleset{separator: separator}
	globs := func(texts []string) []glob {
		var all []glob
		for _, text := range texts {
			g, valid := newGlob(text)
			if !valid {
				log.Warn("a pattern in auth.rules is malformed and matches nothing", "pattern", text)
			}
			all = append(all, g)
		}
		return all
	}
	for _, r := range rules {
		ready := &rule{
			principals: globs(r.Principals), role: r.Role, servers: globs(r.Servers),
			tools: globs(r.Tools), prompts: globs(r.Prompts), resources: globs(r.Resources), exec: globs(r.Exec), rate: r.Rate,
		}
		if len(r.Claims) > 0 {
			ready.claims = make(map[string][]glob, len(r.Claims))
		}
		for name, values := range r.Claims {
			ready.claims[name] = globs(values)
		}
		rs.rules = append(rs.rules, ready)
	}
	if len(rules) == 0 {
		rs.open = &access{separator: separator, grants: []*rule{{}}, open: true}
	}
	return rs
}

// principal applies the rules. The role is the highest of the given one and
// those of the rules that match.
func (rs *ruleset) principal(name, role string, c claims) Principal {
	if rank(role) < 0 {
		role = api.RoleUser
	}
	p := Principal{Name: name, Role: role, access: rs.open}
	if rs.open != nil {
		return p
	}
	p.access = &access{separator: rs.separator}
	for _, r := range rs.rules {
		if r.matches(name, c) {
			p.access.grants = append(p.access.grants, r)
			if r.rate.Calls > p.access.rate.Calls {
				p.access.rate = r.rate
			}
			p.Role = higher(p.Role, r.role)
		}
	}
	return p
}

// whole reports whether the rule gives all of its servers.
func (r *rule) whole() bool { return len(r.tools) == 0 && len(r.prompts) == 0 && len(r.resources) == 0 }

func (r *rule) matches(name string, c claims) bool {
	if len(r.principals) > 0 && !matchAny(r.principals, name) {
		return false
	}
	for claim, want := range r.claims {
		have := c.texts(claim)
		if !slices.ContainsFunc(have, func(text string) bool { return matchAny(want, text) }) {
			return false
		}
	}
	return true
}
