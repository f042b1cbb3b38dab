package config

import (
	"fmt"
	"maps"
	"reflect"
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
	for _, k := range []struct {
		name string
		same bool
	}{
		{"listen", old.Listen == new.Listen},
		{"public_url", old.PublicURL == new.PublicURL},
		{"tls", old.TLS == new.TLS},
		{"cors", slices.Equal(old.CORS.Origins, new.CORS.Origins)},
		{"auth", old.Auth.same(new.Auth)},
		{"limits", old.Limits == new.Limits},
		{"log", old.Log == new.Log},
		{"journal", old.Journal == new.Journal},
		{"telemetry", old.Telemetry.OTLP.same(new.Telemetry.OTLP)},
		{"sessions", old.Sessions.same(new.Sessions)},
		{"workspace", old.Workspace == new.Workspace},
		{"template_roots", sameSet(old.TemplateRoots, new.TemplateRoots)},
		{"sandbox_binary", old.SandboxBinary == new.SandboxBinary},
		{"separator", old.Separator == new.Separator},
		{"long_names", old.LongNames == new.LongNames},
		{"default_view", old.DefaultView == new.DefaultView},
		{"errors", old.Errors == new.Errors},
	} {
		if !k.same {
			ch.Rest = append(ch.Rest, k.name)
		}
	}
	ch.Auth = old.Auth.changes(new.Auth)
	return ch
}

func (a Auth) same(b Auth) bool { return len(a.changes(b)) == 0 }

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
	case a.OIDC != nil && !a.OIDC.same(b.OIDC):
		all = append(all, "oidc changed")
	}
	if !slices.EqualFunc(a.Rules, b.Rules, Rule.same) {
		all = append(all, fmt.Sprintf("rules changed, %d before and %d now", len(a.Rules), len(b.Rules)))
	}
	return all
}

// same compares where a comparison of the lists as they are would not: empty
// and absent are alike, and the order means nothing.
func (o *OIDC) same(p *OIDC) bool {
	return o.Issuer == p.Issuer && o.Principal == p.Principal && o.CAFile == p.CAFile &&
		sameSet(o.Audience, p.Audience) && sameSet(o.Scopes, p.Scopes) && sameSet(o.Algorithms, p.Algorithms)
}

func (r Rule) same(o Rule) bool {
	return r.Role == o.Role && r.Rate == o.Rate && maps.EqualFunc(r.Claims, o.Claims, sameSet) &&
		sameSet(r.Principals, o.Principals) && sameSet(r.Servers, o.Servers) && sameSet(r.Tools, o.Tools) &&
		sameSet(r.Prompts, o.Prompts) && sameSet(r.Resources, o.Resources)
}

func (o OTLP) same(p OTLP) bool {
	return o.Endpoint == p.Endpoint && o.Sample == p.Sample && o.CAFile == p.CAFile && maps.Equal(o.Headers, p.Headers)
}

func (s Sessions) same(o Sessions) bool {
	return s.Max == o.Max && s.PerPrincipal == o.PerPrincipal && s.TTL == o.TTL && s.Idle == o.Idle && s.Memory == o.Memory && s.Instances == o.Instances &&
		s.Share == o.Share && s.Snapshots == o.Snapshots && s.Wait == o.Wait && s.MaxWait == o.MaxWait && s.ForkWait == o.ForkWait && s.OnLoss == o.OnLoss && s.Implicit == o.Implicit &&
		s.Autosnapshot.Every == o.Autosnapshot.Every && s.Autosnapshot.Keep == o.Autosnapshot.Keep && sameSet(s.Autosnapshot.Before, o.Autosnapshot.Before)
}

func sameSet(a, b []string) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// same compares every field but what notes where values came from; empty and absent are alike, except for
// client capabilities, which both configs have filled in.
func (s *Server) same(o *Server) bool {
	a, b := *s, *o
	ok := slices.Equal(a.Args, b.Args) &&
		maps.Equal(a.Env, b.Env) &&
		maps.Equal(a.Headers, b.Headers) &&
		slices.Equal(a.ClientCapabilities, b.ClientCapabilities) &&
		slices.Equal(a.Auth.Scopes, b.Auth.Scopes) &&
		sameSet(a.Policy.Cache.Tools, b.Policy.Cache.Tools) &&
		slices.Equal(a.Tools.Allow, b.Tools.Allow) &&
		slices.Equal(a.Tools.Deny, b.Tools.Deny) &&
		maps.Equal(a.Tools.Rename, b.Tools.Rename) &&
		maps.Equal(a.Tools.Describe, b.Tools.Describe) &&
		slices.Equal(a.State, b.State)
	for _, c := range []*Server{&a, &b} {
		c.Args, c.Env, c.Headers, c.ClientCapabilities, c.Tools, c.State = nil, nil, nil, nil, Tools{}, nil
		c.Auth.Scopes, c.Policy.Cache.Tools = nil, nil
		c.hidden, c.derived, c.gone = nil, derived{}, nil
		c.Preset = "" // what it stands for is compared
		if c.Docker != nil {
			c.Docker = c.Docker.meaning()
		}
		if c.Sandbox != nil {
			c.Sandbox = c.Sandbox.meaning()
		}
		if len(c.Settings) == 0 {
			c.Settings = nil
		}
	}
	return ok && reflect.DeepEqual(a, b)
}
