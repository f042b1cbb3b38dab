package session

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

// A lease keeps the sessions open that were opened under it, and their forks. Its owner
// renews it; when it runs out they are closed.
//
// That a lease was made is written down, and that it was renewed is not: after the
// gateway was away a lease has its whole time again. A session is recorded with its
// lease and the lease's time, so that a lease whose record is missing is there again
// with its first session, and ends as any other. Nothing ends because a record is
// missing.
type lease struct {
	ID      string
	Owner   string
	Labels  map[string]string
	TTL     time.Duration
	Created time.Time

	r *Registry

	// Guarded by Registry.mu.
	expires  time.Time
	timer    *time.Timer // nil before it is armed
	extended bool        // it ran out while the gateway was away, and had its time again
	over     bool
	overAt   time.Time
}

// leaseRef is what a session records of its lease.
type leaseRef struct {
	ID  string        `json:"id"`
	TTL time.Duration `json:"ttl"`
}

// leaseData is what a lease is recorded with besides.
type leaseData struct {
	Labels map[string]string `json:"labels,omitempty"`
}

const (
	// whyLease is why a session ends whose lease ran out.
	whyLease = "lease"
	// maxLeases is how many leases one principal may have, and allLeases all together.
	maxLeases = 1000
	allLeases = 10_000
	// leaseLate is how late the end of a lease may be noticed. If it is noticed later,
	// the gateway was away, and the lease could not be renewed.
	leaseLate = 2 * time.Second
)

func noLease(id string) error {
	return &api.Error{
		Kind: api.KindInvalid, Status: http.StatusNotFound,
		Message: fmt.Sprintf("there is no lease %s of yours; it may have run out: make another with POST /v1/leases, and renew it in time", clipped(id)),
	}
}

// NewLease makes a lease.
func (r *Registry) NewLease(ctx context.Context, owner string, ttl time.Duration, labels map[string]string) (api.Lease, error) {
	var b [6]byte
	_, _ = rand.Read(b[:])
	l := &lease{ID: "lse_" + hex.EncodeToString(b[:]), Owner: owner, Labels: labels, TTL: ttl, Created: time.Now().UTC(), r: r}
	r.mu.Lock()
	mine := 0
	for _, other := range r.leases {
		if other.Owner == owner {
			mine++
		}
	}
	all, closed := len(r.leases), r.closed
	if !closed && mine < maxLeases && all < allLeases {
		r.leases[l.ID] = l // not armed yet
	}
	r.mu.Unlock()
	switch {
	case closed:
		return api.Lease{}, errStopping
	case mine >= maxLeases:
		return api.Lease{}, quota(fmt.Sprintf("you have %d leases and may have %d; end some", mine, maxLeases))
	case all >= allLeases:
		return api.Lease{}, quota(fmt.Sprintf("there are %d leases and may be %d", all, allLeases))
	}
	data, err := json.Marshal(leaseData{labels})
	if err == nil {
		err = r.o.Shared.PutLease(context.WithoutCancel(ctx), store.Lease{ID: l.ID, Owner: owner, TTL: ttl, Created: l.Created, Data: data})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		delete(r.leases, l.ID)
		return api.Lease{}, fmt.Errorf("recording the lease: %w", err)
	}
	l.arm()
	return l.describe(0), nil
}

// arm gives a lease its whole time. r.mu is held.
func (l *lease) arm() {
	l.expires = time.Now().Add(l.TTL)
	if l.timer == nil {
		l.timer = time.AfterFunc(l.TTL, func() { l.r.background(l.runOut) })
		return
	}
	l.timer.Reset(l.TTL)
}

// runOut ends a lease whose time is over, and closes its sessions.
func (l *lease) runOut() {
	r := l.r
	r.mu.Lock()
	now := time.Now()
	switch {
	case l.over || now.Before(l.expires): // it was ended, or renewed just now
		r.mu.Unlock()
		return
	case now.Sub(l.expires) > leaseLate && !l.extended:
		l.extended = true
		l.arm()
		r.mu.Unlock()
		r.o.Log.Info("a lease that ran out while the gateway was away has its time again", "lease", l.ID)
		return
	}
	sessions := l.finish(now)
	r.mu.Unlock()
	r.o.Log.Info("a lease ran out", "lease", l.ID, "owner", l.Owner, "sessions", len(sessions))
	_ = l.closeAll(sessions, func(s *Session) error {
		select {
		case r.ends <- struct{}{}:
		case <-r.life.Done(): // the next gateway has them
			return nil
		}
		defer func() { <-r.ends }()
		r.closeOver(s, whyLease)
		return nil
	})
	if r.life.Err() == nil {
		l.forget(r.life)
	}
}

// finish ends a lease and returns its sessions; no other joins it. r.mu is held.
func (l *lease) finish(now time.Time) (sessions []*Session) {
	l.over, l.overAt = true, now
	if l.timer != nil {
		l.timer.Stop()
	}
	for _, s := range l.r.sessions {
		if s.lease == l {
			sessions = append(sessions, s)
		}
	}
	return sessions
}

func (l *lease) closeAll(sessions []*Session, end func(*Session) error) error {
	errs := make([]error, len(sessions))
	var wg sync.WaitGroup
	places := make(chan struct{}, parallel)
	for i, s := range sessions {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			errs[i] = end(s)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// forget removes the record of a lease that is over.
func (l *lease) forget(ctx context.Context) {
	if err := l.r.o.Shared.DeleteLease(ctx, l.ID); err != nil {
		l.r.o.Log.Warn("a lease that is over is still recorded; it runs out again after a restart", "lease", l.ID, "err", err)
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	delete(l.r.leases, l.ID)
}

// endedAt is when a lease ended; zero before, and of none.
func (l *lease) endedAt() time.Time {
	if l == nil {
		return time.Time{}
	}
	l.r.mu.Lock()
	defer l.r.mu.Unlock()
	if !l.over {
		return time.Time{}
	}
	return l.overAt
}

// RenewLease gives a lease its whole time again; ok is false when there is none.
func (r *Registry) RenewLease(id string) (_ api.Lease, ok bool) {
	counts := r.leaseCounts()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.leases[id]
	if l == nil || l.over || r.closed {
		return api.Lease{}, false
	}
	l.extended = false
	l.arm()
	return l.describe(counts[l]), true
}

// EndLease ends a lease and closes its sessions with end.
func (r *Registry) EndLease(ctx context.Context, id string, end func(*Session) error) error {
	r.mu.Lock()
	l := r.leases[id]
	if l == nil {
		r.mu.Unlock()
		return noLease(id)
	}
	sessions := l.finish(cmp.Or(l.overAt, time.Now()))
	r.mu.Unlock()
	if err := l.closeAll(sessions, end); err != nil {
		return err
	}
	l.forget(ctx)
	return nil
}

// LeaseOwner is whose a lease is; ok is false when there is none.
func (r *Registry) LeaseOwner(id string) (owner string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.leases[id]
	if l == nil || l.timer == nil {
		return "", false
	}
	return l.Owner, true
}

// Leases returns the leases, the oldest first.
func (r *Registry) Leases() []api.Lease {
	counts := r.leaseCounts()
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]api.Lease, 0, len(r.leases))
	for _, l := range r.leases {
		if !l.over && l.timer != nil {
			out = append(out, l.describe(counts[l]))
		}
	}
	slices.SortFunc(out, func(a, b api.Lease) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	return out
}

func (r *Registry) leaseCounts() map[*lease]int {
	counts := make(map[*lease]int)
	for _, s := range r.Sessions() {
		if s.lease != nil {
			counts[s.lease]++
		}
	}
	return counts
}

// describe is a lease as the API shows it. r.mu is held.
func (l *lease) describe(sessions int) api.Lease {
	return api.Lease{ID: l.ID, Owner: l.Owner, Labels: l.Labels, TTL: l.TTL.String(), Created: l.Created, Expires: l.expires.UTC(), Sessions: sessions}
}

// usableLease is what a session of an owner records of a lease; nothing of none.
func (r *Registry) usableLease(owner, id string) (leaseRef, error) {
	if id == "" {
		return leaseRef{}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.leases[id]
	if l == nil || l.over || l.timer == nil || l.Owner != owner {
		return leaseRef{}, noLease(id)
	}
	return leaseRef{l.ID, l.TTL}, nil
}

// leaseOf is the lease that a session is recorded with; nil for none. One that is gone
// is over.
func (r *Registry) leaseOf(ref leaseRef) *lease {
	if ref.ID == "" {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.leases[ref.ID]
	if l == nil {
		l = &lease{ID: ref.ID, TTL: ref.TTL, r: r, over: true, overAt: time.Now()}
	}
	return l
}

// restoreLeases brings the leases of an earlier gateway back. Their time begins when
// armLeases is called.
func (r *Registry) restoreLeases(ctx context.Context) error {
	all, err := r.o.Shared.Leases(ctx)
	if err != nil {
		return err
	}
	for _, rec := range all {
		var d leaseData
		_ = json.Unmarshal(rec.Data, &d) // labels are for people
		r.leases[rec.ID] = &lease{ID: rec.ID, Owner: rec.Owner, Labels: d.Labels, TTL: rec.TTL, Created: rec.Created, r: r}
	}
	return nil
}

// restoreLease brings the lease of a session back whose own record is missing: it may
// have been about to end.
func (r *Registry) restoreLease(rec store.Session, ref leaseRef) {
	if ref.ID != "" && r.leases[ref.ID] == nil {
		r.leases[ref.ID] = &lease{ID: ref.ID, Owner: rec.Owner, TTL: ref.TTL, Created: rec.Created, r: r}
	}
}

// armLeases begins the time of the leases that were brought back.
func (r *Registry) armLeases() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.leases {
		l.arm()
	}
}

// stopLeases ends the timers.
func (r *Registry) stopLeases() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.leases {
		if l.timer != nil {
			l.timer.Stop()
		}
	}
}
