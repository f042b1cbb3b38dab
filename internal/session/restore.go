package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/session/catalog"
	"github.com/tine-mcp/tine/internal/store"
)

// restore brings back what an earlier gateway left. Sessions come back as they
// were. An instance is adopted where its session is still there and its server
// is still configured the same way; every other one is ended, recorded or not.
func (r *Registry) restore(ctx context.Context) error {
	if err := os.MkdirAll(r.o.Dir, 0o700); err != nil {
		return fmt.Errorf("making the folder for instances: %w", err)
	}
	if err := r.reconcile(ctx); err != nil {
		return err
	}
	sessions, err := r.o.Shared.Sessions(ctx)
	if err != nil {
		return err
	}
	if r.sharedStates, err = r.o.Local.SharedStates(ctx); err != nil {
		return err
	}
	unanswered, err := r.unanswered(ctx)
	if err != nil {
		return err
	}
	if err := r.restoreLeases(ctx); err != nil {
		return err
	}
	for _, rec := range sessions {
		if err := r.restoreSession(ctx, rec, unanswered); err != nil {
			return err
		}
	}
	if err := r.restoreMinted(ctx); err != nil {
		return err
	}
	if err := r.unmark(ctx); err != nil {
		return err
	}
	r.loseCalled()
	if err := r.restoreSnapshots(ctx, unanswered); err != nil {
		return err
	}
	if err := r.o.Shared.DropCatalogs(ctx); err != nil {
		return err
	}
	handles, err := r.handles(ctx)
	if err != nil {
		return err
	}
	known := make(map[string]bool)
	var stay, leave []store.Handle
	for _, h := range handles {
		if r.wanted(h) {
			known[h.Dir] = true
			stay = append(stay, h)
		} else {
			leave = append(leave, h)
		}
	}
	err = joined(atMost(parallel, len(leave), func(i int) error {
		h := leave[i]
		kept, err := r.endInstance(ctx, h, r.fitting(h) != nil || r.leftFits(h))
		if err != nil {
			r.o.Log.Warn("instance of an earlier gateway not ended", "server", h.Server, "err", err)
			return nil
		}
		if !kept {
			r.loseHandle(h)
		}
		return r.dropHandle(ctx, h.Key)
	}))
	if err != nil {
		return err
	}
	for name, d := range r.o.Drivers {
		sw, ok := d.(driver.Sweeper)
		if !ok {
			continue
		}
		gone, err := sw.Sweep(ctx, r.o.Dir, known)
		if err != nil {
			return fmt.Errorf("sweeping leftovers of driver %s: %w", name, err)
		}
		if len(gone) > 0 {
			r.o.Log.Info("ended what an earlier gateway left", "driver", name, "instances", len(gone))
		}
	}
	// Nothing that is to go writes any more.
	if err := r.restoreStates(ctx); err != nil {
		return err
	}
	for _, h := range stay {
		if user, e := r.jointEntry(h); e != nil {
			r.joints[jointKey(h.Session, h.Server)].up = r.newUpstream(e, owned{origin: h.Session, user: user}, &h)
			continue
		}
		if h.Session == "" {
			e := r.Catalog().Entry(h.Server)
			r.shared[e.ID] = &part{up: r.newUpstream(e, owned{}, &h)}
			continue
		}
		s := r.sessions[h.Session]
		e := s.Catalog().Entry(h.Server)
		s.parts[e.ID] = &part{up: r.newUpstream(e, owned{s: s}, &h), inline: e.Inline}
	}
	return nil
}

// restoreSession brings one session back, unless its time is over.
func (r *Registry) restoreSession(ctx context.Context, rec store.Session, unanswered map[string]bool) error {
	f, err := factsOf(rec)
	if err != nil {
		return err
	}
	if f.Creation != "" && unanswered[f.Creation] { // its request was not answered
		if err := recordOfSession(r.o.States, rec.ID).markRemoved(); err != nil {
			return fmt.Errorf("session %s: %w", rec.ID, err)
		}
		r.o.Log.Info("a session is removed: the request that opened it was not answered", "session", rec.ID)
		return r.o.Shared.DeleteSession(ctx, rec.ID)
	}
	r.restoreLease(rec, f.Lease)
	s := r.newSession(rec.ID, rec.Owner, rec.Kind, rec.Created, f)
	s.Parent, s.servers, s.memberOptions, s.token = rec.Parent, f.Servers, f.Members, rec.Token
	pin := rec.Catalog
	s.pin.Store(&pin)
	s.used.Store(rec.Used.UnixNano())
	s.recorded.Store(rec.Used.UnixNano())
	if _, err := os.Lstat(r.home(s.ID)); errors.Is(err, fs.ErrNotExist) && s.Kind == KindOpened {
		r.withoutFolder(rec)
		return nil
	}
	why := r.over(s, time.Now())
	if f.Held {
		why = whyHeld
	}
	if why == "" && rec.Catalog != "" {
		if _, err := r.catalogs.Unpin(ctx, rec.Catalog); errors.Is(err, catalog.ErrNotRecorded) {
			r.withoutServers(rec, err)
			return nil
		} else if err != nil {
			return fmt.Errorf("session %s: %w", s.ID, err)
		}
	}
	if why != "" {
		// No session has what is left of it, so it is removed.
		f.Reason = why
		f.Rev++ // as with every end
		if rec, err = s.record(f); err == nil {
			rec.Closed = time.Now().UTC()
			err = r.o.Shared.PutSessions(ctx, rec)
		}
		r.note(ctx, r.event(s.ID, eventClosed, eventData{Reason: why}))
		return err
	}
	r.sessions[s.ID] = s
	s.expireAt(f.Expires)
	switch s.Kind {
	case KindDefault:
		key := defaultKey(s.Owner, s.name)
		if other := r.defaults[key]; other == nil || other.Created.Before(s.Created) {
			r.defaults[key] = s
		}
	case KindOpened:
		r.tokens[s.token] = tokenHolder{s: s}
		r.opened++
		r.perOwner[s.Owner]++
	}
	for server, origin := range f.Shares {
		r.joint(origin, server, s.ID)
	}
	for _, l := range f.Left {
		for server, origin := range l.Shares {
			r.joint(origin, server, s.ID)
		}
	}
	return nil
}

// unanswered has the marks of requests that an earlier gateway did not answer.
func (r *Registry) unanswered(ctx context.Context) (map[string]bool, error) {
	all, err := r.o.Shared.Unanswered(ctx)
	marks := make(map[string]bool, len(all))
	for _, c := range all {
		marks[c.Mark()] = true
	}
	return marks, err
}

// restoreSnapshots reads the snapshots that last, and forgets those of closed
// sessions and those whose request was not answered.
func (r *Registry) restoreSnapshots(ctx context.Context, unanswered map[string]bool) error {
	all, err := r.o.Shared.Snapshots(ctx)
	if err != nil {
		return err
	}
	for _, rec := range all {
		snap := &snapshot{Snapshot: rec}
		var d snapshotData
		if err := json.Unmarshal(rec.Data, &d); err != nil {
			r.o.Log.Error("a snapshot is not served; its folder and its record stay as they are", "snapshot", rec.ID, "err", err)
			r.unsure = true
			continue
		}
		// A ring ends with its session.
		owner, over := r.sessions[rec.Session], false
		if rec.Auto && owner == nil {
			if over, err = r.isOver(ctx, rec.Session); err != nil {
				return err
			}
		}
		if d.Creation != "" && unanswered[d.Creation] {
			r.o.Log.Info("a snapshot is removed: the request that made it was not answered", "snapshot", rec.ID, "name", rec.Name)
		}
		if over || rec.Temporary || d.Creation != "" && unanswered[d.Creation] {
			if err := r.forgetSnapshot(ctx, rec); err != nil {
				return err
			}
			continue
		}
		if rec.Catalog != "" { // sees to it that the servers are known besides the store
			if _, err := r.catalogs.Unpin(ctx, rec.Catalog); err != nil {
				r.o.Log.Warn("the servers of a snapshot are not known", "catalog", rec.Catalog, "err", err)
			}
		}
		d.moveTo(filepath.Join(r.snapshotHome(), rec.ID))
		snap.frozen, snap.Labels, snap.sumOf = d.frozen, d.Labels, d.Sum
		r.snapshots[rec.ID] = snap
		if rec.Auto && owner != nil {
			owner.auto.ids = append(owner.auto.ids, rec.ID)
		}
	}
	for _, s := range r.sessions {
		slices.SortFunc(s.auto.ids, func(a, b string) int {
			return r.snapshots[a].Created.Compare(r.snapshots[b].Created)
		})
	}
	return nil
}

// jointEntry finds the server of a handle that several sessions use, and one of them:
// the origin, while it is open.
func (r *Registry) jointEntry(h store.Handle) (*Session, *catalog.Entry) {
	l := r.joints[jointKey(h.Session, h.Server)]
	if l == nil {
		return nil, nil
	}
	users := slices.Sorted(maps.Keys(l.users))
	for _, id := range append([]string{h.Session}, users...) {
		if s := r.sessions[id]; s != nil && l.users[id] {
			if e := s.Catalog().Entry(h.Server); e != nil {
				return s, e
			}
		}
	}
	return nil, nil
}

// wanted reports whether a recorded instance is to be adopted.
func (r *Registry) wanted(h store.Handle) bool {
	e := r.fitting(h)
	if e == nil {
		return false
	}
	on, _ := e.On()
	return on
}

// fitting returns the server of a recorded instance that a session has as it
// was started; nil where none does.
func (r *Registry) fitting(h store.Handle) *catalog.Entry {
	var e *catalog.Entry
	s := r.sessions[h.Session]
	_, together := r.jointEntry(h)
	switch {
	case together != nil:
		e = together
	case s != nil:
		e = s.Catalog().Entry(h.Server)
	default:
		e = r.Catalog().Entry(h.Server)
	}
	if e == nil || e.Hash == "" || s.fits(e) != h.SpecHash || e.Driver != h.Driver || e.Runner == nil || len(h.Link) == 0 {
		return nil
	}
	switch {
	case h.Session == "" && (!e.Shares() || r.shared[e.ID] != nil):
		return nil
	case h.Session != "" && together == nil && (s == nil || e.Shares()):
		return nil
	}
	return e
}

// endInstance ends a recorded instance; with rest it may be wanted again, when
// its server is switched on. It reports whether what it had in memory is kept.
func (r *Registry) endInstance(ctx context.Context, h store.Handle, suspend bool) (kept bool, err error) {
	d := r.o.Drivers[h.Driver]
	if d == nil {
		return false, fmt.Errorf("there is no driver %q here", h.Driver)
	}
	server, _ := catalog.SplitMember(h.Server)
	inst, err := d.Adopt(ctx, driver.Handle{Driver: h.Driver, Server: server, Session: h.Session, Dir: h.Dir, Data: h.Data}, r.o.Log)
	if errors.Is(err, driver.ErrGone) {
		return errors.Is(err, driver.ErrKept), nil
	}
	if err != nil {
		return false, err
	}
	if suspender, ok := inst.(driver.Suspender); ok && suspend {
		err := suspender.Suspend(ctx, h.Link)
		if err == nil {
			return true, nil
		}
		r.o.Log.Warn("what a server had in memory is lost: it is switched off, and its memory could not be kept", "server", h.Server, "session", h.Session, "err", err)
	}
	return false, inst.Stop(ctx)
}

// idleOf is how long a session may be unused; zero for as long as it likes.
func (r *Registry) idleOf(s *Session, f *facts) time.Duration {
	cfg := r.Catalog().Config
	switch {
	case f.Idle < 0:
		return 0
	case f.Idle > 0:
		return f.Idle
	case s.Kind == KindOpened:
		return cfg.Sessions.Idle
	case s.Kind == KindDefault:
		return 0 // what a principal's own session remembers is not for the reaper
	}
	return cfg.Limits.Idle
}

// over tells why the time of a session is over; empty when it is not.
func (r *Registry) over(s *Session, now time.Time) string {
	f := s.known()
	if !f.Expires.IsZero() && !now.Before(f.Expires) {
		return whyExpired
	}
	if idle := r.idleOf(s, &f); idle > 0 && r.unused(s, now) > idle {
		return fmt.Sprintf("it was not used for %s", idle)
	}
	return ""
}

// unused is for how long a session was not used. Time without a gateway does
// not count: it could not be used.
func (r *Registry) unused(s *Session, now time.Time) time.Duration {
	if s.watched() || s.gate.calls() > 0 {
		return 0
	}
	since := s.Used()
	if r.started.After(since) {
		since = r.started
	}
	return now.Sub(since)
}

// suspend ends the instances of an unused session. It remembers what it can, and they
// start again when they are needed.
func (r *Registry) suspend(s *Session) {
	all := make(map[string]bool)
	for _, e := range s.members() {
		all[e.ID] = true
	}
	for _, p := range s.retire(all) {
		p.up.Suspend(context.WithoutCancel(r.life), whyIdle)
		close(p.ended)
	}
}

// forget drops what is kept of sessions that ended so long ago that the journal
// has nothing of them either.
func (r *Registry) forget(ctx context.Context) {
	cfg := r.Catalog().Config
	age := cfg.Journal.MaxAge
	if age <= 0 {
		return // the journal keeps everything
	}
	ids, err := r.o.Shared.DropSessions(ctx, time.Now().Add(-age))
	if err != nil && ctx.Err() == nil {
		r.o.Log.Warn("old sessions not forgotten", "err", err)
	}
	if j := r.o.Record.Journal; j != nil {
		j.Forget(ids...)
	}
	if len(ids) == 0 {
		return
	}
	if err := r.o.Shared.DropToolLists(ctx); err != nil && ctx.Err() == nil {
		r.o.Log.Warn("old lists of tools not forgotten", "err", err)
	}
}

// running reports whether the session has parts of its own that may run.
func (s *Session) running() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.parts {
		if s.owns(p) {
			return true
		}
	}
	return false
}

func (s *Session) watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers) > 0
}

func (r *Registry) touch(ctx context.Context) {
	used := make(map[string]time.Time)
	for _, s := range r.Sessions() {
		if at := s.used.Load(); s.recorded.Swap(at) != at {
			used[s.ID] = time.Unix(0, at)
		}
	}
	if len(used) == 0 {
		return
	}
	if err := r.o.Shared.TouchSessions(context.WithoutCancel(ctx), used); err != nil {
		r.o.Log.Warn("use of sessions not recorded", "err", err)
	}
}
