package storetest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func testClosedSessions(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	a := store.Session{ID: "ses_a", Created: day, Token: "t", Data: json.RawMessage(`1`)}
	b := store.Session{ID: "ses_b", Created: day}
	c := store.Session{ID: "ses_c", Created: day}
	must(t, s.PutSessions(ctx, a, b, c))
	must(t, s.PutEvents(ctx, store.Event{Session: "ses_a", Kind: "opened"}))
	a.Closed, b.Closed = day.Add(time.Hour), day.Add(2*time.Hour)
	a.Data = json.RawMessage(`2`)
	must(t, s.PutSessions(ctx, a))
	must(t, s.PutSessions(ctx, b))
	must(t, s.TouchSessions(ctx, map[string]time.Time{"ses_b": day}))
	b.Used = day
	s = reopen()
	same(t, got(s.Sessions(ctx)), []store.Session{c})
	same(t, got(s.FindSessions(ctx, store.SessionFilter{Closed: true})), []store.Session{a, b, c})
	if one, ok, err := s.Session(ctx, "ses_a"); !ok || err != nil {
		t.Errorf("a closed session is not found: %v, %v", ok, err)
	} else {
		same(t, []store.Session{one}, []store.Session{a})
	}
	if n := len(got(s.Events(ctx, "ses_a"))); n != 1 {
		t.Errorf("a closed session has %d events, want 1", n)
	}
}

func testDropSessions(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	hour := func(n int) time.Time { return day.Add(time.Duration(n) * time.Hour) }
	// Each closed at an hour; 0 for those that are open.
	for _, x := range []struct {
		id, parent string
		closed     int
	}{
		{"root", "", 1},
		{"middle", "root", 1},
		{"open", "middle", 0},
		{"aunt", "root", 1},
		{"cousin", "aunt", 2},

		{"old", "", 1},
		{"older", "old", 1},
		{"late", "older", 5},

		{"gone", "", 1},
		{"gone child", "gone", 1},
		{"orphan", "never there", 1},
		{"ouroboros", "ouroboros", 1},
		{"edge", "", 3},
		{"alone", "", 0},
	} {
		rec := store.Session{ID: x.id, Parent: x.parent, Created: day}
		if x.closed > 0 {
			rec.Closed = hour(x.closed)
		}
		must(t, s.PutSessions(ctx, rec))
		must(t, s.PutEvents(ctx, store.Event{Session: x.id}, store.Event{Session: x.id}))
	}
	check := func(before time.Time, dropped ...string) {
		t.Helper()
		same(t, got(s.DropSessions(ctx, before)), dropped)
		s = reopen()
		for _, id := range dropped {
			if _, ok, err := s.Session(ctx, id); ok || err != nil {
				t.Errorf("%s was dropped and is there (%v)", id, err)
			}
			if n := len(got(s.Events(ctx, id))); n != 0 {
				t.Errorf("%s was dropped and has %d events", id, n)
			}
		}
	}
	check(hour(1))
	check(time.Time{})
	check(hour(3), "aunt", "cousin", "gone", "gone child", "orphan", "ouroboros")
	check(hour(3))
	for _, id := range []string{"root", "middle", "old", "older", "late", "edge"} {
		if n := len(got(s.Events(ctx, id))); n != 2 {
			t.Errorf("%s stays and has %d events, want 2", id, n)
		}
	}
	must(t, s.PutSessions(ctx, store.Session{ID: "open", Parent: "middle", Created: day, Closed: hour(6)}))
	check(hour(6), "edge", "late", "old", "older")
	check(hour(7), "middle", "open", "root")
	same(t, got(s.FindSessions(ctx, store.SessionFilter{Closed: true})), []store.Session{{ID: "alone", Created: day}})
}
