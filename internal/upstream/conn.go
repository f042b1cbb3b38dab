package upstream

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/wire"
)

// Conn is one MCP link to a running instance, after its handshake. Its
// methods may run at once.
type Conn struct {
	server string
	log    *slog.Logger
	hello  atomic.Pointer[Hello]
	// epoch is new with every connection and part of every id and progress
	// token sent, so that an answer meant for an earlier connection, or an
	// earlier gateway, is never taken for one of ours.
	epoch string
	seq   atomic.Uint64
	own   bool                            // the server is part of Tine
	save  func(ctx context.Context) error // see driver.Link; may be nil

	t transport
	// events receives messages that belong to no call.
	events events

	shared  bool // used by sessions that have nothing to do with each other
	alone   bool // one session alone has the instance
	callers callers
	asks    asks
	backlog backlog
	listen  listener
	// replaced is closed when the Upstream no longer uses the connection.
	replaced chan struct{}

	level string // what the server was told; guarded by Upstream.levelling

	garbage atomic.Int64                     // messages that could not be read
	traffic atomic.Uint64                    // messages in both directions
	sending atomic.Int64                     // messages on their way to the server
	renewed func()                           // called after a new handshake; may be nil
	why     func(stop <-chan struct{}) error // what the instance died of, which may take a moment; nil where that is not known
	// uses records who called the server, called writes that down, and inst is the
	// instance behind the connection.
	uses   uses
	called func(session string)
	inst   driver.Instance
	// before is called before a request is sent, and may fail it; forgot is called
	// when the server no longer knows our session, and reports whether that is a
	// loss. Both may be nil.
	before  func(*Request) error
	forgot  func() bool
	parker  driver.Parker // the instance, if it is parked while idle; else nil
	headers paramHeaders
	listed  func(who, tool string) bool // as ConnOptions have it
	hidden  func(tool, why string)
	allowed []string // capabilities that may be claimed for clients
	mask    mask
	mend    driver.Mends
}

// events is the Upstream behind a Conn.
type events interface {
	Note(from Origin, method string, params []byte)
	Ask(ctx context.Context, from Origin, method string, params []byte) Reply
}

// A transport moves messages. There is one implementation for streams of
// frames and one for HTTP exchanges.
type transport interface {
	// roundTrip sends a request and waits for its answer. It hands messages that
	// arrive for the call meanwhile to the Conn.
	roundTrip(ctx context.Context, c *call, frame []byte) (wire.Message, error)
	// send sends a notification or an answer.
	send(ctx context.Context, frame []byte) error
	// standalone receives messages that belong to no call, where a legacy server
	// needs a separate stream for them, until ctx ends. It calls opened when the
	// first such stream is open or has failed.
	standalone(ctx context.Context, opened func())
	// private reports whether messages outside of any exchange are sent to this
	// connection alone.
	private() bool
	done() <-chan struct{}
	err() error
	close()
}

// A call is one pending request.
type call struct {
	id    string // without quotes
	req   *Request
	token []byte // the client's own progress token, raw; nil when it has none
	// events is set by the transport when the answer came in an event stream.
	events bool
	retry  time.Duration // what the stream last said about coming back
	sent   bool          // set by the transport when the server may have it

	own      bool          // the gateway's, and no client's
	over     chan struct{} // closed when the caller no longer waits for the answer; nil where it is own
	answered bool          // guarded by callers.mu
}

func newEpoch() string {
	var b [8]byte // a copy of a server may hear late answers of any of its ancestors
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func newConn(server string, ev events, log *slog.Logger) *Conn {
	c := &Conn{server: server, log: log, epoch: newEpoch(), events: ev, replaced: make(chan struct{})}
	c.hello.Store(&Hello{})
	return c
}

func (c *Conn) nextID() string {
	b := make([]byte, 0, 32)
	b = append(b, 't')
	b = append(b, c.epoch...)
	b = append(b, '-')
	return string(strconv.AppendUint(b, c.seq.Add(1), 10))
}

// Hello returns what the server said of itself.
func (c *Conn) Hello() Hello { return *c.hello.Load() }

func (c *Conn) modern() bool { return c.hello.Load().Modern() }

// Call implements Caller.
func (c *Conn) Call(ctx context.Context, req *Request) (*Result, error) {
	if req.Method == wire.MethodCallTool {
		var e *wire.Error
		// A server that gets the headers checks them itself; for all others the
		// gateway does.
		if !c.mirrors() {
			e = c.headers.check(req.Header, req)
		} else if why := c.headers.hides(ctx, c, req); why != "" {
			e = &wire.Error{Code: wire.CodeInvalidParams, Message: fmt.Sprintf(
				"Unknown tool: %s; server %q lists it with an invalid x-mcp-header (%s), so it is not offered", req.Name, c.server, why)}
		}
		if e != nil {
			return &Result{Error: wire.AppendError(nil, e)}, nil
		}
	}
	res, err := c.exchange(ctx, req)
	if req.Method == wire.MethodListTools && err == nil && res.Result != nil {
		res.Result = c.headers.note(c, res.Result)
	}
	if err != nil || !c.modern() || res.Result == nil {
		return res, err
	}
	if !req.Client.Modern && mayAsk(req.Method) && bytes.Contains(res.Result, inputRequired) {
		return c.fulfil(ctx, req, res)
	}
	return res, err
}

// mirrors reports whether arguments are repeated as headers to the server.
func (c *Conn) mirrors() bool {
	_, ok := c.t.(*httpTransport)
	return ok && c.modern()
}

// exchange sends one request and waits for its answer.
func (c *Conn) exchange(ctx context.Context, req *Request) (*Result, error) {
	k := &call{id: c.nextID(), req: req}
	edits := make([]wire.Edit, 0, len(req.Edits)+4)
	edits = append(edits, req.Edits...)
	if req.Params.ProgressToken.Ok() {
		k.token = req.Params.ProgressToken.Of(req.Params.Raw)
		edits = append(edits, wire.Edit{At: req.Params.ProgressToken, With: quoted(k.id)})
	}
	params := req.Params.Raw
	switch modern := c.modern(); {
	case modern && !req.Client.Modern:
		params, edits = c.modernize(req, params, edits)
	case !modern && req.Client.Modern && req.Params.Meta.Ok():
		edits = legacyMeta(req, k, edits)
	case req.Trace != "" || req.Caller != "" || req.Within != "" || req.Params.Meta.Ok():
		meta, replaced := ownMembers(req)
		params, edits = addMeta(&req.Params, params, append(edits, replaced...), meta)
	}
	frame := make([]byte, 0, len(params)+160)
	frame = wire.AppendRequest(frame, quoted(k.id), req.Method, params, edits)
	c.callers.begin(k)
	msg, err := c.t.roundTrip(ctx, k, frame)
	c.callers.end(k)
	if err != nil {
		return &Result{Events: k.events, Retry: k.retry}, c.explain(ctx, err)
	}
	if c.own && msg.Error != nil {
		if err := ownError(msg.Error); err != nil {
			return &Result{Events: k.events}, err
		}
	}
	return &Result{Result: msg.Result, Error: msg.Error, Events: k.events}, nil
}

func quoted(id string) []byte {
	b := make([]byte, 0, len(id)+2)
	return append(append(append(b, '"'), id...), '"')
}

// explain turns a transport's error into one of ours.
func (c *Conn) explain(ctx context.Context, err error) error {
	var ours *api.Error
	if errors.As(err, &ours) {
		if Unsent(err) || TooLarge(err) || StateLost(err) {
			return err
		}
		return ours
	}
	note := ""
	if n := c.garbage.Load(); n > 0 {
		note = " (it sent " + strconv.FormatInt(n, 10) + " messages that are not JSON-RPC)"
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		what := "no answer in time"
		if late := Overdue(ctx); late != "" {
			what = late
		}
		return failure(api.KindTimeout, c.server, false, "%s%s", what, note)
	case errors.Is(context.Cause(ctx), errCancelled), errors.Is(err, context.Canceled):
		return failure(api.KindRefused, c.server, false, "the call was cancelled")
	}
	lost := failure(api.KindLost, c.server, false, "%v%s", err, note)
	lost.Own = c.alone
	if errors.As(err, new(*wire.ErrTooLarge)) {
		return sizeError{lost} // an event stream has no end of a message to go on after
	}
	if errors.Is(err, driver.ErrLost) {
		return goneError{lost} // another attempt would be made on a server that begins anew
	}
	if c.ended() {
		return Died(lost, c.epoch)
	}
	return lost
}

var errCancelled = errors.New("cancelled by the client")

// Cancelled is the cause a call's context ends with when the client cancels it.
func Cancelled() error { return errCancelled }

// notify sends a notification that the gateway makes itself.
func (c *Conn) notify(ctx context.Context, method string, params []byte) error {
	return c.t.send(ctx, wire.AppendRequest(nil, nil, method, params, nil))
}

// simple makes a request of the gateway's own.
func (c *Conn) simple(ctx context.Context, method string, params []byte) (res *Result, err error) {
	defer telemetry.Contain(c.log, telemetry.InUpstream, c.server, func(e error) { res, err = nil, e })
	p, err := wire.ScanParams(method, params)
	if err != nil {
		return nil, err
	}
	if c.parker != nil {
		c.parker.Acquire()
		defer c.parker.Release()
	}
	return c.exchange(ctx, &Request{Method: method, Params: p, Name: p.Name(), Client: &Client{}})
}

// handleNote deals with a notification. k is the call it came with; nil when
// it came outside of any.
func (c *Conn) handleNote(msg wire.Message, k *call) {
	switch msg.Method {
	case wire.NoteProgress:
		c.progress(msg, k)
	case wire.NoteCancelled:
		at, _ := wire.Find(msg.Params, "requestId")
		c.asks.cancel(string(at.Of(msg.Params)))
	case wire.NoteToolsChanged, wire.NotePromptsChanged, wire.NoteResourcesChanged, wire.NoteResourceUpdated:
		if msg.Method == wire.NoteToolsChanged {
			c.headers.changed()
		}
		c.events.Note(Origin{}, msg.Method, bytes.Clone(msg.Params))
	case wire.NoteAcknowledged:
		c.listen.acknowledged(msg.Params)
	default: // a log message, or one that only client and server know
		calls, from := c.whose(k)
		if peer := peerOf(calls); peer != nil {
			peer.Note(msg.Method, bytes.Clone(msg.Params))
			return
		}
		c.events.Note(from, msg.Method, bytes.Clone(msg.Params))
	}
}

// progress hands a progress notification to the call whose token it carries,
// with the client's own token in place of ours.
func (c *Conn) progress(msg wire.Message, k *call) {
	at, err := wire.Find(msg.Params, wire.MetaProgressToken)
	if err != nil || !at.Ok() {
		return
	}
	token, _ := wire.Unquote(at.Of(msg.Params))
	if st, ok := c.t.(*streamTransport); ok {
		k = st.find(token)
	}
	if k == nil || k.id != token || k.token == nil {
		return
	}
	k.req.deadline.progress()
	if k.req.Peer == nil {
		return
	}
	params := wire.AppendSpliced(nil, msg.Params, []wire.Edit{{At: at, With: k.token}})
	k.req.Peer.Note(msg.Method, params)
}

// handleRequest answers a server's request, in a goroutine of its own if it has to
// ask the client. Its error means that the server sends requests without reading
// the answers, and that the connection must not be read any further.
func (c *Conn) handleRequest(msg wire.Message, k *call) error {
	id := bytes.Clone(msg.ID)
	if msg.Method == wire.MethodPing {
		return c.respond(id, msg.Method, Reply{Result: []byte("{}")})
	}
	calls, from := c.whose(k)
	method, params := msg.Method, bytes.Clone(msg.Params)
	started := c.asks.start(string(id), method, len(params), func(ctx context.Context) {
		defer telemetry.Contain(c.log, telemetry.InUpstream, c.server, func(error) {
			c.answer(ctx, id, Refuse(method, "the gateway failed inside"))
		})
		c.answer(ctx, id, c.ask(ctx, calls, from, method, params))
	})
	if !started {
		return c.respond(id, method, Refuse(method, fmt.Sprintf("server %q has too many requests open: at most %d may wait for clients", c.server, maxAsks)))
	}
	return nil
}

// ask puts a server's request to the client whose calls may have caused it, while
// one of them is pending.
func (c *Conn) ask(ctx context.Context, calls []*call, from Origin, method string, params []byte) Reply {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, k := range calls {
		defer k.req.deadline.question()()
	}
	if len(calls) > 0 {
		go func() {
			for _, k := range calls {
				select {
				case <-k.over:
				case <-ctx.Done():
					return
				}
			}
			cancel()
		}()
	}
	peer := peerOf(calls)
	if peer == nil {
		return c.events.Ask(ctx, from, method, params)
	}
	reply := peer.Ask(ctx, method, params)
	if reply.Result == nil && reply.Error == nil {
		return Refuse(method, "the call ended before the client answered")
	}
	return reply
}

// respond has a server's request answered without waiting for the answer to be
// sent.
func (c *Conn) respond(id []byte, method string, r Reply) error {
	if len(method) > maxMethod {
		method = "" // it is kept for the answer's form alone
	}
	err := c.backlog.add(c, outgoing{answerOf(id, r), &Asked{ID: id, Method: method}})
	if errors.Is(err, errBacklogFull) {
		return errors.New("it was ended because it makes requests and does not read the answers")
	}
	return nil
}

// maxMethod is longer than the methods of the protocol.
const maxMethod = 64

// answer sends the answer to a server's request, unless ctx ends before.
func (c *Conn) answer(ctx context.Context, id []byte, r Reply) {
	if ctx.Err() != nil {
		return
	}
	if err := c.deliver(ctx, answerOf(id, r), true); err != nil {
		c.log.Debug("answer to a server's request not sent", "server", c.server, "err", err)
	}
}

func answerOf(id []byte, r Reply) []byte {
	if r.Error != nil {
		return wire.AppendFailure(nil, id, r.Error)
	}
	return wire.AppendResult(nil, id, r.Result)
}

// Forward passes a client's notification on, raw.
func (c *Conn) Forward(ctx context.Context, method string, params []byte) error {
	return c.t.send(ctx, wire.AppendRequest(nil, nil, method, params, nil))
}

// ended reports whether the connection is over.
func (c *Conn) ended() bool {
	select {
	case <-c.t.done():
		return true
	default:
		return false
	}
}

// fail ends the connection from within. Its calls get the error if the transport
// can deliver it.
func (c *Conn) fail(err error) {
	switch t := c.t.(type) {
	case *streamTransport:
		t.fail(err)
	case *httpTransport:
		t.mu.Lock()
		t.end()
		t.mu.Unlock()
	}
}

// close ends the connection and waits for its goroutines.
func (c *Conn) close() { c.finish(false) }

// leave is close without a goodbye: the server continues, and a later connection
// resumes.
func (c *Conn) leave() { c.finish(true) }

func (c *Conn) finish(stays bool) {
	c.listen.close()
	c.asks.close()
	flush := time.Duration(0) // the server ends, and needs no messages
	if stays {
		flush = closeWait
		if t, ok := c.t.(*httpTransport); ok {
			t.stays.Store(true)
		}
	}
	c.backlog.close(flush)
	c.t.close()
	c.asks.wait()
	c.backlog.wait()
}

// asks are the requests of a server that are being answered.
type asks struct {
	mu     sync.Mutex
	open   map[*ask]struct{}
	size   int // bytes of their params
	closed bool
	wg     sync.WaitGroup
}

// An ask is one of them. Servers may use an id twice, so the id alone does not
// name it.
type ask struct {
	id, method string
	cancel     context.CancelFunc
}

func (a *asks) start(id, method string, size int, fn func(context.Context)) bool {
	ctx, cancel := context.WithCancel(context.Background())
	a.mu.Lock()
	if a.closed || len(a.open) >= maxAsks || len(a.open) > 0 && a.size+size > maxAskBytes {
		a.mu.Unlock()
		cancel()
		return false
	}
	if a.open == nil {
		a.open = make(map[*ask]struct{})
	}
	k := &ask{id, method, cancel}
	a.open[k] = struct{}{}
	a.size += size
	a.wg.Add(1)
	a.mu.Unlock()
	go func() {
		defer a.wg.Done()
		defer func() {
			a.mu.Lock()
			delete(a.open, k)
			a.size -= size
			a.mu.Unlock()
			cancel()
		}()
		fn(ctx)
	}()
	return true
}

func (a *asks) cancel(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for k := range a.open {
		if k.id == id {
			k.cancel()
		}
	}
}

// waiting lists the requests that have no answer yet.
func (a *asks) waiting() []Asked {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []Asked
	for k := range a.open {
		all = append(all, Asked{ID: json.RawMessage(k.id), Method: k.method})
	}
	return all
}

func (a *asks) close() {
	a.mu.Lock()
	a.closed = true
	for k := range a.open {
		k.cancel()
	}
	a.mu.Unlock()
}

func (a *asks) wait() { a.wg.Wait() }
