package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/store"
)

func testSnapshots(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	if all := got(s.Snapshots(ctx)); len(all) != 0 {
		t.Fatalf("a new store holds %v", all)
	}
	full := store.Snapshot{
		ID: "snap_b", Name: "start", Owner: "ann", Session: "ses_1", Created: day, Auto: true,
		Size: 1 << 40, Call: 1 << 50, Catalog: "cat", Data: json.RawMessage(`{"parts": {}}`),
	}
	temporary := store.Snapshot{ID: "snap_a", Owner: "ann", Temporary: true}
	bobs := store.Snapshot{ID: "snap_c", Owner: "bob", Name: "start"}
	nobodys := store.Snapshot{ID: "snap_d", Name: "start"}
	nameless := store.Snapshot{ID: "snap_e", Owner: "ann"}
	must(t, s.PutSnapshot(ctx, store.Snapshot{ID: "snap_b", Name: "old", Owner: "ann", Temporary: true, Data: json.RawMessage(`1`)}))
	for _, x := range []store.Snapshot{nameless, nobodys, bobs, temporary, full, full, {ID: "snap_f", Owner: "ann", Name: "old"}} {
		must(t, s.PutSnapshot(ctx, x))
	}
	must(t, s.DeleteSnapshot(ctx, "snap_f"))
	must(t, s.DeleteSnapshot(ctx, "snap_f"))
	want := []store.Snapshot{temporary, full, bobs, nobodys, nameless}
	same(t, got(s.Snapshots(ctx)), want)

	// A name is the owner's own, whether new or given later.
	for _, taken := range []store.Snapshot{{ID: "snap_g", Owner: "ann", Name: "start"}, {ID: "snap_e", Owner: "ann", Name: "start", Size: 7}} {
		if err := s.PutSnapshot(ctx, taken); !errors.Is(err, store.ErrExists) {
			t.Errorf("a name that is taken: %v", err)
		}
	}
	if err := s.PutSnapshot(ctx, store.Snapshot{Name: "x"}); err == nil {
		t.Error("a snapshot without an id was written")
	}
	s = reopen()
	same(t, got(s.Snapshots(ctx)), want)
	must(t, s.DeleteSnapshot(ctx, "snap_b"))
	nameless.Name = "start"
	must(t, s.PutSnapshot(ctx, nameless))
	same(t, got(s.Snapshots(ctx)), []store.Snapshot{temporary, bobs, nobodys, nameless})
}

func testCatalogs(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	servers := func(key string) json.RawMessage { return json.RawMessage(fmt.Sprintf(`[{"id" :%q}]`, key)) }
	keys := []string{"open", "also open", "closed", "closed and open", "snapshot", "temporary", "never there"}
	session := func(id, key string, closed time.Time) store.Session {
		return store.Session{ID: id, Catalog: key, Servers: servers(key), Closed: closed}
	}
	must(t, s.PutSessions(ctx, store.Session{ID: "1", Catalog: "open", Servers: json.RawMessage(`[]`)}))
	must(t, s.PutSessions(ctx,
		session("1", "open", time.Time{}),
		session("2", "also open", time.Time{}),
		session("3", "closed", day),
		session("4", "closed and open", day),
		session("5", "closed and open", time.Time{}),
		store.Session{ID: "6", Catalog: "never there"},
	))
	must(t, s.PutSessions(ctx, store.Session{ID: "2", Catalog: "also open", Owner: "ann"})) // whose servers are there
	if err := s.PutSessions(ctx, session("7", "none", time.Time{}), store.Session{}); err == nil {
		t.Error("a session without an id was written")
	}
	must(t, s.PutSnapshot(ctx, store.Snapshot{ID: "1", Name: "a", Catalog: "snapshot", Servers: servers("snapshot")}))
	must(t, s.PutSnapshot(ctx, store.Snapshot{ID: "2", Catalog: "temporary", Servers: servers("temporary"), Temporary: true}))
	if err := s.PutSnapshot(ctx, store.Snapshot{ID: "3", Name: "a", Catalog: "none", Servers: servers("none")}); !errors.Is(err, store.ErrExists) {
		t.Errorf("a name twice: %v", err)
	}
	if _, ok, err := s.Catalog(ctx, "none"); ok || err != nil {
		t.Errorf("the servers of what was not written are there (%v)", err)
	}
	s = reopen()
	there := func(want ...string) {
		t.Helper()
		n := 0
		for _, key := range keys {
			data, ok, err := s.Catalog(ctx, key)
			must(t, err)
			if !ok {
				continue
			}
			if n++; n > len(want) || key != want[n-1] || string(data) != string(servers(key)) {
				t.Errorf("there is %q: %s; want %q", key, data, want)
			}
		}
		if n != len(want) {
			t.Errorf("there are %d, want %q", n, want)
		}
	}
	there("open", "also open", "closed", "closed and open", "snapshot", "temporary")
	must(t, s.DropCatalogs(ctx))
	s = reopen()
	there("open", "also open", "closed and open", "snapshot", "temporary")
	must(t, s.PutSessions(ctx, store.Session{ID: "1", Catalog: "open", Closed: day}, store.Session{ID: "5", Catalog: "closed and open", Closed: day}))
	must(t, s.DeleteSnapshot(ctx, "2"))
	must(t, s.DropCatalogs(ctx))
	must(t, s.DropCatalogs(ctx))
	there("also open", "snapshot")
	must(t, s.MendCatalog(ctx, "also open", json.RawMessage(`[]`)))
	for _, key := range keys {
		must(t, s.MendCatalog(ctx, key, servers(key)))
	}
	there("also open", "snapshot", "never there")
}

// testCatalogsAtOnce drops catalogs while sessions and snapshots come and go: none of
// them is ever without its servers.
func testCatalogsAtOnce(t *testing.T, s store.Shared, _ func() store.Shared) {
	ctx := context.Background()
	servers := json.RawMessage(`[]`)
	atOnce(t, func(i, j int, id string) error {
		err := errors.Join(s.PutSessions(ctx, store.Session{ID: id, Catalog: id, Servers: servers}), s.DropCatalogs(ctx))
		if _, ok, readErr := s.Catalog(ctx, id); !ok || readErr != nil {
			t.Errorf("a session is without its servers (%v)", readErr)
		}
		err = errors.Join(err, s.PutSnapshot(ctx, store.Snapshot{ID: id, Catalog: "one", Servers: servers}))
		if _, ok, readErr := s.Catalog(ctx, "one"); !ok || readErr != nil {
			t.Errorf("a snapshot is without its servers (%v)", readErr)
		}
		return errors.Join(err, s.DeleteSnapshot(ctx, id), s.DropCatalogs(ctx))
	})
}

func testSharedStates(t *testing.T, s store.Local, reopen func() store.Local) {
	ctx := context.Background()
	want := map[string]string{"notes": "process\nfolder", "o'dd *": "", "notes~1": "builtin"}
	must(t, s.PutSharedState(ctx, "notes", "process"))
	for name, mark := range want {
		must(t, s.PutSharedState(ctx, name, mark))
	}
	for range 2 {
		if got, err := s.SharedStates(ctx); err != nil || !maps.Equal(got, want) {
			t.Errorf("there are %q, %v", got, err)
		}
		s = reopen()
	}
}

func testCreations(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	begin := func(c store.Creation, since time.Time, want *store.Creation) {
		t.Helper()
		old, ok, err := s.BeginCreation(ctx, c, since)
		must(t, err)
		if ok != (want == nil) {
			t.Errorf("began: %v; there was %s", ok, show(old))
		}
		if want != nil {
			same(t, []store.Creation{old}, []store.Creation{*want})
		}
	}
	a := store.Creation{Owner: "ann", Key: "k", Request: "r1", At: day}
	other := store.Creation{Owner: "ann", Key: "k", Request: "r2", At: day.Add(time.Hour)}
	begin(a, day.Add(-time.Hour), nil)
	begin(store.Creation{Owner: "bob", Key: "k", At: day}, day, nil)
	begin(store.Creation{Owner: "", Key: "k", At: day}, day, nil)
	s = reopen()
	begin(other, day, &a)
	a.Answer = json.RawMessage(`{"id" : "ses_1"}`)
	must(t, s.EndCreation(ctx, "ann", "k", a.Answer))
	s = reopen()
	begin(other, day, &a)
	// One that is too old makes room.
	begin(other, day.Add(1), nil)
	begin(a, day, &other)
	// One that failed may be tried again.
	must(t, s.EndCreation(ctx, "ann", "k", nil))
	must(t, s.EndCreation(ctx, "ann", "k", nil))
	begin(other, day, nil)
	must(t, s.EndCreation(ctx, "never", "there", json.RawMessage(`1`)))
	begin(store.Creation{Owner: "never", Key: "there", At: day}, day, nil)

	old := store.Creation{Owner: "o", Key: "old", At: day.Add(-time.Hour)}
	done := store.Creation{Owner: "o", Key: "done", At: day}
	doing := store.Creation{Owner: "o", Key: "doing", At: day}
	for _, c := range []*store.Creation{&old, &done, &doing} {
		begin(*c, time.Time{}, nil)
		if c != &doing {
			c.Answer = json.RawMessage(`1`)
			must(t, s.EndCreation(ctx, c.Owner, c.Key, c.Answer))
		}
	}
	must(t, s.DropCreations(ctx, day, false))
	s = reopen()
	begin(done, time.Time{}, &done)
	begin(doing, time.Time{}, &doing)
	begin(old, time.Time{}, nil)
	must(t, s.DropCreations(ctx, day.Add(-24*time.Hour), true))
	s = reopen()
	begin(done, time.Time{}, &done)
	begin(doing, time.Time{}, nil)
}

func testOneCreates(t *testing.T, s store.Shared, _ func() store.Shared) {
	ctx := context.Background()
	const keys, callers = 20, 8
	var won [keys]atomic.Int32
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for key := range keys {
				old, ok, err := s.BeginCreation(ctx, store.Creation{Owner: "ann", Key: fmt.Sprint(key), Request: fmt.Sprint(caller), At: day}, day)
				switch {
				case err != nil:
					t.Errorf("begin: %v", err)
				case ok:
					won[key].Add(1)
				case old.Answer != nil || old.Key != fmt.Sprint(key) || old.Request == fmt.Sprint(caller):
					t.Errorf("caller %d: there was %s", caller, show(old))
				}
			}
		})
	}
	for caller := range callers {
		wg.Go(func() {
			err := s.PutSnapshot(ctx, store.Snapshot{ID: fmt.Sprint(caller), Owner: "ann", Name: "one"})
			if err != nil && !errors.Is(err, store.ErrExists) {
				t.Errorf("snapshot: %v", err)
			}
		})
	}
	wg.Wait()
	for key := range keys {
		if n := won[key].Load(); n != 1 {
			t.Errorf("key %d was begun %d times", key, n)
		}
	}
	if n := len(got(s.Snapshots(ctx))); n != 1 {
		t.Errorf("%d snapshots have one name", n)
	}
}
