package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/upstream"
	"github.com/tine-mcp/tine/internal/wire"
)

// A server with warm: N is started once, as if for a new session, and frozen when
// it answers. New sessions begin with that instead of with nothing, and N copies
// of it stand ready. It lasts as long as the server is the same, and not longer
// than the gateway.

// warmPrefix begins the names of its folders, which belong to no session and to no
// snapshot that lasts: what a gateway leaves of them the next one removes.
const warmPrefix = "warm_"

// A warm is the spare of one server.
type warm struct {
	spare
	key     string
	from    string             // the snapshot that its template was; empty for none
	granted int                // how many stand ready
	refused bool               // its driver can't have any ready
	stop    context.CancelFunc // ends the making of it; nil before that begins
}

// warms reports whether instances of the server are kept ready for new sessions,
// and why not where they were to be.
func warms(e *catalog.Entry) (yes bool, why string) {
	on, _ := e.On()
	carries, _ := e.Carries()
	switch {
	case e.Warm <= 0 || !on || !e.Own() || e.WarmKey() == "":
		return false, ""
	case e.Preparer() == nil || e.Keeper() == nil:
		return false, fmt.Sprintf("driver %q has nothing ready", e.Driver)
	case carries != driver.CarryMemory:
		return false, "its memory can't be carried"
	}
	return true, ""
}

// update has what the servers of a catalog want ready made, and lets go of the
// rest. It waits for nothing.
func (k *stock) update(c *catalog.Catalog) {
	wanted := make(map[string]*catalog.Entry)
	for _, e := range c.Entries {
		yes, why := warms(e)
		if yes {
			wanted[e.ID] = e
		}
		if why != "" {
			k.r.o.Log.Warn("server is not kept warm", "server", e.ID, "because", why, "mend", "remove servers."+e.ID+".warm")
		}
	}
	var made, stay, over []*warm
	k.mu.Lock()
	for id, w := range k.warm {
		if e := wanted[id]; e != nil && e.WarmKey() == w.key {
			w.e = e
			w.users++
			stay = append(stay, w)
			continue
		}
		delete(k.warm, id)
		over = append(over, w)
	}
	for id, e := range wanted {
		if k.warm[id] == nil {
			made = append(made, k.newWarm(e))
		}
	}
	k.mu.Unlock()
	for _, w := range over {
		k.retireWarm(w)
	}
	for _, w := range stay {
		k.grant(w, true)
		k.release(&w.spare)
	}
	for _, w := range made {
		k.begin(w)
	}
}

// newWarm begins one. k.mu is held; the call that makes it is its first user.
func (k *stock) newWarm(e *catalog.Entry) *warm {
	w := &warm{spare: spare{e: e, users: 1}, key: e.WarmKey()}
	k.warm[e.ID] = w
	return w
}

// begin has a new one made in the background.
func (k *stock) begin(w *warm) {
	if !k.r.background(func() { k.build(w) }) {
		k.release(&w.spare)
	}
}

// build makes what is to be ready, trying again with growing pauses.
func (k *stock) build(w *warm) {
	defer k.release(&w.spare)
	ctx, stop := context.WithCancel(k.r.life)
	defer stop()
	k.mu.Lock()
	w.stop = stop
	retired := w.retired
	k.mu.Unlock()
	if retired {
		return
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = time.Second, 5*time.Minute
	for first := true; ; first = false {
		select {
		case k.making <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := k.makeWarm(ctx, w)
		<-k.making
		if err == nil {
			k.grant(w, true)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if first {
			k.r.o.Log.Warn("server is not warm yet; sessions start it the ordinary way, and it is tried again", "server", w.e.ID, "err", err)
		} else {
			k.r.o.Log.Debug("server is not warm yet", "server", w.e.ID, "err", err)
		}
		select {
		case <-time.After(pause.NextBackOff()):
		case <-ctx.Done():
			return
		}
	}
}

// makeWarm starts a server as for a new session, freezes it, and sees whether what
// comes of that answers.
func (k *stock) makeWarm(ctx context.Context, w *warm) (err error) {
	r := k.r
	k.mu.Lock()
	e := w.e
	k.mu.Unlock()
	id := warmPrefix + newID()[len("ses_"):]
	home, dir := r.home(id), filepath.Join(r.snapshotHome(), id)
	from := r.templateID(e)
	if err := makeFolder(dir); err != nil {
		return err
	}
	snap := driver.Snapshot{}
	defer func() {
		after, cancel := afterwards(ctx)
		defer cancel()
		if err != nil {
			r.discard(after, &frozen{Members: []frozenMember{{Server: e.ID, Snapshot: snap}}}, dir)
		}
		if err := os.Remove(home); err != nil && !os.IsNotExist(err) {
			r.o.Log.Warn("folder of a server that was warmed up not removed", "folder", home, "err", err)
		}
	}()
	err = r.trial(ctx, e, filepath.Join(home, e.ID), driver.Source{}, func(t *trial) error {
		inst, release, err := t.up.Hold(ctx)
		if err != nil {
			return err
		}
		defer release()
		spec := t.spec
		spec.Carry = driver.CarryMemory
		snap, err = freezeState(ctx, e, spec, t.up, inst, filepath.Join(dir, e.ID))
		if err == nil && (snap.Carries != driver.CarryMemory || len(snap.Hello) == 0) {
			err = fmt.Errorf("server %q: its memory was not carried", e.ID)
		}
		return err
	})
	if err == nil { // a session that begins with it must not be the first to find out that it does not work
		err = r.trial(ctx, e, filepath.Join(home, e.ID), driver.Source{From: &snap}, func(*trial) error { return nil })
	}
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	w.snap, w.dir, w.from = &snap, dir, from
	return nil
}

// templateID is the snapshot that the template of a server means now; empty where
// it means none.
func (r *Registry) templateID(e *catalog.Entry) string {
	if name, ok := strings.CutPrefix(e.Template, catalog.FromSnapshot); ok {
		if found := r.snapshotNamed(name, ""); found != nil {
			return found.ID
		}
	}
	return ""
}

// seed makes a state from what is warm of its server and returns its mark; none
// where nothing is.
func (k *stock) seed(ctx context.Context, e *catalog.Entry, session, dir string) (mark string, err error) {
	k.mu.Lock()
	w := k.warm[e.Base()]
	if w == nil || w.snap == nil || !e.Own() || e.WarmKey() != w.key {
		k.mu.Unlock()
		return "", nil
	}
	w.users++
	k.mu.Unlock()
	defer k.release(&w.spare)
	if k.r.templateID(e) != w.from {
		k.renew(w) // its name means another one by now
		return "", nil
	}
	if mark, err = k.r.seed(ctx, e, session, dir, driver.Source{From: w.snap}); err == nil {
		return mark, nil
	}
	if ctx.Err() != nil {
		return "", err
	}
	k.r.o.Log.Warn("what is warm of a server can't be used; it starts the ordinary way, and is warmed up again", "server", e.ID, "err", err)
	k.renew(w)
	return "", nil
}

// renew puts another one in the place of what does not fit any more.
func (k *stock) renew(w *warm) {
	k.mu.Lock()
	if k.warm[w.e.ID] != w {
		k.mu.Unlock()
		return
	}
	next := k.newWarm(w.e)
	k.mu.Unlock()
	k.retireWarm(w)
	k.begin(next)
}

// retireWarm lets go of one that is not in the stock any more.
func (k *stock) retireWarm(w *warm) {
	k.retire(&w.spare)
	k.mu.Lock()
	stop := w.stop // build, where it sets it later, sees that it is retired
	k.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// A trial is an instance that belongs to no session.
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
