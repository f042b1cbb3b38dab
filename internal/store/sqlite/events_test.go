package sqlite

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/store"
)

// TestFeedIsLookedUp holds that what a reader of the feed costs does not grow with the
// events of others, nor with those before its place.
func TestFeedIsLookedUp(t *testing.T) {
	d := mustOpen(t, filepath.Join(t.TempDir(), "tine.db"), schema)
	defer d.Close()
	owner := "ann"
	for name, c := range map[string]struct {
		f    store.FeedFilter
		want string
	}{
		"all":              {store.FeedFilter{After: 1}, "SEARCH events USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"},
		"owner":            {store.FeedFilter{Owner: &owner}, "SEARCH events USING INDEX events_of_owner (owner=? AND rowid>? AND rowid<?)"},
		"owner and kinds":  {store.FeedFilter{Owner: &owner, Kinds: []string{"opened"}}, "SEARCH events USING INDEX events_of_owner (owner=? AND rowid>? AND rowid<?)"},
		"owner, the last":  {store.FeedFilter{Owner: &owner, Newest: true}, "SEARCH events USING INDEX events_of_owner (owner=? AND rowid>? AND rowid<?)"},
		"session":          {store.FeedFilter{Session: "ses_1"}, "SEARCH events USING INDEX events_of_session (session=? AND rowid>? AND rowid<?)"},
		"session of owner": {store.FeedFilter{Session: "ses_1", Owner: &owner}, "SEARCH events USING INDEX events_of_session (session=? AND rowid>? AND rowid<?)"},
		"run":              {store.FeedFilter{Run: "run_1", Session: "ses_1", Owner: &owner}, "SEARCH events USING INDEX events_of_run (run=? AND rowid>? AND rowid<?)"},
	} {
		query, args := feedQuery(c.f, 1000)
		rows, err := d.reader.Query("EXPLAIN QUERY PLAN "+query, args...)
		if err != nil {
			t.Fatal(err)
		}
		var plan []string
		for rows.Next() {
			var id, parent, unused int
			var step string
			if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
				t.Fatal(err)
			}
			plan = append(plan, step)
		}
		rows.Close()
		if !slices.Equal(plan, []string{c.want}) {
			t.Errorf("%s is read by %q, want %q", name, strings.Join(plan, "; "), c.want)
		}
	}
}

// TestRestoredEvents has a database that replaces a newer one: what the newer one
// numbered counts as dropped, and no number comes twice.
func TestRestoredEvents(t *testing.T) {
	ctx := context.Background()
	for name, before := range map[string]int{"with events": 3, "without": 0} {
		path := filepath.Join(t.TempDir(), "tine.db")
		d := mustOpen(t, path, schema)
		for range before {
			if err := d.PutEvents(ctx, store.Event{Session: "ses_1", Owner: "ann", Kind: "opened"}); err != nil {
				t.Fatal(err)
			}
		}
		const newer = 1000 // the newer one had so many
		for range 2 {
			if err := d.RestoreEvents(ctx); err != nil {
				t.Fatal(err)
			}
		}
		d.Close()
		d = mustOpen(t, path, schema)
		ann := "ann"
		page, err := d.Feed(ctx, store.FeedFilter{Owner: &ann, After: newer})
		if err != nil || len(page.Events) != 0 || page.Dropped <= newer || page.Last != page.Dropped {
			t.Errorf("%s: %+v, %v", name, page, err)
		}
		e := []store.Event{{Session: "ses_1", Owner: "ann", Kind: "closed"}}
		if err := d.PutEvents(ctx, e...); err != nil || e[0].N <= page.Dropped {
			t.Errorf("%s: the next event is %d, %v", name, e[0].N, err)
		}
		if page, err := d.Feed(ctx, store.FeedFilter{}); err != nil || len(page.Events) != before+1 {
			t.Errorf("%s: %+v, %v", name, page, err)
		}
		d.Close()
	}
}
