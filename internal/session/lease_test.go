package session_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

func (w *world) leased(owner string, ttl time.Duration) api.Lease {
	w.t.Helper()
	l, err := w.NewLease(w.t.Context(), owner, ttl, map[string]string{"run": "7"})
	if err != nil {
		w.t.Fatal(failure(err))
	}
	return l
}

// closedBecause waits until a session is closed and returns why.
func (w *world) closedBecause(id string) string {
	w.t.Helper()
	var was api.Session
	testkit.Eventually(w.t, "session "+id+" is closed", func() bool {
		s, ok, err := w.Closed(context.Background(), id)
		was = s
		return err == nil && ok
	})
	return was.Reason
}

// When a lease runs out its sessions and their forks are closed, and no others.
func TestLeaseRunsOut(t *testing.T) {
	w := recording(t, kept)
	l := w.leased("", time.Second)
	s := w.opened(session.OpenOptions{Lease: l.ID})
	set(t, s, "own", "it", "s1")
	child := w.fork(s, 2)[1]
	grand := w.fork(child, 1)[0]
	other, free := w.opened(session.OpenOptions{Lease: w.leased("", time.Hour).ID}), w.opened(session.OpenOptions{})
	if got := w.Describe(grand, false); got.Lease != l.ID {
		t.Errorf("a fork is %+v", got)
	}
	if all := w.Leases(); len(all) != 2 || all[0].ID != l.ID || all[0].Sessions != 4 || all[0].Labels["run"] != "7" || all[0].TTL != "1s" || all[1].Sessions != 1 {
		t.Errorf("the leases are %+v", all)
	}
	for _, id := range []string{s.ID, child.ID, grand.ID} {
		if why := w.closedBecause(id); why != "lease" {
			t.Errorf("%s is closed because of %q", id, why)
		}
	}
	if w.Get(other.ID) == nil || w.Get(free.ID) == nil {
		t.Error("a session of another lease, or of none, is closed")
	}
	testkit.Eventually(t, "the lease is gone", func() bool { return len(w.Leases()) == 1 })
	if _, ok := w.RenewLease(l.ID); ok {
		t.Error("a lease that has run out is renewed")
	}
	if _, _, err := w.OpenSession(t.Context(), session.OpenOptions{Lease: l.ID}); asAPI(err) == nil || asAPI(err).Status != http.StatusNotFound {
		t.Errorf("a session under a lease that has run out: %v", failure(err))
	}
}

// A lease that is renewed keeps its sessions.
func TestLeaseIsRenewed(t *testing.T) {
	w := recording(t, kept)
	const ttl = 500 * time.Millisecond
	l := w.leased("", ttl)
	s := w.opened(session.OpenOptions{Lease: l.ID})
	for until := time.Now().Add(4 * ttl); time.Now().Before(until); {
		got, ok := w.RenewLease(l.ID)
		if !ok || got.Expires.Before(time.Now().Add(ttl/2)) || got.Sessions != 1 {
			t.Fatalf("renewed %+v, %v", got, ok)
		}
		time.Sleep(ttl / 10) // the time of the lease passes
	}
	if w.Get(s.ID) == nil {
		t.Error("its session is closed")
	}
	if why := w.closedBecause(s.ID); why != "lease" {
		t.Errorf("then it is closed because of %q", why)
	}
}

// After a restart, also by a kill, a lease has its whole time again, and so has one
// whose own record is missing.
func TestLeaseOutlivesTheGateway(t *testing.T) {
	w := recording(t, kept)
	l, lost, empty := w.leased("ann", time.Hour), w.leased("ann", time.Hour), w.leased("ann", time.Hour)
	s := w.opened(session.OpenOptions{Owner: session.Owner{Name: "ann"}, Lease: l.ID})
	of := w.opened(session.OpenOptions{Owner: session.Owner{Name: "ann"}, Lease: lost.ID})
	if err := w.db.DeleteLease(t.Context(), lost.ID); err != nil {
		t.Fatal(err)
	}
	for _, again := range []func(string){w.crash, w.reopen} {
		before := time.Now()
		again(kept)
		all := w.Leases()
		if len(all) != 3 || w.Get(s.ID) == nil || w.Get(of.ID) == nil {
			t.Fatalf("the leases are %+v", all)
		}
		for _, got := range all {
			if got.Owner != "ann" || got.TTL != "1h0m0s" || got.Expires.Before(before.Add(time.Hour)) || got.Sessions != 1 && got.ID != empty.ID || got.Labels["run"] != "7" && got.ID != lost.ID {
				t.Errorf("a lease is %+v", got)
			}
		}
	}
	for _, id := range []string{l.ID, lost.ID, empty.ID} {
		if err := w.EndLease(t.Context(), id, func(s *session.Session) error { return w.CloseSession(t.Context(), s) }); err != nil {
			t.Error(failure(err))
		}
	}
	w.crash(kept)
	if all := w.Leases(); len(all) != 0 || w.Get(s.ID) != nil || w.Get(of.ID) != nil {
		t.Errorf("after they were ended there are %+v", all)
	}
}

// A session that is being opened or forked while its lease ends is not left over.
func TestLeaseEndsMeanwhile(t *testing.T) {
	w := recording(t, kept)
	for range 10 {
		l := w.leased("", time.Hour)
		s := w.opened(session.OpenOptions{Lease: l.ID})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				_, _, err := w.OpenSession(context.Background(), session.OpenOptions{Lease: l.ID})
				if e := asAPI(err); err != nil && (e == nil || e.Status != http.StatusNotFound) {
					t.Errorf("opening: %v", failure(err))
				}
			})
			wg.Go(func() {
				if _, err := w.Fork(context.Background(), s, session.ForkOptions{Count: 2}); err != nil && asAPI(err) == nil {
					t.Errorf("forking: %v", failure(err))
				}
			})
		}
		if err := w.EndLease(t.Context(), l.ID, func(s *session.Session) error { return w.CloseSession(context.Background(), s) }); err != nil {
			t.Fatal(failure(err))
		}
		wg.Wait()
		if all := w.Sessions(); len(all) != 0 {
			t.Fatalf("%d sessions are left", len(all))
		}
	}
	if err := w.EndLease(t.Context(), "lse_nosuch", nil); asAPI(err) == nil || asAPI(err).Status != http.StatusNotFound {
		t.Errorf("a lease that is not there: %v", failure(err))
	}
}

// No principal opens sessions under another one's lease, and none has too many.
func TestLeaseBounds(t *testing.T) {
	w := recording(t, kept)
	l := w.leased("ann", time.Hour)
	if _, _, err := w.OpenSession(t.Context(), session.OpenOptions{Owner: session.Owner{Name: "bob"}, Lease: l.ID}); asAPI(err) == nil || asAPI(err).Status != http.StatusNotFound {
		t.Errorf("bob opens under ann's lease: %v", failure(err))
	}
	for range 999 {
		w.leased("ann", time.Hour)
	}
	if _, err := w.NewLease(t.Context(), "ann", time.Hour, nil); asAPI(err) == nil || asAPI(err).Kind != api.KindRefused {
		t.Errorf("one too many: %v", failure(err))
	}
	w.leased("bob", time.Hour)
}
