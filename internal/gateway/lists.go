package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// maxPages and maxItems bound one server's list.
const (
	maxPages = 1000
	maxItems = 50_000
)

// listKey is the member that holds the items of a list result.
func listKey(method string) string {
	switch method {
	case wire.MethodListTools:
		return "tools"
	case wire.MethodListPrompts:
		return "prompts"
	case wire.MethodListTemplates:
		return "resourceTemplates"
	}
	return "resources"
}

func listCapability(method string) string {
	switch method {
	case wire.MethodListTools:
		return "tools"
	case wire.MethodListPrompts:
		return "prompts"
	}
	return "resources"
}

func listNote(method string) string {
	switch method {
	case wire.MethodListTools:
		return wire.NoteToolsChanged
	case wire.MethodListPrompts:
		return wire.NotePromptsChanged
	}
	return wire.NoteResourcesChanged
}

// list answers a list request.
func (x *exchange) list(ctx context.Context) (*upstream.Result, error) {
	t := x.table()
	if !x.view.merged() {
		return x.listOne(ctx, t)
	}
	if wire.FindString(x.params.Raw, "cursor") != "" {
		return nil, invalidParams("unknown cursor: this list has one page")
	}
	key := listKey(x.method)
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
	return &upstream.Result{Result: append(out, '}')}, nil
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
		return nil, noServer(x.view.server)
	}
	base, key := s.entry.Base(), listKey(x.method)
	if !mayList(x.who, base, x.method) {
		return &upstream.Result{Result: []byte(`{"` + key + `":[]}`)}, nil
	}
	res, err := x.pass(ctx, s, "", nil)
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

// listSome asks every server that is chosen at once and waits for the slow ones
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
		f := x.g.fetches.start(x, up, e, method)
		most := wait
		if most == 0 {
			most = 2 * readTime(e) // it ends by itself before that
		}
		wg.Go(func() { slots[i].part.items, slots[i].err = f.wait(ctx, x.sess, e.ID, most) })
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
		default:
			parts = append(parts, s.part)
		}
	}
	return parts, missing
}

// fetches are the lists being read, one at a time for each server, principal
// and kind, however often it asks meanwhile.
type fetches struct {
	mu sync.Mutex
	m  map[fetchKey]*fetch
	wg sync.WaitGroup

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
	began time.Time
	done  chan struct{}
	items [][]byte
	err   error
	owner *fetches

	// Guarded by fetches.mu.
	over   bool                        // done is about to be closed
	missed map[*session.Session]string // sessions whose lists went out without it, with the server's name there
}

func (fs *fetches) start(x *exchange, up *upstream.Upstream, e *session.Entry, method string) *fetch {
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
	f := &fetch{began: time.Now(), done: make(chan struct{}), owner: fs}
	if fs.closed {
		f.err = stopping()
		close(f.done)
		return f
	}
	fs.m[key] = f
	fs.wg.Go(func() {
		ctx, cancel := context.WithTimeout(x.g.life, readTime(e))
		defer cancel()
		func() {
			defer telemetry.Contain(x.g.log, telemetry.InEdge, e.ID, func(err error) { f.items, f.err = nil, err })
			f.items, f.err = readList(ctx, up, ask)
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
			sess.Announce(server, listNote(method))
		}
	})
	return f
}

// readTime is how long a server has for a list, with its start.
func readTime(e *session.Entry) time.Duration { return e.ConnectTimeout + 30*time.Second }

// wait waits for a fetch, counted from its beginning: one that hangs is waited
// for once and not by everyone who comes after. The session's clients are told
// when a list comes in that was not waited for.
func (f *fetch) wait(ctx context.Context, sess *session.Session, server string, most time.Duration) ([][]byte, error) {
	select {
	case <-f.done:
		return f.items, f.err
	default:
	}
	timer := time.NewTimer(max(0, most-time.Since(f.began)))
	defer timer.Stop()
	select {
	case <-f.done:
		return f.items, f.err
	case <-timer.C:
	case <-ctx.Done():
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
	if over { // just now, and nobody would be told
		<-f.done
		return f.items, f.err
	}
	return nil, &api.Error{
		Kind: api.KindTimeout, Server: server, Retryable: true,
		Message: fmt.Sprintf("server %q: has not answered yet; the list is announced again when it does", server),
	}
}

// readList reads all pages of one server's list.
func readList(ctx context.Context, up *upstream.Upstream, ask upstream.Request) ([][]byte, error) {
	method := ask.Method
	conn, err := up.Conn(ctx)
	if err != nil {
		return nil, err
	}
	hello := conn.Hello()
	if !hello.Can(listCapability(method)) {
		return nil, nil
	}
	bad := func(format string, args ...any) error {
		return &api.Error{Kind: api.KindInfrastructure, Server: up.Server(), Message: fmt.Sprintf("server %q: %s: ", up.Server(), method) + fmt.Sprintf(format, args...)}
	}
	var items [][]byte
	params := []byte("{}")
	for range maxPages {
		p, err := wire.ScanParams(method, params)
		if err != nil {
			return nil, err
		}
		page := ask
		page.Params = p
		res, err := up.Call(ctx, &page)
		if err != nil {
			return nil, err
		}
		if res.Error != nil {
			return nil, bad("%s", wire.ParseError(res.Error).Message)
		}
		at, err := wire.Find(res.Result, listKey(method))
		if err != nil || !at.Ok() {
			return nil, bad("the answer has no %s", listKey(method))
		}
		list := at.Of(res.Result)
		spans, err := wire.Items(list)
		if err != nil {
			return nil, bad("%v", err)
		}
		for _, sp := range spans {
			items = append(items, sp.Of(list))
		}
		if len(items) > maxItems {
			return nil, bad("more than %d entries", maxItems)
		}
		cursor, _ := wire.Find(res.Result, "nextCursor")
		if c := cursor.Of(res.Result); c == nil || string(c) == "null" || string(c) == `""` {
			return items, nil
		}
		params = append(append([]byte(`{"cursor":`), cursor.Of(res.Result)...), '}')
	}
	return nil, bad("more than %d pages", maxPages)
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
