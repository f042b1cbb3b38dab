package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/wire"
)

// A server whose memory was stored and restored continues where it was: it is
// initialized, and would take a second handshake for a second client. So its first
// handshake is stored with its memory, and a new connection begins with that alone.

// noteForked tells a server that it is a copy of another.
const noteForked = "notifications/tine/forked"

// The ways an HTTP server speaks, as a Hello has them.
const (
	transportStreamable = "streamable"
	transportSSE        = "sse"
)

// maxHello bounds what is kept of a handshake that came from elsewhere.
const maxHello = 1 << 20

// ReadHello reads what a server said, as Greeting wrote it.
func ReadHello(raw json.RawMessage) (*Hello, error) {
	if len(raw) > maxHello {
		return nil, errors.New("what the server said in its handshake is too large")
	}
	var h Hello
	if err := json.Unmarshal(raw, &h); err != nil {
		return nil, fmt.Errorf("what the server said in its handshake can't be read: %w", err)
	}
	if !wire.Known(h.Version) || len(h.Asked) > maxAsks+maxBacklog {
		return nil, errors.New("what the server said in its handshake is of no protocol that Tine speaks")
	}
	return &h, nil
}

// greeted returns the earlier handshake of a new instance's server, nil if it was
// started anew, and whether the instance is a copy of another.
func (u *Upstream) greeted(inst driver.Instance) (*Hello, bool) {
	r, ok := inst.(driver.Suspender)
	if !ok {
		return nil, false
	}
	raw, forked := r.Greeted()
	if len(raw) == 0 {
		return nil, false
	}
	h, err := ReadHello(raw)
	if err != nil {
		// Most servers take a second handshake.
		u.o.Log.Warn("restored server is greeted again", "server", u.Server(), "err", err)
		return nil, false
	}
	return h, forked
}

// Greeting is what is stored with the memory of a running instance: its server's
// handshake, and which of its requests have no answer; nil if there is none. The
// instance is held.
func (u *Upstream) Greeting(inst driver.Instance) json.RawMessage {
	u.mu.Lock()
	conn := u.conn
	other := inst == nil || u.inst != inst
	u.mu.Unlock()
	if conn == nil || other {
		return nil
	}
	return conn.greeting()
}

func (c *Conn) greeting() json.RawMessage {
	h := c.Hello()
	if h.Version == "" {
		return nil
	}
	h.Asked = append(c.asks.waiting(), c.backlog.unread()...)
	c.uses.put(&h)
	raw, err := json.Marshal(h)
	if err != nil {
		return nil
	}
	return raw
}

// begin takes over a server's earlier handshake.
func (c *Conn) begin(h *Hello) {
	now := *h
	now.Asked = nil // answered once, not by each later connection
	c.hello.Store(&now)
	if len(h.Asked) == 0 {
		return
	}
	// The client that was to answer is connected to the original.
	c.asks.start("", "", 0, func(ctx context.Context) {
		for _, a := range h.Asked {
			if ctx.Err() != nil {
				return
			}
			c.answer(ctx, a.ID, Refuse(a.Method, "the session was forked or brought back before there was an answer; ask again"))
		}
	})
}

// resumeSession continues the session of an earlier connection. A server that no
// longer knows it says so to the first call, which then makes a new one.
func (t *httpTransport) resumeSession(h *Hello) {
	t.mu.Lock()
	t.session, t.version = h.Session, h.Version
	t.mu.Unlock()
	t.unproven.Store(true)
	t.c.begin(h)
}

// notifyForked tells a copy that it is one, before any call.
func (u *Upstream) notifyForked(ctx context.Context, conn *Conn) error {
	if u.o.OnFork.Notify {
		params, err := json.Marshal(struct {
			Session string `json:"session"`
			Server  string `json:"server"`
		}{u.Session(), u.Server()})
		if err == nil {
			err = conn.notify(ctx, noteForked, params)
		}
		if err != nil {
			return fmt.Errorf("telling it that it is a fork: %w", err)
		}
	}
	if tool := u.o.OnFork.Tool; tool != "" {
		return u.ask(ctx, conn, Startup{Tool: tool}, "what a fork of it calls first", "; mend the tool, or set servers."+u.o.Spec.Server+".on_fork to another, to notify, or leave it out")
	}
	return nil
}

// ask calls a tool that has to work before a connection is handed out.
func (u *Upstream) ask(ctx context.Context, conn *Conn, s Startup, what, mend string) error {
	arguments := s.Arguments
	if arguments == nil {
		arguments = json.RawMessage("{}")
	}
	params, err := json.Marshal(struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}{s.Tool, arguments})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	res, err := conn.simple(ctx, wire.MethodCallTool, params)
	switch {
	case err != nil:
		// The caller that waits for the start need not know which deadline it was.
		var ours *api.Error
		if errors.As(err, &ours) {
			return failure(ours.Kind, u.Server(), ours.Retryable, "%s, tool %q, got no answer: %s%s", what, s.Tool, Reason(ours), mend)
		}
		return err
	case res.Error != nil:
		return failure(api.KindInfrastructure, u.Server(), true, "%s, tool %q, failed: %s%s", what, s.Tool, beginning(wire.ParseError(res.Error).Message), mend)
	}
	if at, err := wire.Find(res.Result, "isError"); err == nil && at.Ok() && string(at.Of(res.Result)) == "true" {
		return failure(api.KindInfrastructure, u.Server(), true, "%s, tool %q, failed: %s%s", what, s.Tool, firstText(res.Result), mend)
	}
	return nil
}

// Mark identifies a moment in the life of a server: two marks are equal if no
// message went to it or came from it in between. It is empty if that is unknown:
// there is no connection, or a message is being sent.
func (u *Upstream) Mark() string {
	conn := u.Peek()
	if conn == nil || conn.ended() {
		return ""
	}
	// In this order: a message that is counted is then also in sending, or was.
	mark := conn.epoch + "-" + strconv.FormatUint(conn.traffic.Load(), 10)
	if conn.sending.Load() != 0 {
		return ""
	}
	return mark
}
