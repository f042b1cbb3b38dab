package gateway

import (
	"cmp"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/gateway/openenv"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/wire"
)

// edge is what a request meets first: whether it comes from where it says, and
// how large it may be.
type edge struct {
	body    int64
	calls   int64
	public  string // public_url
	prefix  string // its path
	host    string // of public_url
	origin  string // of public_url
	origins map[string]bool
	any     bool // every origin
}

func newEdge(cfg *config.Config) *edge {
	e := &edge{body: cfg.Limits.Body, calls: int64(cfg.Limits.Calls), origins: make(map[string]bool)}
	if u, err := url.Parse(cfg.PublicURL); err == nil && u.Host != "" {
		e.public, e.prefix = cfg.PublicURL, strings.TrimSuffix(u.Path, "/")
		e.host, e.origin = strings.ToLower(u.Host), strings.ToLower(u.Scheme+"://"+u.Host)
	}
	for _, o := range cfg.CORS.Origins {
		if o == "*" {
			e.any = true
		}
		e.origins[strings.ToLower(strings.TrimSuffix(o, "/"))] = true
	}
	return e
}

// check guards against DNS rebinding: a web page may point a name of its own
// at this machine, but it can't choose the Host and Origin its browser sends.
func (e *edge) check(r *http.Request) string {
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr); !ok || local.IP.IsLoopback() {
		if host := strings.ToLower(r.Host); !isLoopback(host) && host != e.host {
			return "Host " + r.Host + " is not one of this gateway; set public_url if it should be"
		}
	}
	if origin := r.Header.Get("Origin"); origin != "" && !e.allows(origin) {
		return "Origin " + origin + " is not allowed; add it to cors.origins if it should be"
	}
	return ""
}

// allows reports whether a page of an origin may show a token. Without one it may
// do less, see checkPage.
func (e *edge) allows(origin string) bool {
	o := strings.ToLower(origin)
	if e.lists(o) || o == e.origin && o != "" {
		return true
	}
	u, err := url.Parse(o)
	return err == nil && u.Host != "" && isLoopback(u.Host)
}

// lists reports whether cors.origins has an origin.
func (e *edge) lists(origin string) bool { return e.any || e.origins[origin] }

// checkPage refuses requests that a web page makes without a token, where callers
// need none. A page at http://localhost:3000 is not this machine's user: it is
// whatever a development server there was made to deliver. So only pages of
// cors.origins come in, and only to MCP: through the APIs a page could make itself
// a token, or read what others have called. Pages of the gateway itself may do all.
func (e *edge) checkPage(r *http.Request) string {
	origin := strings.ToLower(r.Header.Get("Origin"))
	// A browser may send a password by itself, which it once was given, for any page.
	authorization := r.Header.Get("Authorization")
	if origin == "" || authorization != "" && !isBasic(authorization) || origin == e.origin || e.isOwn(origin, r.Host) {
		return ""
	}
	if !e.lists(origin) {
		return "Origin " + origin + " is not allowed without a token; add it to cors.origins if its pages should use this gateway"
	}
	if _, mcp := route(r.URL.Path); !mcp {
		return "a web page reaches only MCP without a token; " + r.URL.Path + " needs one: send Authorization: Bearer TOKEN"
	}
	return ""
}

// isOwn reports whether an origin is the gateway at a host of this machine.
func (e *edge) isOwn(origin, host string) bool {
	_, at, ok := strings.Cut(origin, "://")
	return ok && at == strings.ToLower(host) && isLoopback(at)
}

// isLoopback reports whether a host, with or without a port, is this machine.
func isLoopback(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// cors lets browsers of allowed origins in. It reports whether the request was
// a preflight and is answered.
func (e *edge) cors(w http.ResponseWriter, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", origin)
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Mcp-Protocol-Version, WWW-Authenticate")
	if r.Method != http.MethodOptions {
		return false
	}
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE, PATCH, OPTIONS")
	if want := r.Header.Get("Access-Control-Request-Headers"); want != "" && len(want) < 4096 {
		h.Set("Access-Control-Allow-Headers", want)
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return true
}

// Handler returns the gateway's one handler.
func (g *Gateway) Handler() http.Handler { return http.HandlerFunc(g.serveHTTP) }

func (g *Gateway) serveHTTP(w http.ResponseWriter, r *http.Request) {
	g.handlers.Add(1)
	defer g.handlers.Add(-1)
	r = withPathToken(r)
	aw := newAnswerWriter(w, r)
	defer func() {
		// A mistake of ours in one request must be seen, and must not be the end
		// of the others.
		v := recover()
		if v == nil {
			return
		}
		if v != http.ErrAbortHandler {
			err := telemetry.Panicked(g.log, telemetry.InEdge, r.URL.Path, v)
			if !aw.begun.Load() {
				refuseError(aw, err)
				g.linger(aw)
				return
			}
		}
		panic(http.ErrAbortHandler) // the client must not take a part for the whole
	}()
	g.answer(aw, r)
	g.linger(aw)
}

func (g *Gateway) answer(w *answerWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		_, w.rpc = route(r.URL.Path)
	}
	e := g.edge.Load()
	if why := e.check(r); why != "" {
		refuse(w, http.StatusForbidden, api.KindRefused, why)
		return
	}
	if e.cors(w, r) {
		return
	}
	path := r.URL.Path
	switch path {
	case "/healthz":
		hurry(w)
		writeJSON(w, http.StatusOK, api.Health{Status: "ok"})
		return
	case "/readyz":
		hurry(w)
		if g.draining.Load() {
			writeJSON(w, http.StatusServiceUnavailable, api.Health{Status: "draining"})
			return
		}
		writeJSON(w, http.StatusOK, api.Health{Status: "ok"})
		return
	}
	if rest, ok := strings.CutPrefix(path, wellKnown); ok && (rest == "" || rest[0] == '/') {
		g.serveMetadata(w, r, e)
		return
	}
	who, ok := g.identify(w, r, e)
	if !ok {
		return
	}
	if why := e.checkPage(r); why != "" {
		refuse(w, http.StatusForbidden, api.KindRefused, why)
		return
	}
	w.admitted = true
	if e := holdConn(r, who); e != nil {
		w.atOnce = true // until the rest is here the connection may be closed for another
		refuseError(w, e)
		return
	}
	if path == "/metrics" {
		g.serveMetrics(w, r, who)
		return
	}
	if strings.HasPrefix(path, api.Version+"/") {
		g.serveActions(w, r, who, g.routes)
		return
	}
	if g.orchestration != nil && orchestrates(path) {
		g.serveActions(w, r, who, g.orchestration)
		return
	}
	if strings.HasPrefix(path, executorPrefix+"/") {
		g.serveExecutor(w, r, who)
		return
	}
	if strings.HasPrefix(path, openenv.Prefix) {
		if err := g.environments.Serve(w, r, who); err != nil {
			refuseError(w, g.clean(who, err))
		}
		return
	}
	d, ok := route(path)
	if !ok {
		refuse(w, http.StatusNotFound, api.KindInvalid, "there is nothing at "+path+"; MCP is at /mcp and /mcp/{server}")
		return
	}
	g.serveDoor(w, r, who, d)
}

// A door is where an MCP client came in.
type door struct {
	view    view
	session string // of the URL; empty for the default
	kind    doorKind
}

type doorKind int

const (
	doorStreamable doorKind = iota
	doorEvents
)

// route takes a path apart:
//
//	/mcp /mcp/{server}                      streamable HTTP, both eras
//	/streamable-http[/{server}]             the same
//	/sse[/{server}]                         event stream of revision 2024-11-05
//	/mcp/{server}/sse|streamable-http       the same, the other way round
//	/s/{session}/...                        each of these, in that session
//	...?session=NAME                        each of these, in the durable session of that name
//	...?view=search                         each of these, with two tools for all
//
// {server}~1 is the second instance of a server, and so on, where a session has
// several; {server}~0 is the plain one.
//
// An event stream's client posts to the stream's own URL, with its channel in
// the query.
func route(path string) (door, bool) {
	d, ok := routed(path)
	d.view.server = strings.TrimSuffix(d.view.server, "~0")
	return d, ok
}

func routed(path string) (door, bool) {
	var d door
	rest := strings.Trim(path, "/")
	if after, ok := strings.CutPrefix(rest, "s/"); ok {
		var found bool
		if d.session, rest, found = strings.Cut(after, "/"); !found || d.session == "" {
			return d, false
		}
	}
	first, more, _ := strings.Cut(rest, "/")
	switch first {
	case "mcp":
		server, how, _ := strings.Cut(more, "/")
		d.view.server = server
		switch how {
		case "", "streamable-http":
		case "sse":
			d.kind = doorEvents
		default:
			return d, false
		}
		return d, true
	case "streamable-http":
		d.view.server = more
	case "sse":
		d.kind, d.view.server = doorEvents, more
	default:
		return d, false
	}
	return d, !strings.Contains(more, "/")
}

func (g *Gateway) serveDoor(w http.ResponseWriter, r *http.Request, who identity.Principal, d door) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil { // what is left of it may mean something else
		refuseError(w, invalid("the query of this URL can't be read: %v", err))
		return
	}
	if e := cmp.Or(checkMisspelt(query), checkErrors(query), d.view.choose(query)); e != nil {
		refuseError(w, e)
		return
	}
	if err := g.enterSession(r, who, &d, query); err != nil {
		if e := (*wire.Error)(nil); errors.As(err, &e) {
			rpcError(w, http.StatusNotFound, nil, e)
			return
		}
		refuseError(w, err)
		return
	}
	// A session has the servers it was made with.
	in := cmp.Or(d.session, who.Session)
	if d.session == "" && d.kind == doorStreamable {
		in = cmp.Or(sessionHint(r), in)
	}
	cat := g.services.Sessions.Catalog(who, in)
	if one := cat.Config.DefaultView; d.view.merged() && one != "" && d.session == "" && cat.Entry(one) != nil && who.MaySee(access.Base(one)) {
		d.view.server = one
	}
	if !d.view.merged() {
		e := cat.Entry(d.view.server)
		if e == nil || !who.MaySee(e.Base()) {
			if r.Method == http.MethodPost {
				g.knock(w, r, who, d.view.server, in, e)
				return
			}
			refuse(w, http.StatusNotFound, api.KindInvalid, "there is no server \""+d.view.server+"\" here; `tine servers` lists them")
			return
		}
		if on, why := e.On(); !on {
			refuse(w, http.StatusNotFound, api.KindRefused, "server \""+d.view.server+"\" is off: "+why)
			return
		}
	}
	if d.kind == doorEvents {
		g.serveEvents(w, r, who, d)
		return
	}
	g.serveStreamable(w, r, who, d)
}

func refuse(w http.ResponseWriter, status int, kind api.Kind, message string) {
	writeError(w, status, &api.Error{Kind: kind, Message: message})
}

// writeError answers with an error. Where it answers a message of MCP and is the
// client's to mend, it is an error of JSON-RPC too: of any other body the official
// Python client shows nothing.
func writeError(w http.ResponseWriter, status int, e *api.Error) {
	aw, ok := w.(*answerWriter)
	if !ok || !aw.rpc || byStatus(status) {
		writeJSON(w, status, e)
		return
	}
	writeJSON(w, status, struct {
		*api.Error
		JSONRPC string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Failure json.RawMessage `json:"error"`
	}{e, "2.0", aw.id, wire.AppendError(nil, rpcFailure(e))})
}

// byStatus reports whether clients go by a status alone, such as a gateway in front of this
// one: that a token or a session is not known, or that the gateway is at fault. To it an
// error of JSON-RPC would come from a server that is there.
func byStatus(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusGone:
		return true
	}
	return status >= http.StatusInternalServerError
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"kind":"infrastructure","message":"the answer could not be written"}`)
	}
	b = append(b, '\n')
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if status >= http.StatusBadRequest {
		hurry(w)
	}
	w.WriteHeader(status)
	_ = send(w, b)
}
