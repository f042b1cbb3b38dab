package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/record"
	"github.com/tine-mcp/tine/internal/wire"
)

type callQuery struct {
	Server    string    `query:"server" doc:"only calls to this server"`
	Session   string    `query:"session" doc:"only calls in this session"`
	Run       string    `query:"run" doc:"only calls that were made with a token of this run"`
	Principal string    `query:"principal" doc:"only calls of this principal"`
	Failed    bool      `query:"failed" doc:"only calls whose outcome is not ok"`
	Since     time.Time `query:"since" doc:"only calls from then on"`
	Before    string    `query:"before" doc:"the next of an earlier answer"`
	Limit     int64     `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	Follow    bool      `query:"follow" doc:"a stream of what is called from now on, oldest first"`
}

// calls lists the journal, or follows it.
func (g *Gateway) calls(a *ask, q callQuery) (callPage, error) {
	if q.Session != "" {
		var err error
		if q.Session, err = g.services.Sessions.ID(a.who, q.Session); err != nil {
			return callPage{}, err
		}
	}
	calls, err := g.services.Journal.Select(a.who, control.CallFilter{
		Server: q.Server, Session: q.Session, Run: q.Run, Principal: q.Principal, Failed: q.Failed, Since: q.Since, Before: q.Before, Limit: int(q.Limit),
	})
	if err != nil {
		return callPage{}, err
	}
	return g.listCalls(a, calls, q.Follow)
}

// listCalls lists calls, or follows them.
func (g *Gateway) listCalls(a *ask, calls control.Selection, follow bool) (callPage, error) {
	if follow {
		g.followCalls(a, calls)
		return callPage{}, errAnswered
	}
	list, err := calls.List(a.ctx())
	return callPage{list}, err
}

// keepAlive is how often a stream that has nothing to say says so.
const keepAlive = 15 * time.Second

// followCalls writes calls as they are made, one a line.
func (g *Gateway) followCalls(a *ask, calls control.Selection) {
	w := a.w
	ctx, cancel := g.whileOpen(a.ctx(), g.life)
	defer cancel()
	ctx, stop := g.whileAdmitted(ctx, a.who, nil)
	defer stop()
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	ctl := http.NewResponseController(w)
	lines := make(chan []byte, 256)
	// Before the first byte is sent: a client that reads it counts on every later call.
	follow := calls.Follow()
	started := g.spawn(func() {
		defer close(lines)
		_ = follow(ctx, func(c api.Call) error {
			line, err := json.Marshal(c)
			if err != nil {
				return err
			}
			select {
			case lines <- append(line, '\n'):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	if !started {
		return
	}
	tick := time.NewTicker(keepAlive)
	defer tick.Stop()
	write := func(b []byte) bool {
		_ = ctl.SetWriteDeadline(time.Now().Add(writeWait))
		_, err := w.Write(b)
		return err == nil
	}
	if !write([]byte("\n")) || ctl.Flush() != nil {
		return
	}
	for {
		select {
		case line, ok := <-lines:
			if !ok || !write(line) {
				return
			}
			// What has come meanwhile goes with it.
			for more := true; more; {
				select {
				case line, ok := <-lines:
					if !ok || !write(line) {
						return
					}
				default:
					more = false
				}
			}
		case <-tick.C:
			if !write([]byte("\n")) {
				return
			}
		}
		if ctl.Flush() != nil {
			return
		}
	}
}

func (g *Gateway) oneCall(a *ask, _ none) (api.Call, error) {
	return g.services.Journal.Get(a.ctx(), a.who, a.args["call"])
}

// replay makes a call again, with the arguments it had: those of the journal
// and not those of a listing, where secrets are masked.
func (g *Gateway) replay(a *ask, _ none) (out rawReplay, err error) {
	who := a.who
	e, err := g.services.Journal.Entry(a.ctx(), who, a.args["call"])
	if err != nil {
		return out, err
	}
	refused := func(why string) error {
		return &api.Error{Kind: api.KindRefused, Status: http.StatusConflict, Server: e.Server, Message: "call " + e.ID + " can't be replayed: " + why}
	}
	switch {
	case e.Principal != who.Name && !who.Is(api.RoleOperator):
		return out, refused("it was made by another principal, and that needs the role " + api.RoleOperator)
	case e.Mode == record.ModeDenied:
		return out, refused("it was not made")
	case e.Method != wire.MethodCallTool:
		return out, refused("it is a " + e.Method + ", and only tool calls can be")
	case e.Mode != config.JournalFull || len(e.Params) == 0:
		return out, refused("the journal kept no arguments of it; servers." + e.Server + ".journal: full would")
	}
	x := &exchange{g: g, who: who, view: view{server: e.Server}, client: &upstream.Client{Key: newClientID()}, method: wire.MethodCallTool, from: a.r}
	if x.sess, err = g.replaySession(a.ctx(), who, &e); err != nil {
		return out, err
	}
	s := x.seen(x.table(), e.Server)
	if s == nil {
		return out, x.unknown(x.table(), e.Name, control.NoServer(e.Server))
	}
	outside, ok := s.outside(e.Name)
	if !ok || !who.MayCall(s.entry.Base(), outside) {
		answer := invalid("%s", unknownTool(e.Name).rpc.Message)
		if !ok {
			return out, x.withheld(s.entry, e.Name, answer)
		}
		return out, x.deny(s.entry, e.Name, answer)
	}
	// Only name and arguments: what else was in it belonged to that request.
	raw := append(wire.AppendQuote([]byte(`{"name":`), outside), `,"arguments":`...)
	args := []byte("{}")
	if at, err := wire.Find(e.Params, "arguments"); err == nil && at.Ok() {
		args = at.Of(e.Params)
	}
	raw = append(append(raw, args...), '}')
	if x.params, err = wire.ScanParams(wire.MethodCallTool, raw); err != nil {
		return out, err
	}
	if e := g.enter(who, 1); e != nil {
		return out, e
	}
	defer g.leave(who, 1)
	v, err := x.answer(a.ctx())
	if err != nil {
		return out, err
	}
	return rawReplay{x.call, v}, nil
}

// replaySession is where a call is made again: in its own session while that is
// there, else in the caller's default one. Where each principal has its own
// login, it is made with the caller's.
func (g *Gateway) replaySession(ctx context.Context, who identity.Principal, e *journal.Entry) (*session.Session, error) {
	s := g.reg.Get(e.Session)
	if s != nil && s.Owner != who.Name {
		entry := s.Catalog().Entry(e.Server)
		if !who.Is(api.RoleOperator) || entry == nil || entry.Credential == config.CredentialPerPrincipal {
			s = nil
		}
	}
	if s != nil {
		s.Touch()
		return s, nil
	}
	return g.reg.Default(ctx, who.Name)
}
