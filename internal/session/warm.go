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
)

// A server with warm: N is started once, as if for a new session, and frozen when
// it answers. New sessions begin with that instead of with nothing, and N copies
// of it stand ready. It lasts as long as the server is the same, and not longer
// than the gateway.

// warmPrefix begins the names of its folders, which belong to no session and to no
// snapshot that lasts: what a gateway leaves of them the next one removes.
const warmPrefix = "warm_"

// A warm is what there is of one server. The registry's lock guards it.
type warm struct {
	e    *catalog.Entry
	key  string
	dir  string
	snap *driver.Snapshot // nil until it is made
	from string           // the snapshot that its template was; empty for none
	// granted is how many stand ready, and held what they hold of the budget.
	granted int
	held    int64
	refused bool // its driver can't have any ready
	users   int  // states being made from it, and who makes it
	gone    bool
	stop    context.CancelFunc
}

// warms reports whether instances of the server are kept ready for new sessions,
// and why not where they were to be.
func warms(e *catalog.Entry) (yes bool, why string) {
	on, _ := e.On()
	switch {
	case e.Warm <= 0 || !on || !e.Own() || e.WarmKey() == "":
		return false, ""
	case e.Preparer() == nil || e.Keeper() == nil:
		return false, fmt.Sprintf("driver %q has nothing ready", e.Driver)
	case e.Keeper().Carries(e.Spec()) != driver.CarryMemory:
		return false, "its memory can't be carried"
	}
	return true, ""
}

// warmUp has what the servers of a catalog want ready made, and lets go of the
// rest. It waits for nothing.
func (r *Registry) warmUp(c *catalog.Catalog) {
	wanted := make(map[string]*catalog.Entry)
	for _, e := range c.Entries {
		yes, why := warms(e)
		if yes {
			wanted[e.ID] = e
		}
		if why != "" {
			r.o.Log.Warn("server is not kept warm", "server", e.ID, "because", why, "mend", "remove servers."+e.ID+".warm")
		}
	}
	var made, stay, over []*warm
	r.mu.Lock()
	for id, w := range r.warm {
		if e := wanted[id]; e != nil && e.WarmKey() == w.key {
			w.e = e
			w.users++
			stay = append(stay, w)
			continue
		}
		delete(r.warm, id)
		over = append(over, w)
	}
	for id, e := range wanted {
		if r.warm[id] == nil && !r.closed {
			made = append(made, r.newWarm(e))
		}
	}
	r.mu.Unlock()
	for _, w := range over {
		r.retireWarm(w)
	}
	for _, w := range stay {
		r.grant(w, true)
		r.coolDown(w)
	}
	for _, w := range made {
		if !r.background(func() { r.heat(w) }) {
			r.coolDown(w)
		}
	}
}

// newWarm begins one. r.mu is held, and whoever makes it is its first user.
func (r *Registry) newWarm(e *catalog.Entry) *warm {
	w := &warm{e: e, key: e.WarmKey(), users: 1}
	r.warm[e.ID] = w
	return w
}

// heat makes what is to be ready, trying again with growing pauses.
func (r *Registry) heat(w *warm) {
	defer r.coolDown(w)
	ctx, stop := context.WithCancel(r.life)
	defer stop()
	r.mu.Lock()
	w.stop = stop
	gone := w.gone
	r.mu.Unlock()
	if gone {
		return
	}
	pause := backoff.NewExponentialBackOff()
	pause.InitialInterval, pause.MaxInterval = time.Second, 5*time.Minute
	for first := true; ; first = false {
		select {
		case r.warming <- struct{}{}:
		case <-ctx.Done():
			return
		}
		err := r.makeWarm(ctx, w)
		<-r.warming
		if err == nil {
			r.grant(w, true)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if first {
			r.o.Log.Warn("server is not warm yet; sessions start it the ordinary way, and it is tried again", "server", w.e.ID, "err", err)
		} else {
			r.o.Log.Debug("server is not warm yet", "server", w.e.ID, "err", err)
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
func (r *Registry) makeWarm(ctx context.Context, w *warm) (err error) {
	r.mu.Lock()
	e := w.e
	r.mu.Unlock()
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
	if err == nil { // who begins with it must not find out that it does not work
		err = r.trial(ctx, e, filepath.Join(home, e.ID), driver.Source{From: &snap}, func(*trial) error { return nil })
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
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

// seedWarm makes a state from what is warm of its server and returns its mark; none
// where nothing is.
func (r *Registry) seedWarm(ctx context.Context, e *catalog.Entry, session, dir string) (mark string, err error) {
	r.mu.Lock()
	w := r.warm[e.Base()]
	if w == nil || w.snap == nil || !e.Own() || e.WarmKey() != w.key {
		r.mu.Unlock()
		return "", nil
	}
	w.users++
	r.mu.Unlock()
	defer r.coolDown(w)
	if r.templateID(e) != w.from {
		r.renewWarm(w) // its name means another one by now
		return "", nil
	}
	if mark, err = r.seed(ctx, e, session, dir, driver.Source{From: w.snap}); err == nil {
		return mark, nil
	}
	if ctx.Err() != nil {
		return "", err
	}
	r.o.Log.Warn("what is warm of a server can't be used; it starts the ordinary way, and is warmed up again", "server", e.ID, "err", err)
	r.renewWarm(w)
	return "", nil
}

// renewWarm puts another one in the place of what does not fit any more.
func (r *Registry) renewWarm(w *warm) {
	r.mu.Lock()
	if w.gone || r.closed || r.warm[w.e.ID] != w {
		r.mu.Unlock()
		return
	}
	next := r.newWarm(w.e)
	r.mu.Unlock()
	r.retireWarm(w)
	if !r.background(func() { r.heat(next) }) {
		r.coolDown(next)
	}
}

// retireWarm lets go of one that is not the registry's any more.
func (r *Registry) retireWarm(w *warm) {
	r.mu.Lock()
	w.gone = true
	if w.stop != nil {
		w.stop()
	}
	w.users++
	r.mu.Unlock()
	r.coolDown(w)
}

// coolDown ends a use; the last one of what is gone removes it.
func (r *Registry) coolDown(w *warm) {
	r.mu.Lock()
	w.users--
	last := w.users == 0 && w.gone
	r.mu.Unlock()
	if last {
		r.discardWarm(w)
	}
}

func (r *Registry) discardWarm(w *warm) {
	r.budget.releaseAhead(need{memory: w.held})
	w.granted, w.held = 0, 0
	if w.snap != nil {
		r.discardReady(w.e, *w.snap, w.dir)
	}
}

// dropWarm removes all of them: nobody is left who could use them.
func (r *Registry) dropWarm() {
	r.mu.Lock()
	all := r.warm
	r.warm = make(map[string]*warm)
	r.mu.Unlock()
	for _, w := range all {
		r.retireWarm(w)
	}
}
