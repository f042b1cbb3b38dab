package session

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
)

// A session may have other servers than when its snapshot was made; see adapt.go. What a
// rewind brings back is for a server that is defined as it was then. One that is not, or
// was not there, begins anew.

// definitions say how the servers of a session compare with those of its snapshot; nil
// where they are the same, or follow the config.
type definitions struct {
	then map[string]string // what they were started with, by server
	same map[string]bool   // servers that are now what they were
}

// definedIn returns those of a snapshot.
func (s *Session) definedIn(ctx context.Context, snap *snapshot) (*definitions, error) {
	if pin := s.pinned(); pin == "" || snap.Catalog == "" || pin == snap.Catalog && len(s.known().Left) == 0 {
		return nil, nil
	}
	servers, err := s.r.listOf(ctx, snap.Catalog, snap.Only)
	if err != nil {
		return nil, fmt.Errorf("snapshot %s: %w", snap.ID, err)
	}
	now, err := s.r.listOf(ctx, s.pinned(), nil)
	if err != nil {
		return nil, err
	}
	d := &definitions{make(map[string]string, len(servers)), make(map[string]bool, len(servers))}
	for _, server := range servers {
		d.then[server.ID] = server.SpecHash()
	}
	for _, server := range now {
		d.same[server.ID] = d.then[server.ID] == server.SpecHash()
	}
	return d, nil
}

// has reports whether the server of a member was then what it is now. The workspace,
// which has no name, always was.
func (d *definitions) has(member string) bool {
	base, _ := catalog.SplitMember(member)
	return d == nil || member == "" || d.same[base]
}

// A leftRewind is what becomes of the servers that left.
type leftRewind struct {
	stay  []leftServer // as they are from then on
	over  []leftServer // as they were: their folders count no longer
	seeds []leftSeed
}

// A leftSeed is a state that is made from the snapshot.
type leftSeed struct {
	e      *catalog.Entry
	from   driver.Snapshot
	folder string
}

// rewindLeft has the servers that left go back too: one that comes back later has what
// the snapshot has of it. What joined only after the snapshot is forgotten.
func (s *Session) rewindLeft(all []leftServer, snap *snapshot, then *definitions) leftRewind {
	var out leftRewind
	for _, l := range all {
		if len(l.Shares) > 0 { // others use it too, and it does not go back
			out.stay = append(out.stay, l)
			continue
		}
		out.over = append(out.over, l)
		if then.then[l.ID] != l.Hash {
			continue
		}
		version := newID()[len("ses_"):]
		of := func(member string) bool { _, ok := l.States[member]; return ok }
		next := leftServer{ID: l.ID, Hash: l.Hash, Server: l.Server, States: make(map[string]string)}
		for _, member := range slices.Sorted(maps.Keys(l.States)) {
			folder := member + "~" + version
			next.States[member] = folder
			i := slices.IndexFunc(snap.Members, func(m frozenMember) bool { return m.Server == member })
			if i < 0 {
				continue
			}
			if e, err := l.entry(s, member); err == nil && e.Keeper() != nil {
				out.seeds = append(out.seeds, leftSeed{e, snap.Members[i].Snapshot, folder})
			}
		}
		next.Damaged = slices.DeleteFunc(slices.Clone(snap.Damaged), func(d api.Damage) bool { return !of(d.Server) })
		next.Owed, _ = split(snap.Owed, of)
		out.stay = append(out.stay, next)
	}
	return out
}

// eraseRewound removes the states of servers that left which no longer count.
func (s *Session) eraseRewound(ctx context.Context, was []leftServer) {
	ctx, cancel := afterwards(ctx)
	defer cancel()
	now := s.known()
	for _, l := range was {
		for member, folder := range l.States {
			if now.leftState(folder) || len(l.Shares) > 0 {
				continue
			}
			e, err := l.entry(s, member)
			if err != nil {
				s.r.o.Log.Warn("the state of a server that left is not removed by its driver", "session", s.ID, "server", member, "err", err)
				continue
			}
			if e.Keeper() != nil {
				s.r.erase(ctx, e, filepath.Join(s.r.home(s.ID), folder))
			}
		}
	}
}
