package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/upstream"
)

// A session may have several instances of one server. Each is a member of its
// own, with a state and a part of its own: memory is the first, memory~1 the
// second. They are in the session's catalog, and in no other.

// maxInstances bounds the instances of one server in a session.
const maxInstances = 1000

// A Member says more about the instances that a new session has of one server.
type Member struct {
	Instances int `json:"instances,omitempty"` // zero for one
	// Template is as in api.NewMember; nil for the server's own.
	Template json.RawMessage `json:"template,omitempty"`
	// Snapshot is the one that Template means, by its id, where it is one that the
	// owner may use; empty where only the owner's own will do.
	Snapshot string `json:"-"`
}

// MemberName is what an instance of a server is called in its session.
func MemberName(server string, ordinal int) string {
	if ordinal == 0 {
		return server
	}
	return server + "~" + strconv.Itoa(ordinal)
}

// splitMember is the server and the ordinal of a member's name.
func splitMember(name string) (server string, ordinal int) {
	server, text, ok := strings.Cut(name, "~")
	if !ok {
		return name, 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n >= maxInstances || strconv.Itoa(n) != text {
		return name, 0
	}
	return server, n
}

// instances are the members that a session has of a server, by what it says of
// it.
func (e *Entry) instances(m Member) []*Entry {
	if m.Instances <= 1 && m.Template == nil {
		return []*Entry{e}
	}
	all := make([]*Entry, 0, max(m.Instances, 1))
	for n := range max(m.Instances, 1) {
		one := *e
		one.ID, one.Ordinal = MemberName(e.ID, n), n
		if m.Template != nil {
			one.begin(m.Template)
		}
		all = append(all, &one)
	}
	return all
}

// viewKey tells the catalogs of sessions apart that were made with the same
// servers.
func viewKey(pin string, only []string, members map[string]Member) string {
	key := pin + "|" + strings.Join(only, ",")
	for _, id := range slices.Sorted(maps.Keys(members)) {
		m := members[id]
		key += fmt.Sprintf("|%s~%d %s", id, m.Instances, m.Template)
	}
	return key
}

// counts says of which servers a session has how many instances, where it is not
// one.
func (s *Session) counts() map[string]int {
	var out map[string]int
	for id, m := range s.said {
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

// holdsOn returns the session's holds on a server, on each instance one.
func (s *Session) holdsOn(server string) []*upstream.Upstream {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*upstream.Upstream
	for id, p := range s.parts {
		if base, _ := splitMember(id); base == server {
			out = append(out, p.up)
		}
	}
	return out
}

// joinAll makes the session's holds on all instances of a server, where they may
// be started for its owner.
func (s *Session) joinAll(server string) {
	for _, e := range s.Catalog().Entries {
		if e.Base() == server && s.starts(e.ID) {
			_, _, _ = s.Upstream(e.ID)
		}
	}
}

// settled is what a new session has of its servers: what was asked for, checked,
// on top of what the snapshot that it begins with has.
func (r *Registry) settled(cat *Catalog, o *OpenOptions, from *frozen) (map[string]Member, error) {
	members := make(map[string]Member, len(o.Members))
	if from != nil {
		for id, n := range from.Counts {
			if e := cat.Entry(id); e != nil && e.own() { // left out, or shared by now
				members[id] = Member{Instances: n}
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
		case m.Instances < 0 || m.Instances > maxInstances:
			return nil, wrong("%d instances are not possible; a session has 1 to %d of a server", m.Instances, maxInstances)
		case !e.own() && m.Instances > 1:
			return nil, wrong("all sessions share one instance of it, so there can't be %d; set servers.%s.scope to session", m.Instances, id)
		case !e.own() && m.Template != nil:
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
func oneSpace(cat *Catalog, members map[string]Member) error {
	first := ""
	for _, id := range slices.Sorted(maps.Keys(members)) {
		e := cat.Entry(id)
		if e == nil || members[id].Template == nil || !e.worksOnSpace() {
			continue
		}
		if first != "" && string(members[first].Template) != string(members[id].Template) {
			return &api.Error{Kind: api.KindInvalid, Server: id, Message: fmt.Sprintf("servers %q and %q see the same workspace, which can't begin with two templates", first, id)}
		}
		first = id
	}
	return nil
}
