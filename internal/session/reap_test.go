package session_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

// Unused sessions end, with what they own; one that is used or watched does not.
// A principal's own stays with what it remembers, and only its servers end.
func TestIdleSessionsEnd(t *testing.T) {
	const yaml = "limits: {idle: 10m}\n" + kept
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, yaml)
		client := func() *session.Session {
			s, err := w.ForClient(t.Context(), "", nil)
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		idle, used, watched, busy, own := client(), client(), client(), client(), w.session("ada")
		for _, s := range w.Sessions() {
			set(t, s, "own", "it", "1")
			call(t, s, "all", "x")
		}
		defer watched.Watch(&ear{})()
		done := busy.InUse()
		for range 5 {
			time.Sleep(4 * time.Minute)
			used.Touch()
		}
		synctest.Wait()
		if w.Get(idle.ID) != nil || w.Get(used.ID) == nil || w.Get(watched.ID) == nil || w.Get(busy.ID) == nil || w.Get(own.ID) == nil {
			t.Errorf("idle %v, used %v, watched %v, busy %v, own %v", w.Get(idle.ID), w.Get(used.ID), w.Get(watched.ID), w.Get(busy.ID), w.Get(own.ID))
		}
		if since := time.Since(busy.Used()); since > time.Second {
			t.Errorf("a session in use was used %v ago", since)
		}
		done()
		time.Sleep(9 * time.Minute)
		used.Touch()
		synctest.Wait()
		if w.Get(busy.ID) == nil {
			t.Error("the idle time of a session did not begin with the end of its use")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if w.Get(busy.ID) != nil {
			t.Error("a session that is no longer in use was kept")
		}
		if got := w.m.running(); got != "all own own" {
			t.Errorf("%s runs", got)
		}
		wantDump(t, "a principal's own", own, "own", `{"it":"1"}`)
		stored, err := w.db.Sessions(t.Context())
		if err != nil || len(stored) != 3 {
			t.Errorf("stored %+v, %v", stored, err)
		}
		for _, s := range stored {
			if s.ID == used.ID && time.Since(s.Used) > 5*time.Minute {
				t.Errorf("the use of a session is recorded as of %v ago", time.Since(s.Used))
			}
		}
		// While no gateway runs they can't be used; then their time goes on.
		w.close(true)
		time.Sleep(time.Hour)
		w.open(yaml)
		if n := len(w.Sessions()); n != 3 {
			t.Errorf("%d sessions came back after an hour", n)
		}
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if n := len(w.Sessions()); n != 1 || w.Get(own.ID) == nil {
			t.Errorf("%d sessions are left", n)
		}
		w.runs("all")
		wantDump(t, "a principal's own", w.Get(own.ID), "own", `{"it":"1"}`)
	})
}

// The servers of an agent's session end while it is not used, unless something has a token
// of it. What they remember is there when they start again.
func TestWorldsRest(t *testing.T) {
	const yaml = "limits: {idle: 10m}\n" + kept
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, yaml)
		l := listed(t, yaml, "own")
		s, _, err := w.OpenAs(t.Context(), session.OpenOptions{ID: agentID, Owner: session.Owner{Name: "ada"}, List: &l, TTL: -1, Idle: -1})
		if err != nil {
			t.Fatal(err)
		}
		rec, _, err := w.MintToken(t.Context(), s, session.MintOptions{Run: "run_1"})
		if err != nil {
			t.Fatal(err)
		}
		set(t, s, "own", "it", "1")
		time.Sleep(time.Hour)
		synctest.Wait()
		w.runs("own")
		if _, err := w.RevokeTokens(t.Context(), s, func(m store.SessionToken) bool { return m.ID == rec.ID }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		w.runs("")
		if w.Get(s.ID) == nil {
			t.Error("the session was closed")
		}
		wantDump(t, "the session", s, "own", `{"it":"1"}`)
	})
}

// A session ends when its time to live is over, with its servers, and not with the next
// tick of the reaper; also where that time was changed, or a gateway came in between.
func TestTimeToLiveEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, forgetful)
		ids := make(map[string]bool)
		open := func(ttl time.Duration) *session.Session {
			s := w.opened(session.OpenOptions{TTL: ttl})
			callIn(t, s, "noted", "x")
			ids[s.ID] = true
			return s
		}
		left := func(at time.Duration, want int) {
			t.Helper()
			time.Sleep(at)
			synctest.Wait()
			n := 0
			for id := range ids {
				if w.Get(id) != nil {
					n++
				}
			}
			if runs := len(strings.Fields(w.m.running())); n != want || runs != want {
				t.Errorf("%d sessions and %d servers are left, want %d", n, runs, want)
			}
		}
		open(1300 * time.Millisecond)
		shorter, longer, kept := open(time.Hour), open(3*time.Second), open(11*time.Second)
		more, less, none := 11*time.Second, 2500*time.Millisecond, time.Duration(-1)
		for s, ttl := range map[*session.Session]*time.Duration{shorter: &less, longer: &more, kept: &none} {
			if err := w.Amend(t.Context(), s, nil, ttl, nil); err != nil {
				t.Fatal(err)
			}
		}
		left(1300*time.Millisecond-1, 4)
		left(1, 3)
		left(1200*time.Millisecond-1, 3)
		left(1, 2)
		w.close(true)
		w.open(forgetful)
		left(8500*time.Millisecond-1, 2)
		left(1, 1)
	})
}

// A session takes no calls after its time to live, also where it is not closed yet.
func TestCallsAfterTheTimeToLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, forgetful)
		s := w.opened(session.OpenOptions{TTL: 13 * time.Second})
		time.Sleep(13*time.Second - time.Nanosecond)
		testkit.Has(t, "a call in time", callIn(t, s, "mem", "x"), `{"pid":`)
		time.Sleep(time.Nanosecond)
		for _, id := range []string{"mem", "plain", "all"} {
			testkit.Has(t, "a call of "+id+" after it", callIn(t, s, id, "x"), "lost: ", s.ID, "its time to live was over")
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if w.Get(s.ID) != nil {
			t.Error("the session was not closed")
		}
	})
}
