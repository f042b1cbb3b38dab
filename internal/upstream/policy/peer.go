package policy

import (
	"bytes"
	"context"
	"slices"
	"sync/atomic"

	"github.com/tine-mcp/tine/internal/upstream"
)

// detach copies what a request points to and may not outlast its caller.
func detach(req *upstream.Request, peer *leaving) *upstream.Request {
	r := *req
	r.Params.Raw = bytes.Clone(req.Params.Raw)
	r.Edits = slices.Clone(req.Edits)
	for i := range r.Edits {
		r.Edits[i].With = bytes.Clone(r.Edits[i].With)
	}
	r.Header = req.Header.Clone()
	if req.Client != nil {
		c := *req.Client
		r.Client = &c
	}
	if req.Peer != nil {
		r.Peer = peer
	}
	return &r
}

// leaving is a Peer that may leave before its request is answered.
type leaving struct {
	peer upstream.Peer
	gone atomic.Bool
}

func (p *leaving) Note(method string, params []byte) {
	if !p.gone.Load() {
		p.peer.Note(method, params)
	}
}

func (p *leaving) Ask(ctx context.Context, method string, params []byte) upstream.Reply {
	if p.gone.Load() {
		return upstream.Refuse(method, "the client that could answer has left")
	}
	return p.peer.Ask(ctx, method, params)
}

// asking is a request that remembers whether its client was asked something. An
// answer that a person took part in is not for other callers, and the person is not
// asked again because a connection broke.
type asking struct {
	req   upstream.Request
	peer  upstream.Peer
	asked atomic.Bool
}

// watch returns a request that remembers this, as a copy if needed.
func watch(req *upstream.Request) (*upstream.Request, *asking) {
	if req.Peer == nil {
		return req, nil
	}
	a := &asking{req: *req, peer: req.Peer}
	a.req.Peer = a
	return &a.req, a
}

// wasAsked reports whether the client was asked something.
func (a *asking) wasAsked() bool { return a != nil && a.asked.Load() }

func (a *asking) Note(method string, params []byte) { a.peer.Note(method, params) }

func (a *asking) Ask(ctx context.Context, method string, params []byte) upstream.Reply {
	a.asked.Store(true)
	return a.peer.Ask(ctx, method, params)
}
