package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"

	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A listening is one subscriptions/listen of a stateless client.
type listening struct {
	g      *Gateway
	view   view
	who    identity.Principal
	id     []byte // of the request, raw: the subscription's id
	filter listenFilter
	box    *outbox

	mu    sync.Mutex
	uris  map[subKey]string // as the client wrote them
	ready bool              // acknowledged: nothing may be sent before
	early []func()          // what came before that
}

type listenFilter struct {
	Tools     bool     `json:"toolsListChanged,omitempty"`
	Prompts   bool     `json:"promptsListChanged,omitempty"`
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"`
}

// maxListenURIs bounds the resources of one subscription.
const maxListenURIs = 1000

// newListening reads a subscriptions/listen request.
func (x *exchange) newListening(msg wire.Message, box *outbox) (*listening, *wire.Error) {
	var in struct {
		Notifications listenFilter `json:"notifications"`
	}
	if err := json.Unmarshal(orEmpty(msg.Params), &in); err != nil || len(in.Notifications.URIs) > maxListenURIs {
		return nil, invalidParams("params.notifications is unreadable or names too many resources")
	}
	return &listening{
		g: x.g, view: x.view, who: x.who, id: bytes.Clone(msg.ID), filter: in.Notifications,
		uris: make(map[subKey]string), box: box,
	}, nil
}

// start subscribes to everything asked for and acknowledges what can be had.
func (l *listening) start(ctx context.Context, x *exchange) (stop func()) {
	stops := []func(){x.sess.Watch(l)}
	honoured := l.filter
	honoured.URIs = nil
	for _, uri := range l.filter.URIs {
		up, key, ok := x.subscribeOne(ctx, uri)
		if !ok {
			continue
		}
		l.mu.Lock()
		l.uris[key] = uri
		l.mu.Unlock()
		honoured.URIs = append(honoured.URIs, uri)
		stops = append(stops, func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeWait)
			defer cancel()
			_, _ = up.Call(ctx, x.subscription(wire.MethodUnsubscribe, key.uri))
		})
	}
	if !x.view.merged() {
		honoured = x.capable(honoured)
		// The notes of one server come only while it runs.
		if up, _, err := x.upstream(x.view.server); err == nil {
			up.Kick()
		}
	}
	ack, err := json.Marshal(honoured)
	if err != nil {
		ack = []byte("{}")
	}
	l.add(wire.NoteAcknowledged, append(append([]byte(`{"notifications":`), ack...), '}'), "")
	l.mu.Lock()
	l.ready = true
	early := l.early
	l.mu.Unlock()
	for _, note := range early {
		note()
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// ended is the answer to a subscription that the gateway ends.
func (l *listening) ended() []byte {
	res := append(append([]byte(`{"resultType":"complete","_meta":{"`+wire.MetaSubscription+`":`), l.id...), "}}"...)
	return wire.AppendResult(nil, l.id, res)
}

// listen answers a subscriptions/listen over HTTP: it stays open until the
// client goes or the gateway stops.
func (g *Gateway) listen(w http.ResponseWriter, r *http.Request, x *exchange, msg wire.Message) {
	l, e := x.newListening(msg, newOutbox(false, x.g.log))
	if e != nil {
		rpcError(w, http.StatusBadRequest, msg.ID, e)
		return
	}
	// A subscription is not counted as a running request: it must not hold up a stop.
	defer g.aside(x.who)()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(g.life, cancel)()
	ctx, stop := g.whileAdmitted(ctx, x.who, x.sess)
	defer stop()
	defer l.start(ctx, x)()
	// A subscription that the gateway ends is answered first.
	defer context.AfterFunc(g.open, func() {
		l.box.add(l.ended(), "", kindAnswer)
		l.box.close()
	})()
	startEvents(w)
	_ = l.box.pump(ctx, -1, &eventSink{w: w, ctl: http.NewResponseController(w)})
}

// subscribeOne asks a server for updates of a resource on a client's behalf.
func (x *exchange) subscribeOne(ctx context.Context, uri string) (*upstream.Upstream, subKey, bool) {
	up, key, err := x.resource(ctx, uri)
	if err != nil {
		return nil, key, false
	}
	res, err := up.Call(ctx, x.subscription(wire.MethodSubscribe, key.uri))
	return up, key, err == nil && res.Error == nil
}

// capable leaves out what the one server of a view does not announce.
func (x *exchange) capable(f listenFilter) listenFilter {
	up := x.sess.Peek(x.view.server)
	if up == nil {
		return f
	}
	conn := up.Peek()
	if conn == nil {
		return f
	}
	h, base := conn.Hello(), access.Base(x.view.server)
	f.Tools = f.Tools && h.Can("tools")
	f.Prompts = f.Prompts && h.Can("prompts") && mayList(x.who, base, wire.NotePromptsChanged)
	f.Resources = f.Resources && h.Can("resources") && mayList(x.who, base, wire.NoteResourcesChanged)
	return f
}

// add sends a notification marked with the subscription's id.
func (l *listening) add(method string, params []byte, key string) {
	params = orEmpty(params)
	meta, err := wire.Find(params, "_meta")
	if err != nil {
		return
	}
	var e wire.Edit
	if meta.Ok() && params[meta.Start] == '{' {
		if old, _ := wire.Find(params, "_meta", wire.MetaSubscription); old.Ok() {
			e = wire.Edit{At: old, With: l.id}
		} else {
			e = wire.InsertMember(params, meta.Start, wire.MetaSubscription, l.id)
		}
	} else {
		value := append(append([]byte(`{"`+wire.MetaSubscription+`":`), l.id...), '}')
		e = wire.InsertMember(params, 0, "_meta", value)
	}
	kind := kindNote
	if method == wire.NoteAcknowledged {
		kind = kindAnswer
	}
	l.box.add(wire.AppendRequest(nil, nil, method, params, []wire.Edit{e}), key, kind)
}

// Note implements session.Watcher.
func (l *listening) Note(server, method string, params []byte) {
	if server != "" && !l.view.covers(server) || !l.view.tells(method) || !l.g.hears(l.who, server, method) {
		return
	}
	l.mu.Lock()
	if !l.ready {
		if len(l.early) < maxListenURIs {
			l.early = append(l.early, func() { l.Note(server, method, params) })
		}
		l.mu.Unlock()
		return
	}
	uri, wanted := l.uris[subKey{server, wire.FindString(params, "uri")}]
	l.mu.Unlock()
	switch method {
	case wire.NoteToolsChanged:
		if l.filter.Tools {
			l.add(method, nil, method)
		}
	case wire.NotePromptsChanged:
		if l.filter.Prompts {
			l.add(method, nil, method)
		}
	case wire.NoteResourcesChanged:
		if l.filter.Resources {
			l.add(method, nil, method)
		}
	case wire.NoteResourceUpdated:
		if !wanted {
			return
		}
		at, _ := wire.Find(params, "uri")
		l.add(method, wire.AppendSpliced(nil, params, []wire.Edit{{At: at, With: wire.Quote(uri)}}), "")
	}
}

// Client implements session.Watcher.
func (l *listening) Client() string { return "" }

// CanAsk implements session.Watcher: such a stream can't carry a request to the client.
func (l *listening) CanAsk(string) bool { return false }

// Ask implements session.Watcher.
func (l *listening) Ask(context.Context, string, string, []byte) (upstream.Reply, bool) {
	return upstream.Reply{}, false
}

var _ session.Watcher = (*listening)(nil)
