package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/gateway/openenv"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// What package openenv needs of the gateway.

type environments struct{ g *Gateway }

var _ openenv.Host = environments{}

func (h environments) Environment(name string) (openenv.Environment, bool) {
	cfg := h.g.reg.Catalog().Config
	env, ok := cfg.EnvironmentNamed(name)
	return openenv.Environment{Environment: env, Separator: cfg.Separator}, ok
}

func (h environments) Environments() []string {
	var names []string
	for _, env := range h.g.reg.Catalog().Config.Environments {
		names = append(names, env.Name)
	}
	return names
}

// again is a principal as it is by now: an episode may have begun long ago.
func (h environments) again(who identity.Principal) (identity.Principal, error) {
	now, in := h.g.guard.Load().Again(who)
	if !in {
		return now, &api.Error{Kind: api.KindRefused, Status: http.StatusUnauthorized, Message: "who began this episode may not come in any more"}
	}
	return now, nil
}

func (h environments) Open(ctx context.Context, who identity.Principal, in api.NewSession) (openenv.Session, error) {
	who, err := h.again(who)
	if err != nil {
		return nil, err
	}
	rt := h.g.routeOf("openSession")
	if err := rt.admits(who); err != nil {
		return nil, err
	}
	opened, err := h.g.services.Sessions.OpenHeld(ctx, control.Request{Who: who, What: rt.method + " " + api.Version + rt.pattern}, in)
	if err != nil {
		return nil, err
	}
	s := h.g.reg.Get(opened.ID)
	if s == nil {
		return nil, &api.Error{Kind: api.KindRefused, Message: "session " + opened.ID + " was closed as soon as it was opened"}
	}
	e := &episode{g: h.g, who: who, sess: s, release: s.InUse()}
	e.before = e.losses()
	var stop func()
	e.ctx, stop = h.g.whileThere(context.Background(), s, func() bool { return true })
	e.stop = sync.OnceFunc(stop)
	return e, nil
}

// An episode is the session of one.
type episode struct {
	g       *Gateway
	who     identity.Principal
	sess    *session.Session
	before  int             // losses that its template had
	ctx     context.Context // ends with the session
	stop    func()
	release func()
}

func (e *episode) ID() string            { return e.sess.ID }
func (e *episode) Gone() <-chan struct{} { return e.ctx.Done() }

// losses counts what the session has lost. Of a server that begins anew on the files that
// it declared nothing is.
func (e *episode) losses() int {
	n := 0
	for _, d := range e.sess.Damaged() {
		if d.Kept != api.KeptFiles || d.Memory {
			n += max(d.Times, 1)
		}
	}
	return n
}

func (e *episode) Lost() string {
	if e.losses() <= e.before {
		return ""
	}
	all := e.sess.Damaged()
	last := all[len(all)-1]
	why := last.Why
	if last.LastWhy != "" {
		why = last.LastWhy
	}
	if last.Server != "" {
		why = fmt.Sprintf("server %q: %s", last.Server, why)
	}
	return why
}

func (e *episode) Relabel(ctx context.Context, labels map[string]string) error {
	_, err := e.g.services.Sessions.Patch(ctx, e.who, e.sess.ID, api.SessionPatch{Labels: labels})
	return err
}

// Close closes the session with all who are connected to it: it is the episode's.
func (e *episode) Close() error {
	e.stop()
	e.release()
	if e.g.reg.Get(e.sess.ID) == nil {
		return nil
	}
	return e.g.endSession(context.Background(), e.sess)
}

// in makes an exchange in the session of an episode, which has a view.
func (h environments) in(ctx context.Context, who identity.Principal, id, method string, v openenv.View) (*exchange, error) {
	who, err := h.again(who)
	if err != nil {
		return nil, err
	}
	sess, err := h.g.services.Sessions.Of(ctx, who, id)
	if err != nil {
		return nil, err
	}
	x := &exchange{g: h.g, who: who, sess: sess, client: &upstream.Client{Key: newClientID()}, method: method}
	if len(v.Servers) == 1 {
		x.view.server = v.Servers[0]
	}
	return x, nil
}

// sees reports whether a view has a tool of a server.
func sees(v openenv.View, t *table, s *shape, tool string) bool {
	return (len(v.Servers) == 0 || slices.Contains(v.Servers, s.entry.ID)) && s.entry.ID+t.sep+tool != v.Except
}

func (h environments) Tools(ctx context.Context, who identity.Principal, id string, v openenv.View) ([]json.RawMessage, error) {
	x, err := h.in(ctx, who, id, wire.MethodListTools, v)
	if err != nil {
		return nil, err
	}
	t := x.table()
	wait := t.cat.Config.Limits.ListWait
	if one := x.view.server; one != "" {
		e, err := control.EntryIn(t.cat, x.who, one)
		if err != nil {
			return nil, err
		}
		if on, why := e.On(); !on {
			return nil, &api.Error{Kind: api.KindRefused, Server: one, Message: fmt.Sprintf("server %q is off: %s", one, why)}
		}
		wait = 0 // a list of one server is of no use without it
	}
	parts, missing := x.listSome(ctx, t, wire.MethodListTools, wait, func(s *shape) bool {
		if len(v.Servers) == 0 {
			return s.listed
		}
		return slices.Contains(v.Servers, s.entry.ID)
	})
	if len(missing) > 0 { // a part must not be taken for the whole
		m := missing[0]
		return nil, &api.Error{Kind: m.Kind, Server: m.Server, Message: fmt.Sprintf("server %q can't be asked for its tools: %s", m.Server, m.Reason)}
	}
	var all []json.RawMessage
	var seen [][]byte
	for _, p := range parts {
		for _, item := range p.items {
			own, ok := p.shape.outside(wire.FindString(item, "name"))
			if item = p.shape.editTool(item, t, x.view.merged(), x.who); item == nil || !ok || !sees(v, t, p.shape, own) {
				continue
			}
			all, seen = append(all, item), append(seen, item)
		}
	}
	if v.Aside {
		return all, nil
	}
	x.saw(ctx, x.view.server, fmt.Appendf(nil, `{"tools":[%s]}`, bytes.Join(seen, []byte(","))))
	return all, nil
}

func (h environments) Call(ctx context.Context, who identity.Principal, c openenv.Call) (out openenv.Result, err error) {
	x, err := h.in(ctx, who, c.Session, wire.MethodCallTool, c.View)
	if err != nil {
		return out, err
	}
	var meta []byte
	if c.View.Aside {
		if meta, err = json.Marshal(map[string]string{openenv.MetaReward: c.Scores}); err != nil {
			return out, err
		}
	}
	if x.params, err = askedCall(c.Tool, c.Arguments, meta, nil); err != nil {
		return out, err
	}
	ctx, cancel, err := callTime(ctx, c.Timeout)
	if err != nil {
		return out, err
	}
	defer cancel()
	defer func() { err = late(ctx, err) }()
	t := x.table()
	if s, own, _ := x.locate(t, c.Tool); s == nil || !sees(c.View, t, s, own) {
		return out, fmt.Errorf("%w: %s", openenv.ErrNoTool, clip(c.Tool))
	}
	if e := h.g.enter(x.who, 1); e != nil {
		return out, e
	}
	defer h.g.leave(x.who, 1)
	defer x.sess.InUse()()
	x.trace, x.from = h.g.parentOf(c.From.Header, &x.params), c.From
	span := x.begin()
	res, err := x.route(ctx)
	x.end(ctx, span, res, err)
	out.Call = x.call
	switch none, rpc := (*noTool)(nil), (*wire.Error)(nil); {
	case errors.As(err, &none):
		return out, fmt.Errorf("%w: %s", openenv.ErrNoTool, clip(c.Tool))
	case errors.As(err, &rpc):
		return out, x.mistaken(ctx, t, c.Tool, rpc)
	case err != nil:
		return out, err
	case res.Error != nil:
		e := wire.ParseError(res.Error)
		if e.Mistake() {
			return out, x.mistaken(ctx, t, c.Tool, e)
		}
		return out, &api.Error{Kind: api.KindTool, Message: e.Message}
	}
	out.Raw = res.Result
	return out, nil
}

// mistaken is the error of a call that its server, or the gateway, says to be wrong: of a
// tool that the server does not have, or of arguments.
func (x *exchange) mistaken(ctx context.Context, t *table, name string, e *wire.Error) error {
	if s, own, _ := x.locate(t, name); s != nil {
		if inner, ok := s.inside(own); ok && !x.has(ctx, s, wire.MethodListTools, inner) {
			return fmt.Errorf("%w: %s", openenv.ErrNoTool, clip(name))
		}
	}
	return invalid("%s", e.Message)
}

func (h environments) Annotate(ctx context.Context, who identity.Principal, id string, in api.NewAnnotation) error {
	if h.g.o.Journal == nil {
		return nil
	}
	who, err := h.again(who)
	if err != nil {
		return err
	}
	_, err = h.g.services.Sessions.Annotate(ctx, control.Request{Who: who}, id, in)
	return err
}

func (h environments) Told(who identity.Principal, err error) *api.Error {
	return asError(h.g.clean(who, err))
}

func (h environments) While(ctx context.Context, who identity.Principal) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(h.g.life, cancel)
	ctx, stop := h.g.whileAdmitted(ctx, who, nil)
	return ctx, func() {
		forget()
		cancel()
		stop()
	}
}

func (h environments) Stopping() <-chan struct{} { return h.g.open.Done() }
func (h environments) MaxBody() int64            { return h.g.edge.Load().body }

func (h environments) Body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := h.MaxBody()
	if r.ContentLength > limit {
		return nil, bodyTooLarge(limit)
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		return nil, unreadable(err, limit)
	}
	wasRead(w)
	return body, nil
}
