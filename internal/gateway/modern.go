package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// The stateless era: every request says who it is from and what its sender can
// do, headers repeat what stands in the body, and closing the connection is
// how a client cancels.

// postModern answers one request of the stateless era.
func (g *Gateway) postModern(w http.ResponseWriter, r *http.Request, who identity.Principal, d door, version string, msg wire.Message, params wire.Params) {
	if !msg.IsRequest() {
		if msg.IsResponse() {
			rpcError(w, http.StatusBadRequest, nil, &wire.Error{Code: wire.CodeInvalidRequest, Message: "clients of this protocol version send no responses"})
			return
		}
		w.WriteHeader(http.StatusAccepted)
		return
	}
	if e := checkModern(r.Header, version, &msg, &params); e != nil {
		rpcError(w, http.StatusBadRequest, msg.ID, e)
		return
	}
	sess, err := g.services.Sessions.Of(r.Context(), who, d.session)
	if err != nil {
		refuseError(w, g.late(r.Context(), who, d, msg.Method, &params, err))
		return
	}
	rw := g.newResponder(w, r)
	x := &exchange{
		g: g, who: who, view: d.view, sess: sess, header: paramHeaders(r.Header), method: msg.Method, params: params,
		trace: g.parentOf(r.Header, &params), from: r,
		client: &upstream.Client{
			Key: newClientID(), Modern: true,
			Info: params.ClientInfo.Of(params.Raw), Caps: params.ClientCaps.Of(params.Raw),
		},
	}
	x.client.LogLevel, _ = wire.Unquote(params.LogLevel.Of(params.Raw))
	switch msg.Method {
	case wire.MethodInitialize:
		rpcError(w, http.StatusNotFound, msg.ID, methodNotFound(msg.Method))
		return
	case wire.MethodListen:
		g.listen(w, r, x, msg)
		return
	}
	g.answerModern(r.Context(), x, msg, &modernPeer{rw: rw, level: x.client.LogLevel})
}

// answerModern finds the answer to a request of this era. The request may
// bring input to a call that waits for it, or come to wait itself.
func (g *Gateway) answerModern(ctx context.Context, x *exchange, msg wire.Message, to answerer) {
	x.unwrap()
	switch {
	case g.resumePending(ctx, x, msg, to):
	case x.mayNeedInput():
		g.runPending(ctx, x, msg, to)
	default:
		x.peer = notePeer{to}
		to.finish(ctx, msg, x.run(ctx))
	}
}

// checkModern holds headers and metadata against the body, before anything
// else looks at either: what is decided on must be what is carried out.
func checkModern(h http.Header, version string, msg *wire.Message, p *wire.Params) *wire.Error {
	mismatch := func(format string, args ...any) *wire.Error {
		return &wire.Error{Code: wire.CodeHeaderMismatch, Message: "Header mismatch: " + fmt.Sprintf(format, args...)}
	}
	if version == "" {
		return mismatch("%s is missing", wire.HeaderVersion)
	}
	if len(h[wire.HeaderVersion]) > 1 {
		return mismatch("%s stands more than once", wire.HeaderVersion)
	}
	stated, ok := wire.Unquote(p.Version.Of(p.Raw))
	if !ok {
		return invalidParams("missing or invalid _meta field " + wire.MetaVersion)
	}
	if version != stated {
		return mismatch("%s header value '%s' does not match body value '%s'", wire.HeaderVersion, version, stated)
	}
	if !wire.Known(version) || !wire.Modern(version) {
		data, err := json.Marshal(map[string]any{"supported": wire.Versions, "requested": version})
		if err != nil {
			data = nil
		}
		return &wire.Error{Code: wire.CodeUnsupportedVersion, Message: "Unsupported protocol version", Data: data}
	}
	if method := h.Get(wire.HeaderMethod); method != msg.Method {
		if method == "" {
			return mismatch("%s is missing", wire.HeaderMethod)
		}
		return mismatch("%s header value '%s' does not match body value '%s'", wire.HeaderMethod, method, msg.Method)
	}
	switch msg.Method {
	case wire.MethodCallTool, wire.MethodGetPrompt, wire.MethodReadResource:
		if e := checkName(h, p, mismatch); e != nil {
			return e
		}
	}
	if caps := p.ClientCaps.Of(p.Raw); caps == nil || caps[0] != '{' {
		return invalidParams("missing or invalid _meta field " + wire.MetaClientCaps)
	}
	if info := p.ClientInfo.Of(p.Raw); info != nil && info[0] != '{' {
		return invalidParams("invalid _meta field " + wire.MetaClientInfo)
	}
	if level := p.LogLevel.Of(p.Raw); level != nil {
		if s, ok := wire.Unquote(level); !ok || wire.LevelRank(s) < 0 {
			return invalidParams("invalid _meta field " + wire.MetaLogLevel)
		}
	}
	return nil
}

// checkForged refuses mirror headers that say something else than the body, in
// any era: something in front of the gateway may have decided on them.
func checkForged(h http.Header, msg *wire.Message, p *wire.Params) *wire.Error {
	if method, ok := h[wire.HeaderMethod]; ok && (len(method) != 1 || method[0] != msg.Method) {
		return &wire.Error{Code: wire.CodeHeaderMismatch, Message: "Header mismatch: " + wire.HeaderMethod + " does not match the body"}
	}
	if name, ok := h[wire.HeaderName]; ok {
		decoded, valid := wire.DecodeHeader(name[0])
		if len(name) != 1 || !valid || decoded != p.Name() {
			return &wire.Error{Code: wire.CodeHeaderMismatch, Message: "Header mismatch: " + wire.HeaderName + " does not match the body"}
		}
	}
	return nil
}

func checkName(h http.Header, p *wire.Params, mismatch func(string, ...any) *wire.Error) *wire.Error {
	values := h[wire.HeaderName]
	if len(values) == 0 {
		return mismatch("%s is missing", wire.HeaderName)
	}
	if len(values) > 1 {
		return mismatch("%s stands more than once", wire.HeaderName)
	}
	name, ok := wire.DecodeHeader(values[0])
	if !ok {
		return mismatch("%s is not valid base64", wire.HeaderName)
	}
	own, ok := wire.Unquote(p.Target.Of(p.Raw))
	if !ok || name != own {
		return mismatch("%s header value '%s' does not match body value '%s'", wire.HeaderName, name, own)
	}
	return nil
}

// paramHeaders takes out the headers that repeat arguments. It is never nil,
// so that a modern client's headers are passed on as they are and not made up.
func paramHeaders(h http.Header) http.Header {
	var out http.Header
	for name, values := range h {
		if strings.HasPrefix(name, wire.HeaderParam) {
			if out == nil {
				out = make(http.Header)
			}
			out[name] = values
		}
	}
	if out == nil {
		return noHeaders
	}
	return out
}

var noHeaders = http.Header{}

// modernPeer answers one request of this era over HTTP.
type modernPeer struct {
	rw    *responder
	level string
}

func (p *modernPeer) note(method string, params []byte) {
	if wantsNote(p.level, method, params) {
		p.rw.outbox().add(wire.AppendRequest(nil, nil, method, params, nil), "", kindNote)
	}
}

func (p *modernPeer) finish(ctx context.Context, msg wire.Message, res *upstream.Result) {
	if ctx.Err() != nil {
		p.rw.abort() // the client is gone
		return
	}
	p.rw.after(res)
	status := 0
	if res.Error != nil {
		status = modernStatus(res.Error)
	} else {
		res = &upstream.Result{Result: dress(msg.Method, res.Result), Events: res.Events}
	}
	p.rw.finish(frameOf(msg.ID, res), status, res.Events)
}

// notePeer is the side of a client that is told things and asked nothing.
type notePeer struct{ to answerer }

func (p notePeer) Note(method string, params []byte) { p.to.note(method, params) }

func (p notePeer) Ask(_ context.Context, method string, _ []byte) upstream.Reply {
	return upstream.Refuse(method, "the client does not support "+method)
}

// wantsNote reports whether a request asked for a notification: log messages
// only from the level it named.
func wantsNote(level, method string, params []byte) bool {
	if method != wire.NoteMessage {
		return true
	}
	return level != "" && wire.LevelRank(wire.FindString(params, "level")) >= wire.LevelRank(level)
}
