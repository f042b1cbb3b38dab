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

// Note implements events. With an empty method nothing was said, but something
// may have been missed.
func (u *Upstream) Note(method string, params []byte) {
	if u.o.Heard != nil {
		switch method {
		case "", wire.NoteToolsChanged, wire.NotePromptsChanged, wire.NoteResourcesChanged:
			u.o.Heard(method)
		}
	}
	if method == "" {
		return
	}
	// What a shared server says may be about one client's call, and the one who
	// watches need not be the one who called; only that its lists or resources
	// changed is everybody's business.
	if u.o.Conn.Shared {
		switch method {
		case wire.NoteToolsChanged, wire.NotePromptsChanged, wire.NoteResourcesChanged, wire.NoteResourceUpdated:
		default:
			return
		}
	}
	for _, w := range u.watching() {
		w.Note(method, params)
	}
}

// Ask implements events: a request that belongs to no call goes to the one
// client there is, or to none.
func (u *Upstream) Ask(ctx context.Context, method string, params []byte) Reply {
	all := u.watching()
	if u.o.Conn.Shared {
		return Refuse(method, fmt.Sprintf("server %q is shared, so it can't be told whose call caused this request; set servers.%s.scope to session", u.Server(), u.Server()))
	}
	var answered []Watcher
	for _, w := range all {
		if c, ok := w.(interface{ CanAsk() bool }); !ok || c.CanAsk() {
			answered = append(answered, w)
		}
	}
	switch len(answered) {
	case 0:
		return Refuse(method, "no client is connected that could answer")
	case 1:
		defer u.clock.question()()
		if reply, ok := answered[0].Ask(ctx, method, params); ok {
			return reply
		}
		return Refuse(method, "no client is connected that could answer")
	}
	return Refuse(method, "it can't be told which client's call caused this request")
}

// changed tells the watchers that all lists may be different now.
func (u *Upstream) changed() {
	for _, method := range []string{wire.NoteToolsChanged, wire.NotePromptsChanged, wire.NoteResourcesChanged} {
		u.Note(method, nil)
	}
}

// SetLevel asks a legacy server for log messages of at least this level. The
// most verbose level that was ever asked for stays; clients filter their own. So
// each level is sent once to a connection at most, whoever asks how often.
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

// applyLevel tells a connection the level as it is now, one at a time: the last
// one that arrives is the one that stays.
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
