package gateway

import (
	"context"
	"errors"

	"github.com/tine-mcp/tine/internal/control"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/session"
)

// What the services of package control need of the gateway.

type host struct{ g *Gateway }

var _ control.Host = host{}

func (h host) Enter(who identity.Principal) (leave func(), err error) {
	if e := h.g.enter(who, 1); e != nil {
		return nil, e
	}
	return func() { h.g.leave(who, 1) }, nil
}

func (h host) Alone(s *session.Session, conn any, what string) error {
	c, _ := conn.(*client)
	return h.g.alone(s, c, what)
}

func (h host) EndSession(ctx context.Context, s *session.Session) error {
	return h.g.endSession(ctx, s)
}

// Admit makes anew who may come in also where a change has failed: it may have been made
// all the same. The caller may hang up meanwhile.
func (h host) Admit(ctx context.Context, change func(context.Context) error) error {
	ctx = context.WithoutCancel(ctx)
	h.g.reloading.Lock()
	defer h.g.reloading.Unlock()
	return errors.Join(change(ctx), h.g.admitted(ctx, h.g.reg.Catalog().Config))
}

func (h host) Readmit() { h.g.guarded.Swap(newSignal()).raise() }

func (h host) Again(who identity.Principal) (identity.Principal, bool) {
	return h.g.guard.Load().Again(who)
}

func (h host) Admits(owner string, pinned []byte) bool { return h.g.Admits(owner, pinned) }

func (h host) Secrets() { h.g.Secrets() }

func (h host) Stopping() <-chan struct{} { return h.g.open.Done() }

// request is what the services are told of a request that may have a key.
func (a *ask) request() (control.Request, error) {
	r := control.Request{Who: a.who, What: a.r.Method + " " + a.r.URL.Path, Conn: a.conn}
	switch keys := a.r.Header.Values(control.HeaderKey); len(keys) {
	case 0:
		return r, nil
	case 1:
		r.Key = keys[0]
	}
	return r, control.CheckKey(r.Key) // of several, and of none that is empty
}

// invalid is the error of a request that is wrong.
var invalid = control.Invalid

// clip bounds what an error repeats of a request.
var clip = control.Clip

// Worlds are the sessions of agents, for who runs them.
func (g *Gateway) Worlds() *control.Worlds { return g.services.Worlds }
