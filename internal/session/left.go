package session

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
)

// A leftServer is one that was taken out of the session; see adapt.go. What it remembers
// stays until the session ends, and is there again when the server comes back defined as
// it was. It is never changed: a change makes a new one.
type leftServer struct {
	ID     string          `json:"id"`
	Hash   string          `json:"hash"`   // of what its instances were started with
	Server json.RawMessage `json:"server"` // as config.Server.Pin writes it
	// States has the folders of its members' states, and Shares the sessions whose
	// instance they use, by member. The rest is as in the session's facts.
	States  map[string]string      `json:"states"`
	Shares  map[string]string      `json:"shares,omitempty"`
	Damaged []api.Damage           `json:"damaged,omitempty"`
	Owed    map[string]pendingLoss `json:"owed,omitempty"`
	Unfit   map[string]unfitMemory `json:"unfit,omitempty"`
	Called  map[string]bool        `json:"called,omitempty"`
}

// mostLeft bounds the servers that a session remembers without having them.
const mostLeft = 64

// leave moves what the session knows of a server to those that left.
func (f *facts) leave(server config.Server, members []string) error {
	if len(f.Left) >= mostLeft {
		return &api.Error{Kind: api.KindRefused, Server: server.ID, Message: fmt.Sprintf("server %q can't be taken out of the session: it keeps the states of %d that were taken out before, which is the most; open another session", server.ID, mostLeft)}
	}
	pin, err := server.Pin()
	if err != nil {
		return err
	}
	l := leftServer{ID: server.ID, Hash: server.SpecHash(), Server: pin, States: make(map[string]string)}
	of := func(member string) bool { return slices.Contains(members, member) }
	for _, m := range members {
		l.States[m] = f.state(m)
	}
	l.Shares, f.Shares = split(f.Shares, of)
	_, f.States = split(f.States, of)
	l.Owed, f.Owed = split(f.Owed, of)
	l.Unfit, f.Unfit = split(f.Unfit, of)
	l.Called, f.Called = split(f.Called, of)
	l.Damaged = slices.DeleteFunc(slices.Clone(f.Damaged), func(d api.Damage) bool { return !of(d.Server) })
	f.Damaged = slices.DeleteFunc(slices.Clone(f.Damaged), func(d api.Damage) bool { return of(d.Server) })
	f.Left = append(slices.Clone(f.Left), l)
	return nil
}

// split splits a map by its keys.
func split[V any](m map[string]V, of func(string) bool) (those, rest map[string]V) {
	those, rest = maps.Clone(m), maps.Clone(m)
	maps.DeleteFunc(those, func(k string, _ V) bool { return !of(k) })
	maps.DeleteFunc(rest, func(k string, _ V) bool { return of(k) })
	return those, rest
}

// comeBack brings back what the session knew of a server that is defined as it was, and
// otherwise gives it states beside those of its namesakes.
func (f *facts) comeBack(server config.Server, members []string) (back *leftServer) {
	f.States = maps.Clone(f.States)
	set := func(member, folder string) {
		if folder == f.state(member) {
			return
		}
		if f.States == nil {
			f.States = make(map[string]string)
		}
		f.States[member] = folder
	}
	hash := server.SpecHash()
	if i := slices.IndexFunc(f.Left, func(l leftServer) bool { return l.ID == server.ID && l.Hash == hash && hash != "" }); i >= 0 {
		l := f.Left[i]
		f.Left = slices.Delete(slices.Clone(f.Left), i, i+1)
		for _, m := range slices.Sorted(maps.Keys(l.States)) {
			set(m, l.States[m])
		}
		f.Shares, f.Owed, f.Unfit, f.Called = merged(f.Shares, l.Shares), merged(f.Owed, l.Owed), merged(f.Unfit, l.Unfit), merged(f.Called, l.Called)
		f.Damaged = append(slices.Clone(f.Damaged), l.Damaged...)
		return &l
	}
	if slices.ContainsFunc(f.Left, func(l leftServer) bool { return l.ID == server.ID }) {
		version := newID()[len("ses_"):]
		for _, m := range members {
			set(m, m+"~"+version)
		}
	}
	return nil
}

// merged is a map over another.
func merged[V any](base, top map[string]V) map[string]V {
	if len(top) == 0 {
		return base
	}
	out := maps.Clone(base)
	if out == nil {
		out = make(map[string]V, len(top))
	}
	maps.Copy(out, top)
	return out
}

// leftState reports whether a folder is that of a state of a server that left.
func (f *facts) leftState(folder string) bool {
	for _, l := range f.Left {
		for _, name := range l.States {
			if name == folder {
				return true
			}
		}
	}
	return false
}

// lastLeft is the place among those that left of the last one that had a member; -1 for
// none.
func (f *facts) lastLeft(member string) int {
	for i := len(f.Left) - 1; i >= 0; i-- {
		if _, ok := f.Left[i].States[member]; ok {
			return i
		}
	}
	return -1
}

// changeLeft changes one of those that left.
func (f *facts) changeLeft(i int, edit func(*leftServer)) {
	f.Left = slices.Clone(f.Left)
	edit(&f.Left[i])
}

// everCalled are the members, present and left, whose instance ends with the gateway and
// was called.
func (f *facts) everCalled() map[string]bool {
	all := maps.Clone(f.Called)
	for _, l := range f.Left {
		all = merged(all, l.Called)
	}
	return all
}

// entry is the server of a member as it was when it left.
func (l *leftServer) entry(s *Session, member string) (*catalog.Entry, error) {
	server, err := config.Unpin(l.Server)
	if err != nil {
		return nil, err
	}
	e := s.r.catalogs.EntryOf(server, s.own)
	_, e.Ordinal = catalog.SplitMember(member)
	e.ID = member
	return e, nil
}

// everEntry returns the server of a member that the session has, or had last; nil for
// none.
func (s *Session) everEntry(member string) *catalog.Entry {
	if e := s.Catalog().Entry(member); e != nil {
		return e
	}
	f := s.known()
	if i := f.lastLeft(member); i >= 0 {
		if e, err := f.Left[i].entry(s, member); err == nil {
			return e
		}
	}
	return nil
}

// notThere is the error for a server that the session does not have.
func (s *Session) notThere(id string) error {
	message := fmt.Sprintf("there is no server %q", id)
	if f := s.known(); f.lastLeft(id) >= 0 {
		message = fmt.Sprintf("server %q was taken out of session %s", id, s.ID)
	}
	return &api.Error{Kind: api.KindInvalid, Server: id, Message: message}
}

// damageLeft notes a damage of a server that the session does not have any more: it
// counts when the server comes back. False for one of another.
func (s *Session) damageLeft(d api.Damage, due bool) bool {
	if d.Server == "" || s.Catalog().Entry(d.Server) != nil {
		return false
	}
	return s.remark(func(f *facts) bool {
		i := f.lastLeft(d.Server)
		if i < 0 {
			return false
		}
		f.changeLeft(i, func(l *leftServer) {
			l.Damaged = api.AddDamage(slices.Clone(l.Damaged), d)
			_, l.Called = split(l.Called, func(m string) bool { return m == d.Server })
			if due {
				l.Owed = merged(l.Owed, map[string]pendingLoss{d.Server: {Why: d.Why, At: d.At}})
			}
		})
		return true
	})
}

// leftFits reports whether a recorded instance works on a state that a session keeps of
// a server it does not have any more.
func (r *Registry) leftFits(h store.Handle) bool {
	s := r.sessions[h.Session]
	if s == nil || len(h.Link) == 0 {
		return false
	}
	for _, l := range s.facts.Left {
		folder, ok := l.States[h.Server]
		if !ok {
			continue
		}
		hash := l.Hash
		if folder != h.Server {
			hash += " " + folder
		}
		if hash == h.SpecHash {
			return true
		}
	}
	return false
}

// eraseLeft removes what the servers that left remember, with the end of the session.
func (s *Session) eraseLeft(ctx context.Context) {
	for _, l := range s.known().Left {
		s.eraseLeftServer(ctx, &l)
	}
}

func (s *Session) eraseLeftServer(ctx context.Context, l *leftServer) {
	for member, folder := range l.States {
		e, err := l.entry(s, member)
		if err != nil {
			s.r.o.Log.Warn("the state of a server that left is not removed by its driver", "session", s.ID, "server", member, "err", err)
			continue
		}
		if origin := l.Shares[member]; origin != "" {
			s.r.leaveJoint(ctx, origin, e, s.ID)
		} else if e.Keeper() != nil {
			s.r.erase(ctx, e, filepath.Join(s.r.home(s.ID), folder))
		}
	}
}
