package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A view is what is seen at an endpoint: one server, or, empty, all of them.
type view struct {
	server string
	search bool // two tools stand for all, see search.go
}

func (v view) merged() bool { return v.server == "" }

// covers reports whether what a member says by itself is for those who look at
// the view: in the merged one there is only the first of several instances.
func (v view) covers(member string) bool {
	if v.merged() {
		return access.Base(member) == member
	}
	return member == v.server
}

// An exchange is one request on its way through the gateway.
type exchange struct {
	g      *Gateway
	who    identity.Principal
	view   view
	sess   *session.Session
	client *upstream.Client
	conn   *client // nil for a client without a connection
	header http.Header
	peer   upstream.Peer
	from   *http.Request // what it came in by; nil on stdio
	// wide lets names have any member before them, in the merged view or not. In a world,
	// which a policy may call in with names that it makes up, these are none of the servers
	// that act on sessions.
	wide, world bool
	// inner is set for what is done within another call, which counts for it.
	inner bool
	// relays is set for who passes a tool's result on to a model: what the server
	// itself says of a tool that it does not have is such a result.
	relays bool

	method string
	params wire.Params
	trace  telemetry.Parent // what the request is part of
	call   string           // its id in the journal, once it was made and where it is kept
}

// run finds the answer to the exchange's request.
func (x *exchange) run(ctx context.Context) *upstream.Result {
	defer x.sess.InUse()()
	x.unwrap()
	span := x.begin()
	res, err := x.route(ctx)
	x.end(ctx, span, res, err)
	if err != nil {
		fail := x.g.failed(x.who, x.method, err)
		if res != nil {
			fail.Events, fail.Retry = res.Events, res.Retry
		}
		res = fail
	}
	return x.inForm(res)
}

func (x *exchange) inForm(res *upstream.Result) *upstream.Result {
	return inForm(x.from, x.sess.Catalog(), x.view, x.method, res)
}

func (x *exchange) route(ctx context.Context) (*upstream.Result, error) {
	switch x.method {
	case wire.MethodCallTool:
		return x.callTool(ctx)
	case wire.MethodListTools, wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates:
		return x.list(ctx)
	case wire.MethodGetPrompt, wire.MethodReadResource, wire.MethodComplete:
		return x.targeted(ctx)
	case wire.MethodSubscribe, wire.MethodUnsubscribe:
		return x.subscribe(ctx)
	case wire.MethodPing:
		if x.client.Modern {
			return nil, methodNotFound(x.method)
		}
		return emptyResult(), nil
	case wire.MethodSetLevel:
		if x.client.Modern {
			return nil, methodNotFound(x.method)
		}
		return x.setLevel()
	case wire.MethodDiscover:
		return x.discover(ctx)
	}
	// A method that is not ours: the one server of the view may know it.
	if x.view.merged() || x.method == wire.MethodListen {
		return nil, methodNotFound(x.method)
	}
	s := x.seen(x.table(), x.view.server)
	if s == nil {
		return nil, control.NoServer(x.view.server)
	}
	if x.hides(s) || strings.HasPrefix(x.method, "tasks/") && x.sharesIdentity(s) {
		// It may be about a hidden tool, or about another principal's task.
		return nil, methodNotFound(x.method)
	}
	res, err := x.pass(ctx, s, "", nil)
	if err != nil {
		if e := asError(err); e.Kind == api.KindInfrastructure && e.Status == http.StatusBadRequest {
			// How some servers say over HTTP that they don't know a method.
			return nil, methodNotFound(x.method)
		}
	}
	return res, err
}

// table has the shapes of the session's servers.
func (x *exchange) table() *table { return x.g.tableOf(x.sess.Catalog()) }

func emptyResult() *upstream.Result { return &upstream.Result{Result: []byte("{}")} }

// callTool finds the tool's server and passes the call on. A tool that may not
// be seen is refused the same way as one that does not exist.
func (x *exchange) callTool(ctx context.Context) (*upstream.Result, error) {
	name := x.params.Name()
	if name == "" || len(name) > maxToolName {
		return nil, invalidParams("params.name must name a tool, in at most " + strconv.Itoa(maxToolName) + " bytes")
	}
	if x.view.search {
		return x.searchCall(ctx, name)
	}
	t := x.table()
	s, own, short := x.locate(t, name)
	if s == nil {
		return nil, x.unknown(t, name, unknownTool(name))
	}
	if x.strays(ctx, t, s, name, wire.MethodListTools) {
		return nil, x.unknown(t, name, unknownTool(name))
	}
	if short {
		if found, ok := x.unshorten(ctx, t, s, name); ok {
			own = found
		}
	}
	inner, ok := s.inside(own)
	if !ok {
		return nil, x.withheld(s.entry, own, unknownTool(name))
	}
	if !x.who.MayCall(s.entry.Base(), own) {
		return nil, x.deny(s.entry, inner, unknownTool(name))
	}
	given := x.sess.Given(s.entry.ID, wire.MethodListTools) && x.known(s, inner)
	res, err := x.pass(ctx, s, inner, x.rename(name, inner))
	if err == nil && res.Error != nil && wire.ParseError(res.Error).Code == wire.CodeMethodNotFound {
		return nil, unknownTool(name) // it has no tools at all
	}
	switch {
	case err != nil:
		return res, err
	case (x.hides(s) || s.bare && x.view.merged()) && !x.exists(ctx, s, inner, res):
		// In the server's own words it would be told apart from one that is there
		// and hidden, or said to be one of that server.
		return nil, unknownTool(name)
	case x.relays && res.Error == nil:
		return res, nil
	case x.relays && !x.exists(ctx, s, inner, res):
		return nil, unknownTool(name)
	case given && !x.exists(ctx, s, inner, res):
		return nil, invalidParams("Unknown tool: " + name + "; server " + s.entry.ID + " listed it when it last ran and has it no longer; list the tools again")
	}
	res, err = x.mistyped(ctx, t, s, name, inner, res)
	if err == nil && res.Error != nil {
		res.Error = blamed(s.entry.ID, res.Error)
	}
	return res, err
}

// maxToolName bounds a tool's name in a call.
const maxToolName = 1024

// A noTool is the error of a call of a tool that is not there for its caller.
type noTool struct {
	name string // as the caller sent it
	rpc  *wire.Error
}

func (e *noTool) Error() string { return e.rpc.Error() }
func (e *noTool) Unwrap() error { return e.rpc }

// result is the same as a result of the server: as one made with the SDK for
// TypeScript words it, which is what RewardKit's clients know.
func (e *noTool) result() []byte {
	text := wire.Quote(fmt.Sprintf("MCP error %d: Tool %s not found", wire.CodeInvalidParams, e.name))
	return fmt.Appendf(nil, `{"content":[{"type":"text","text":%s}],"isError":true}`, text)
}

func unknownTool(name string) *noTool {
	return &noTool{name, invalidParams("Unknown tool: " + name)}
}

// locate finds whose thing a name is in the exchange's view, and the name by which its
// server lists it.
func (x *exchange) locate(t *table, name string) (s *shape, rest string, short bool) {
	if !x.view.merged() {
		if s = x.seen(t, x.view.server); s != nil {
			name = s.entry.ToolName(name)
		}
		return s, name, false
	}
	s, rest, short = t.split(name)
	if s == nil || !x.wide && (s.bare || !s.listed) || x.world && s.entry.Controls() && !s.listed {
		s, rest, short = t.unprefixed(name), name, false // whose names have nothing before them
	}
	if s == nil || !x.who.MaySee(s.entry.Base()) {
		return nil, "", false
	}
	return s, s.entry.ToolName(rest), short
}

// rename is the edit that gives the server its own name.
func (x *exchange) rename(seen, own string) []wire.Edit {
	if seen == own {
		return nil
	}
	return []wire.Edit{{At: x.params.Target, With: wire.Quote(own)}}
}

// targeted passes on a request about one prompt or resource. One that may not be
// used is refused the same way as one that does not exist.
func (x *exchange) targeted(ctx context.Context) (*upstream.Result, error) {
	name := x.params.Name()
	if !x.params.Target.Ok() {
		return nil, invalidParams("params name nothing to act on")
	}
	s, own, err := x.target(ctx, x.table())
	if err != nil {
		return nil, err
	}
	res, err := x.pass(ctx, s, own, x.rename(name, own))
	if err == nil && res.Error != nil && !x.params.TargetURI {
		// In the server's own words one that is not there would be told apart from
		// one that is hidden.
		if _, all := x.who.Prompts(s.entry.Base()); !all && !x.has(ctx, s, wire.MethodListPrompts, own) {
			return nil, unknownPrompt(name)
		}
	}
	return res, err
}

func unknownPrompt(name string) error { return invalidParams("Unknown prompt: " + name) }

// target finds the server of the prompt or resource that a request is about, and
// what the server calls it, if the principal may use it.
func (x *exchange) target(ctx context.Context, t *table) (s *shape, own string, err error) {
	name := x.params.Name()
	own = name
	switch {
	case !x.view.merged():
		if s = x.seen(t, x.view.server); s == nil {
			return nil, "", x.unknown(t, name, control.NoServer(x.view.server))
		}
	case x.params.TargetURI:
		if s, own, err = x.owner(ctx, t, name); err != nil {
			return nil, "", err
		}
	default:
		if s, own, _ = x.locate(t, name); s == nil {
			return nil, "", x.unknown(t, name, unknownPrompt(name))
		}
		if x.strays(ctx, t, s, name, wire.MethodListPrompts) {
			return nil, "", x.unknown(t, name, unknownPrompt(name))
		}
	}
	base := s.entry.Base()
	if x.params.TargetURI && x.who.MayRead(base) || !x.params.TargetURI && x.who.MayPrompt(base, own) {
		return s, own, nil
	}
	answer := unknownPrompt(name)
	if x.params.TargetURI {
		answer = unknownResource(name)
	}
	return nil, "", x.deny(s.entry, own, answer)
}

// pass hands the request to a server and dresses its answer for the client. All of
// them are in the journal: upstream writes down those that were made, pass the others.
func (x *exchange) pass(ctx context.Context, s *shape, name string, edits []wire.Edit) (_ *upstream.Result, err error) {
	if err := x.rated(s, name); err != nil {
		return nil, err
	}
	ctx, served := x.g.whileServing(ctx)
	defer served()
	req := &upstream.Request{
		Method: x.method, Params: x.params, Edits: edits, Name: name,
		Header: x.header, Client: x.client, Peer: x.peer,
		Who: x.who.Name, Session: x.sess.ID, Run: x.g.runOf(x.who),
		Trace: x.trace.Traceparent, TraceState: x.trace.Tracestate,
	}
	made, outside := false, ctx
	defer func() {
		if err != nil && !made {
			err = upstream.Cut(outside, s.entry.ID, upstream.NotSent(err))
			s.entry.NotMade(outside, req, err)
		}
	}()
	up, _, err := x.upstream(s.entry.ID)
	if err != nil {
		return nil, err
	}
	in, err := x.sess.In(s.entry.ID)
	if err != nil {
		return nil, err
	}
	if in != x.sess {
		defer in.InUse()()
	}
	req.Session = in.ID
	if x.client.Modern && x.params.RequestState.Ok() {
		// States of ours were taken off before. A legacy server made none, and
		// would take the request for a new one.
		conn, err := up.Conn(ctx)
		if err != nil {
			return nil, err
		}
		if h := conn.Hello(); !h.Modern() {
			return nil, invalidParams("requestState is none that was given here")
		}
	}
	var acting *controlCall // nil for servers that act on nothing of ours
	if s.entry.Controls() {
		acting = x.g.o.Control.begin(x)
		defer x.g.o.Control.end(acting)
		req.Caller = acting.handle
	}
	if x.client.LogLevel != "" {
		up.SetLevel(x.client.LogLevel)
	}
	if p, ok := x.peer.(*peerOf); ok {
		p.server = s.entry.ID
	}
	if gated(x.method) {
		inside, leave, err := in.Enter(ctx, s.entry.ID, toolOf(x.method, name))
		if err != nil {
			return nil, err
		}
		defer leave()
		ctx = inside
		if x.method == wire.MethodCallTool && s.entry.Builtin == "" {
			req.Within = in.CallID(ctx)
		}
		if req.Peer != nil {
			req.Peer = &waiter{Peer: req.Peer, sess: in, call: ctx}
		}
	}
	made = true
	res, err := up.Call(ctx, req)
	if upstream.IsClosed(err) {
		// The config was reloaded just now; nothing was sent yet.
		if up, _, err = x.upstream(s.entry.ID); err == nil {
			res, err = up.Call(ctx, req)
		}
	}
	x.call = req.Call
	if err != nil {
		return res, err
	}
	return x.dressed(s, acting.reveal(res)), nil
}

// A waiter is the client's side of a call inside a session: while the client is
// asked something the session can't be forked.
type waiter struct {
	upstream.Peer
	sess *session.Session
	call context.Context
}

// Ask implements upstream.Peer.
func (w *waiter) Ask(ctx context.Context, method string, params []byte) upstream.Reply {
	w.sess.Park(w.call, true)
	defer w.sess.Park(w.call, false)
	return w.Peer.Ask(ctx, method, params)
}

// gated reports whether a request may change what a server remembers, so that a
// fork waits for it. Lists don't, and what a client listens to stays open.
func gated(method string) bool {
	switch method {
	case wire.MethodListTools, wire.MethodListPrompts, wire.MethodListResources, wire.MethodListTemplates,
		wire.MethodSubscribe, wire.MethodUnsubscribe, wire.MethodComplete:
		return false
	}
	return true
}

// toolOf is the name of the tool that is called; empty for all else.
func toolOf(method, name string) string {
	if method == wire.MethodCallTool {
		return name
	}
	return ""
}

// dressed is a server's answer as the client may see it. The answer itself may
// be one that is kept, and is not changed.
func (x *exchange) dressed(s *shape, res *upstream.Result) *upstream.Result {
	out := *res
	switch {
	case res.Error != nil:
		// Servers like to repeat what they did not like, and what they were shown
		// is the gateway's and not the caller's.
		out.Error = x.g.o.Redact.Values(res.Error)
	case bytes.Contains(res.Result, isError):
		out.Result = x.g.o.Redact.Values(res.Result)
	}
	if !x.client.Modern {
		out.Result = wire.ForLegacy(out.Result)
	}
	if x.view.merged() && out.Result != nil {
		out.Result = prefixURIs(x.method, s.entry.ID, out.Result)
	}
	return &out
}

// dress adds to a result what the stateless era wants in every one: its type,
// and for what may be cached how long. Legacy servers don't send them.
func dress(method string, result []byte) []byte {
	at, err := wire.Find(result, "resultType")
	if err != nil || at.Ok() || len(result) == 0 || result[0] != '{' {
		return result
	}
	extra := `"resultType":"complete"`
	if cacheable(method) {
		if ttl, err := wire.Find(result, "ttlMs"); err == nil && !ttl.Ok() {
			extra += `,"ttlMs":0`
		}
		if scope, err := wire.Find(result, "cacheScope"); err == nil && !scope.Ok() {
			extra += `,"cacheScope":"private"`
		}
	}
	if rest := strings.TrimLeft(string(result[1:min(len(result), 16)]), " \t\r\n"); !strings.HasPrefix(rest, "}") {
		extra += ","
	}
	out := make([]byte, 0, len(result)+len(extra))
	out = append(append(out, '{'), extra...)
	return append(out, result[1:]...)
}

func cacheable(method string) bool {
	switch method {
	case wire.MethodDiscover, wire.MethodListTools, wire.MethodListPrompts, wire.MethodListResources,
		wire.MethodListTemplates, wire.MethodReadResource:
		return true
	}
	return false
}
