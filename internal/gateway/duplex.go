package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A duplex is a client on one channel in each direction: the event stream of
// revision 2024-11-05, or stdio. Everything that goes out goes through the
// client's outbox.
type duplex struct {
	g    *Gateway
	view view
	sess *session.Session
	out  *outbox
	from *http.Request // of the event stream; nil on stdio

	mu  sync.Mutex
	who identity.Principal // as it came last
	c   *client            // after the handshake
	// modern calls have no client; they are cancelled by id.
	calls      map[string]*context.CancelCauseFunc
	closed     bool
	wg         sync.WaitGroup
	life       context.Context
	end        context.CancelFunc
	inputEnded chan struct{} // closed when the client sends no more
	unused     func()        // lets go of the session, which is in use as long as the channel
}

// maxDuplexCalls bounds the running requests of one channel.
const maxDuplexCalls = 1024

func (g *Gateway) newDuplex(v view, sess *session.Session, who identity.Principal, from *http.Request) *duplex {
	d := &duplex{g: g, view: v, sess: sess, who: who, from: from, out: newOutbox(false, g.log), calls: make(map[string]*context.CancelCauseFunc), inputEnded: make(chan struct{})}
	d.life, d.end = context.WithCancel(g.life)
	d.unused = sess.InUse()
	return d
}

// close ends the running requests and waits for them.
func (d *duplex) close() {
	d.end()
	d.mu.Lock()
	d.closed = true
	c := d.c
	d.mu.Unlock()
	if c != nil {
		c.close()
	}
	d.out.close()
	d.wg.Wait()
	d.unused()
}

// spawn runs fn beside the channel. It reports false when the channel is
// closed, so that nothing starts behind the back of close.
func (d *duplex) spawn(fn func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed {
		d.wg.Go(fn)
	}
	return !d.closed
}

// came notes who sent a message: what the same principal may do can change.
func (d *duplex) came(who identity.Principal) {
	d.mu.Lock()
	d.who = who
	c := d.c
	d.mu.Unlock()
	if c != nil {
		c.came(who)
	}
}

func (d *duplex) principal() identity.Principal {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.who
}

func (d *duplex) failed(method string, err error) *upstream.Result {
	return inForm(d.from, d.sess.Catalog(), d.view, method, failed(method, err))
}

func (d *duplex) send(frame []byte) { d.out.add(frame, "", kindAnswer) }

// receive takes one message in. It returns at once; answers go out when they
// are there.
func (d *duplex) receive(frame []byte) {
	msg, err := wire.Scan(frame)
	if errors.Is(err, wire.ErrBatch) {
		msgs, err := wire.ScanBatch(frame, maxBatch)
		if err != nil {
			d.send(wire.AppendFailure(nil, nil, wire.AppendError(nil, &wire.Error{Code: wire.CodeParse, Message: err.Error()})))
			return
		}
		for _, m := range msgs {
			d.message(m)
		}
		return
	}
	if err != nil {
		d.send(wire.AppendFailure(nil, nil, wire.AppendError(nil, &wire.Error{Code: wire.CodeParse, Message: "unreadable message: " + err.Error()})))
		return
	}
	d.message(msg)
}

func (d *duplex) message(msg wire.Message) {
	d.mu.Lock()
	c := d.c
	d.mu.Unlock()
	switch {
	case msg.IsNotification():
		if msg.Method == wire.NoteCancelled {
			at, _ := wire.Find(msg.Params, "requestId")
			d.mu.Lock()
			cancel := d.calls[string(at.Of(msg.Params))]
			d.mu.Unlock()
			if cancel != nil {
				(*cancel)(upstream.Cancelled())
			}
		}
		if c != nil {
			c.note(msg)
		}
		return
	case msg.IsResponse():
		if c != nil {
			c.answered(msg)
		}
		return
	}
	params, err := wire.ScanParams(msg.Method, msg.Params)
	if err != nil {
		d.send(frameOf(msg.ID, failed("", invalidParams(err.Error()))))
		return
	}
	if msg.Method == wire.MethodInitialize {
		d.initialize(msg)
		return
	}
	who := d.principal()
	if e := d.g.enter(who, 1); e != nil {
		d.send(frameOf(msg.ID, d.failed(msg.Method, e)))
		return
	}
	ctx, cancel := context.WithCancelCause(d.life)
	done, ok := d.begin(msg.ID, cancel)
	if !ok {
		cancel(nil)
		d.g.leave(who, 1)
		d.send(frameOf(msg.ID, failed("", &wire.Error{Code: wire.CodeInvalidRequest, Message: "a request with this id is running, or too many are"})))
		return
	}
	started := d.spawn(func() {
		defer d.g.leave(who, 1)
		defer cancel(nil)
		defer done()
		defer telemetry.Contain(d.g.log, telemetry.InEdge, msg.Method, func(err error) { d.send(frameOf(msg.ID, d.failed(msg.Method, err))) })
		if params.Version.Ok() {
			d.modern(ctx, msg, params, done)
			return
		}
		d.legacy(ctx, c, msg, params, done)
	})
	if !started {
		cancel(nil)
		d.g.leave(who, 1)
	}
}

// begin registers a request, so that it can be cancelled. done ends that, before
// the request is answered: a client that has the answer may use the id again.
func (d *duplex) begin(id []byte, cancel context.CancelCauseFunc) (done func(), ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := string(id)
	if _, ok := d.calls[key]; ok || len(d.calls) >= maxDuplexCalls {
		return nil, false
	}
	d.calls[key] = &cancel
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.calls[key] == &cancel {
			delete(d.calls, key)
		}
	}, true
}

// initialize shakes hands, once: a second client on the channel would leave the
// first one's subscriptions and requests behind. After a handshake that failed
// the client may try again.
func (d *duplex) initialize(msg wire.Message) {
	var init initParams
	if err := json.Unmarshal(orEmpty(msg.Params), &init); err != nil {
		d.send(frameOf(msg.ID, failed("", invalidParams("unreadable params: "+err.Error()))))
		return
	}
	id := bytes.Clone(msg.ID)
	d.mu.Lock()
	if d.c != nil {
		d.mu.Unlock()
		d.send(frameOf(id, failed("", errInitialized)))
		return
	}
	c := d.g.newClient(newClientID(), d.view, d.sess, d.who, negotiate(init.ProtocolVersion), init, d.out)
	c.touch()
	d.c = c
	d.mu.Unlock()
	d.sess.SetCapabilities(init.Capabilities)
	started := d.spawn(func() {
		defer telemetry.Contain(d.g.log, telemetry.InEdge, msg.Method, func(err error) { d.send(frameOf(id, failed("", err))) })
		x := &exchange{g: d.g, who: d.principal(), view: d.view, sess: d.sess, client: c.desc(), conn: c, method: wire.MethodInitialize}
		res, err := x.initialized(d.life, c.version)
		if err != nil {
			res = failed(wire.MethodInitialize, err)
			d.mu.Lock()
			d.c = nil
			d.mu.Unlock()
			c.detach()
		}
		d.send(frameOf(id, res))
	})
	if !started {
		c.close()
	}
}

// errInitialized refuses a second handshake, as the official SDKs do.
var errInitialized = &wire.Error{Code: wire.CodeInvalidRequest, Message: "Invalid Request: this connection is initialized already; end it and open another one to begin anew"}

func (d *duplex) legacy(ctx context.Context, c *client, msg wire.Message, params wire.Params, done func()) {
	x := &exchange{g: d.g, who: d.principal(), view: d.view, sess: d.sess, conn: c, method: msg.Method, params: params, trace: d.g.parentOf(nil, &params), from: d.from}
	if c != nil {
		x.client = c.desc()
		x.peer = &peerOf{c: c, to: func() *outbox { return d.out }}
	} else {
		x.client = &upstream.Client{Key: newClientID()}
	}
	res := x.run(ctx)
	if errors.Is(context.Cause(ctx), upstream.Cancelled()) {
		return
	}
	done()
	d.send(frameOf(msg.ID, res))
}

// modern answers a request of the stateless era on a channel, where there are
// no headers to hold against the body.
func (d *duplex) modern(ctx context.Context, msg wire.Message, params wire.Params, done func()) {
	header := make(http.Header)
	version, _ := wire.Unquote(params.Version.Of(params.Raw))
	header.Set(wire.HeaderMethod, msg.Method)
	if params.Target.Ok() {
		header.Set(wire.HeaderName, wire.EncodeHeader(params.Name()))
	}
	if e := checkModern(header, version, &msg, &params); e != nil {
		d.send(frameOf(msg.ID, failed("", e)))
		return
	}
	x := &exchange{
		g: d.g, who: d.principal(), view: d.view, sess: d.sess, method: msg.Method, params: params, trace: d.g.parentOf(nil, &params), from: d.from,
		client: &upstream.Client{
			Key: newClientID(), Modern: true,
			Info: params.ClientInfo.Of(params.Raw), Caps: params.ClientCaps.Of(params.Raw),
		},
	}
	x.client.LogLevel, _ = wire.Unquote(params.LogLevel.Of(params.Raw))
	if msg.Method == wire.MethodListen {
		d.listen(ctx, x, msg)
		return
	}
	d.g.answerModern(ctx, x, msg, &framePeer{d: d, level: x.client.LogLevel, done: done})
}

// listen keeps a subscription open on the channel until it is cancelled.
func (d *duplex) listen(ctx context.Context, x *exchange, msg wire.Message) {
	// A subscription is not counted as a running request: it must not hold up a stop.
	defer d.g.aside(x.who)()
	l, e := x.newListening(msg, d.out)
	if e != nil {
		d.send(frameOf(msg.ID, failed("", e)))
		return
	}
	defer l.start(ctx, x)()
	select {
	case <-ctx.Done():
	case <-d.inputEnded:
	case <-d.g.open.Done():
		d.send(l.ended())
	}
}

// framePeer answers one modern request on a channel.
type framePeer struct {
	d     *duplex
	level string
	done  func()
}

func (f *framePeer) note(method string, params []byte) {
	if wantsNote(f.level, method, params) {
		f.d.out.add(wire.AppendRequest(nil, nil, method, params, nil), "", kindNote)
	}
}

func (f *framePeer) finish(ctx context.Context, msg wire.Message, res *upstream.Result) {
	if errors.Is(context.Cause(ctx), upstream.Cancelled()) {
		return
	}
	if res.Result != nil {
		res = &upstream.Result{Result: dress(msg.Method, res.Result)}
	}
	f.done()
	f.d.send(frameOf(msg.ID, res))
}

// serveEvents is the GET of revision 2024-11-05: a stream whose first event
// says where to post.
func (g *Gateway) serveEvents(w http.ResponseWriter, r *http.Request, who identity.Principal, dr door) {
	if r.Method == http.MethodPost && r.URL.Query().Has(channelKey) {
		g.serveMessage(w, r, who, r.URL.Query().Get(channelKey))
		return
	}
	if r.Method == http.MethodPost {
		// Some clients try the newer transport at any URL they are given.
		dr.kind = doorStreamable
		g.serveStreamable(w, r, who, dr)
		return
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", "GET, POST")
		refuse(w, http.StatusMethodNotAllowed, api.KindInvalid, "method "+r.Method+" is not used here")
		return
	}
	var sess *session.Session
	var err error
	if dr.session == "" && who.Session == "" {
		sess, err = g.sessionFor(r.Context(), who, nil)
	} else {
		sess, err = g.services.Sessions.Of(r.Context(), who, dr.session)
	}
	if err != nil {
		refuseError(w, err)
		return
	}
	if sess.Kind == session.KindClient {
		defer g.reg.CloseSession(context.WithoutCancel(r.Context()), sess)
	}
	d := g.newDuplex(dr.view, sess, who, r)
	defer d.close()
	id := newClientID()
	g.addChannel(id, d)
	defer g.removeChannel(id)
	ctx, stop := g.whileAdmitted(r.Context(), who, sess)
	defer stop()
	// Once streams are to end, this one does when its calls are answered.
	defer context.AfterFunc(g.open, func() {
		d.drain(ctx)
		d.out.close()
	})()
	startEvents(w)
	s := &eventSink{w: w, ctl: http.NewResponseController(w)}
	if s.raw(fmt.Appendf(nil, "event: endpoint\ndata: %s?%s=%s\n\n", g.edge.Load().path(r), channelKey, id)) != nil || s.flush() != nil {
		return
	}
	if errors.Is(d.out.pump(ctx, -1, s), errUnread) {
		g.log.Warn("event stream ended: its client does not read it", "session", sess.ID, "principal", who.Name)
		panic(http.ErrAbortHandler)
	}
}

// channelKey names the event stream that a message is for. Messages are posted
// to the URL of their stream, so that a token for that URL is one for them.
const channelKey = "channel"

func (g *Gateway) addChannel(id string, d *duplex) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.channels == nil {
		g.channels = make(map[string]*duplex)
	}
	g.channels[id] = d
}

func (g *Gateway) removeChannel(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.channels, id)
}

// serveMessage takes a message for an event stream.
func (g *Gateway) serveMessage(w http.ResponseWriter, r *http.Request, who identity.Principal, id string) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		refuse(w, http.StatusMethodNotAllowed, api.KindInvalid, "messages are posted here")
		return
	}
	g.mu.Lock()
	d := g.channels[id]
	g.mu.Unlock()
	if d == nil || d.principal().Name != who.Name || who.Session != "" && who.Session != d.sess.ID || d.principal().Token() != who.Token() {
		refuse(w, http.StatusNotFound, api.KindInvalid, "there is no such event stream")
		return
	}
	body, ok := g.readBody(w, r)
	if !ok {
		return
	}
	if e := checkForgedBody(r.Header, body); e != nil {
		rpcError(w, http.StatusBadRequest, nil, e)
		return
	}
	d.came(who)
	d.receive(body)
	w.WriteHeader(http.StatusAccepted)
}
