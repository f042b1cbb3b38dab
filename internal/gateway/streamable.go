package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// Streamable HTTP, both eras at one URL. Which one a request is of shows in
// its headers and its body:
//
//	a version of the stateless era     -> modern.go
//	initialize                         -> a new client
//	an Mcp-Session-Id we gave          -> that client
//	none of these                      -> answered on its own, as a plain curl expects

func (g *Gateway) serveStreamable(w http.ResponseWriter, r *http.Request, who identity.Principal, d door) {
	id := r.Header.Get(wire.HeaderSession)
	if hint := sessionHint(r); hint != "" {
		d.session, id = cmp.Or(d.session, hint), ""
	}
	switch r.Method {
	case http.MethodPost:
		g.post(w, r, who, d, id)
	case http.MethodGet:
		g.get(w, r, who, d, id)
	case http.MethodDelete:
		c := g.known(w, who, d, id)
		if c != nil {
			g.dismiss(context.WithoutCancel(r.Context()), c)
			w.WriteHeader(http.StatusNoContent)
		}
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuse(w, http.StatusMethodNotAllowed, api.KindInvalid, "method "+r.Method+" is not used by MCP")
	}
}

// sessionHint is the session that a request's header names where others have the
// id of a client; empty where it names none.
func sessionHint(r *http.Request) string {
	if id := r.Header.Get(wire.HeaderSession); session.IsID(id) {
		return id
	}
	return ""
}

// known finds the client of a request, or answers that there is none. A client
// belongs to the URL it shook hands at.
func (g *Gateway) known(w http.ResponseWriter, who identity.Principal, d door, id string) *client {
	if id == "" {
		refuse(w, http.StatusBadRequest, api.KindInvalid, "the Mcp-Session-Id header is missing")
		return nil
	}
	c := g.find(id, who)
	if c == nil || c.view != d.view { // for its session see checkHeader
		rpcError(w, http.StatusNotFound, nil, unknownClient(""))
		return nil
	}
	c.came(who)
	return c
}

// unknownClient is the error of an Mcp-Session-Id that is not known where it was sent, with
// the reason where there is one to tell.
func unknownClient(why string) *wire.Error {
	e := &wire.Error{Code: -32001, Message: "Session not found"}
	if why != "" {
		e.Message += ": " + why
	}
	return e
}

// rpcError answers with a JSON-RPC error.
func rpcError(w http.ResponseWriter, status int, id []byte, e *wire.Error) {
	b := wire.AppendFailure(nil, id, wire.AppendError(nil, e))
	h := w.Header()
	h["Content-Type"] = contentJSON
	h["Content-Length"] = []string{strconv.Itoa(len(b))}
	w.WriteHeader(status)
	_ = send(w, b)
}

// readBody reads a request's body within the limit, answering itself when it
// can't.
func (g *Gateway) readBody(w http.ResponseWriter, r *http.Request) ([]byte, bool) {
	limit := g.edge.Load().body
	if r.ContentLength > limit {
		refuseError(w, bodyTooLarge(limit))
		return nil, false
	}
	var body []byte
	var err error
	if r.ContentLength >= 0 {
		body = make([]byte, r.ContentLength)
		_, err = io.ReadFull(r.Body, body)
	} else {
		body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	}
	if err != nil {
		refuseError(w, unreadable(err, limit))
		return nil, false
	}
	wasRead(w)
	return body, true
}

// wasRead lifts the server's limit on how long a request may take to come in,
// once it is in: its answer may take longer, and the limit would cut it off.
func wasRead(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
}

func (g *Gateway) post(w http.ResponseWriter, r *http.Request, who identity.Principal, d door, id string) {
	if !isJSON(r.Header.Get("Content-Type")) {
		refuse(w, http.StatusUnsupportedMediaType, api.KindInvalid, "Content-Type must be application/json")
		return
	}
	body, ok := g.readBody(w, r)
	if !ok {
		return
	}
	msg, err := wire.Scan(body)
	if errors.Is(err, wire.ErrBatch) {
		g.postBatch(w, r, who, d, id, body)
		return
	}
	if err != nil {
		rpcError(w, http.StatusBadRequest, nil, &wire.Error{Code: wire.CodeParse, Message: "unreadable message: " + err.Error()})
		return
	}
	if msg.IsRequest() {
		if aw, ok := w.(*answerWriter); ok {
			aw.id = msg.ID
		}
		if e := g.enterLate(who, id, msg.Method); e != nil {
			refuseError(w, e)
			return
		}
		defer g.leave(who, 1)
	}
	version := r.Header.Get(wire.HeaderVersion)
	params, err := wire.ScanParams(msg.Method, msg.Params)
	if err != nil {
		rpcError(w, http.StatusBadRequest, msg.ID, invalidParams(err.Error()))
		return
	}
	if e := checkForged(r.Header, &msg, &params); e != nil {
		rpcError(w, http.StatusBadRequest, msg.ID, e)
		return
	}
	if wire.Modern(version) || params.Version.Ok() {
		g.postModern(w, r, who, d, version, msg, params)
		return
	}
	if version != "" && !wire.Known(version) {
		refuse(w, http.StatusBadRequest, api.KindInvalid, "protocol version "+strconv.Quote(version)+" is not supported; these are: "+strings.Join(wire.Versions[:], ", "))
		return
	}
	rw := g.newResponder(w, r)
	if !rw.events && !rw.json {
		refuse(w, http.StatusNotAcceptable, api.KindInvalid, "Accept must allow application/json or text/event-stream")
		return
	}
	if msg.Method == wire.MethodInitialize && msg.ID != nil {
		if c := g.find(id, who); c != nil && c.view == d.view {
			rpcError(w, http.StatusBadRequest, msg.ID, errInitialized)
			return
		}
		g.postInitialize(w, r, who, d, msg, rw)
		return
	}
	if id == "" {
		g.postBare(w, r, who, d, msg, params, rw)
		return
	}
	c := g.known(w, who, d, id)
	if c == nil {
		return
	}
	g.postClient(w, r, who, c, msg, params, rw)
}

func isJSON(contentType string) bool {
	media, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(media), "application/json")
}

// newResponder reads what the client accepts. Without a header, as curl has it
// as */*, it gets plain JSON.
func (g *Gateway) newResponder(w http.ResponseWriter, r *http.Request) *responder {
	rw := &responder{w: w, ctx: r.Context(), log: g.log}
	accept := r.Header["Accept"]
	if len(accept) == 0 {
		rw.json = true
	}
	for _, v := range accept {
		for part := range strings.SplitSeq(v, ",") {
			media, _, _ := strings.Cut(part, ";")
			switch strings.ToLower(strings.TrimSpace(media)) {
			case "application/json", "application/*":
				rw.json = true
			case "text/event-stream", "text/*":
				rw.events = true
			case "*/*":
				rw.json = true
			}
		}
	}
	return rw
}

// refuseError answers with an error of ours outside of JSON-RPC.
func refuseError(w http.ResponseWriter, err error) {
	e := asError(err)
	switch {
	case e.RetryAfter > 0:
		w.Header().Set("Retry-After", strconv.Itoa(e.RetryAfter))
	case e.Status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	}
	writeError(w, httpStatus(e), e)
}

// postInitialize makes a new client.
func (g *Gateway) postInitialize(w http.ResponseWriter, r *http.Request, who identity.Principal, d door, msg wire.Message, rw *responder) {
	var init initParams
	if err := json.Unmarshal(orEmpty(msg.Params), &init); err != nil {
		rpcError(w, http.StatusBadRequest, msg.ID, invalidParams("unreadable params: "+err.Error()))
		return
	}
	ctx := r.Context()
	var sess *session.Session
	var err error
	if d.session != "" || who.Session != "" {
		sess, err = g.services.Sessions.Of(ctx, who, d.session)
	} else {
		sess, err = g.sessionFor(ctx, who, init.Capabilities)
	}
	if err != nil {
		refuseError(w, err)
		return
	}
	c := g.newClient(newClientID(), d.view, sess, who, negotiate(init.ProtocolVersion), init, newOutbox(false, g.log))
	c.touch()
	x := &exchange{g: g, who: who, view: d.view, sess: sess, client: c.desc(), conn: c, method: msg.Method}
	res, err := x.initialized(ctx, c.version)
	if err == nil {
		err = g.admit(ctx, c)
	}
	if err != nil {
		g.dismiss(context.WithoutCancel(ctx), c)
		rw.finish(frameOf(msg.ID, failed(msg.Method, err)), 0, false)
		return
	}
	w.Header()[wire.HeaderSession] = []string{c.id}
	rw.finish(frameOf(msg.ID, res), 0, false)
}

func orEmpty(params []byte) []byte {
	if len(params) == 0 {
		return []byte("{}")
	}
	return params
}

func frameOf(id []byte, res *upstream.Result) []byte {
	if res.Error != nil {
		return wire.AppendFailure(make([]byte, 0, len(res.Error)+64), id, res.Error)
	}
	return wire.AppendResult(make([]byte, 0, len(res.Result)+64), id, res.Result)
}

// postBare answers a request that has no client behind it.
func (g *Gateway) postBare(w http.ResponseWriter, r *http.Request, who identity.Principal, d door, msg wire.Message, params wire.Params, rw *responder) {
	if !msg.IsRequest() {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	sess, err := g.services.Sessions.Of(r.Context(), who, d.session)
	if err != nil {
		refuseError(w, g.late(r.Context(), who, d, msg.Method, &params, err))
		return
	}
	x := &exchange{
		g: g, who: who, view: d.view, sess: sess, client: &upstream.Client{Key: newClientID()},
		method: msg.Method, params: params, trace: g.parentOf(r.Header, &params), from: r,
	}
	if rw.events {
		x.peer = barePeer{rw}
	}
	res := x.run(r.Context())
	rw.after(res)
	rw.finish(frameOf(msg.ID, res), 0, res.Events)
}

// barePeer passes notifications back to a client that can't be asked anything.
type barePeer struct{ rw *responder }

func (p barePeer) Note(method string, params []byte) {
	p.rw.outbox().add(wire.AppendRequest(nil, nil, method, params, nil), "", kindNote)
}

func (p barePeer) Ask(_ context.Context, method string, _ []byte) upstream.Reply {
	return upstream.Refuse(method, "the client has no connection to be asked on")
}

// postClient handles a message of a client that shook hands.
func (g *Gateway) postClient(w http.ResponseWriter, r *http.Request, who identity.Principal, c *client, msg wire.Message, params wire.Params, rw *responder) {
	switch {
	case msg.IsNotification():
		c.note(msg)
		w.WriteHeader(http.StatusAccepted)
		return
	case msg.IsResponse():
		c.answered(msg)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	rw.resume = c.keepStream
	rw.prime = c.version >= wire.V20251125
	// A broken connection is not a cancelled call in this era: the client may
	// come back. Its own word or its end cancels.
	ctx, cancel := context.WithCancelCause(c.life)
	defer cancel(nil)
	u := &runningCall{cancel: cancel, began: time.Now()}
	if rw.events {
		u.rw = rw
	}
	if !c.begin(msg.ID, u) {
		rpcError(w, http.StatusBadRequest, msg.ID, &wire.Error{Code: wire.CodeInvalidRequest, Message: "a request with this id is running"})
		return
	}
	x := &exchange{
		g: g, who: who, view: c.view, sess: c.sess, client: c.desc(), conn: c,
		method: msg.Method, params: params, peer: &peerOf{c: c, to: rw.outbox}, trace: g.parentOf(r.Header, &params), from: r,
	}
	res := x.run(ctx)
	c.finish(msg.ID)
	if errors.Is(context.Cause(ctx), upstream.Cancelled()) {
		rw.abort() // a cancelled request gets no answer
		return
	}
	if res.Retry > 0 && rw.later(frameOf(msg.ID, res), res.Retry) {
		return
	}
	rw.after(res)
	rw.finish(frameOf(msg.ID, res), 0, res.Events)
}

// get opens the stream for what belongs to no request, or resumes one.
func (g *Gateway) get(w http.ResponseWriter, r *http.Request, who identity.Principal, d door, id string) {
	if rw := g.newResponder(w, r); !rw.events {
		refuse(w, http.StatusNotAcceptable, api.KindInvalid, "this is an MCP endpoint: POST JSON-RPC here, or GET with Accept: text/event-stream")
		return
	}
	if wire.Modern(r.Header.Get(wire.HeaderVersion)) {
		w.Header().Set("Allow", "POST")
		refuse(w, http.StatusMethodNotAllowed, api.KindInvalid, "this protocol version has no GET stream; use subscriptions/listen")
		return
	}
	c := g.known(w, who, d, id)
	if c == nil {
		return
	}
	box, from, stream := c.out, -1, ""
	if last := r.Header.Get(wire.HeaderLastEvent); last != "" {
		name, num, ok := strings.Cut(last, "_")
		n, err := strconv.Atoi(num)
		if ok && err == nil {
			if b := c.stream(name); b != nil {
				box, from, stream = b, n+1, name
			}
		}
	}
	if from >= 0 && !box.resumes(from) {
		refuse(w, http.StatusGone, api.KindLost, "what this stream carried after event "+strconv.Itoa(from-1)+" is no longer kept; make the request again")
		return
	}
	ctx, cancel := g.whileOpen(r.Context(), c.life)
	defer cancel()
	ctx, stop := g.whileAdmitted(ctx, who, c.sess)
	defer stop()
	box.open.Add(1) // before the client hears that it has a stream
	defer box.open.Add(-1)
	startEvents(w)
	s := &eventSink{w: w, ctl: http.NewResponseController(w), id: stream}
	if s.ping() != nil {
		return
	}
	_ = box.pump(ctx, from, s)
	c.touch() // its idle time begins now
}
