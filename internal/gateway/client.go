package gateway

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A client is a connection with a handshake: over streamable HTTP it lives
// between requests and over restarts, over an event stream or stdio as long as
// that. Its methods may run at once.
type client struct {
	id      string // its Mcp-Session-Id
	g       *Gateway
	view    view
	sess    *session.Session
	token   string // the id of the further token of the session that it came with; empty for any other
	version string
	init    initParams
	created time.Time
	used    atomic.Int64
	durable bool

	// out carries what belongs to no request; for event streams and stdio,
	// everything.
	out    *outbox
	unhear func()

	mu      sync.Mutex
	who     identity.Principal // as it came last
	closed  bool
	uses    string // the session it means where it names none
	level   string
	calls   map[string]*runningCall        // running requests, by raw id
	late    bool                           // one of them ended while the gateway stops
	batches int                            // running batches, whose requests are not in calls
	asks    map[string]chan upstream.Reply // server requests waiting for this client, by raw id
	tokens  map[string]*upstream.Upstream  // progress tokens of those requests, by raw token
	subs    map[subKey]struct{}
	streams map[string]*outbox // request streams that can be resumed
	order   []string           // of streams, oldest first
	nextAsk int
	// epoch is in the ids of those requests: a client that comes back may still
	// answer what an earlier gateway asked.
	epoch string

	life context.Context
	end  context.CancelCauseFunc
}

// initParams is what a client said of itself.
type initParams struct {
	ProtocolVersion string          `json:"protocolVersion"`
	Capabilities    json.RawMessage `json:"capabilities"`
	ClientInfo      json.RawMessage `json:"clientInfo"`
}

// maxStreams bounds the request streams kept for resuming.
const maxStreams = 32

func newClientID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// newClient makes a client that was not heard of yet.
func (g *Gateway) newClient(id string, v view, sess *session.Session, who identity.Principal, version string, init initParams, out *outbox) *client {
	c := &client{
		id: id, g: g, view: v, sess: sess, who: who, token: who.Token(), version: version, init: init, created: time.Now(),
		out:   out,
		calls: make(map[string]*runningCall), asks: make(map[string]chan upstream.Reply),
		tokens: make(map[string]*upstream.Upstream), subs: make(map[subKey]struct{}), streams: make(map[string]*outbox),
	}
	c.epoch = newClientID()[:10]
	c.life, c.end = context.WithCancelCause(g.life)
	c.unhear = sess.Watch(c)
	return c
}

func (c *client) touch() {
	c.used.Store(time.Now().UnixNano())
	c.sess.Touch()
}

// came notes who sent a request: what the same principal may do can change.
func (c *client) came(who identity.Principal) {
	c.mu.Lock()
	c.who = who
	c.mu.Unlock()
}

func (c *client) principal() identity.Principal {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.who
}

// desc describes the client to a connection.
func (c *client) desc() *upstream.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return &upstream.Client{Key: c.id, Info: c.init.ClientInfo, Caps: c.init.Capabilities, LogLevel: c.level}
}

// close ends the client's running requests, and its stream. Its session goes on.
func (c *client) close() {
	c.detach()
	c.out.close()
}

// detach is close for a client whose stream goes on without it.
func (c *client) detach() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	subs := c.subs
	c.subs = nil
	c.mu.Unlock()
	c.end(upstream.Cancelled())
	c.unhear()
	if len(subs) > 0 && c.sess.Kind != session.KindClient {
		// A server may take its time, and the end of clients must not wait for
		// it. In a gateway that ends the connections end as well.
		c.g.spawn(func() { c.unsubscribe(subs) })
	}
}

// unsubscribeWait is how long a client's servers have to hear that it is gone.
const unsubscribeWait = 5 * time.Second

func (c *client) unsubscribe(subs map[subKey]struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), unsubscribeWait)
	defer cancel()
	slots := make(chan struct{}, 8)
	var wg sync.WaitGroup
	for k := range subs {
		up := c.sess.Peek(k.server)
		if up == nil {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			_, _ = up.Unsubscribe(ctx, k.uri)
		})
	}
	wg.Wait()
}

// idle reports whether the client has no running request and no open stream.
func (c *client) idle() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.calls) > 0 || c.batches > 0 || c.out.open.Load() > 0 {
		return false
	}
	for _, o := range c.streams {
		if o.open.Load() > 0 {
			return false
		}
	}
	return true
}

// waitedFor reports whether a gateway that stops has waited for a call of the client, or
// does so still.
func (c *client) waitedFor() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late || len(c.calls) > 0
}

// runningCall is a request that has no answer yet.
type runningCall struct {
	cancel context.CancelCauseFunc
	began  time.Time
	rw     *responder // its response, where that can carry events
	primed bool       // its stream was opened because it takes long
}

// begin registers a request, so that it can be cancelled. It reports false for
// an id of a running one.
func (c *client) begin(id []byte, u *runningCall) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.calls[string(id)]; ok || c.closed {
		return false
	}
	c.calls[string(id)] = u
	return true
}

// primeAfter is how long a call may take before its stream is opened, so that
// the client can come back for the answer if its connection breaks.
const primeAfter = 2 * time.Second

// prime opens the streams of calls that take long.
func (c *client) prime() {
	c.mu.Lock()
	var late []*responder
	for _, u := range c.calls {
		if u.rw != nil && !u.primed && time.Since(u.began) > primeAfter {
			late = append(late, u.rw)
			u.primed = true
		}
	}
	c.mu.Unlock()
	for _, rw := range late {
		rw.outbox()
	}
}

func (c *client) finish(id []byte) {
	c.touch() // its idle time begins now
	c.mu.Lock()
	delete(c.calls, string(id))
	c.late = c.late || c.g.draining.Load()
	c.mu.Unlock()
}

// batch notes that a batch of the client's runs, until done is called.
func (c *client) batch() (done func()) {
	c.mu.Lock()
	c.batches++
	c.mu.Unlock()
	return func() {
		c.touch()
		c.mu.Lock()
		c.batches--
		c.mu.Unlock()
	}
}

// note handles a notification of the client.
func (c *client) note(msg wire.Message) {
	switch msg.Method {
	case wire.NoteCancelled:
		at, _ := wire.Find(msg.Params, "requestId")
		c.mu.Lock()
		u := c.calls[string(at.Of(msg.Params))]
		c.mu.Unlock()
		if u != nil {
			u.cancel(upstream.Cancelled())
		}
	case wire.NoteProgress:
		at, _ := wire.Find(msg.Params, wire.MetaProgressToken)
		c.mu.Lock()
		up := c.tokens[string(at.Of(msg.Params))]
		c.mu.Unlock()
		c.forward(up, msg)
	case wire.NoteInitialized:
	case wire.NoteRootsChanged:
		for _, e := range c.sess.Catalog().Entries {
			if (c.view.merged() || c.view.server == e.ID) && c.principal().MaySee(e.Base()) {
				c.forward(c.sess.Peek(e.ID), msg)
			}
		}
	default:
		if !c.view.merged() {
			c.forward(c.sess.Peek(c.view.server), msg)
		}
	}
}

// forward passes a notification on to a server that runs.
func (c *client) forward(up *upstream.Upstream, msg wire.Message) {
	if up == nil {
		return
	}
	conn := up.Peek()
	if conn == nil {
		return
	}
	if h := conn.Hello(); h.Modern() {
		return // that era has no such notifications
	}
	ctx, cancel := context.WithTimeout(c.life, 10*time.Second)
	defer cancel()
	if err := conn.Forward(ctx, msg.Method, msg.Params); err != nil {
		c.g.log.Debug("notification not passed on", "server", up.Server(), "method", msg.Method, "err", err)
	}
}

// answered hands a client's answer to the server's request that waits for it.
func (c *client) answered(msg wire.Message) bool {
	c.mu.Lock()
	ch := c.asks[string(msg.ID)]
	delete(c.asks, string(msg.ID))
	c.mu.Unlock()
	if ch == nil {
		return false
	}
	ch <- upstream.Reply{Result: bytes.Clone(msg.Result), Error: bytes.Clone(msg.Error)}
	return true
}

// can reports whether the client declared what a server's request needs.
func can(caps []byte, method string) bool {
	var name string
	switch method {
	case wire.MethodElicit:
		name = "elicitation"
	case wire.MethodCreateMessage:
		name = "sampling"
	case wire.MethodListRoots:
		name = "roots"
	default:
		return true
	}
	at, err := wire.Find(caps, name)
	return err == nil && at.Ok() && string(at.Of(caps)) != "null"
}

// ask sends the request of a server in a session out and waits for the client's
// answer.
func (c *client) ask(ctx context.Context, to *outbox, in *session.Session, server, method string, params []byte) upstream.Reply {
	if !can(c.init.Capabilities, method) {
		return upstream.Refuse(method, "the client does not support "+method)
	}
	c.mu.Lock()
	if c.closed || len(c.asks) >= 256 {
		c.mu.Unlock()
		return upstream.Refuse(method, "the client can't be asked now")
	}
	c.nextAsk++
	id := wire.Quote("tine-" + c.epoch + "-" + strconv.Itoa(c.nextAsk))
	ch := make(chan upstream.Reply, 1)
	c.asks[string(id)] = ch
	token, _ := wire.Find(params, "_meta", wire.MetaProgressToken)
	if token.Ok() {
		c.tokens[string(token.Of(params))] = in.Peek(server)
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.asks, string(id))
		if token.Ok() {
			delete(c.tokens, string(token.Of(params)))
		}
		c.mu.Unlock()
	}()
	if frame := wire.AppendRequest(nil, id, method, params, nil); !to.add(frame, "", kindQuestion) && !c.elsewhere(frame) {
		return upstream.Refuse(method, "the client is gone, or does not read what is sent to it")
	}
	withdraw := func() {
		params := append(append([]byte(`{"requestId":`), id...), '}')
		to.add(wire.AppendRequest(nil, nil, wire.NoteCancelled, params, nil), "", kindNote)
	}
	select {
	case r := <-ch:
		return r
	case <-ctx.Done():
		withdraw()
		return upstream.Refuse(method, "the call ended before the client answered")
	case <-time.After(inputWait): // the call's own time stands still meanwhile
		withdraw()
		return upstream.Refuse(method, "the client did not answer within "+inputWait.String())
	case <-c.life.Done():
		return upstream.Refuse(method, "the client is gone")
	}
}

// elsewhere sends a request on another stream of the client, where the one it
// was for has just ended: on a server's one stream it can't be told which of a
// client's calls caused it.
func (c *client) elsewhere(frame []byte) bool {
	c.mu.Lock()
	var open []*responder
	for _, u := range c.calls {
		if u.rw != nil {
			open = append(open, u.rw)
		}
	}
	c.mu.Unlock()
	for _, rw := range open {
		if rw.outbox().add(frame, "", kindQuestion) {
			return true
		}
	}
	return c.out.add(frame, "", kindQuestion)
}

// hears reports whether a log message is one the client wants.
func (c *client) hears(method string, params []byte) bool {
	if method != wire.NoteMessage {
		return true
	}
	c.mu.Lock()
	level := c.level
	c.mu.Unlock()
	return level == "" || wire.LevelRank(wire.FindString(params, "level")) >= wire.LevelRank(level)
}

// Note implements session.Watcher.
func (c *client) Note(server, method string, params []byte) {
	if server != "" && !c.view.covers(server) || !c.view.tells(method) || !c.g.hears(c.principal(), server, method) {
		return
	}
	key, params := "", wire.ForLegacy(params)
	switch method {
	case wire.NoteToolsChanged, wire.NotePromptsChanged, wire.NoteResourcesChanged:
		key = method
		if c.view.merged() {
			params = nil // one of many lists changed: whose does not matter
		}
	case wire.NoteResourceUpdated:
		uri := wire.FindString(params, "uri")
		c.mu.Lock()
		_, ok := c.subs[subKey{server, uri}]
		c.mu.Unlock()
		if !ok {
			return
		}
		if c.view.merged() {
			at, _ := wire.Find(params, "uri")
			params = wire.AppendSpliced(nil, params, []wire.Edit{{At: at, With: wire.Quote(outURI(server, uri))}})
		}
	}
	if c.hears(method, params) {
		c.out.add(wire.AppendRequest(nil, nil, method, params, nil), key, kindNote)
	}
}

// Client implements session.Watcher.
func (c *client) Client() string { return c.id }

// CanAsk implements session.Watcher.
func (c *client) CanAsk(server string) bool {
	return c.view.covers(server) && c.g.hears(c.principal(), server, "")
}

// Ask implements session.Watcher.
func (c *client) Ask(ctx context.Context, server, method string, params []byte) (upstream.Reply, bool) {
	return c.ask(ctx, c.out, c.sess, server, method, params), true
}

func (c *client) subscribed(k subKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.subs[k]; ok || c.closed || len(c.subs) >= 10_000 {
		return false
	}
	c.subs[k] = struct{}{}
	return true
}

func (c *client) unsubscribed(k subKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.subs[k]
	delete(c.subs, k)
	return ok
}

// keepStream lets a request's stream be resumed for a while.
func (c *client) keepStream(id string, o *outbox) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[id] = o
	c.order = append(c.order, id)
	for len(c.order) > maxStreams {
		delete(c.streams, c.order[0])
		c.order = c.order[1:]
	}
}

func (c *client) stream(id string) *outbox {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.streams[id]
}

// peerOf is the client's side of one request.
type peerOf struct {
	c      *client
	to     func() *outbox // where the request's messages go
	server string
	in     *session.Session // that the server is in; nil for the client's own
}

func (p *peerOf) Note(method string, params []byte) {
	if p.c.hears(method, params) {
		p.to().add(wire.AppendRequest(nil, nil, method, params, nil), "", kindNote)
	}
}

func (p *peerOf) Ask(ctx context.Context, method string, params []byte) upstream.Reply {
	in := p.in
	if in == nil {
		in = p.c.sess
	}
	return p.c.ask(ctx, p.to(), in, p.server, method, params)
}

// record is the client as the store keeps it.
func (c *client) record() (store.Client, error) {
	c.mu.Lock()
	init, err := json.Marshal(clientRecord{c.init, c.uses, c.token})
	c.mu.Unlock()
	return store.Client{
		ID: c.id, Session: c.sess.ID, View: c.view.kept(), Principal: c.principal().Name,
		Protocol: c.version, Init: init, Created: c.created, Used: time.Unix(0, c.used.Load()),
	}, err
}
