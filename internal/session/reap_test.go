package session_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// Sessions that nobody uses end, with what they own; one that is used or
// watched does not.
func TestIdleSessionsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "limits: {idle: 10m}\n"+two)
		idle, used, watched := w.session("ada"), w.session("bob"), w.session("eve")
		for _, s := range w.Sessions() {
			call(t, s, "own", "x")
			call(t, s, "all", "x")
		}
		defer watched.Watch(&ear{})()
		for range 5 {
			time.Sleep(4 * time.Minute)
			used.Touch()
		}
		synctest.Wait()
		if w.Get(idle.ID) != nil || w.Get(used.ID) == nil || w.Get(watched.ID) == nil {
			t.Errorf("idle %v, used %v, watched %v", w.Get(idle.ID), w.Get(used.ID), w.Get(watched.ID))
		}
		if got := w.m.running(); got != "all own own" {
			t.Errorf("%s runs", got)
		}
		stored, err := w.db.Sessions(t.Context())
		if err != nil || len(stored) != 2 {
			t.Errorf("stored %+v, %v", stored, err)
		}
		for _, s := range stored {
			if s.ID == used.ID && time.Since(s.Used) > 5*time.Minute {
				t.Errorf("the use of a session is recorded as of %v ago", time.Since(s.Used))
			}
		}
		// What was idle too long while no gateway ran does not come back.
		w.close(true)
		time.Sleep(time.Hour)
		w.open("limits: {idle: 10m}\n" + two)
		if n := len(w.Sessions()); n != 0 {
			t.Errorf("%d sessions came back after an hour", n)
		}
		w.runs("all")
	})
}
