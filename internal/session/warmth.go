package session

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
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
	r.budget.releaseAhead(need{memory: w.held})
	for n > 0 && !r.budget.takeAhead(need{memory: each * int64(n)}) {
		n--
	}
	refused := false
	if n != was {
		if refused = !r.haveReady(e, *snap, n); refused {
			r.budget.releaseAhead(need{memory: each * int64(n)})
			n = 0
		}
	}
	r.mu.Lock()
	w.granted, w.held, w.refused = n, each*int64(n), refused
	r.mu.Unlock()
}

// haveReady asks for so many instances, and reports whether there can be any.
func (r *Registry) haveReady(e *catalog.Entry, snap driver.Snapshot, n int) bool {
	if n < e.Warm {
		r.o.Log.Info("fewer instances stand ready than are wanted: sessions.memory has no room for more", "server", e.ID, "ready", n, "wanted", e.Warm)
	}
	spec := e.Spec()
	spec.Log = r.o.Log
	if err := e.Preparer().Ready(spec, snap, n); err != nil {
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

// yield has what stands ready give way to requests that wait, until the registry
// ends.
func (r *Registry) yield() {
	for {
		select {
		case n := <-r.budget.short:
			if short := r.budget.missing(n); short > 0 {
				r.yieldWarm(short)
			}
		case <-r.life.Done():
			return
		}
	}
}

// yieldWarm gives back so much memory, or all that instances hold which stand
// ready. The reaper has more of them made when nobody waits.
func (r *Registry) yieldWarm(short int64) {
	r.granting.Lock()
	defer r.granting.Unlock()
	r.mu.Lock()
	var all []*warm
	for _, w := range r.warm {
		if w.held > 0 {
			w.users++
			all = append(all, w)
		}
	}
	r.mu.Unlock()
	for _, w := range all {
		if short > 0 {
			short -= r.shrink(w, short)
		}
		r.coolDown(w)
	}
}

// shrink lets go of as many ready instances of a server as hold so much memory,
// and returns how much they held. r.granting is held, and the caller is a user.
func (r *Registry) shrink(w *warm, short int64) int64 {
	r.mu.Lock()
	e, snap, granted, held := w.e, w.snap, w.granted, w.held
	r.mu.Unlock()
	each := held / int64(granted)
	n := int(min(int64(granted), (short+each-1)/each))
	refused := !r.haveReady(e, *snap, granted-n)
	if refused {
		n = granted
	}
	freed := each * int64(n)
	r.mu.Lock()
	w.granted, w.held, w.refused = granted-n, held-freed, refused
	r.mu.Unlock()
	r.budget.releaseAhead(need{memory: freed})
	return freed
}

// A trial is an instance that is nobody's.
type trial struct {
	up   *upstream.Upstream
	spec driver.Spec
}

// trial runs a server for itself, as for a new session, until do is done with it.
// Nothing is left of it.
func (r *Registry) trial(ctx context.Context, e *catalog.Entry, state string, src driver.Source, do func(*trial) error) error {
	defer func() {
		after, cancel := afterwards(ctx)
		defer cancel()
		r.erase(after, e, state)
	}()
	if _, err := r.seed(ctx, e, "", state, src); err != nil {
		return err
	}
	t := &trial{spec: e.Spec()}
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
	req := &upstream.Request{Method: wire.MethodListTools, Params: p, Client: &upstream.Client{}}
	if _, err := t.up.Call(ctx, req); err != nil {
		return fmt.Errorf("warming it up: %w", err)
	}
	return do(t)
}
