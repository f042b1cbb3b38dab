package storetest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func testEvents(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	must(t, s.PutEvents(ctx))
	same(t, got(s.Events(ctx, "ses_a")), nil)
	events := []store.Event{
		{Session: "ses_a", At: day, Kind: "opened", Call: 1 << 40, Data: json.RawMessage(`{"n": 12345678901234567890}`)},
		{Session: "ses_b", At: day, Kind: "opened"},
		{Session: "ses_a", At: day.Add(-time.Hour), Kind: "forked", Data: json.RawMessage{}},
	}
	must(t, s.PutEvents(ctx, events...))
	events[2].Data = nil
	last := []store.Event{{Session: "ses_a", Kind: "closed"}}
	s = reopen()
	must(t, s.PutEvents(ctx, last...))
	must(t, s.PutEvents(ctx, store.Event{Session: "ses_a", Run: "run_1", Kind: store.EventRun}))
	all := append(events, last...)
	for i := range all {
		if all[i].N <= 0 || i > 0 && all[i].N <= all[i-1].N {
			t.Errorf("the numbers do not grow: %s", show(all))
		}
	}
	same(t, got(s.Events(ctx, "ses_a")), []store.Event{all[0], all[2], all[3]})
	same(t, got(s.Events(ctx, "ses_b")), all[1:2])

	// A number is never given again.
	must(t, s.DeleteSession(ctx, "ses_a"))
	s = reopen()
	again := []store.Event{{Session: "ses_c"}}
	must(t, s.PutEvents(ctx, again...))
	if again[0].N <= last[0].N {
		t.Errorf("the number %d came after %d", again[0].N, last[0].N)
	}
}

func testFeed(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	ann, bob := "ann", "bob"
	same(t, got(s.Feed(ctx, store.FeedFilter{Owner: &ann})), store.FeedPage{})
	must(t, s.PutSessions(ctx, store.Session{ID: "ses_a", Owner: ann, Created: day}, store.Session{ID: "ses_b", Owner: bob, Created: day}))
	all := []store.Event{
		{Session: "ses_a", Kind: "opened", At: day.UTC(), Call: 3, Data: json.RawMessage(`{}`)},
		{Session: "ses_b", Kind: "opened"},
		{Session: "ses_later", Owner: ann, Run: "run_1", Kind: store.EventRun}, // its session is not open yet
		{Session: "ses_a", Run: "run_2", Kind: store.EventRun},
		{Session: "ses_a", Kind: "closed"},
		{Session: "ses_gone", Kind: "closed"},
		{Session: "ses_a", Run: "run_2", Kind: store.EventRun},
	}
	must(t, s.PutEvents(ctx, all...))
	s = reopen()
	for i, owner := range []string{ann, bob, ann, ann, ann, "", ann} {
		all[i].Owner = owner
	}
	last := all[len(all)-1].N
	pick := func(at ...int) (out []store.Event) {
		for _, i := range at {
			out = append(out, all[i])
		}
		return out
	}
	for name, c := range map[string]struct {
		f    store.FeedFilter
		want []store.Event
	}{
		"all":              {store.FeedFilter{}, all},
		"the first":        {store.FeedFilter{Limit: 2}, pick(0, 1)},
		"the next":         {store.FeedFilter{After: all[1].N, Limit: 2}, pick(2, 3)},
		"none":             {store.FeedFilter{After: last}, nil},
		"the last":         {store.FeedFilter{Limit: 2, Newest: true}, pick(5, 6)},
		"owner":            {store.FeedFilter{Owner: &ann}, pick(0, 2, 3, 4, 6)},
		"other owner":      {store.FeedFilter{Owner: &bob}, pick(1)},
		"no owner":         {store.FeedFilter{Owner: new(string)}, pick(5)},
		"owner, after":     {store.FeedFilter{Owner: &ann, After: all[2].N, Limit: 2}, pick(3, 4)},
		"owner, the last":  {store.FeedFilter{Owner: &ann, Limit: 2, Newest: true}, pick(4, 6)},
		"session":          {store.FeedFilter{Session: "ses_a"}, pick(0, 3, 4, 6)},
		"session, after":   {store.FeedFilter{Session: "ses_a", After: all[0].N, Limit: 1}, pick(3)},
		"session of other": {store.FeedFilter{Session: "ses_a", Owner: &bob}, nil},
		"run":              {store.FeedFilter{Run: "run_2"}, pick(3, 6)},
		"run, after":       {store.FeedFilter{Run: "run_2", After: all[3].N}, pick(6)},
		"run elsewhere":    {store.FeedFilter{Run: "run_2", Session: "ses_b"}, nil},
		"run of other":     {store.FeedFilter{Run: "run_2", Owner: &bob}, nil},
		"kinds":            {store.FeedFilter{Kinds: []string{"closed", "opened"}}, pick(0, 1, 4, 5)},
		"kinds of owner":   {store.FeedFilter{Kinds: []string{"closed"}, Owner: &ann}, pick(4)},
		"no kinds":         {store.FeedFilter{Kinds: []string{}}, nil},
	} {
		page := got(s.Feed(ctx, c.f))
		if page.Last != last || page.Dropped != 0 {
			t.Errorf("%s: the last is %d and %d are dropped, want %d and none", name, page.Last, page.Dropped, last)
		}
		if !slices.EqualFunc(page.Events, c.want, func(a, b store.Event) bool { return show(a) == show(b) }) {
			t.Errorf("%s: %s, want %s", name, show(page.Events), show(c.want))
		}
	}
}

func testFeedDropped(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	ann, bob := "ann", "bob"
	must(t, s.PutSessions(ctx,
		store.Session{ID: "ses_a", Owner: ann, Created: day, Closed: day}, store.Session{ID: "ses_b", Owner: bob, Created: day, Closed: day.Add(time.Hour)}))
	events := []store.Event{
		{Session: "ses_a", Kind: "opened"}, {Session: "ses_b", Kind: "opened"},
		{Session: "ses_a", Kind: store.EventRun, Run: "run_1"}, {Session: "ses_b", Kind: "closed"},
	}
	must(t, s.PutEvents(ctx, events...))
	same(t, got(s.DropSessions(ctx, day.Add(time.Minute))), []string{"ses_a"})
	s = reopen()
	for _, c := range []struct {
		owner         *string
		left, dropped int64
	}{{nil, 2, events[2].N}, {&ann, 0, events[2].N}, {&bob, 2, 0}} {
		page := got(s.Feed(ctx, store.FeedFilter{Owner: c.owner}))
		if page.Dropped != c.dropped || int64(len(page.Events)) != c.left || page.Last != events[3].N {
			t.Errorf("%s, want %d left and those up to %d dropped", show(page), c.left, c.dropped)
		}
	}
	must(t, s.DeleteSession(ctx, "ses_b"))
	if page := got(s.Feed(ctx, store.FeedFilter{Owner: &bob})); page.Dropped != events[3].N || page.Last != events[3].N || len(page.Events) != 0 {
		t.Errorf("after all events are deleted: %s", show(page))
	}
}
