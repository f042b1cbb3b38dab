package config

import (
	"fmt"
	"slices"
	"strings"
)

var ruleKeys = []string{"principals", "claims", "role", "servers", "tools", "prompts", "resources", "rate"}

// globMeta are the characters that make a pattern of a name.
const globMeta = `*?[\`

// named is a server, or a thing of one, that a rule names without a pattern, to be
// looked for when all servers are known.
type named struct {
	item
	thing string // tool or prompt; empty for a server
}

func (d *decoder) rules(a object, c *Config) {
	list, ok := a.lookup("rules")
	if !ok {
		return
	}
	if list.kind != kindList && list.kind != kindNull {
		a.wrong("rules", list, "want a list, got %s; write rules: [{principals: [ada], servers: [files]}]", list.kind)
		return
	}
	for i, item := range list.items {
		at := fmt.Sprintf("auth.rules[%d]", i)
		// A rule without keys gives everything to everyone, which a dash that was
		// left over must not do.
		if item.kind == kindNull {
			d.fail(item.pos, "%s: is empty; say whom it is for and what it gives, or remove it", at)
			continue
		}
		r, ok := d.object(item, at, a.hidden, ruleKeys)
		if !ok {
			continue
		}
		r.rel = fmt.Sprintf("auth.rules.%d", i)
		c.Auth.Rules = append(c.Auth.Rules, d.rule(r))
	}
}

func (d *decoder) rule(r object) Rule {
	rule := Rule{Role: roles[0]}
	r.oneOf("role", &rule.Role, roles...)
	d.claims(r, &rule)
	for _, l := range []struct {
		key     string
		dst     *[]string
		what    string
		example string
	}{
		{"principals", &rule.Principals, "a principal's name", "[ada, \"oidc:*\"]"},
		{"servers", &rule.Servers, "a server's id", "[files]"},
		{"tools", &rule.Tools, "server" + d.separator + "tool", "[\"files" + d.separator + "read_*\"]"},
		{"prompts", &rule.Prompts, "server" + d.separator + "prompt", "[\"files" + d.separator + "*\"]"},
		{"resources", &rule.Resources, "a server's id", "[files]"},
	} {
		// Without the key it is all, so that a list that came out empty would give
		// the most where somebody meant the least.
		hint := "an empty list would mean all; leave it out for that, or name some"
		if l.key == "prompts" || l.key == "resources" {
			hint = "an empty list names nothing; leave it out, or name some"
		}
		if r.emptyList(l.key, "%s", hint) {
			continue
		}
		if r.texts(l.key, l.dst, l.example) {
			r.patterns(l.key, l.what)
		}
	}
	rule.Rate.read(r)
	for _, it := range r.items("servers", false) {
		d.named = append(d.named, named{it, ""})
	}
	for _, it := range r.items("resources", false) {
		d.named = append(d.named, named{it, ""})
	}
	for _, it := range r.items("tools", false) {
		d.named = append(d.named, named{it, "tool"})
	}
	for _, it := range r.items("prompts", false) {
		d.named = append(d.named, named{it, "prompt"})
	}
	return rule
}

func (d *decoder) claims(r object, rule *Rule) {
	n, ok := r.lookup("claims")
	if !ok {
		return
	}
	if n.kind != kindMap || len(n.pairs) == 0 {
		r.wrong("claims", n, "want a map of claims to patterns, got %s; write claims: {groups: [admins]}", emptyOr(n))
		return
	}
	rule.Claims = make(map[string][]string, len(n.pairs))
	claims := object{d: d, n: n, path: join(r.path, "claims"), rel: join(r.rel, "claims"), hidden: r.hidden}
	for _, p := range n.pairs {
		if p.key == "" {
			d.fail(p.keyPos, "%s: a claim has no name", claims.path)
			continue
		}
		if claims.emptyList(p.key, "an empty list would never match; name what the claim may hold") {
			continue
		}
		// true and 7 are claims as good as any.
		if v := p.value; v.scalar() && v.kind != kindNull && v.kind != kindString {
			v.kind = kindString
		}
		var values []string
		if claims.oneOrMore(p.key, &values, false, "[admins]") {
			claims.patterns(p.key, "what the claim holds")
		}
		rule.Claims[p.key] = values
	}
}

func emptyOr(n *node) string {
	if n.kind == kindMap {
		return "an empty one"
	}
	return n.shown()
}

// checkNamed warns about rules that speak of servers that are not there. It is
// no error: the server may come with the next reload, and a rule too many gives
// nothing to anyone.
func (d *decoder) checkNamed(c *Config) {
	ids := make([]string, 0, len(c.Servers))
	for i := range c.Servers {
		ids = append(ids, c.Servers[i].ID)
	}
	for _, n := range d.named {
		id := n.text
		if n.thing != "" {
			server, _, ok := strings.Cut(n.text, c.Separator)
			if !ok && !strings.ContainsAny(n.text, globMeta) {
				d.warn(n.pos, "%s: %s matches no %s; write SERVER%s%s", n.path, n.shown, n.thing, c.Separator, strings.ToUpper(n.thing))
				continue
			}
			if id = server; !ok {
				continue
			}
		}
		if strings.ContainsAny(id, globMeta) || slices.Contains(ids, id) {
			continue
		}
		hint := ""
		if g := Nearest(id, ids); g != "" {
			hint = fmt.Sprintf("; did you mean %q?", g)
		}
		d.warn(n.pos, "%s: %s names a server that is not there%s", n.path, n.shown, hint)
	}
}
