package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/upstream/record"
	"github.com/tine-mcp/tine/internal/wire"
)

var errNoJournal = &api.Error{Kind: api.KindRefused, Status: http.StatusNotFound, Message: "this gateway keeps no journal; journal.mode in the config switches it on"}

// callOf is what decides who may look at a call.
func callOf(e *journal.Entry) access.Call {
	return access.Call{
		Thing:  access.Thing{Owner: e.Principal, Session: e.Session},
		Server: e.Server, Denied: e.Mode == record.ModeDenied,
	}
}

type callQuery struct {
	Server    string    `query:"server" doc:"only calls to this server"`
	Session   string    `query:"session" doc:"only calls in this session"`
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
		if q.Session, err = g.sessionID(a.who, q.Session); err != nil {
			return callPage{}, err
		}
	}
	f := store.CallFilter{Server: q.Server, Session: q.Session, Failed: q.Failed, Since: q.Since}
	if q.Principal != "" {
		f.Principal = &q.Principal
	}
	if !access.All(a.who) {
		if q.Principal != "" && q.Principal != a.who.Name && !q.Follow {
			return callPage{api.CallList{Calls: []api.Call{}}}, nil // nobody else's are its to see
		}
		if q.Principal == "" {
			f.Principal = &a.who.Name
		}
	}
	return g.listCalls(a, f, nil, q.Before, q.Limit, q.Follow)
}

// listCalls lists the calls that a filter chooses, as far as somebody may look at
// them: within a session, where one is given.
func (g *Gateway) listCalls(a *ask, f store.CallFilter, within *access.Thing, before string, limit int64, follow bool) (callPage, error) {
	if g.o.Journal == nil {
		return callPage{}, errNoJournal
	}
	if before != "" {
		n, err := strconv.ParseInt(before, 10, 64)
		if err != nil || n < 1 {
			return callPage{}, invalid("before must be the next of an earlier answer")
		}
		f.Before = n
	}
	if follow {
		g.followCalls(a.w, a.r, a.who, f, within)
		return callPage{}, errAnswered
	}
	return g.pageOfCalls(a, f, within, int(limit))
}

const (
	// maxUnseen is how many calls that somebody may not look at are passed over for
	// one page, and at most a batch more.
	maxUnseen = 10_000
	// pageBatch is how many calls are read at once to pass over them.
	pageBatch = 500
)

// pageOfCalls lists as many calls as a page has of those that somebody may look at.
// What it may not look at does not count, and next is the last call that it sees,
// where there is another one that it sees. Only after maxUnseen calls that it may not
// look at does a page end early, and next goes on from there.
func (g *Gateway) pageOfCalls(a *ask, f store.CallFilter, within *access.Thing, limit int) (callPage, error) {
	out := api.CallList{Calls: []api.Call{}}
	next := func(seq int64) string { return strconv.FormatInt(seq, 10) }
	f.Limit = limit + 1
	unseen, shown, last := 0, int64(0), int64(0)
	for ; ; f.Before = last {
		list, err := g.o.Journal.List(a.ctx(), f)
		if err != nil {
			return callPage{}, err
		}
		for i := range list {
			e := &list[i]
			look := access.At(a.who, callOf(e), within)
			switch {
			case !look.Row:
				unseen++
			case len(out.Calls) == limit:
				out.Next = next(shown)
				return callPage{out}, nil
			default:
				out.Calls, shown = append(out.Calls, g.shownCall(e, look)), e.Seq
			}
			last = e.Seq
		}
		switch {
		case len(list) < f.Limit:
			return callPage{out}, nil
		case unseen >= maxUnseen:
			out.Next = next(last)
			return callPage{out}, nil
		}
		f.Limit = max(f.Limit, pageBatch)
	}
}

// shownCall is a call as it may be looked at.
func (g *Gateway) shownCall(e *journal.Entry, look access.Look) api.Call {
	c := api.Call{
		ID: e.ID, At: e.At, Principal: e.Principal, Session: e.Session, Server: e.Server, Method: e.Method,
		Name: g.o.Redact.Text(e.Name), Duration: float64(e.Duration.Microseconds()) / 1000, Outcome: e.Outcome,
		Error: g.o.Redact.Text(e.Error), Journal: e.Mode, Trace: e.Trace,
	}
	if e.Mode == record.ModeDenied {
		c.Journal = config.JournalMeta
		if !look.Reason {
			c.Error = ""
		}
	}
	if !look.Contents {
		c.Withheld = true
		if e.Mode != record.ModeDenied {
			c.Error = ""
		}
		if e.Method != wire.MethodCallTool && e.Method != wire.MethodGetPrompt {
			c.Name = "" // of a resource it is what was asked for
		}
		return c
	}
	if at, err := wire.Find(e.Params, "arguments"); err == nil && at.Ok() {
		c.Arguments = g.o.Redact.JSON(at.Of(e.Params))
	}
	return c
}

// errGone ends what somebody follows who may no longer.
var errGone = errors.New("no longer admitted")

// keepAlive is how often a stream that has nothing to say says so.
const keepAlive = 15 * time.Second

// followCalls writes calls as they are made, one a line.
func (g *Gateway) followCalls(w http.ResponseWriter, r *http.Request, who identity.Principal, f store.CallFilter, within *access.Thing) {
	ctx, cancel := g.whileOpen(r.Context(), g.life)
	defer cancel()
	ctx, stop := g.whileAdmitted(ctx, who, nil)
	defer stop()
	everybody := access.All(who)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	ctl := http.NewResponseController(w)
	lines := make(chan []byte, 256)
	// Before the first byte is sent: whoever reads it counts on every later call.
	tail := g.o.Journal.Tail()
	started := g.spawn(func() {
		defer close(lines)
		missed := int64(0)
		_ = tail.Follow(ctx, func(e journal.Entry) error {
			missed += e.Missed
			if !chosen(f, &e) {
				return nil
			}
			now, ok := g.guard.Load().Again(who)
			if !ok || everybody && !access.All(now) {
				return errGone
			}
			look := access.At(now, callOf(&e), within)
			if !look.Row {
				return nil
			}
			c := g.shownCall(&e, look)
			c.Missed, missed = missed, 0
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

func chosen(f store.CallFilter, e *journal.Entry) bool {
	switch {
	case f.Server != "" && f.Server != e.Server,
		f.Session != "" && f.Session != e.Session,
		f.Principal != nil && *f.Principal != e.Principal,
		f.Failed && e.Outcome == api.OutcomeOK:
		return false
	}
	return true
}

// entryOf finds a call that the principal may look at.
func (g *Gateway) entryOf(ctx context.Context, who identity.Principal, id string) (journal.Entry, error) {
	if g.o.Journal == nil {
		return journal.Entry{}, errNoJournal
	}
	e, ok, err := g.o.Journal.Get(ctx, id)
	if err != nil {
		return e, err
	}
	if !ok || !access.At(who, callOf(&e), nil).Row {
		return e, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no call " + strconv.Quote(id) + " in the journal; `tine calls` lists them"}
	}
	return e, nil
}

func (g *Gateway) oneCall(a *ask, _ none) (c api.Call, err error) {
	e, err := g.entryOf(a.ctx(), a.who, a.args["call"])
	if err != nil {
		return c, err
	}
	look := access.At(a.who, callOf(&e), nil)
	c = g.shownCall(&e, look)
	if len(e.Result) > 0 && look.Contents {
		c.Result = g.o.Redact.JSON(e.Result)
	}
	return c, nil
}

// replay makes a call again, with the arguments it had: those of the journal
// and not those of a listing, where secrets are masked.
func (g *Gateway) replay(a *ask, _ none) (out rawReplay, err error) {
	who := a.who
	e, err := g.entryOf(a.ctx(), who, a.args["call"])
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
		return out, x.unknown(x.table(), e.Name, noServer(e.Server))
	}
	outside, ok := s.outside(e.Name)
	if !ok || !who.MayCall(s.entry.Base(), outside) {
		answer := invalid("%s", unknownTool(e.Name).Message)
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
