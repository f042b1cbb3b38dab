package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

// agents writes in one transaction.
func agents(t *testing.T, s store.Shared, write func(tx store.AgentTx) error) {
	t.Helper()
	must(t, s.ChangeAgents(context.Background(), write))
}

// put writes rows of any kind.
func put(t *testing.T, s store.Shared, rows ...any) {
	t.Helper()
	agents(t, s, func(tx store.AgentTx) error {
		for _, row := range rows {
			var err error
			switch row := row.(type) {
			case store.Run:
				err = tx.PutRun(row)
			case store.AgentSession:
				err = tx.PutAgentSession(row)
			case store.Callback:
				err = tx.PutCallback(row)
			case store.Event:
				err = tx.PutEvents(row)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// one is for a row that must be there.
func one[T any](v T, ok bool, err error) []T {
	if err != nil {
		panic(err)
	}
	if !ok {
		return nil
	}
	return []T{v}
}

func testAgentRows(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	run := store.Run{
		ID: "run_1", Session: "ses_1", Agent: "a", Owner: "ann", Parent: "ses_0", State: api.RunPending, Claim: 1 << 40, Runner: "rnr",
		Until: day.Add(time.Minute), Created: day, Changed: day.Add(time.Second), Data: json.RawMessage(`{"n": 12345678901234567890, "s":"'\u0000"}`),
	}
	bare := store.Run{ID: "run_2", Session: "ses_2"}
	session := store.AgentSession{ID: "ses_1", Agent: "a", Owner: "ann", Parent: "ses_0", State: api.AgentIdle, Created: day, Changed: day.Add(time.Hour), Data: json.RawMessage(`{}`)}
	put(t, s, store.Run{ID: "run_1", Session: "other", State: "x", Claim: 3}, run, bare, store.AgentSession{ID: "ses_1", State: "x"}, session)
	s = reopen()
	same(t, one(s.Run(ctx, "run_1")), []store.Run{run})
	same(t, one(s.Run(ctx, "run_2")), []store.Run{bare})
	same(t, one(s.Run(ctx, "run_3")), nil)
	same(t, one(s.AgentSession(ctx, "ses_1")), []store.AgentSession{session})
	same(t, one(s.AgentSession(ctx, "ses_2")), nil)
	agents(t, s, func(tx store.AgentTx) error {
		same(t, one(tx.Run("run_1")), []store.Run{run})
		same(t, one(tx.Run("run_3")), nil)
		same(t, one(tx.AgentSession("ses_1")), []store.AgentSession{session})
		same(t, one(tx.AgentSession("ses_2")), nil)
		return nil
	})
	for name, row := range map[string]func(store.AgentTx) error{
		"a run without an id":                  func(tx store.AgentTx) error { return tx.PutRun(store.Run{Session: "ses_1"}) },
		"a run without a session":              func(tx store.AgentTx) error { return tx.PutRun(store.Run{ID: "run_9"}) },
		"a session without an id":              func(tx store.AgentTx) error { return tx.PutAgentSession(store.AgentSession{}) },
		"an event without a session":           func(tx store.AgentTx) error { return tx.PutEvents(store.Event{}) },
		"a change of a callback that is gone":  func(tx store.AgentTx) error { return tx.PutCallback(store.Callback{N: 99}) },
		"a list after a run that is not there": func(tx store.AgentTx) error { _, err := tx.Runs(store.RunFilter{Before: "run_9"}); return err },
	} {
		if err := s.ChangeAgents(ctx, row); err == nil {
			t.Errorf("%s gave no error", name)
		}
	}
}

func testAgentsAllOrNone(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	put(t, s, store.Run{ID: "run_1", Session: "ses_1", State: "old"}, store.Callback{Parent: "ses_1", Run: "run_0"})
	no := errors.New("no")
	err := s.ChangeAgents(ctx, func(tx store.AgentTx) error {
		must(t, tx.PutRun(store.Run{ID: "run_1", Session: "ses_1", State: "new"}))
		must(t, tx.PutRun(store.Run{ID: "run_2", Session: "ses_1", Created: day}))
		must(t, tx.PutAgentSession(store.AgentSession{ID: "ses_1"}))
		must(t, tx.PutCallback(store.Callback{Parent: "ses_1", Run: "run_2"}))
		must(t, tx.PutEvents(store.Event{Session: "ses_1", Run: "run_1", Kind: store.EventRun}))
		// It sees what it has written.
		same(t, got(tx.Runs(store.RunFilter{Session: "ses_1"}))[0].ID, "run_2")
		for _, c := range got(tx.Callbacks("ses_1")) {
			must(t, tx.DeleteCallback(c.N))
		}
		same(t, len(got(tx.Callbacks("ses_1"))), 0)
		return no
	})
	if err != no {
		t.Errorf("a change that is refused: %v", err)
	}
	s = reopen()
	same(t, got(s.Runs(ctx, store.RunFilter{})), []store.Run{{ID: "run_1", Session: "ses_1", State: "old"}})
	same(t, len(one(s.AgentSession(ctx, "ses_1"))), 0)
	same(t, len(got(s.WaitingCallbacks(ctx))), 1)
	same(t, len(got(s.Feed(ctx, store.FeedFilter{Session: "ses_1"})).Events), 0)

	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.ChangeAgents(cancelled, func(tx store.AgentTx) error { return tx.PutRun(store.Run{ID: "run_3", Session: "s"}) }); err == nil {
		t.Error("a cancelled change gave no error")
	}
	same(t, len(got(s.Runs(ctx, store.RunFilter{}))), 1)
	must(t, s.Close())
	if err := s.ChangeAgents(ctx, func(store.AgentTx) error { return nil }); err == nil {
		t.Error("a change after Close gave no error")
	}
	if _, err := s.Runs(ctx, store.RunFilter{}); err == nil {
		t.Error("a list of runs after Close gave no error")
	}
}

func testAgentLists(t *testing.T, s store.Shared, _ func() store.Shared) {
	ctx := context.Background()
	owners, states := []string{"ann", "bob", ""}, []string{api.RunPending, api.RunRunning, api.RunCompleted, api.RunFailed}
	for i := range 120 {
		at := day.Add(time.Duration(i/2) * time.Second) // two of each moment
		put(t, s, store.Run{
			ID: fmt.Sprintf("run_%03d", i), Session: fmt.Sprintf("ses_%d", i%10), Agent: fmt.Sprintf("a%d", i%2), Owner: owners[i%3],
			Parent: []string{"", "ses_p", "ses_q"}[i%3], State: states[i%4], Runner: []string{"", "r1"}[i%2], Created: at,
		}, store.AgentSession{
			ID: fmt.Sprintf("ses_%03d", i), Agent: fmt.Sprintf("a%d", i%2), Owner: owners[i%3], Parent: []string{"", "ses_p", "ses_q"}[i%3], State: states[i%4], Created: at, Changed: at,
		})
	}
	var order []int
	for i := 118; i >= 0; i -= 2 {
		order = append(order, i, i+1)
	}
	ann, nobody := "ann", ""
	for name, tt := range map[string]struct {
		runs   store.RunFilter
		agents *store.AgentFilter
		want   func(i int) bool
	}{
		"all":     {store.RunFilter{}, &store.AgentFilter{}, func(int) bool { return true }},
		"owner":   {store.RunFilter{Owner: &ann}, &store.AgentFilter{Owner: &ann}, func(i int) bool { return i%3 == 0 }},
		"no name": {store.RunFilter{Owner: &nobody}, &store.AgentFilter{Owner: &nobody}, func(i int) bool { return i%3 == 2 }},
		"parent":  {store.RunFilter{Parent: "ses_q"}, &store.AgentFilter{Parent: "ses_q"}, func(i int) bool { return i%3 == 2 }},
		"agent":   {store.RunFilter{Agent: "a1"}, &store.AgentFilter{Agent: "a1"}, func(i int) bool { return i%2 == 1 }},
		"states": {store.RunFilter{States: []string{api.RunPending, api.RunFailed}}, &store.AgentFilter{States: []string{api.RunPending, api.RunFailed}},
			func(i int) bool { return i%4 == 0 || i%4 == 3 }},
		"session": {store.RunFilter{Session: "ses_3"}, nil, func(i int) bool { return i%10 == 3 }},
		"runner":  {store.RunFilter{Runner: "r1"}, nil, func(i int) bool { return i%2 == 1 }},
		"joined": {store.RunFilter{Owner: &ann, Parent: "ses_p", States: []string{api.RunPending}}, &store.AgentFilter{Owner: &ann, Parent: "ses_p", States: []string{api.RunPending}},
			func(int) bool { return false }},
	} {
		t.Run(name, func(t *testing.T) {
			var runs, sessions []string
			for _, i := range order {
				if tt.want(i) {
					runs, sessions = append(runs, fmt.Sprintf("run_%03d", i)), append(sessions, fmt.Sprintf("ses_%03d", i))
				}
			}
			same(t, pages(t, runs, func(before string, limit int) []string {
				f := tt.runs
				f.Before, f.Limit = before, limit
				var ids []string
				for _, r := range got(s.Runs(ctx, f)) {
					ids = append(ids, r.ID)
				}
				agents(t, s, func(tx store.AgentTx) error {
					if n := len(got(tx.Runs(f))); n != len(ids) {
						t.Errorf("a transaction lists %d, and else there are %d", n, len(ids))
					}
					return nil
				})
				return ids
			}), runs)
			if tt.agents == nil {
				return
			}
			same(t, pages(t, sessions, func(before string, limit int) []string {
				f := *tt.agents
				f.Before, f.Limit = before, limit
				var ids []string
				for _, a := range got(s.AgentSessions(ctx, f)) {
					ids = append(ids, a.ID)
				}
				return ids
			}), sessions)
		})
	}
	if _, err := s.Runs(ctx, store.RunFilter{Before: "none"}); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("after an unknown run: %v", err)
	}
	// Those of the first ten moments were changed then.
	if n := len(got(s.AgentSessions(ctx, store.AgentFilter{Unchanged: day.Add(10 * time.Second), Limit: 200}))); n != 20 {
		t.Errorf("%d sessions were changed last before a moment, not 20", n)
	}
	if _, err := s.AgentSessions(ctx, store.AgentFilter{Before: "none"}); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("after an unknown session: %v", err)
	}
}

// pages reads a list in pieces of seven, and once as far as it comes without a limit.
func pages(t *testing.T, want []string, list func(before string, limit int) []string) []string {
	t.Helper()
	if first := list("", 0); !reflect.DeepEqual(first, want[:min(len(want), 100)]) && len(want) > 0 {
		t.Errorf("without a limit: %q", first)
	}
	var all []string
	for before := ""; ; {
		page := list(before, 7)
		all = append(all, page...)
		if len(page) < 7 {
			return all
		}
		before = page[6]
	}
}

func testCallbacks(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	a := store.Callback{Parent: "ses_p", Child: "ses_a", Run: "run_a", At: day, Data: json.RawMessage(`{"text":"x"}`)}
	b := store.Callback{Parent: "ses_q", Child: "ses_b", Run: "run_b", Carrier: "run_q", At: day}
	c := store.Callback{Parent: "ses_p", Child: "ses_c", Run: "run_c"}
	put(t, s, a, b, c)
	of := func(parent string) (all []store.Callback) {
		agents(t, s, func(tx store.AgentTx) error { all = got(tx.Callbacks(parent)); return nil })
		return all
	}
	s = reopen()
	waiting := got(s.WaitingCallbacks(ctx))
	if len(waiting) != 2 || waiting[0].N <= 0 || waiting[1].N <= waiting[0].N {
		t.Fatalf("waiting: %s", show(waiting))
	}
	a.N, c.N = waiting[0].N, waiting[1].N
	same(t, waiting, []store.Callback{a, c})
	same(t, of("ses_p"), waiting)
	b.N = of("ses_q")[0].N
	same(t, of("ses_q"), []store.Callback{b})
	a.Carrier, b.Carrier = "run_p", ""
	put(t, s, a, b)
	same(t, got(s.WaitingCallbacks(ctx)), []store.Callback{b, c})
	same(t, of("ses_p"), []store.Callback{a, c})
	agents(t, s, func(tx store.AgentTx) error { return errors.Join(tx.DeleteCallback(c.N), tx.DeleteCallback(c.N)) })
	s = reopen()
	put(t, s, store.Callback{Parent: "ses_p"})
	all := of("ses_p")
	if len(all) != 2 || all[1].N <= c.N { // a number is never given again
		t.Errorf("a new callback after %d: %s", c.N, show(all))
	}
}

func testDropAgents(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	hour := func(n int) time.Time { return day.Add(time.Duration(n) * time.Hour) }
	for _, x := range []struct {
		id, parent, state string
		changed           int
	}{
		{"root", "", api.AgentFinished, 1},
		{"middle", "root", api.AgentFailed, 1},
		{"idle", "middle", api.AgentIdle, 1},
		{"old", "", api.AgentStopped, 1},
		{"late child", "old", api.AgentFinished, 5},
		{"gone", "", api.AgentFailed, 1},
		{"gone child", "gone", api.AgentFinished, 2},
		{"orphan", "never there", api.AgentFinished, 1},
		{"loop", "loop", api.AgentFinished, 1},
		{"edge", "", api.AgentFinished, 3},
		{"running", "", api.AgentRunning, 1},
	} {
		put(t, s, store.AgentSession{ID: x.id, Parent: x.parent, State: x.state, Changed: hour(x.changed)},
			store.Run{ID: "run " + x.id, Session: x.id}, store.Callback{Parent: x.id, Run: "r"},
			store.Event{Session: x.id, Run: "run " + x.id, Kind: store.EventRun}, store.Event{Session: x.id, Kind: "opened"})
	}
	check := func(before time.Time, dropped ...string) {
		t.Helper()
		same(t, got(s.DropAgents(ctx, before)), dropped)
		s = reopen()
		for _, id := range dropped {
			if left := len(one(s.AgentSession(ctx, id))) + len(one(s.Run(ctx, "run "+id))); left > 0 {
				t.Errorf("%s was dropped and is there", id)
			}
			// What happened to the session itself is not the agent's.
			if events := got(s.Feed(ctx, store.FeedFilter{Session: id})).Events; len(events) != 1 || events[0].Kind != "opened" {
				t.Errorf("%s was dropped and has the events %s", id, show(events))
			}
		}
	}
	check(hour(1))
	check(time.Time{})
	check(hour(3), "gone", "gone child", "loop", "orphan")
	check(hour(3))
	same(t, len(got(s.WaitingCallbacks(ctx))), 7)
	for _, id := range []string{"root", "middle", "idle", "old", "late child", "edge", "running"} {
		if n := len(got(s.Feed(ctx, store.FeedFilter{Session: id})).Events); n != 2 || len(one(s.Run(ctx, "run "+id))) != 1 {
			t.Errorf("%s stays and has %d events, want 2", id, n)
		}
	}
	check(hour(6), "edge", "late child", "old")

	// The session of an agent that could not be opened is deleted, and its runs are not.
	must(t, s.DeleteSession(ctx, "running"))
	if events := got(s.Feed(ctx, store.FeedFilter{Session: "running"})).Events; len(events) != 1 || events[0].Run != "run running" {
		t.Errorf("the session of an agent is deleted, and there are the events %s", show(events))
	}
}

func testAgentsAtOnce(t *testing.T, s store.Shared, reopen func() store.Shared) {
	ctx := context.Background()
	put(t, s, store.Run{ID: "count", Session: "s"})
	atOnce(t, func(_, _ int, id string) error {
		_, listErr := s.Runs(ctx, store.RunFilter{States: []string{"x"}})
		return errors.Join(listErr, s.ChangeAgents(ctx, func(tx store.AgentTx) error {
			r, _, err := tx.Run("count")
			r.Claim++
			return errors.Join(err, tx.PutRun(r), tx.PutRun(store.Run{ID: id, Session: "s", State: "x"}))
		}), s.PutSessions(ctx, store.Session{ID: id}))
	})
	s = reopen()
	same(t, one(s.Run(ctx, "count"))[0].Claim, 160)
	same(t, len(got(s.Runs(ctx, store.RunFilter{States: []string{"x"}, Limit: 1000}))), 160)
}
