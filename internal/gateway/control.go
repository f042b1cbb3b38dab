package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// serveControl answers the control API. Handlers return an error, and it is
// written here.
func (g *Gateway) serveControl(w http.ResponseWriter, r *http.Request, who identity.Principal) {
	v, err := g.control(w, r, who)
	switch {
	case errors.Is(err, errAnswered):
		return
	case err != nil:
		refuseError(w, g.clean(err))
		return
	}
	switch raw := v.(type) {
	case rawCall:
		w.Header()["Content-Type"] = contentJSON
		_, _ = fmt.Fprintf(w, "{\"result\":%s}\n", []byte(raw))
		return
	case rawReplay:
		w.Header()["Content-Type"] = contentJSON
		_, _ = fmt.Fprintf(w, "{\"id\":%q,\"result\":%s}\n", raw.id, []byte(raw.result))
		return
	}
	writeJSON(w, http.StatusOK, v)
}

// errAnswered is the error of a handler that has written its answer itself.
var errAnswered = errors.New("answered already")

func (g *Gateway) control(w http.ResponseWriter, r *http.Request, who identity.Principal) (any, error) {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(r.URL.Path, api.Version), "/"), "/")
	is := func(method string, pattern ...string) bool {
		if r.Method != method || len(parts) != len(pattern) {
			return false
		}
		for i, p := range pattern {
			if p != "*" && p != parts[i] {
				return false
			}
		}
		return true
	}
	switch {
	case is(http.MethodGet, "status"):
		return g.status(r, who), nil
	case is(http.MethodGet, "servers"):
		return g.servers(who), nil
	case is(http.MethodGet, "servers", "*"):
		return g.server(r, who, parts[1])
	case is(http.MethodPatch, "servers", "*"):
		return g.patchServer(w, r, who, parts[1])
	case is(http.MethodGet, "servers", "*", "logs"):
		return g.logs(r, who, parts[1])
	case is(http.MethodPost, "servers", "*", "login"):
		return g.beginLogin(w, r, who, parts[1])
	case is(http.MethodPost, "servers", "*", "login", "*"):
		return g.finishLogin(w, r, who, parts[1], parts[3])
	case is(http.MethodDelete, "servers", "*", "login"):
		return g.logout(r, who, parts[1])
	case is(http.MethodGet, "calls"):
		return g.calls(w, r, who)
	case is(http.MethodGet, "calls", "*"):
		return g.oneCall(r, who, parts[1])
	case is(http.MethodPost, "calls", "*", "replay"):
		return g.replay(r, who, parts[1])
	case is(http.MethodGet, "tokens"):
		return g.listTokens(r, who)
	case is(http.MethodPost, "tokens"):
		return g.newToken(w, r, who)
	case is(http.MethodDelete, "tokens", "*"):
		return g.revokeToken(r, who, parts[1])
	case is(http.MethodGet, "tools"):
		return g.tools(r, who)
	case is(http.MethodPost, "call"):
		return g.call(w, r, who)
	}
	return nil, &api.Error{Kind: api.KindInvalid, Status: http.StatusNotFound, Message: "there is no " + r.Method + " " + r.URL.Path}
}

// decode reads a JSON body strictly.
func (g *Gateway) decode(w http.ResponseWriter, r *http.Request, v any) error {
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, g.edge.Load().body))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			return &api.Error{
				Kind: api.KindRefused, Status: http.StatusRequestEntityTooLarge,
				Message: fmt.Sprintf("the request is larger than %d bytes; limits.body can raise that", big.Limit),
			}
		}
		return &api.Error{Kind: api.KindInvalid, Message: "unreadable body: " + err.Error()}
	}
	wasRead(w)
	return nil
}

func (g *Gateway) status(r *http.Request, who identity.Principal) api.Status {
	cfg := g.reg.Catalog().Config
	s := api.Status{
		Version: g.o.Version, Gateway: g.o.ID, Started: g.started,
		Sessions: len(g.reg.Sessions()), InFlight: g.InFlight(), Draining: g.draining.Load(),
		PID: os.Getpid(), Protocols: wire.Versions[:], URL: cfg.PublicURL, Listen: cfg.Listen,
	}
	if who.Is(api.RoleViewer) {
		s.Config, s.State = cfg.Path, g.o.StateDir
	}
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(fmt.Stringer); ok {
		s.Listen = addr.String()
		if s.URL == "" {
			s.URL = "http://" + s.Listen
			if r.TLS != nil {
				s.URL = "https://" + s.Listen
			}
		}
	}
	return s
}

func (g *Gateway) servers(who identity.Principal) api.ServerList {
	cat := g.reg.Catalog()
	out := api.ServerList{Servers: make([]api.Server, 0, len(cat.Entries))}
	for _, e := range cat.Entries {
		if looksAt(who, e.ID) {
			out.Servers = append(out.Servers, forUser(who, g.describe(e)))
		}
	}
	return out
}

// forUser leaves out of a description what is about others: their calls, and
// how the server is run and reached.
func forUser(who identity.Principal, s api.Server) api.Server {
	if who.Is(api.RoleViewer) {
		return s
	}
	s.Target, s.Overridden, s.Overrides = "", false, nil
	if s.State != api.StateDisabled {
		s.Reason = ""
	}
	if s.LastError != nil {
		s.LastError = &api.LastError{At: s.LastError.At, Kind: s.LastError.Kind}
	}
	return s
}

// looksAt reports whether a principal may know of a server: it may use it, or
// look after all of them.
func looksAt(who identity.Principal, server string) bool {
	return who.Is(api.RoleViewer) || who.MaySee(server)
}

func (g *Gateway) entry(who identity.Principal, id string) (*session.Entry, error) {
	if e := g.reg.Catalog().Entry(id); e != nil && looksAt(who, id) {
		return e, nil
	}
	e := asError(noServer(id))
	e.Status = http.StatusNotFound
	return nil, e
}

func (g *Gateway) server(r *http.Request, who identity.Principal, id string) (any, error) {
	e, err := g.entry(who, id)
	if err != nil {
		return nil, err
	}
	s := forUser(who, g.describe(e))
	s.Policy = policyOf(e)
	if e.Auth.Type == config.AuthLogin && g.o.Wallet != nil {
		state := g.o.Wallet.State(r.Context(), e.Credentials(), who.Name)
		s.Login = &state
	}
	return s, nil
}

// rank orders states by how much they say about a server that several sessions
// use: one that answers anywhere answers.
var rank = map[string]int{api.StateIdle: 0, api.StateFailed: 1, api.StateStarting: 2, api.StateReady: 3}

func (g *Gateway) describe(e *session.Entry) api.Server {
	on, why := e.On()
	s := api.Server{
		ID: e.ID, Title: e.Title, Driver: e.Driver, Scope: e.Scope, Enabled: on, Overrides: e.Overrides(),
		State: api.StateIdle, Since: g.started, Target: e.Target(),
	}
	s.Overridden = len(s.Overrides) > 0
	e.Describe(&s)
	if !on {
		s.State, s.Reason = api.StateDisabled, why
		return s
	}
	for _, up := range g.reg.Upstreams(e.ID) {
		st := up.Status()
		s.Restarts += st.Restarts
		if st.Instance {
			s.Instances++
		}
		if rank[st.State] < rank[s.State] || st.State == s.State && s.State == api.StateIdle {
			continue
		}
		s.State, s.Reason, s.Since = st.State, st.Reason, st.Since
		if st.Hello.Version != "" {
			s.Protocol = st.Hello.Version
			s.ServerName = wire.FindString(st.Hello.Info, "name")
			s.ServerVer = wire.FindString(st.Hello.Info, "version")
		}
	}
	s.Reason = g.o.Redact.Text(s.Reason)
	return s
}

func (g *Gateway) patchServer(w http.ResponseWriter, r *http.Request, who identity.Principal, id string) (any, error) {
	if err := need(who, api.RoleOperator); err != nil {
		return nil, err
	}
	if _, err := g.entry(who, id); err != nil {
		return nil, err
	}
	var p api.ServerPatch
	if err := g.decode(w, r, &p); err != nil {
		return nil, err
	}
	if p.Reset && (p.Enabled != nil || len(p.Set) > 0 || len(p.Unset) > 0) {
		return nil, &api.Error{Kind: api.KindInvalid, Message: "reset goes back to the config in everything: nothing else can stand beside it"}
	}
	if p.Reset || p.Enabled != nil || len(p.Set) > 0 || len(p.Unset) > 0 {
		change := session.Change{Enabled: p.Enabled, Set: p.Set, Unset: p.Unset, Reset: p.Reset}
		if err := g.reg.Change(r.Context(), id, change); err != nil {
			return nil, err
		}
		g.Secrets()
		g.reg.Retry(id)
	}
	return g.server(r, who, id)
}

func (g *Gateway) logs(r *http.Request, who identity.Principal, id string) (any, error) {
	if err := need(who, api.RoleViewer); err != nil {
		return nil, err
	}
	if _, err := g.entry(who, id); err != nil {
		return nil, err
	}
	max := int64(64 << 10)
	if q := r.URL.Query().Get("bytes"); q != "" {
		n, err := strconv.ParseInt(q, 10, 64)
		if err != nil || n < 1 || n > 4<<20 {
			return nil, &api.Error{Kind: api.KindInvalid, Message: "bytes must be a number from 1 to 4194304"}
		}
		max = n
	}
	out := api.LogList{Instances: []api.LogEntry{}}
	for _, up := range g.reg.Upstreams(id) {
		text, err := g.logOf(up, max)
		if err != nil {
			return nil, err
		}
		if text == nil {
			continue
		}
		out.Instances = append(out.Instances, api.LogEntry{Instance: up.Name(), Session: up.Session(), Text: *text})
	}
	return out, nil
}

// logMargin is read before what is asked for of a log, since what begins within
// a secret does not show that it is one.
const logMargin = 64 << 10

// logOf is the end of an instance's log without secrets; nil without an instance.
func (g *Gateway) logOf(up *upstream.Upstream, max int64) (*string, error) {
	rd, err := up.Logs(max + logMargin)
	if rd == nil || err != nil {
		return nil, err
	}
	defer rd.Close()
	b, err := io.ReadAll(io.LimitReader(rd, max+logMargin))
	if err != nil {
		return nil, err
	}
	text := g.o.Redact.Text(string(b))
	if over := len(text) - int(max); over > 0 {
		text = strings.ToValidUTF8(text[over:], "")
	}
	return &text, nil
}

func (g *Gateway) tools(r *http.Request, who identity.Principal) (any, error) {
	sess, err := g.reg.Default(r.Context(), who.Name)
	if err != nil {
		return nil, err
	}
	only := r.URL.Query().Get("server")
	if only != "" {
		e, err := g.entry(who, only)
		if err != nil {
			return nil, err
		}
		if on, why := e.On(); !on {
			return api.ToolList{Tools: []api.Tool{}, Missing: []api.Missing{{Server: only, Reason: why}}}, nil
		}
	}
	t := g.table()
	x := &exchange{g: g, who: who, sess: sess, client: &upstream.Client{Key: newClientID()}, method: wire.MethodListTools}
	parts, missing := x.listAll(r.Context(), t, wire.MethodListTools)
	out := api.ToolList{Tools: []api.Tool{}}
	for _, p := range parts {
		if only != "" && p.shape.entry.ID != only {
			continue
		}
		for _, item := range p.items {
			if item = p.shape.editTool(item, t, true, who); item == nil {
				continue
			}
			tool := api.Tool{Name: wire.FindString(item, "name"), Server: p.shape.entry.ID, Description: wire.FindString(item, "description")}
			if at, err := wire.Find(item, "inputSchema"); err == nil && at.Ok() {
				tool.InputSchema = at.Of(item)
			}
			out.Tools = append(out.Tools, tool)
		}
	}
	for _, m := range missing {
		if only == "" || m.Server == only {
			out.Missing = append(out.Missing, m)
		}
	}
	return out, nil
}

// call makes one tool call on the caller's default session.
func (g *Gateway) call(w http.ResponseWriter, r *http.Request, who identity.Principal) (any, error) {
	var in api.CallRequest
	if err := g.decode(w, r, &in); err != nil {
		return nil, err
	}
	sess, err := g.reg.Default(r.Context(), who.Name)
	if err != nil {
		return nil, err
	}
	if len(in.Arguments) == 0 {
		in.Arguments = []byte("{}")
	}
	raw := append(wire.AppendQuote([]byte(`{"name":`), in.Tool), `,"arguments":`...)
	raw = append(append(raw, in.Arguments...), '}')
	params, err := wire.ScanParams(wire.MethodCallTool, raw)
	if err != nil {
		return nil, &api.Error{Kind: api.KindInvalid, Message: err.Error()}
	}
	if e := g.enter(who, 1); e != nil {
		return nil, e
	}
	defer g.leave(who, 1)
	x := &exchange{
		g: g, who: who, sess: sess, client: &upstream.Client{Key: newClientID()},
		method: wire.MethodCallTool, params: params, trace: g.parentOf(r.Header, &params),
	}
	return x.answer(r.Context())
}

// answer is a call's result for the control API, where failures are errors.
func (x *exchange) answer(ctx context.Context) (any, error) {
	span := x.begin()
	res, err := x.route(ctx)
	x.end(span, res, err)
	if err != nil {
		if e, ok := err.(*wire.Error); ok {
			return nil, &api.Error{Kind: api.KindInvalid, Message: e.Message}
		}
		return nil, err
	}
	if res.Error != nil {
		return nil, &api.Error{Kind: api.KindTool, Message: wire.ParseError(res.Error).Message}
	}
	return rawCall(res.Result), nil
}

// rawCall is an api.CallResponse whose result is written as the server sent
// it: the encoder would escape and compact it.
type rawCall []byte
