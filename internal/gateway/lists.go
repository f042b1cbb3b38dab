package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// list answers a list request.
func (x *exchange) list(ctx context.Context) (*upstream.Result, error) {
	if x.view.search && x.method == wire.MethodListTools {
		x.saw(ctx, "", searchTools)
		return &upstream.Result{Result: searchTools}, nil
	}
	t := x.table()
	if !x.view.merged() {
		res, err := x.listOne(ctx, t)
		if err == nil && res.Error == nil && wire.FindString(x.params.Raw, "cursor") == "" {
			x.saw(ctx, x.view.server, res.Result)
		}
		return res, err
	}
	if wire.FindString(x.params.Raw, "cursor") != "" {
		return nil, invalidParams("unknown cursor: this list has one page")
	}
	key := upstream.ListKey(x.method)
	out := append([]byte(`{"`+key), `":[`...)
	parts, missing := x.listAll(ctx, t, x.method)
	first := true
	for _, p := range parts {
		missing = append(missing, x.shadowed(t, p)...)
		for _, item := range p.items {
			item = x.editItem(p.shape, item, t)
			if item == nil {
				continue
			}
			if !first {
				out = append(out, ',')
			}
			first = false
			out = append(out, item...)
		}
	}
	out = append(out, ']')
	if len(missing) > 0 {
		note, err := json.Marshal(missing)
		if err != nil {
			return nil, err
		}
		out = append(append(out, `,"_meta":{"`+wire.MetaTineMissing+`":`...), note...)
		out = append(out, '}')
	}
	out = append(out, '}')
	x.saw(ctx, "", out)
	return &upstream.Result{Result: out}, nil
}

// saw records a list of tools that the session's owner or its agent is given, of one
// server or of all. A page of a list is not recorded.
func (x *exchange) saw(ctx context.Context, server string, result []byte) {
	if x.method != wire.MethodListTools || x.inner || x.who.Name != x.sess.Owner {
		return
	}
	at, err := wire.Find(result, upstream.ListKey(x.method))
	if next, _ := wire.Find(result, "nextCursor"); err == nil && at.Ok() && !next.Ok() {
		x.sess.SawTools(ctx, server, at.Of(result))
	}
}

// editItem gives an item of a merged list its outside looks; nil when it is not
// to be seen.
func (x *exchange) editItem(s *shape, item []byte, t *table) []byte {
	switch x.method {
	case wire.MethodListTools:
		return s.editTool(item, t, true, x.who)
	case wire.MethodListPrompts:
		if !x.who.MayPrompt(s.entry.Base(), wire.FindString(item, "name")) {
			return nil
		}
		return s.editPrompt(item, t)
	case wire.MethodListTemplates:
		return s.editURI(item, "uriTemplate")
	}
	return s.editURI(item, "uri")
}

// listOne passes a list of one server's view on, page by page as the client
// asks. Its tools may look different outside, and tools and prompts be hidden.
func (x *exchange) listOne(ctx context.Context, t *table) (*upstream.Result, error) {
	s := x.seen(t, x.view.server)
	if s == nil {
		return nil, control.NoServer(x.view.server)
	}
	base, key := s.entry.Base(), upstream.ListKey(x.method)
	if !mayList(x.who, base, x.method) {
		return &upstream.Result{Result: []byte(`{"` + key + `":[]}`)}, nil
	}
	res, err := x.listed(ctx, s)
	if err != nil || res.Result == nil {
		return res, err
	}
	var edit func(item []byte) []byte // nil for a list that is shown as it is
	switch x.method {
	case wire.MethodListTools:
		if !s.plain || !x.who.Unlimited(base) {
			edit = func(item []byte) []byte { return s.editTool(item, t, false, x.who) }
		}
	case wire.MethodListPrompts:
		if _, all := x.who.Prompts(base); !all {
			edit = func(item []byte) []byte {
				if !x.who.MayPrompt(base, wire.FindString(item, "name")) {
					return nil
				}
				return item
			}
		}
	}
	if edit == nil {
		return res, nil
	}
	at, err := wire.Find(res.Result, key)
	if err != nil || !at.Ok() {
		return res, nil
	}
	list := at.Of(res.Result)
	items, err := wire.Items(list)
	if err != nil {
		return nil, &api.Error{Kind: api.KindInfrastructure, Server: s.entry.ID, Message: fmt.Sprintf("server %q sent an unreadable list: %v", s.entry.ID, err)}
	}
	out := []byte{'['}
	for _, it := range items {
		if item := edit(it.Of(list)); item != nil {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, item...)
		}
	}
	// The result may be one that is kept: it is not changed itself.
	edited := *res
	edited.Result = wire.AppendSpliced(nil, res.Result, []wire.Edit{{At: at, With: append(out, ']')}})
	return &edited, nil
}

// listed is one server's list or a page of it: as it is kept while the server does not
// run, or as the server answers.
func (x *exchange) listed(ctx context.Context, s *shape) (*upstream.Result, error) {
	e, paged := s.entry, wire.FindString(x.params.Raw, "cursor") != ""
	if up, _, err := x.upstream(e.ID); err == nil && !paged && e.URL == "" && !up.Runs() {
		if items, ok := x.sess.KnownList(e, x.who.Name, x.method); ok {
			out := append([]byte(`{"`+upstream.ListKey(x.method)), `":[`...)
			out = append(out, bytes.Join(items, []byte(","))...)
			return &upstream.Result{Result: append(out, "]}"...)}, nil
		}
	}
	res, err := x.pass(ctx, s, "", nil)
	if err == nil && !paged && res.Result != nil {
		x.learned(e, res.Result)
	}
	return res, err
}

// learned keeps a list that a server gave as one page.
func (x *exchange) learned(e *catalog.Entry, result []byte) {
	conn := x.connTo(e.ID)
	at, err := wire.Find(result, upstream.ListKey(x.method))
	if next, _ := wire.Find(result, "nextCursor"); err != nil || !at.Ok() || next.Ok() || conn == nil {
		return
	}
	list := at.Of(result)
	spans, err := wire.Items(list)
	if err != nil {
		return
	}
	items := make([][]byte, len(spans))
	for i, sp := range spans {
		items[i] = sp.Of(list)
	}
	x.sess.Learned(e, x.who.Name, x.method, conn.Hello(), items)
}

// A part of a merged list is what one server has.
type listPart struct {
	shape *shape
	items [][]byte
}

// listAll lists what is in the merged view.
func (x *exchange) listAll(ctx context.Context, t *table, method string) ([]listPart, []api.Missing) {
	return x.listSome(ctx, t, method, t.cat.Config.Limits.ListWait, func(s *shape) bool { return s.listed })
}

// shadowed says which tools of a server are not in the merged view, since their
// names are taken.
func (x *exchange) shadowed(t *table, p listPart) (out []api.Missing) {
	if !p.shape.bare || x.method != wire.MethodListTools {
		return nil
	}
	for _, item := range p.items {
		name, ok := p.shape.outside(wire.FindString(item, "name"))
		if other := t.shadows(name); ok && other != nil && x.who.MayCall(p.shape.entry.Base(), name) {
			out = append(out, api.Missing{Server: p.shape.entry.ID, Reason: fmt.Sprintf("its tool %q is hidden: that is how a tool of server %q is called", name, other.entry.ID)})
		}
	}
	return out
}

// listSome lists what the chosen servers have, all at once: what is known of those
// that don't run, and of the others what they answer. The slow ones are waited for
// only so long, or as long as it takes where that is 0. A server that can't be had
// leaves the list with a note; when a slow one comes in later, the session's
// clients are told that the list changed.
func (x *exchange) listSome(ctx context.Context, t *table, method string, wait time.Duration, choose func(*shape) bool) ([]listPart, []api.Missing) {
	type slot struct {
		part listPart
		err  error
		used bool
	}
	slots := make([]slot, len(t.cat.Entries))
	var wg sync.WaitGroup
	for i, e := range t.cat.Entries {
		if on, _ := e.On(); !on || !mayList(x.who, e.Base(), method) || !choose(t.shapes[e.ID]) {
			continue
		}
		slots[i].used = true
		slots[i].part.shape = t.shapes[e.ID]
		up, _, err := x.upstream(e.ID)
		if err != nil {
			slots[i].err = err
			continue
		}
		wg.Go(func() { slots[i].part.items, slots[i].err = x.listOf(ctx, up, e, method, wait) })
	}
	wg.Wait()
	var parts []listPart
	var missing []api.Missing
	for i, s := range slots {
		switch {
		case !s.used:
		case s.err != nil:
			e := asError(x.g.clean(x.who, s.err))
			missing = append(missing, api.Missing{Server: t.cat.Entries[i].ID, Reason: upstream.Reason(e), Kind: e.Kind})
			x.g.fetches.lacks(x.g.log, t.cat.Entries[i].ID, upstream.Reason(e))
		default:
			x.g.fetches.lacks(x.g.log, t.cat.Entries[i].ID, "")
			parts = append(parts, s.part)
		}
	}
	return parts, missing
}

// knownAfter is how long a server that is reached over HTTP has to answer before the
// list that is known of it does.
const knownAfter = time.Second

// listOf is what one server has. One that runs, or takes no program to be asked, is
// asked itself.
func (x *exchange) listOf(ctx context.Context, up *upstream.Upstream, e *catalog.Entry, method string, wait time.Duration) ([][]byte, error) {
	if e.Builtin == "" && e.URL == "" && !up.Runs() {
		if items, ok := x.sess.KnownList(e, x.who.Name, method); ok {
			return items, nil
		}
		if e.Learns() && x.sess.Known(e, x.who.Name) == nil {
			k, err := x.sess.Learn(ctx, e, wait)
			if err != nil {
				return nil, err
			}
			if items, ok := k.List(method); ok {
				x.sess.Gave(e.ID, method, items)
				return items, nil
			}
		}
	}
	f := x.g.fetches.start(x, up, e, method)
	if e.Builtin == "" && wait > knownAfter {
		if f.within(ctx, knownAfter) {
			return f.items, f.err
		}
		if items, ok := x.sess.KnownList(e, x.who.Name, method); ok {
			return items, nil
		}
	}
	return f.wait(ctx, x.sess, e.ID, wait)
}

// lacks logs that a list goes out without a server, once for each reason in a row;
// the empty one is for a list that has it.
func (fs *fetches) lacks(log *slog.Logger, server, reason string) {
	fs.mu.Lock()
	was := fs.lacking[server]
	if reason == "" {
		delete(fs.lacking, server)
	} else {
		fs.lacking[server] = reason
	}
	fs.mu.Unlock()
	if reason != "" && reason != was {
		log.Info("a list goes out without a server", "server", server, "because", reason)
	}
}

// fetches are the lists being read, one at a time for each server, principal
// and kind, however often it asks meanwhile.
type fetches struct {
	mu sync.Mutex
	m  map[fetchKey]*fetch
	wg sync.WaitGroup
	// lacking has the servers that the last list went out without, and why.
	lacking map[string]string

	closed bool // nothing is read any more
}

// close waits for what is being read.
func (fs *fetches) close() {
	fs.mu.Lock()
	fs.closed = true
	fs.mu.Unlock()
	fs.wg.Wait()
}

type fetchKey struct {
	up     *upstream.Upstream
	who    string
	method string
}

type fetch struct {
	up     *upstream.Upstream
	method string
	began  time.Time
	done   chan struct{}
	items  [][]byte
	err    error
	owner  *fetches

	// Guarded by fetches.mu.
	over   bool                        // done is about to be closed
	missed map[*session.Session]string // sessions whose lists went out without it, with the server's name there
}

func (fs *fetches) start(x *exchange, up *upstream.Upstream, e *catalog.Entry, method string) *fetch {
	key := fetchKey{up, x.who.Name, method}
	ask := upstream.Request{
		Method: method, Client: &upstream.Client{Key: x.client.Key}, Who: x.who.Name, Session: x.sess.ID,
		Trace: x.trace.Traceparent, TraceState: x.trace.Tracestate,
	}
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f := fs.m[key]; f != nil {
		return f
	}
	f := &fetch{up: up, method: method, began: time.Now(), done: make(chan struct{}), owner: fs}
	if fs.closed {
		f.err = stopping()
		close(f.done)
		return f
	}
	fs.m[key] = f
	fs.wg.Go(func() {
		func() {
			defer telemetry.Contain(x.g.log, telemetry.InEdge, e.ID, func(err error) { f.items, f.err = nil, err })
			var hello upstream.Hello
			if hello, f.items, f.err = up.ReadList(x.g.life, ask); f.err == nil {
				x.sess.Learned(e, x.who.Name, method, hello, f.items)
			}
		}()
		fs.mu.Lock()
		delete(fs.m, key)
		f.over = true
		missed := f.missed
		fs.mu.Unlock()
		close(f.done)
		if f.err != nil {
			return
		}
		for sess, server := range missed {
			sess.Announce(server, session.NoteOf(method))
		}
	})
	return f
}

// within waits for a fetch, counted from its beginning, and reports whether it is over.
func (f *fetch) within(ctx context.Context, most time.Duration) bool {
	ctx, cancel := context.WithDeadline(ctx, f.began.Add(most))
	defer cancel()
	return f.ends(ctx)
}

func (f *fetch) ends(ctx context.Context) bool {
	select {
	case <-f.done:
		return true
	case <-ctx.Done():
		return false
	}
}

// wait waits for a fetch as upstream.Awaited says, or with no most as long as it takes:
// it ends by itself. The session's clients are told when a list comes in that was not
// waited for.
func (f *fetch) wait(ctx context.Context, sess *session.Session, server string, most time.Duration) ([][]byte, error) {
	if most > 0 {
		var cancel context.CancelFunc
		ctx, cancel = f.up.Awaited(ctx, f.method, f.began, most)
		defer cancel()
	}
	if f.ends(ctx) {
		return f.items, f.err
	}
	f.owner.mu.Lock()
	over := f.over
	if !over {
		if f.missed == nil {
			f.missed = make(map[*session.Session]string)
		}
		f.missed[sess] = server
	}
	f.owner.mu.Unlock()
	if over { // just now, so the session would not be told
		<-f.done
		return f.items, f.err
	}
	return nil, f.up.NotYet(f.method)
}

// unshorten finds the tool behind a shortened name.
func (x *exchange) unshorten(ctx context.Context, t *table, s *shape, name string) (string, bool) {
	up, e, err := x.upstream(s.entry.ID)
	if err != nil {
		return "", false
	}
	items, err := x.g.fetches.start(x, up, e, wire.MethodListTools).wait(ctx, x.sess, e.ID, e.ConnectTimeout)
	if err != nil {
		return "", false
	}
	for _, it := range items {
		if seen, ok := s.outside(wire.FindString(it, "name")); ok && t.name(s, seen) == name {
			return seen, true
		}
	}
	return "", false
}
