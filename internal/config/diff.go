package config

import (
	"fmt"
	"maps"
	"slices"
)

// Changes says what a reload brings.
type Changes struct {
	Added, Changed, Removed []string // ids of servers, in the order of their file

	// Rest names the top-level keys that changed. Some of them take effect when the
	// gateway is started again.
	Rest []string

	// Auth says what changed below auth, tokens by the principals that they name.
	Auth []string
}

// Empty reports whether nothing changed.
func (c Changes) Empty() bool {
	return len(c.Added)+len(c.Changed)+len(c.Removed)+len(c.Rest) == 0
}

// Diff compares two configs by what they mean: where a value came from and how
// it was written make no difference.
func Diff(old, new *Config) Changes {
	var ch Changes
	before := make(map[string]*Server, len(old.Servers))
	for i := range old.Servers {
		before[old.Servers[i].ID] = &old.Servers[i]
	}
	after := make(map[string]bool, len(new.Servers))
	for i := range new.Servers {
		s := &new.Servers[i]
		after[s.ID] = true
		switch was := before[s.ID]; {
		case was == nil:
			ch.Added = append(ch.Added, s.ID)
		case !was.same(s):
			ch.Changed = append(ch.Changed, s.ID)
		}
	}
	for i := range old.Servers {
		if id := old.Servers[i].ID; !after[id] {
			ch.Removed = append(ch.Removed, id)
		}
	}
	ch.Rest = topTable.changed(old, new)
	ch.Auth = old.Auth.changes(new.Auth)
	return ch
}

// changes says what b has otherwise.
func (a Auth) changes(b Auth) []string {
	var all []string
	was := make(map[string]Token, len(a.Tokens)) // their names are unique
	for _, t := range a.Tokens {
		was[t.Name] = t
	}
	for _, t := range b.Tokens {
		if old, ok := was[t.Name]; !ok {
			all = append(all, "token "+t.Name+" added")
		} else if old != t {
			all = append(all, "token "+t.Name+" changed")
		}
		delete(was, t.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		all = append(all, "token "+name+" removed")
	}
	switch {
	case a.OIDC == nil && b.OIDC != nil:
		all = append(all, "oidc added")
	case a.OIDC != nil && b.OIDC == nil:
		all = append(all, "oidc removed")
	case a.OIDC != nil && !oidcTable.same(a.OIDC, b.OIDC):
		all = append(all, "oidc changed")
	}
	if !slices.EqualFunc(a.Rules, b.Rules, func(x, y Rule) bool { return ruleTable.same(&x, &y) }) {
		all = append(all, fmt.Sprintf("rules changed, %d before and %d now", len(a.Rules), len(b.Rules)))
	}
	return all
}

// sameSet compares lists whose order means nothing; empty and absent are alike.
func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// same compares what the entries mean: where a value came from makes no difference,
// nor which preset it was made of.
func (s *Server) same(o *Server) bool {
	a, b := *s, *o
	for _, c := range []*Server{&a, &b} {
		c.hidden, c.derived, c.gone, c.Preset = nil, derived{}, nil, ""
		if len(c.Args) == 0 {
			c.Args = nil
		}
		if len(c.Env) == 0 {
			c.Env = nil
		}
		if len(c.Settings) == 0 {
			c.Settings = nil
		}
		if c.kind != nil {
			c.Options = c.kind.meaning(c.Options)
		}
		c.kind = nil
	}
	return serverTable.same(&a, &b) && serverTable.sameRest(a, b)
}
