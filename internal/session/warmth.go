package session

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// grant has as many instances ready as are wanted and fit: together they hold at
// most half of the memory that all sessions may use, so that there is room for
// those who are to have them. The caller is a user of it.
// One that was refused is asked for again only where something changed.
func (r *Registry) grant(w *warm, changed bool) {
	r.granting.Lock()
	defer r.granting.Unlock()
	r.mu.Lock()
	e, snap, was, gone := w.e, w.snap, w.granted, w.gone || w.refused && !changed
	var others int64
	for _, other := range r.warm {
		if other != w {
			others += other.held
		}
	}
	r.mu.Unlock()
	if snap == nil || gone {
		return
	}
	most, each, n := r.Catalog().Config.Sessions.Memory, e.Budget.Memory, e.Warm
	if most > 0 && each > 0 {
		n = int(min(int64(n), max(0, most/2-others)/each))
	}
	r.budget.release(need{memory: w.held})
	for n > 0 && !r.budget.take(need{memory: each * int64(n)}) {
		n--
	}
	refused := false
	if n != was {
		if refused = !r.haveReady(e, *snap, n); refused {
			r.budget.release(need{memory: each * int64(n)})
			n = 0
		}
	}
	r.mu.Lock()
	w.granted, w.held, w.refused = n, each*int64(n), refused
	r.mu.Unlock()
}

// haveReady asks for so many instances, and reports whether there can be any.
func (r *Registry) haveReady(e *Entry, snap driver.Snapshot, n int) bool {
	if n < e.Warm {
		r.o.Log.Info("fewer instances stand ready than are wanted: sessions.memory has no room for more", "server", e.ID, "ready", n, "wanted", e.Warm)
	}
	spec := e.spec()
	spec.Log = r.o.Log
	if err := e.preparer().Ready(spec, snap, n); err != nil {
		r.o.Log.Warn("no instances stand ready; sessions begin with what is warm of the server all the same", "server", e.ID, "err", err)
		return false
	}
	return true
}

// fillWarm gives those more of whom fewer are ready than are wanted, where there
// is room by now.
func (r *Registry) fillWarm() {
	var few []*warm
	r.mu.Lock()
	for _, w := range r.warm {
		if w.snap != nil && w.granted < w.e.Warm {
			w.users++
			few = append(few, w)
		}
	}
	r.mu.Unlock()
	for _, w := range few {
		r.grant(w, false)
		r.coolDown(w)
	}
}

// A trial is an instance that is nobody's.
type trial struct {
	up   *upstream.Upstream
	spec driver.Spec
}

// trial runs a server for itself, as for a new session, until do is done with it.
// Nothing is left of it.
func (r *Registry) trial(ctx context.Context, e *Entry, state string, src driver.Source, do func(*trial) error) error {
	defer func() {
		after, cancel := afterwards(ctx)
		defer cancel()
		r.erase(after, e, state)
	}()
	if err := r.seed(ctx, e, "", state, src); err != nil {
		return err
	}
	t := &trial{spec: e.spec()}
	t.spec.State, t.spec.Log = state, r.o.Log
	t.spec.Dir = filepath.Join(r.o.Dir, strings.ReplaceAll(e.ID, "~", ".")+"-"+newID()[len("ses_"):])
	// Without a handle: the next gateway ends what it finds of it.
	t.up = upstream.New(r.upstreamOptions(e, t.spec, nil))
	defer t.up.Close()
	p, err := wire.ScanParams(wire.MethodListTools, nil)
	if err != nil {
		return err
	}
	// Whatever the answer: there is one.
	req := &upstream.Request{Method: wire.MethodListTools, Params: p, Client: &upstream.Client{Key: "warm"}}
	if _, err := t.up.Call(ctx, req); err != nil {
		return fmt.Errorf("warming it up: %w", err)
	}
	return do(t)
}
