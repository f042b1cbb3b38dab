package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
)

// facts are what else is recorded of a session. They change as one, with the
// session's lock held, and are written before they count.
type facts struct {
	Caps    json.RawMessage      `json:"caps,omitempty"` // of the one client there is
	Owner   json.RawMessage      `json:"owner,omitempty"`
	Name    string               `json:"name,omitempty"` // of a durable session
	Labels  map[string]string    `json:"labels,omitempty"`
	Expires time.Time            `json:"expires,omitzero"`
	Lease   leaseRef             `json:"lease,omitzero"`
	Idle    time.Duration        `json:"idle,omitempty"` // negative for none, zero for the config's
	From    string               `json:"from,omitempty"`
	Depth   int                  `json:"depth,omitempty"`
	Servers []string             `json:"servers,omitempty"`
	Auto    *config.Autosnapshot `json:"auto,omitempty"`
	// Members says more about some servers than that the session has them.
	Members map[string]catalog.Member `json:"members,omitempty"`
	// Uses is the session that the clients of this one mean when they name none.
	Uses string `json:"uses,omitempty"`
	// States has the folders of states that are not called like their server: a
	// rewind makes new ones beside those it leaves.
	States map[string]string `json:"states,omitempty"`
	// Made has, by folder, the marks of the states that were made: a folder that is
	// removed together with its mark is missed all the same. States in the home of
	// another session are called ses_x/server.
	Made map[string]string `json:"made,omitempty"`
	// Shares has, by server, the session whose instance this one uses too.
	Shares map[string]string `json:"shares,omitempty"`
	// Used names the servers with a state that all sessions share which the session has
	// called: their loss is its own.
	Used   map[string]bool `json:"used,omitempty"`
	Reason string          `json:"reason,omitempty"` // of its end
	// Damaged says what the session has lost; empty for nothing.
	Damaged []api.Damage `json:"damaged,omitempty"`
	// Owed has, by server, a loss that the next call to it has to be told, and Told
	// when the loss was that a call was told last.
	Owed map[string]pendingLoss `json:"owed,omitempty"`
	Told map[string]time.Time   `json:"told,omitempty"`
	// Unfit has, by server, a memory in its state that does not fit.
	Unfit map[string]unfitMemory `json:"unfit,omitempty"`
	// Called names the servers whose instance the session called and no other gateway
	// can go on with.
	Called map[string]bool `json:"called,omitempty"`
	// Listed says that the session was opened with a list of servers, which may change.
	Listed bool `json:"listed,omitempty"`
	// Left are the servers that were taken out of the session and may come back.
	Left []leftServer `json:"left,omitempty"`
	// Held says that the session ends with the gateway that opened it.
	Held bool `json:"held,omitempty"`
	// Creation is the mark of the request that made the session.
	Creation string `json:"creation,omitempty"`
	// Rev counts the changes, so that of two records the newer one is known. That
	// of an opened session is zero only where it comes from a version that made no
	// folder for it.
	Rev int64 `json:"rev,omitempty"`
	// next are the servers that the session has once this is written down, by their key;
	// empty for those that it has.
	next string
}

// hadFolder reports whether a session of that kind had a folder when this was recorded: an
// opened one has from the beginning, and others with the first state that they keep.
func (f *facts) hadFolder(kind string) bool {
	if kind == KindOpened {
		return f.Rev > 0
	}
	for name := range f.Made {
		if !strings.Contains(name, "/") { // in the home of another session
			return true
		}
	}
	return false
}

// fits is the hash of what an instance was started with that fits a session now:
// what its entry says, and the state that counts. One that works on a state from
// before a rewind does not.
func (s *Session) fits(e *catalog.Entry) string {
	if s == nil {
		return e.Hash
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if name := s.facts.state(e.ID); name != e.ID && e.Hash != "" {
		return e.Hash + " " + name
	}
	return e.Hash
}

// factsOf reads what was recorded.
func factsOf(rec store.Session) (facts, error) {
	var f facts
	if len(rec.Data) == 0 {
		return f, nil
	}
	if err := json.Unmarshal(rec.Data, &f); err != nil {
		return f, fmt.Errorf("session %s: reading its record: %w", rec.ID, err)
	}
	// Before there was more to record, the capabilities stood alone.
	var keys map[string]json.RawMessage
	if rec.Kind == KindClient && json.Unmarshal(rec.Data, &keys) == nil {
		if _, ok := keys["caps"]; !ok && f.Rev == 0 && f.Depth == 0 && f.Shares == nil && f.States == nil {
			f.Caps = rec.Data
		}
	}
	return f, nil
}

// record is the session as the store keeps it, with the given facts.
func (s *Session) record(f facts) (store.Session, error) {
	data, err := json.Marshal(f)
	if err != nil {
		return store.Session{}, fmt.Errorf("session %s: writing its record: %w", s.ID, err)
	}
	return store.Session{
		ID: s.ID, Owner: s.Owner, Kind: s.Kind, Created: s.Created, Used: s.Used(),
		Parent: s.Parent, Token: s.token, Catalog: s.pinned(), Data: data,
	}, nil
}

// change changes what is recorded of an open session, one change at a time:
// written down first, so that neither of two undoes the other, and none brings
// back what was closed.
func (s *Session) change(ctx context.Context, edit func(*facts)) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	if s.isClosed() {
		return s.gone()
	}
	f := s.known()
	edit(&f)
	f.Rev++
	rec, err := s.record(f)
	if pin := f.next; pin != "" {
		rec.Catalog, rec.Servers = pin, s.r.catalogs.Written(pin)
	}
	if err == nil {
		// A caller that gave up meanwhile must not leave it open whether it was written.
		err = s.r.o.Shared.PutSessions(context.WithoutCancel(ctx), rec)
	}
	if err != nil {
		return fmt.Errorf("recording the session: %w", err)
	}
	s.recordInFolder(rec)
	s.mu.Lock()
	changed := !f.Expires.Equal(s.facts.Expires)
	if pin := f.next; pin != "" {
		s.pin.Store(&pin)
		f.next = ""
	}
	s.facts = f
	s.mu.Unlock()
	if changed {
		s.expireAt(f.Expires)
	}
	return nil
}

// recordInFolder writes the session's record into its folder, where it has one.
// s.changing is held. The store has it already, so that a failure costs nothing
// as long as the store is there.
func (s *Session) recordInFolder(rec store.Session) {
	f := recordOfSession(s.r.o.States, s.ID)
	if _, err := os.Lstat(f.dir); errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := f.write(keptOf(rec)); err != nil {
		s.r.o.Log.Warn("a session is not recorded in its own folder", "session", s.ID, "err", err)
	}
}

func (s *Session) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// known returns the session's facts.
func (s *Session) known() facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.facts
	f.Labels, f.States, f.Shares = maps.Clone(f.Labels), maps.Clone(f.States), maps.Clone(f.Shares)
	f.Owed, f.Unfit, f.Made, f.Used = maps.Clone(f.Owed), maps.Clone(f.Unfit), maps.Clone(f.Made), maps.Clone(f.Used)
	return f
}
