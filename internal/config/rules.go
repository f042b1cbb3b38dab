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
	Item
	thing string // tool or prompt; empty for a server
}

func (d *decoder) rules(a Object, c *Config) {
	list, ok := a.Lookup("rules")
	if !ok {
		return
	}
	if list.Shape != ShapeList && list.Shape != ShapeNull {
		a.Wrong("rules", list, "want a list, got %s; write rules: [{principals: [ada], servers: [files]}]", list.Shape)
		return
	}
	for i, item := range list.Items {
		at := fmt.Sprintf("auth.rules[%d]", i)
		// A rule without keys gives everything to everyone, which a dash that was
		// left over must not do.
		if item.Shape == ShapeNull {
			d.fail(item.Pos, "%s: is empty; say whom it is for and what it gives, or remove it", at)
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

func (d *decoder) rule(r Object) Rule {
	rule := Rule{Role: roles[0]}
	r.OneOf("role", &rule.Role, roles...)
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
		if r.EmptyList(l.key, "%s", hint) {
			continue
		}
		if r.Texts(l.key, l.dst, l.example) {
			r.patterns(l.key, l.what)
		}
	}
	rule.Rate.read(r)
	for _, it := range r.Items("servers", false) {
		d.named = append(d.named, named{it, ""})
	}
	for _, it := range r.Items("resources", false) {
		d.named = append(d.named, named{it, ""})
	}
	for _, it := range r.Items("tools", false) {
		d.named = append(d.named, named{it, "tool"})
	}
	for _, it := range r.Items("prompts", false) {
		d.named = append(d.named, named{it, "prompt"})
	}
	return rule
}

func (d *decoder) claims(r Object, rule *Rule) {
	n, ok := r.Lookup("claims")
	if !ok {
		return
	}
	if n.Shape != ShapeMap || len(n.Pairs) == 0 {
		r.Wrong("claims", n, "want a map of claims to patterns, got %s; write claims: {groups: [admins]}", emptyOr(n))
		return
	}
	rule.Claims = make(map[string][]string, len(n.Pairs))
	claims := Object{d: d, n: n, Path: join(r.Path, "claims"), rel: join(r.rel, "claims"), hidden: r.hidden}
	for _, p := range n.Pairs {
		if p.Key == "" {
			d.fail(p.KeyPos, "%s: a claim has no name", claims.Path)
			continue
		}
		if claims.EmptyList(p.Key, "an empty list would never match; name what the claim may hold") {
			continue
		}
		// true and 7 are claims as good as any.
		if v := p.Value; v.Scalar() && v.Shape != ShapeNull && v.Shape != ShapeString {
			v.Shape = ShapeString
		}
		var values []string
		if claims.oneOrMore(p.Key, &values, false, "[admins]") {
			claims.patterns(p.Key, "what the claim holds")
		}
		rule.Claims[p.Key] = values
	}
}

func emptyOr(n *Node) string {
	if n.Shape == ShapeMap {
		return "an empty one"
	}
	return n.Shown()
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
		id := n.Text
		if n.thing != "" {
			server, _, ok := strings.Cut(n.Text, c.Separator)
			if !ok && !strings.ContainsAny(n.Text, globMeta) {
				d.warn(n.Pos, "%s: %s matches no %s; write SERVER%s%s", n.Path, n.Shown, n.thing, c.Separator, strings.ToUpper(n.thing))
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
		d.warn(n.Pos, "%s: %s names a server that is not there%s", n.Path, n.Shown, hint)
	}
}
