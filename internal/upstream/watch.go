package upstream

import (
	"context"
	"fmt"
	"time"

	"github.com/tine-mcp/tine/internal/wire"
)

// Watch adds a watcher until stop is called. With a first watcher the
// Upstream starts listening to its server, and keeps it running.
func (u *Upstream) Watch(w Watcher) (stop func()) {
	k := &watching{w}
	u.mu.Lock()
	u.watchers[k] = struct{}{}
	conn := u.conn
	u.mu.Unlock()
	if conn != nil {
		conn.listen.watch(conn)
	}
	return func() {
		u.mu.Lock()
		delete(u.watchers, k)
		u.mu.Unlock()
	}
}

func (u *Upstream) watching() []Watcher {
	u.mu.Lock()
	defer u.mu.Unlock()
	out := make([]Watcher, 0, len(u.watchers))
	for k := range u.watchers {
		out = append(out, k.w)
	}
	return out
}

// Listen has the Upstream hear when its server's lists change, without keeping
// the server running for that.
func (u *Upstream) Listen() {
	if conn := u.Peek(); conn != nil {
		conn.listen.watch(conn)
	}
}

// Note implements events. An empty method stands for messages that may have been
// missed.
func (u *Upstream) Note(from Origin, method string, params []byte) {
	changed := method == wire.NoteToolsChanged || method == wire.NotePromptsChanged || method == wire.NoteResourcesChanged
	if u.o.Heard != nil && (changed || method == "") {
		u.o.Heard(method)
	}
	if method == "" {
		return
	}
	// Changes of lists or resources concern all clients. All else may be about one
	// client's call, and is shown to no other.
	if from.Unknown && !changed && method != wire.NoteResourceUpdated {
		u.o.Log.Debug("notification dropped: it is not known for whose call it is", "server", u.Server(), "method", method)
		return
	}
	for _, w := range u.watching() {
		w.Note(from, method, params)
	}
}

// Ask implements events: a request that came with no call of a client that can be
// asked there. It goes to the client that caused it, or to the only client that the
// connection ever had, or to none.
func (u *Upstream) Ask(ctx context.Context, from Origin, method string, params []byte) Reply {
	switch {
	case u.o.Conn.Shared && !from.Called:
		return Refuse(method, fmt.Sprintf("server %q is shared, so it is not known whose call caused this request; set servers.%s.scope to session", u.Server(), u.Server()))
	case from.Unknown:
		return Refuse(method, fmt.Sprintf("server %q: it is not known which client's call caused this request", u.Server()))
	}
	var able []Watcher
	for _, w := range u.watching() {
		if c, ok := w.(interface{ CanAsk() bool }); !ok || c.CanAsk() {
			able = append(able, w)
		}
	}
	if len(able) > 1 && !from.Called {
		return Refuse(method, fmt.Sprintf("server %q: it is not known which client's call caused this request", u.Server()))
	}
	if !from.Called { // any call may need the answer
		defer u.clock.question()()
	}
	for _, w := range able {
		if reply, ok := w.Ask(ctx, from, method, params); ok {
			return reply
		}
	}
	return Refuse(method, "there is no client to answer")
}

// changed tells the watchers that all lists may be different now.
func (u *Upstream) changed() {
	for _, method := range []string{wire.NoteToolsChanged, wire.NotePromptsChanged, wire.NoteResourcesChanged} {
		u.Note(Origin{}, method, nil)
	}
}

// SetLevel asks a legacy server for log messages of at least this level. The most
// verbose level that was ever asked for stays; clients filter their own. So each
// level is sent to a connection at most once.
func (u *Upstream) SetLevel(level string) {
	if wire.LevelRank(level) < 0 {
		return
	}
	u.mu.Lock()
	if u.level != "" && wire.LevelRank(u.level) <= wire.LevelRank(level) {
		u.mu.Unlock()
		return
	}
	u.level = level
	conn := u.conn
	u.mu.Unlock()
	if conn != nil {
		u.applyLevel(conn)
	}
}

// applyLevel sends the current level to a connection, one at a time, so that the
// last level sent is the one that stays.
func (u *Upstream) applyLevel(conn *Conn) {
	u.levelling.Lock()
	defer u.levelling.Unlock()
	u.mu.Lock()
	level := u.level
	u.mu.Unlock()
	if h := conn.Hello(); level == conn.level || h.Modern() || !h.Can("logging") {
		return
	}
	conn.level = level
	ctx, cancel := context.WithTimeout(u.life, 10*time.Second)
	defer cancel()
	params := append(wire.AppendQuote([]byte(`{"level":`), level), '}')
	if _, err := conn.simple(ctx, wire.MethodSetLevel, params); err != nil {
		u.o.Log.Debug("log level not set", "server", u.Server(), "err", err)
	}
}
