package session

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
)

// counts says of which servers a session has how many instances, where it is not
// one.
func (s *Session) counts() map[string]int {
	var out map[string]int
	for id, m := range s.memberOptions {
		if m.Instances <= 1 {
			continue
		}
		if out == nil {
			out = make(map[string]int)
		}
		out[id] = m.Instances
	}
	return out
}

// holdsOn returns the session's holds on a server, on each instance one: on that of the
// config, or on the session's own of that name.
func (s *Session) holdsOn(server string, inline bool) []*upstream.Upstream {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*upstream.Upstream
	for id, p := range s.parts {
		if base, _ := catalog.SplitMember(id); base == server && p.inline == inline {
			out = append(out, p.up)
		}
	}
	return out
}

// joinAll makes the session's holds on all instances of a server of the config, where
// they may be started for its owner.
func (s *Session) joinAll(server string) {
	for _, e := range s.Catalog().Entries {
		if e.Base() == server && !e.Inline && s.starts(e.ID) {
			_, _, _ = s.Upstream(e.ID)
		}
	}
}

// settled is what a new session has of its servers: what was asked for, checked,
// on top of what the snapshot that it begins with has.
func (r *Registry) settled(cat *catalog.Catalog, o *OpenOptions, from *frozen) (map[string]catalog.Member, error) {
	members := make(map[string]catalog.Member, len(o.Members))
	if from != nil {
		for id, n := range from.Counts {
			if e := cat.Entry(id); e != nil && e.Own() { // left out, or shared by now
				members[id] = catalog.Member{Instances: n}
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(o.Members)) {
		e, m := cat.Entry(id), o.Members[id]
		wrong := func(format string, args ...any) error {
			return &api.Error{Kind: api.KindInvalid, Server: id, Message: fmt.Sprintf("server %q: ", id) + fmt.Sprintf(format, args...)}
		}
		switch {
		case e == nil || e.Ordinal > 0:
			return nil, &api.Error{Kind: api.KindInvalid, Server: id, Message: fmt.Sprintf("there is no server %q; `tine servers` lists them", id)}
		case m.Instances < 0 || m.Instances > catalog.MaxInstances:
			return nil, wrong("%d instances are not possible; a session has 1 to %d of a server", m.Instances, catalog.MaxInstances)
		case !e.Own() && m.Instances > 1:
			return nil, wrong("all sessions share one instance of it, so there can't be %d; set servers.%s.scope to session", m.Instances, id)
		case !e.Own() && m.Template != nil:
			return nil, wrong("all sessions share one instance of it, which a session can't give a template; set servers.%s.scope to session", id)
		}
		if m.Template != nil {
			if from != nil && from.has(e) {
				return nil, wrong("it begins with what snapshot %s has of it, and can't have a template too", o.From)
			}
			t, err := r.template(e, m, o.Owner.Name)
			if err != nil {
				return nil, wrong("%v", err)
			}
			m.Template = t
		}
		if m.Instances == 0 && from != nil {
			m.Instances = members[id].Instances
		}
		members[id] = m
	}
	if len(members) == 0 {
		return nil, nil
	}
	return members, oneSpace(cat, members)
}

// oneSpace refuses two templates for one workspace.
func oneSpace(cat *catalog.Catalog, members map[string]catalog.Member) error {
	first := ""
	for _, id := range slices.Sorted(maps.Keys(members)) {
		e := cat.Entry(id)
		if e == nil || members[id].Template == nil || !e.WorksOnSpace() {
			continue
		}
		if first != "" && string(members[first].Template) != string(members[id].Template) {
			return &api.Error{Kind: api.KindInvalid, Server: id, Message: fmt.Sprintf("servers %q and %q see the same workspace, which can't begin with two templates", first, id)}
		}
		first = id
	}
	return nil
}
