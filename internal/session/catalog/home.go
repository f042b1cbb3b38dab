package catalog

import (
	"sync"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/policy"
	"github.com/tine-mcp/tine/internal/upstream/record"
)

// A Home has the governors of the servers that stand in no config but are a session's
// own. Another session may have others of the same names, with limits and figures of
// their own. The session closes it.
type Home struct {
	session string

	mu        sync.Mutex
	closed    bool
	governors map[string]*Governor // by server
	past      map[string]*Governor // of servers that it has no longer; they still record
}

// NewHome makes the home of a session's own servers.
func NewHome(session string) *Home { return &Home{session: session} }

// suffix ends the keys of the catalogs that are made for the session alone.
func (h *Home) suffix() string { return "|of " + h.session }

// govern returns what the holds on a server share, with the entry's settings from now
// on. A home that is closed makes one that counts for its entry alone.
func (h *Home) govern(all *Catalogs, s *config.Server) *Governor {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.governors[s.ID]
	if w == nil {
		w = &Governor{Record: record.NewInlineServer(s.ID, s.Journal, all.o.Record)}
		w.Health = &upstream.Health{Log: all.o.Log, Mask: all.o.Record.Redact.Text}
		w.Policy = policy.NewServer(s.ID, s.Policy, w.Record.Metrics(), all.o.Log)
		if h.closed {
			w.Policy.Close()
			return w
		}
		if h.governors == nil {
			h.governors = make(map[string]*Governor)
		}
		h.governors[s.ID] = w
	} else {
		w.Record.SetMode(s.Journal)
		w.Policy.Set(s.Policy)
	}
	w.Health.Begin(s.SpecHash(), false)
	return w
}

// Governor returns what the holds on a server share or shared last; nil where the session
// never had such a server of its own.
func (h *Home) Governor(server string) *Governor {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.governors[server]; w != nil {
		return w
	}
	return h.past[server]
}

// Drop lets go of what is shared of a server that the session has no longer. What is
// still heard of its instance is recorded.
func (h *Home) Drop(server string) {
	h.mu.Lock()
	w := h.governors[server]
	h.leave(server)
	h.mu.Unlock()
	if w != nil {
		w.Policy.Close()
	}
}

// leave makes a governor a past one. h.mu is held.
func (h *Home) leave(server string) {
	w := h.governors[server]
	if w == nil {
		return
	}
	delete(h.governors, server)
	if h.past == nil {
		h.past = make(map[string]*Governor)
	}
	h.past[server] = w
}

// Close lets go of all of them, and reports whether there were any.
func (h *Home) Close() bool {
	h.mu.Lock()
	h.closed = true
	gone := make([]*Governor, 0, len(h.governors))
	for server, w := range h.governors {
		gone = append(gone, w)
		h.leave(server)
	}
	had := len(h.past) > 0
	h.mu.Unlock()
	for _, w := range gone {
		w.Policy.Close()
	}
	return had
}
