package node

import (
	"bytes"
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type progressKey struct{}

// WithProgress is a context for calls that report progress: a consumed node's server
// is asked for it, and f is called with each notice, one at a time for each call. A call
// that succeeds returns after f has had all that came before the answer. Of more than
// 1,000 notices that wait for f the oldest are left out.
//
// A served node does so by itself for a client that asks for progress, except for what
// the function of a [Func] calls.
func WithProgress(ctx context.Context, f func(*mcp.ProgressNotificationParams)) context.Context {
	return context.WithValue(ctx, progressKey{}, f)
}

func progressOf(ctx context.Context) func(*mcp.ProgressNotificationParams) {
	f, _ := ctx.Value(progressKey{}).(func(*mcp.ProgressNotificationParams))
	return f
}

// A relay passes the progress of calls on to who asked for it. The taps give it the
// notices: the SDK handles them beside the answers, so that the last ones came too late.
type relay struct {
	last  atomic.Int64
	calls sync.Map // token to *hearing
}

const (
	progressMethod = "notifications/progress"
	tokenPrefix    = "tine-node-call-"
	maxNotices     = 1000
)

// A hearing has the progress of a call on its way to a function. It is nil for a call
// that is not asked to report.
type hearing struct {
	relay *relay
	token string
	blind bool // no tap sees the connection
	f     func(*mcp.ProgressNotificationParams)

	mu      sync.Mutex
	waiting []*mcp.ProgressNotificationParams
	running chan struct{} // closed when f has had all that waited; nil if nothing did
	over    bool
}

// join asks for the progress of a call that is wanted. It adds a token to meta.
func (r *relay) join(ctx context.Context, blind bool, meta mcp.Meta) (mcp.Meta, *hearing) {
	f := progressOf(ctx)
	if f == nil {
		return meta, nil
	}
	h := &hearing{relay: r, token: tokenPrefix + strconv.FormatInt(r.last.Add(1), 10), blind: blind, f: f}
	r.calls.Store(h.token, h)
	if meta == nil {
		meta = mcp.Meta{}
	}
	meta["progressToken"] = h.token
	return meta, h
}

// arrived is called with the parameters of a notice in the order of a connection's
// messages.
func (r *relay) arrived(params json.RawMessage) {
	if !bytes.Contains(params, []byte(tokenPrefix)) {
		return
	}
	var p mcp.ProgressNotificationParams
	if json.Unmarshal(params, &p) != nil {
		return // the SDK says what is not valid
	}
	if h := r.hearing(&p); h != nil && !h.blind {
		h.add(&p)
	}
}

// message is arrived, for a whole message that may be another one.
func (r *relay) message(data []byte) {
	var params json.RawMessage
	progress := false
	for name, value := range members(data) {
		switch string(name) {
		case "method":
			progress = string(value) == `"`+progressMethod+`"`
		case "params":
			params = value
		}
	}
	if progress {
		r.arrived(params)
	}
}

func (r *relay) hearing(p *mcp.ProgressNotificationParams) *hearing {
	token, ok := p.ProgressToken.(string)
	if !ok {
		return nil
	}
	h, _ := r.calls.Load(token)
	found, _ := h.(*hearing)
	return found
}

// handler is the SDK's way to notices. Those of calls that joined came by a tap, if there
// is one; the rest goes to next.
func (r *relay) handler(next func(context.Context, *mcp.ProgressNotificationClientRequest)) func(context.Context, *mcp.ProgressNotificationClientRequest) {
	return func(ctx context.Context, req *mcp.ProgressNotificationClientRequest) {
		if token, ok := req.Params.ProgressToken.(string); ok && strings.HasPrefix(token, tokenPrefix) {
			if h := r.hearing(req.Params); h != nil && h.blind {
				h.add(req.Params)
			}
			return
		}
		if next != nil {
			next(ctx, req)
		}
	}
}

func (h *hearing) add(p *mcp.ProgressNotificationParams) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return
	}
	if len(h.waiting) == maxNotices {
		h.waiting = h.waiting[1:]
	}
	h.waiting = append(h.waiting, p)
	if h.running == nil {
		h.running = make(chan struct{})
		go h.run(h.running)
	}
}

func (h *hearing) run(running chan struct{}) {
	defer close(running)
	for {
		h.mu.Lock()
		if len(h.waiting) == 0 || h.over {
			h.running = nil
			h.mu.Unlock()
			return
		}
		p := h.waiting[0]
		h.waiting = h.waiting[1:]
		h.mu.Unlock()
		h.f(p)
	}
}

// wait returns when f has had all that came, or ctx has ended.
func (h *hearing) wait(ctx context.Context) {
	if h == nil {
		return
	}
	h.mu.Lock()
	running := h.running
	h.mu.Unlock()
	if running == nil {
		return
	}
	select {
	case <-running:
	case <-ctx.Done():
	}
}

func (h *hearing) leave() {
	if h == nil {
		return
	}
	h.relay.calls.Delete(h.token)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
}
