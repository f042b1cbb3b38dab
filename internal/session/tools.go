package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

const (
	// maxToolList is how large a list of tools is that a trajectory has.
	maxToolList = 4 << 20
	// maxSeen is how many lists a session records: a server may list something else each
	// time that it is asked.
	maxSeen = 100
)

// sawTools is what a session has recorded of the lists of tools that it saw.
type sawTools struct {
	mu   sync.Mutex        // held while a list is written down
	last map[string]string // digests, by view: of a server, or of all
	n    int
}

func (w *sawTools) known() map[string]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.last)
}

// SawTools records a list of tools, a JSON array, that the session's owner or agent was
// given, unless it is the one before: of one server, or of all where that is empty.
// Equal lists are kept once for all sessions.
func (s *Session) SawTools(ctx context.Context, server string, tools []byte) {
	if s.Kind != KindOpened {
		return
	}
	sum := sha256.Sum256(tools)
	digest := hex.EncodeToString(sum[:])
	s.saw.mu.Lock()
	defer s.saw.mu.Unlock()
	if s.saw.last[server] == digest || s.saw.n > maxSeen || s.isClosed() {
		return
	}
	d, err := eventData{Server: server, Tools: digest}, error(nil)
	// A client that hangs up has seen the list all the same.
	ctx = context.WithoutCancel(ctx)
	switch {
	case s.saw.n == maxSeen:
		d.Tools, d.Reason = "", fmt.Sprintf("the list has changed %d times; further lists are not kept", maxSeen)
	case len(tools) > maxToolList:
		d.Tools, d.Reason = "", fmt.Sprintf("a list of %d bytes is not kept", len(tools))
	}
	if e := s.r.event(s.ID, eventTools, d); d.Tools == "" {
		err = s.r.o.Shared.PutEvents(ctx, e)
	} else {
		err = s.r.o.Shared.PutToolList(ctx, digest, tools, e)
	}
	if err != nil {
		s.r.o.Log.Warn("the tools that a session saw are not recorded", "session", s.ID, "err", err)
		return
	}
	if s.saw.last == nil {
		s.saw.last = make(map[string]string)
	}
	s.saw.last[server] = digest
	s.saw.n++
}

// tools tells a list of tools, unless it is the one before.
func (t *teller) tools(ctx context.Context, e store.Event, d eventData) error {
	s := api.Step{Type: stepTools, Session: e.Session, At: e.At, Step: t.step, Server: d.Server, Note: d.Reason}
	if d.Tools != "" {
		if t.lists[d.Server] == d.Tools {
			return nil
		}
		t.lists[d.Server] = d.Tools
		list, ok, err := t.r.o.Shared.ToolList(ctx, d.Tools)
		if err != nil {
			return err
		}
		if s.Tools = list; !ok {
			s.Note = "the list is no longer kept"
		}
	}
	return t.emit(s)
}
