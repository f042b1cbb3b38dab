package session

import (
	"fmt"
	"maps"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
)

// unfitMemory is a memory in the state of a server that does not fit: the program
// or the machine has changed since it was suspended. It is a damage like any other,
// but it is taken back where the memory fits again.
type unfitMemory struct {
	Damage api.Damage `json:"damage"`
	// Told says that a call was: the next one begins anew.
	Told bool `json:"told,omitempty"`
}

// unfit marks a session whose server has such a memory, once. It counts as a loss of
// what the server remembers, whatever files are kept.
func (s *Session) unfit(e *catalog.Entry, why string) {
	s.r.damageWith(s, api.Damage{Server: e.ID, Why: why, Kept: e.Kept(), Memory: e.Kept() == api.KeptFiles}, false, true)
}

// unfitOf returns the memory of a server that does not fit, if there is one.
func (s *Session) unfitOf(server string) (unfitMemory, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u, ok := s.facts.Unfit[server]
	return u, ok
}

// tellUnfit is what a call is told that meets a memory which does not fit; nil where
// one was told before, and this one begins anew.
func (s *Session) tellUnfit(e *catalog.Entry, why string) error {
	server := e.ID
	if hears := s.r.o.Unfit; hears != nil && hears(server, why) {
		return nil
	}
	s.unfit(e, why) // where this session has not used the server before
	const kept = "its memory is kept, and this call was not made"
	if s.refusing() {
		return upstream.Gone(&api.Error{Kind: api.KindLost, Server: server, Message: fmt.Sprintf(
			"server %q: %s; %s: session %s is damaged and sessions.on_loss is refuse; put back what has changed, and the next call goes on with the memory, %s", server, why, kept, s.ID, s.orMend(server))})
	}
	told := false
	s.changeUnfit(server, func(f *facts) {
		u := f.Unfit[server]
		told, u.Told = u.Told, true
		f.Unfit[server] = u
	})
	if told {
		return nil
	}
	return upstream.Gone(&api.Error{Kind: api.KindLost, Server: server, Message: fmt.Sprintf(
		"server %q: %s; %s: put back what has changed, and the next call goes on with the memory; otherwise the next call begins anew and the memory is removed; session %s is marked as damaged", server, why, kept, s.ID)})
}

// fitsAgain hears that a server has started. What did not fit before is lost if it
// began anew; otherwise nothing is.
func (s *Session) fitsAgain(server string, anew bool) {
	s.changeUnfit(server, func(f *facts) {
		if !anew {
			f.Damaged = api.RemoveDamage(f.Damaged, f.Unfit[server].Damage)
			s.r.o.Log.Info("the memory of a server fits again", "session", s.ID, "server", server)
		}
		delete(f.Unfit, server)
	})
}

// changeUnfit changes what is known of a memory that does not fit, where there is
// one. What can't be written down counts all the same, and is written later.
func (s *Session) changeUnfit(server string, edit func(*facts)) {
	if _, ok := s.unfitOf(server); !ok {
		return
	}
	s.remark(func(f *facts) bool {
		if _, ok := f.Unfit[server]; !ok {
			return false
		}
		f.Unfit = maps.Clone(f.Unfit)
		edit(f)
		return true
	})
}
