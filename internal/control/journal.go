package control

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/store/journal"
	"github.com/tine-mcp/tine/internal/upstream/record"
	"github.com/tine-mcp/tine/internal/wire"
)

// Journal is what can be read of the journal.
type Journal struct {
	*core
	journal *journal.Journal // nil for none
}

var errNone = &api.Error{Kind: api.KindRefused, Status: http.StatusNotFound, Message: "this gateway keeps no journal; journal.mode in the config switches it on"}

// callOf is what decides who may look at a call.
func callOf(e *journal.Entry) access.Call {
	return access.Call{
		Thing:  access.Thing{Owner: e.Principal, Session: e.Session},
		Server: e.Server, Run: e.Run, Denied: e.Mode == record.ModeDenied, Aside: aside(e.Method),
	}
}

// aside reports whether a line of the journal is no call of a tool, but something that is
// done with the session from outside.
func aside(method string) bool {
	return method == record.MethodAnnotation || method == driver.MethodExec || method == driver.MethodPut
}

// A CallFilter chooses calls. Zero fields choose all.
type CallFilter struct {
	Server, Session, Principal, Run string
	Failed                          bool // only those whose outcome is not ok
	Since                           time.Time
	Before                          string // the next of an earlier answer
	Limit                           int
}

// A Selection is calls of the journal that a principal chose, as far as it may look at them.
type Selection struct {
	c      *Journal
	who    identity.Principal
	f      store.CallFilter
	within *access.Thing // the session that the calls are in, where one is looked at
	limit  int
	none   bool // they are of another principal, and not to be seen
}

// Select chooses calls of the whole journal.
func (c *Journal) Select(who identity.Principal, q CallFilter) (Selection, error) {
	s := Selection{c: c, who: who, limit: q.Limit}
	f, err := c.filter(q)
	if err != nil {
		return s, err
	}
	if q.Principal != "" {
		f.Principal = &q.Principal
	}
	if !access.All(who) {
		s.none = q.Principal != "" && q.Principal != who.Name
		if q.Principal == "" {
			f.Principal = &who.Name
		}
	}
	s.f = f
	return s, nil
}

// SelectIn chooses calls of one session, which the principal may know of.
func (c *Journal) SelectIn(who identity.Principal, s api.Session, q CallFilter) (Selection, error) {
	q.Session = s.ID
	f, err := c.filter(q)
	return Selection{c: c, who: who, f: f, within: &access.Thing{Owner: s.Owner, Session: s.ID}, limit: q.Limit}, err
}

func (c *Journal) filter(q CallFilter) (store.CallFilter, error) {
	f := store.CallFilter{Server: q.Server, Session: q.Session, Run: q.Run, Failed: q.Failed, Since: q.Since}
	if c.journal == nil {
		return f, errNone
	}
	if q.Before != "" {
		n, err := strconv.ParseInt(q.Before, 10, 64)
		if err != nil || n < 1 {
			return f, Invalid("before must be the next of an earlier answer")
		}
		f.Before = n
	}
	return f, nil
}

// List is a page of the calls, the newest first.
func (s Selection) List(ctx context.Context) (api.CallList, error) {
	if s.none {
		return api.CallList{Calls: []api.Call{}}, nil
	}
	return s.c.page(ctx, s.who, s.f, s.within, s.limit)
}

const (
	// maxUnseen is how many calls that the principal may not look at are passed over for
	// one page, and at most a batch more.
	maxUnseen = 10_000
	// pageBatch is how many calls are read at once to pass over them.
	pageBatch = 500
)

// page lists as many calls as a page has of those that the principal may look at.
// What it may not look at does not count, and next is the last call that it sees,
// where there is another one that it sees. Only after maxUnseen calls that it may not
// look at does a page end early, and next goes on from there.
func (c *Journal) page(ctx context.Context, who identity.Principal, f store.CallFilter, within *access.Thing, limit int) (api.CallList, error) {
	out := api.CallList{Calls: []api.Call{}}
	next := func(seq int64) string { return strconv.FormatInt(seq, 10) }
	f.Limit = limit + 1
	unseen, shown, last := 0, int64(0), int64(0)
	for ; ; f.Before = last {
		list, err := c.journal.List(ctx, f)
		if err != nil {
			return out, err
		}
		for i := range list {
			e := &list[i]
			look := access.At(who, callOf(e), within)
			switch {
			case !look.Row:
				unseen++
			case len(out.Calls) == limit:
				out.Next = next(shown)
				return out, nil
			default:
				out.Calls, shown = append(out.Calls, c.shown(e, look)), e.Seq
			}
			last = e.Seq
		}
		switch {
		case len(list) < f.Limit:
			return out, nil
		case unseen >= maxUnseen:
			out.Next = next(last)
			return out, nil
		}
		f.Limit = max(f.Limit, pageBatch)
	}
}

// shown is a call as it may be looked at.
func (c *Journal) shown(e *journal.Entry, look access.Look) api.Call {
	call := api.Call{
		ID: e.ID, At: e.At, Principal: e.Principal, Session: e.Session, Run: e.Run, Server: e.Server, Method: e.Method,
		Name: c.redact.Text(e.Name), Duration: float64(e.Duration.Microseconds()) / 1000, Outcome: e.Outcome,
		Error: c.redact.Text(e.Error), Journal: e.Mode, Trace: e.Trace,
	}
	if e.Mode == record.ModeDenied {
		call.Journal = deniedMode(e.Result)
		if !look.Reason {
			call.Error = ""
		}
	}
	if !look.Contents {
		call.Withheld = true
		if e.Mode != record.ModeDenied {
			call.Error = ""
		}
		if e.Method != wire.MethodCallTool && e.Method != wire.MethodGetPrompt {
			call.Name = "" // of a resource it is what was asked for
		}
		return call
	}
	if at, err := wire.Find(e.Params, "arguments"); err == nil && at.Ok() {
		call.Arguments = c.redact.JSON(at.Of(e.Params))
	}
	return call
}

// deniedMode is the mode of a denied call as it is shown: whether its arguments and its
// answer were kept.
func deniedMode(answer []byte) string {
	if len(answer) > 0 {
		return config.JournalFull
	}
	return config.JournalMeta
}

// errGone ends a stream whose principal may not come in any more.
var errGone = errors.New("no longer admitted")

// Follow returns what passes calls to emit as they are made, from now on, until ctx
// ends or emit fails.
func (s Selection) Follow() func(ctx context.Context, emit func(api.Call) error) error {
	c, all := s.c, access.All(s.who)
	tail := c.journal.Tail()
	return func(ctx context.Context, emit func(api.Call) error) error {
		missed := int64(0)
		return tail.Follow(ctx, func(e journal.Entry) error {
			missed += e.Missed
			if !chosen(s.f, &e) {
				return nil
			}
			now, ok := c.host.Again(s.who)
			if !ok || all && !access.All(now) {
				return errGone
			}
			look := access.At(now, callOf(&e), s.within)
			if !look.Row {
				return nil
			}
			call := c.shown(&e, look)
			call.Missed, missed = missed, 0
			return emit(call)
		})
	}
}

func chosen(f store.CallFilter, e *journal.Entry) bool {
	switch {
	case f.Server != "" && f.Server != e.Server,
		f.Session != "" && f.Session != e.Session,
		f.Run != "" && f.Run != e.Run,
		f.Principal != nil && *f.Principal != e.Principal,
		f.Failed && e.Outcome == api.OutcomeOK:
		return false
	}
	return true
}

// Entry finds a call that the principal may look at.
func (c *Journal) Entry(ctx context.Context, who identity.Principal, id string) (journal.Entry, error) {
	if c.journal == nil {
		return journal.Entry{}, errNone
	}
	e, ok, err := c.journal.Get(ctx, id)
	if err != nil {
		return e, err
	}
	if !ok || !access.At(who, callOf(&e), nil).Row {
		return e, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no call " + strconv.Quote(id) + " in the journal; `tine calls` lists them"}
	}
	return e, nil
}

// Get is one call of the journal with its result.
func (c *Journal) Get(ctx context.Context, who identity.Principal, id string) (call api.Call, err error) {
	e, err := c.Entry(ctx, who, id)
	if err != nil {
		return call, err
	}
	look := access.At(who, callOf(&e), nil)
	call = c.shown(&e, look)
	if len(e.Result) > 0 && look.Contents {
		call.Result = c.redact.JSON(e.Result)
	}
	return call, nil
}
