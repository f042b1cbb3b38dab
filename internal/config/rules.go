package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// WorkspacePlace is what the workspace is called where files are copied, beside the ids of
// servers.
const WorkspacePlace = "workspace"

// globMeta are the characters that make a pattern of a name.
const globMeta = `*?[\`

// named is a server, or a thing of one, that a rule names without a pattern, to be
// looked for when all servers are known.
type named struct {
	Item
	thing string // tool or prompt; empty for a server
}

func readRules(a Object, key string, to *[]Rule) bool {
	list, ok := a.Lookup(key)
	if !ok {
		return false
	}
	if list.Shape != ShapeList && list.Shape != ShapeNull {
		a.Wrong(key, list, "want a list, got %s; write rules: [{principals: [ada], servers: [files]}]", list.Shape)
		return false
	}
	for i, item := range list.Items {
		at := fmt.Sprintf("auth.rules[%d]", i)
		// A rule without keys gives everything to everyone, which a dash that was
		// left over must not do.
		if item.Shape == ShapeNull {
			a.Fail(item.Pos, "%s: is empty; say whom it is for and what it gives, or remove it", at)
			continue
		}
		r, ok := a.d.object(item, at, a.hidden, ruleTable.Names())
		if !ok {
			continue
		}
		r.rel = fmt.Sprintf("auth.rules.%d", i)
		rule := Rule{}
		ruleTable.Begin(&rule)
		ruleTable.Read(r, &rule)
		*to = append(*to, rule)
	}
	return true
}

// Without the key it is all, so a list that came out empty would give the most
// where the least was meant.
const (
	mostHint  = "an empty list would mean all; leave it out for that, or name some"
	leastHint = "an empty list names nothing; leave it out, or name some"
)

// rulePatterns is a list of globs of servers, of principals, or of a thing of a server:
// tool or prompt.
func rulePatterns(what, thing, hint string) Value[[]string] {
	v := Set(Texts(""))
	v.Read = func(r Object, key string, dst *[]string) bool {
		what, example := what, "[files]"
		switch sep := r.d.separator; {
		case thing == "tool":
			what, example = "server"+sep+"tool", "[\"files"+sep+"read_*\"]"
		case thing == "prompt":
			what, example = "server"+sep+"prompt", "[\"files"+sep+"*\"]"
		case key == "principals":
			example = "[ada, \"oidc:*\"]"
		}
		if r.EmptyList(key, "%s", hint) {
			return false
		}
		ok := r.Texts(key, dst, example)
		if ok {
			r.patterns(key, what)
		}
		if key != "principals" {
			for _, it := range r.Items(key, false) {
				if key == "exec" && it.Text == WorkspacePlace {
					continue
				}
				r.d.named = append(r.d.named, named{it, thing})
			}
		}
		return ok
	}
	return v
}

// claimsValue is a map of claims to patterns.
var claimsValue = Value[map[string][]string]{
	About: About{Type: "map of a claim to patterns", Default: "any", Schema: Schema{"type": "object", "additionalProperties": Schema{"type": []string{"string", "number", "boolean", "array"}}}},
	Read:  readClaims,
	Show: func(v map[string][]string, at Place) *Node {
		n := MapNode()
		for _, name := range slices.Sorted(maps.Keys(v)) {
			n.Pairs = append(n.Pairs, Pair{Key: name, Value: ShownList(v[name], at.Below(name).rel, at.hidden)})
		}
		return n
	},
	same: func(a, b map[string][]string) bool { return maps.EqualFunc(a, b, sameSet) },
}

func readClaims(r Object, key string, to *map[string][]string) bool {
	n, ok := r.Lookup(key)
	if !ok {
		return false
	}
	if n.Shape != ShapeMap || len(n.Pairs) == 0 {
		r.Wrong(key, n, "want a map of claims to patterns, got %s; write claims: {groups: [admins]}", emptyOr(n))
		return false
	}
	*to = make(map[string][]string, len(n.Pairs))
	claims := Object{d: r.d, n: n, Path: join(r.Path, key), rel: join(r.rel, key), hidden: r.hidden}
	for _, p := range n.Pairs {
		if p.Key == "" {
			r.Fail(p.KeyPos, "%s: a claim has no name", claims.Path)
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
		(*to)[p.Key] = values
	}
	return true
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
