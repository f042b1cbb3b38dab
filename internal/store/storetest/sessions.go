package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func testSessions(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	a := store.Session{
		ID: "ses_a", Owner: "ann", Kind: "opened", Created: day, Used: day.Add(time.Second),
		Parent: "ses_b", Token: "ab12", Catalog: "cat", Data: json.RawMessage(`{"labels": {"x":"y"}}`),
	}
	b := store.Session{ID: "ses_b", Owner: "bob"}
	must(t, s.PutSessions(ctx))
	must(t, s.PutSessions(ctx, b, store.Session{ID: "ses_a", Owner: "old", Token: "old", Parent: "old", Data: json.RawMessage(`1`)}))
	must(t, s.PutEvents(ctx, store.Event{Session: "ses_a"}))
	must(t, s.PutSessions(ctx, a))
	if n := len(got(s.Events(ctx, "ses_a"))); n != 1 {
		t.Errorf("a session that was written again has %d events, want 1", n)
	}
	must(t, s.PutSessions(ctx, store.Session{ID: "ses_c"}))
	must(t, s.PutEvents(ctx, store.Event{Session: "ses_c"}))
	must(t, s.DeleteSession(ctx, "ses_c"))
	must(t, s.DeleteSession(ctx, "ses_c"))
	s = reopen()
	same(t, got(s.Sessions(ctx)), []store.Session{a, b})
	same(t, got(s.Events(ctx, "ses_c")), nil)
	one, ok, err := s.Session(ctx, "ses_a")
	must(t, err)
	if !ok {
		t.Error("a session is not found")
	}
	same(t, []store.Session{one}, []store.Session{a})
	if one, ok, err := s.Session(ctx, "ses_c"); ok || err != nil {
		t.Errorf("a session that was deleted: %v, %v, %v", one, ok, err)
	}

	must(t, s.TouchSessions(ctx, nil))
	must(t, s.TouchSessions(ctx, map[string]time.Time{
		"ses_a": day.Add(-time.Hour), // never back
		"ses_b": day.Add(time.Minute),
		"ses_c": day, // not there, and does not come to be
	}))
	b.Used, a.Token = day.Add(time.Minute), "cd34"
	must(t, s.PutSessions(ctx, a))
	s = reopen()
	same(t, got(s.Sessions(ctx)), []store.Session{a, b})
}

func testAllOrNone(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	before := store.Session{ID: "ses_0", Owner: "ann"}
	must(t, s.PutSessions(ctx, before))
	must(t, s.PutEvents(ctx, store.Event{Session: "ses_0", Kind: "opened"}))
	for _, bad := range []int{0, 1, 50, 99} {
		var all []store.Session
		for i := range 100 {
			all = append(all, store.Session{ID: fmt.Sprintf("ses_%d", i), Owner: "bob"})
		}
		all[bad].ID = ""
		if err := s.PutSessions(ctx, all...); err == nil {
			t.Errorf("100 sessions of which number %d has no id were written", bad)
		}
		var events []store.Event
		for range 100 {
			events = append(events, store.Event{Session: "ses_0"})
		}
		events[bad].Session = ""
		if err := s.PutEvents(ctx, events...); err == nil {
			t.Errorf("100 events of which number %d has no session were written", bad)
		}
	}
	s = reopen()
	same(t, got(s.Sessions(ctx)), []store.Session{before})
	if n := len(got(s.Events(ctx, "ses_0"))); n != 1 {
		t.Errorf("%d events, want 1", n)
	}
}

func testFindSessions(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	var all []store.Session
	for i := range 500 {
		x := store.Session{
			ID: fmt.Sprintf("ses_%03d", i*7919%500), Owner: []string{"", "ann", "bob"}[i%3],
			Created: day.Add(time.Duration(i/5) * time.Minute), // five of each moment
		}
		if i%4 == 1 {
			x.Closed = day.Add(time.Duration(i) * time.Hour)
		}
		if i%6 > 2 {
			x.Parent = []string{"ses_001", "ses_002"}[i%2]
		}
		all = append(all, x)
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	must(t, s.PutSessions(ctx, all...))
	s = reopen()
	nobody, ann, none := "", "ann", "none"
	for _, f := range []store.SessionFilter{
		{},
		{Closed: true},
		{Limit: 7},
		{Limit: -1},
		{Limit: 10000},
		{Limit: 10000, Closed: true},
		{Owner: &ann, Limit: 10000},
		{Owner: &nobody, Closed: true},
		{Owner: &none},
		{Parent: "ses_001"},
		{Parent: "ses_001", Closed: true, Limit: 10000},
		{Parent: "ses_002", Owner: &ann, Limit: 3},
		{Parent: "'"},
		{Before: "ses_001", Limit: 10000},
		{Before: "ses_002", Closed: true},
		{Before: "ses_003", Owner: &ann, Parent: "ses_001", Closed: true, Limit: 10000},
	} {
		t.Run(show(f), func(t *testing.T) {
			same(t, got(s.FindSessions(ctx, f)), found(all, f))
		})
	}
	// Page by page it is the same list, even if sessions begin or end meanwhile.
	for _, f := range []store.SessionFilter{{Limit: 1}, {Limit: 7, Closed: true}, {Limit: 13, Owner: &ann}} {
		whole := f
		whole.Limit = 10000
		want, pages := found(all, whole), []store.Session(nil)
		for {
			page := got(s.FindSessions(ctx, f))
			pages = append(pages, page...)
			if len(page) < f.Limit {
				break
			}
			f.Before = page[len(page)-1].ID
			fresh := store.Session{ID: fmt.Sprintf("new_%d", len(all)), Owner: "ann", Created: day.Add(time.Duration(len(all)) * time.Hour)}
			must(t, s.PutSessions(ctx, fresh))
			all = append(all, fresh)
		}
		same(t, pages, want)
	}
	if _, err := s.FindSessions(ctx, store.SessionFilter{Before: "none"}); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("what comes after a session that is none: %v", err)
	}
	// One that is closed is still a place in the list.
	for _, x := range all {
		if x.ID == "new_501" {
			x.Closed = day
			must(t, s.PutSessions(ctx, x))
		}
	}
	if all := got(s.FindSessions(ctx, store.SessionFilter{Before: "new_501", Limit: 1})); len(all) != 1 || all[0].ID != "new_500" {
		t.Errorf("after new_501 comes %v", all)
	}
}

// found is a plain implementation of a filter.
func found(all []store.Session, f store.SessionFilter) []store.Session {
	all = slices.SortedFunc(slices.Values(all), func(a, b store.Session) int {
		return cmp.Or(b.Created.Compare(a.Created), cmp.Compare(a.ID, b.ID))
	})
	if f.Limit <= 0 {
		f.Limit = 100
	}
	var out []store.Session
	after := f.Before == ""
	for _, x := range all {
		switch {
		case !after || len(out) == f.Limit,
			!f.Closed && !x.Closed.IsZero(),
			f.Owner != nil && x.Owner != *f.Owner,
			f.Parent != "" && x.Parent != f.Parent:
		default:
			out = append(out, x)
		}
		after = after || x.ID == f.Before
	}
	return out
}

func testManySessions(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	const many = 10000
	var all, closed []store.Session
	var ids []string
	for i := range many {
		x := store.Session{ID: fmt.Sprintf("ses_%05d", i), Owner: "ann", Created: day.Add(time.Duration(i)), Data: json.RawMessage(`{}`)}
		if i > 0 {
			x.Parent = all[i-1].ID // one line, as deep as they are many
		}
		all, ids = append(all, x), append(ids, x.ID)
		x.Closed = day
		closed = append(closed, x)
	}
	for part := range slices.Chunk(all, 1000) {
		must(t, s.PutSessions(ctx, part...))
	}
	s = reopen()
	same(t, got(s.Sessions(ctx)), all)
	same(t, got(s.FindSessions(ctx, store.SessionFilter{Before: all[5000].ID, Limit: 3})), []store.Session{all[4999], all[4998], all[4997]})
	must(t, s.PutSessions(ctx, closed[:many-1]...))
	if dropped := got(s.DropSessions(ctx, day.Add(1))); len(dropped) != 0 {
		t.Errorf("%d ancestors of an open session were dropped", len(dropped))
	}
	same(t, got(s.Sessions(ctx)), all[many-1:])
	must(t, s.PutSessions(ctx, closed...))
	same(t, got(s.DropSessions(ctx, day.Add(1))), ids)
	s = reopen()
	same(t, got(s.FindSessions(ctx, store.SessionFilter{Closed: true})), nil)
}
