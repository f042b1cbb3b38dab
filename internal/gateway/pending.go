package gateway

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A stateless client on a server with connections: the server asks its client
// something in the middle of a call, which the client can only answer with a
// new request. So its input is pending: the client gets the questions and an
// opaque state, the call goes on waiting at the server, and the request that
// brings the state and the answers takes it up again. A call with pending input is bound to
// who made it and to what it was; it does not outlive the gateway.

const (
	maxPending     = 256              // of all
	maxPendingEach = 64               // of one principal
	inputWait      = 10 * time.Minute // for an answer of the client, in both eras
	statePrefix    = "tine-parked-"
)

type pendingInputs struct {
	mu    sync.Mutex
	calls map[string]*pendingInput
}

type pendingInput struct {
	state string
	who   string
	token string // as of a client
	sess  string
	view  view
	what  string // method and name

	cancel context.CancelCauseFunc
	done   chan struct{} // closed when res is there
	res    *upstream.Result

	mu      sync.Mutex
	next    int
	asked   map[string]*question // not answered yet
	changed chan struct{}        // holds one: a question was added
	to      answerer             // the request that waits now; nil while its input is pending
	caps    []byte
	expiry  *time.Timer
}

// An answerer is the request that waits for a call.
type answerer interface {
	note(method string, params []byte)
	// finish sends the answer as this era wants it.
	finish(ctx context.Context, msg wire.Message, res *upstream.Result)
}

type question struct {
	method string
	params []byte
	answer chan upstream.Reply
	told   bool // the client has seen it
}

// mayNeedInput reports whether the call can come to a question: the client can be
// asked something, and its server is not known to be of the stateless era,
// where servers never ask that way.
func (x *exchange) mayNeedInput() bool {
	switch x.method {
	case wire.MethodCallTool, wire.MethodGetPrompt, wire.MethodReadResource:
	default:
		return false
	}
	if caps := x.client.Caps; !can(caps, wire.MethodElicit) && !can(caps, wire.MethodCreateMessage) && !can(caps, wire.MethodListRoots) {
		return false
	}
	s, _, _ := x.locate(x.table(), x.params.Name())
	switch {
	case s == nil:
		return x.params.TargetURI
	case s.entry.Controls():
		return true // it may call servers that ask
	}
	up := x.sess.Peek(s.entry.ID)
	if up == nil {
		return true
	}
	conn := up.Peek()
	if conn == nil {
		return true
	}
	h := conn.Hello()
	return !h.Modern()
}

// runPending makes a call that may need input.
func (g *Gateway) runPending(ctx context.Context, x *exchange, msg wire.Message, to answerer) {
	p := &pendingInput{
		state: statePrefix + newClientID(), who: x.who.Name, token: x.who.Token(), sess: x.sess.ID, view: x.view,
		what: x.method + " " + x.params.Name(), done: make(chan struct{}),
		asked: make(map[string]*question), changed: make(chan struct{}, 1),
		caps: x.client.Caps, to: to,
	}
	call, cancel := context.WithCancelCause(g.life)
	p.cancel = cancel
	x.peer = p
	started := g.spawn(func() {
		p.res = g.runContained(call, x)
		close(p.done)
		g.pending.forget(p)
		cancel(nil)
	})
	if !started {
		cancel(nil)
		to.finish(ctx, msg, x.inForm(failed(msg.Method, stopping())))
		return
	}
	g.await(ctx, p, msg, to)
}

// runContained is run on a goroutine that is no request's.
func (g *Gateway) runContained(ctx context.Context, x *exchange) (res *upstream.Result) {
	defer telemetry.Contain(g.log, telemetry.InEdge, x.method, func(err error) { res = x.inForm(failed(x.method, err)) })
	return x.run(ctx)
}

// await waits for a call's answer or its questions, whichever comes first. to
// is where p's notes go already.
func (g *Gateway) await(ctx context.Context, p *pendingInput, msg wire.Message, to answerer) {
	for {
		select {
		case <-p.done:
			to.finish(ctx, msg, p.res)
			return
		case <-ctx.Done():
			p.cancel(upstream.Cancelled())
			<-p.done
			to.finish(ctx, msg, p.res)
			return
		case <-p.changed:
		}
		result := p.questions()
		if result == nil {
			continue
		}
		if !g.pending.keep(p) {
			p.decline()
			continue
		}
		to.finish(ctx, msg, &upstream.Result{Result: result})
		return
	}
}

// questions is the result that puts the open questions to the client; nil when
// there is none.
func (p *pendingInput) questions() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.asked) == 0 {
		return nil
	}
	out := []byte(`{"resultType":"input_required","inputRequests":{`)
	first := true
	for key, q := range p.asked {
		q.told = true
		if !first {
			out = append(out, ',')
		}
		first = false
		out = append(wire.AppendQuote(out, key), `:{"method":`...)
		out = append(wire.AppendQuote(out, q.method), `,"params":`...)
		out = append(append(out, orEmpty(q.params)...), '}')
	}
	out = append(out, `},"requestState":`...)
	return append(wire.AppendQuote(out, p.state), '}')
}

// Note implements upstream.Peer.
func (p *pendingInput) Note(method string, params []byte) {
	p.mu.Lock()
	to := p.to
	p.mu.Unlock()
	if to != nil {
		to.note(method, params)
	}
}

// Ask implements upstream.Peer.
func (p *pendingInput) Ask(ctx context.Context, method string, params []byte) upstream.Reply {
	if !can(p.caps, method) {
		return upstream.Refuse(method, "the client does not support "+method)
	}
	q := &question{method: method, params: params, answer: make(chan upstream.Reply, 1)}
	p.mu.Lock()
	p.next++
	key := "input-" + strconv.Itoa(p.next)
	p.asked[key] = q
	p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
	select {
	case r := <-q.answer:
		return r
	case <-ctx.Done():
	case <-p.done:
	}
	p.mu.Lock()
	delete(p.asked, key)
	p.mu.Unlock()
	return upstream.Refuse(method, "the call ended before the client answered")
}

// decline declines the server's questions: there is no client to ask.
func (p *pendingInput) decline() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, q := range p.asked {
		delete(p.asked, key)
		q.answer <- upstream.Refuse(q.method, "too many calls wait for input")
	}
}

// keep keeps a call with pending input, which goes on when it is taken up. It reports
// false when too much input is pending, and for a call that has ended.
func (g *pendingInputs) keep(p *pendingInput) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-p.done: // it may have been forgotten already
		return false
	default:
	}
	same := 0
	for _, other := range g.calls {
		if other.who == p.who {
			same++
		}
	}
	if len(g.calls) >= maxPending || same >= maxPendingEach {
		return false
	}
	p.mu.Lock()
	p.to = nil
	p.mu.Unlock()
	g.calls[p.state] = p
	p.expiry = time.AfterFunc(inputWait, func() {
		p.cancel(upstream.Cancelled())
		g.forget(p)
	})
	return true
}

func (g *pendingInputs) forget(p *pendingInput) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.calls, p.state)
	if p.expiry != nil {
		p.expiry.Stop()
	}
}

func (g *pendingInputs) closeAll() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.calls {
		p.cancel(upstream.Cancelled())
	}
}

// take finds the call of a state, if it is the caller's and the same
// request again.
func (g *pendingInputs) take(state string, x *exchange) *pendingInput {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.calls[state]
	if p == nil || p.who != x.who.Name || p.token != x.who.Token() || p.sess != x.sess.ID || p.view != x.view || p.what != x.method+" "+x.params.Name() {
		return nil
	}
	delete(g.calls, state)
	if !p.expiry.Stop() {
		return nil // it waited too long, just now
	}
	return p
}

// stillMay refuses who may no longer make the call that it made: the rules can
// change while its input is pending.
func (x *exchange) stillMay(ctx context.Context) error {
	name, t := x.params.Name(), x.table()
	switch {
	case x.method == wire.MethodCallTool:
		s, own, short := x.locate(t, name)
		if s == nil {
			return unknownTool(name)
		}
		if short {
			if found, ok := x.unshorten(ctx, t, s, name); ok {
				own = found
			}
		}
		if _, ok := s.inside(own); !ok || !x.who.MayCall(s.entry.Base(), own) {
			return unknownTool(name)
		}
	default:
		_, _, err := x.target(ctx, t)
		return err
	}
	return nil
}

// resumePending takes a call with pending input up again. It reports false for a request
// that is none of ours.
func (g *Gateway) resumePending(ctx context.Context, x *exchange, msg wire.Message, to answerer) bool {
	state, ok := wire.Unquote(x.params.RequestState.Of(x.params.Raw))
	if !ok || !strings.HasPrefix(state, statePrefix) {
		return false
	}
	p := g.pending.take(state, x)
	if p == nil {
		gone := failed("", &api.Error{
			Kind: api.KindLost, Message: "the call that waited for this input is gone: it ended, waited too long, or the gateway restarted",
		})
		to.finish(ctx, msg, gone)
		return true
	}
	if err := x.stillMay(ctx); err != nil {
		p.cancel(upstream.Cancelled())
		to.finish(ctx, msg, x.inForm(failed(msg.Method, err)))
		return true
	}
	var answers map[string]json.RawMessage
	if raw := x.params.InputResponses.Of(x.params.Raw); raw != nil {
		if err := json.Unmarshal(raw, &answers); err != nil {
			if !g.pending.keep(p) {
				p.cancel(upstream.Cancelled())
			}
			to.finish(ctx, msg, failed(msg.Method, invalidParams("inputResponses must be an object")))
			return true
		}
	}
	p.mu.Lock()
	p.to = to // before the server goes on, and has something to say
	for key, raw := range answers {
		if q := p.asked[key]; q != nil && q.told {
			delete(p.asked, key)
			q.answer <- upstream.Reply{Result: raw}
		}
	}
	open := len(p.asked) > 0
	p.mu.Unlock()
	if open {
		select {
		case p.changed <- struct{}{}:
		default:
		}
	}
	g.await(ctx, p, msg, to)
	return true
}
