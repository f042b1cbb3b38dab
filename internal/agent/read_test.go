package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/identity"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestWhoMaySee(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		boss := r.agent(ada, "boss")
		r.running(boss)
		child := r.start(as(boss), api.NewRun{Agent: "boss", Prompt: "secret"})
		c := r.running(child)
		grandchild := r.start(as(child), api.NewRun{Agent: "worker"})
		other := r.agent(ada, "worker")
		foreign := r.agent(bob, "worker")
		r.report(c, runner.Report{Events: []executor.Event{text("x")}})
		all := []api.Run{boss, child, grandchild, other, foreign}
		for name, tt := range map[string]struct {
			who   identity.Principal
			sees  string // of all, in their order
			reads bool
			acts  string
		}{
			"owner":            {ada, "yyyyn", true, "yyyyn"},
			"another":          {bob, "nnnny", true, "nnnny"},
			"operator":         {otto, "yyyyy", true, "yyyyy"},
			"viewer":           {vera, "yyyyy", false, "nnnnn"},
			"the boss":         {as(boss), "yyynn", true, "nyynn"},
			"the child":        {as(child), "nyynn", true, "nnynn"},
			"the grandchild":   {as(grandchild), "nnynn", true, "nnnnn"},
			"a session's":      {bound(boss, ""), "ynnnn", true, "nnnnn"},
			"a foreign run's":  {bound(boss, foreign.ID), "yyynn", true, "nyynn"},
			"a forged session": {bound(foreign, boss.ID), "nnnny", true, "nnnnn"},
		} {
			var listed, listedSessions []string
			for _, run := range must(r.Runs(ctx, tt.who, Filter{})).Runs {
				listed = append(listed, run.ID)
			}
			for _, s := range must(r.Sessions(ctx, tt.who, Filter{})).Sessions {
				listedSessions = append(listedSessions, s.ID)
			}
			for i, run := range all {
				want := tt.sees[i] == 'y'
				got, err := r.Run(ctx, tt.who, run.ID)
				_, sessionErr := r.Session(ctx, tt.who, run.Session)
				_, treeErr := r.Tree(ctx, tt.who, run.ID)
				if (err == nil) != want || (sessionErr == nil) != want || (treeErr == nil) != want || slices.Contains(listed, run.ID) != want || slices.Contains(listedSessions, run.Session) != want {
					t.Errorf("%s sees run %d: %v, %v, %v, lists %v, want %v", name, i, err, sessionErr, treeErr, slices.Contains(listed, run.ID), want)
				}
				if err != nil {
					refusedWith(t, err, api.KindInvalid, "of yours")
				}
				if i == 1 && err == nil && ((got.Parameters != nil) != tt.reads || got.Withheld == tt.reads) {
					t.Errorf("%s reads the parameters %s, and is told that they are withheld: %v", name, got.Parameters, got.Withheld)
				}
				l := must(r.at(ctx, tt.who, run.Owner, run.Session))
				if l.acts != (tt.acts[i] == 'y') {
					t.Errorf("%s acts in run %d: %v", name, i, l.acts)
				}
			}
		}
		_, err := r.Stop(ctx, vera, StopRun{Run: boss.ID})
		refusedWith(t, err, api.KindRefused, "role operator")
		_, err = r.Stop(ctx, as(boss), StopRun{Run: boss.ID})
		refusedWith(t, err, api.KindRefused, "not in its own")
		_, err = r.Stop(ctx, as(boss), StopRun{Run: other.ID})
		refusedWith(t, err, api.KindInvalid, "no run")
		_, err = r.Shut(ctx, bob, CloseSession{Session: boss.Session})
		refusedWith(t, err, api.KindInvalid, "no agent session")
		_, err = r.Result(ctx, vera, child.ID)
		refusedWith(t, err, api.KindRefused, "role operator")
		_, err = r.Result(ctx, ada, child.ID)
		refusedWith(t, err, api.KindRefused, "is running")

		var names []string
		for _, a := range must(r.Agents(ctx, as(boss))).Agents {
			names = append(names, a.Name+a.Source)
		}
		if fmt.Sprint(names) != "[boss prog worker]" {
			t.Errorf("an agent is shown the agents %v", names)
		}

		// With all below it, a boss that is stopped stops everything.
		must(r.Stop(ctx, ada, StopRun{Run: boss.ID, Below: true}))
		for i, want := range []string{api.RunStopping, api.RunStopping, api.RunStopped, api.RunPending, api.RunPending} {
			if got := r.state(all[i].ID); got != want {
				t.Errorf("run %d is %s, want %s", i, got, want)
			}
		}
		must(r.Shut(ctx, ada, CloseSession{Session: boss.Session, Below: true}))
		r.report(c, failed(""))
		if got := r.sessionState(child.Session); got != api.AgentStopped {
			t.Errorf("a session that was closed with those above it is %s", got)
		}
	})
}

func TestPages(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		boss := r.agent(ada, "boss")
		r.running(boss)
		var want []string
		for range 7 {
			want = append(want, r.start(as(boss), api.NewRun{Agent: "worker"}).ID)
		}
		slices.Reverse(want)
		want = append(want, boss.ID)
		for name, who := range map[string]identity.Principal{"owner": ada, "agent": as(boss)} {
			var got []string
			var sessions int
			for f := (Filter{Limit: 3}); ; {
				page := must(r.Runs(ctx, who, f))
				for _, run := range page.Runs {
					got = append(got, run.ID)
				}
				if f.Before = page.Next; page.Next == "" {
					break
				}
			}
			for f := (Filter{Limit: 3}); ; {
				page := must(r.Sessions(ctx, who, f))
				sessions += len(page.Sessions)
				if f.Before = page.Next; page.Next == "" {
					break
				}
			}
			if !slices.Equal(got, want) || sessions != 8 {
				t.Errorf("%s lists %v and %d sessions, want %v", name, got, sessions, want)
			}
			_, err := r.Runs(ctx, who, Filter{Before: "run_none"})
			refusedWith(t, err, api.KindInvalid, "no run run_none")
			_, err = r.Sessions(ctx, who, Filter{Before: "ses_none"})
			refusedWith(t, err, api.KindInvalid, "no agent session ses_none")
			_, err = r.Runs(ctx, who, Filter{States: []string{api.RunFailed, "finished"}})
			refusedWith(t, err, api.KindInvalid, `"finished" is none of claimed, completed`)
			_, err = r.Sessions(ctx, who, Filter{States: []string{api.AgentFinished, api.RunClaimed}})
			refusedWith(t, err, api.KindInvalid, `"claimed" is none of failed, finished`)
			_, err = r.Runs(ctx, who, Filter{Limit: mostList + 1})
			refusedWith(t, err, api.KindInvalid, "limit")
		}
	})
}

func TestWaitGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		run := r.agent(ada, "worker")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got, err := r.Wait(ctx, ada, run.ID); !errors.Is(err, context.DeadlineExceeded) || got.State != api.RunPending {
			t.Errorf("waited: %+v, %v", got, err)
		}
		ended := make(chan error, 1)
		go func() { _, err := r.Wait(t.Context(), ada, run.ID); ended <- err }()
		synctest.Wait()
		r.Close()
		if err := <-ended; !errors.Is(err, ErrClosed) {
			t.Errorf("waited for a coordinator that closes: %v", err)
		}
		if _, err := r.Wait(t.Context(), bob, run.ID); err == nil {
			t.Error("another principal may wait")
		}
	})
}

func TestEventsAreBounded(t *testing.T) {
	defer func(n int, size int64, one int) { mostEvents, mostEventBytes, mostEventSize = n, size, one }(mostEvents, mostEventBytes, mostEventSize)
	mostEvents, mostEventBytes, mostEventSize = 5, 100, 40
	bubble(t, func(t *testing.T, r *rig) {
		run := r.agent(ada, "worker")
		c := r.running(run)
		r.report(c, runner.Report{Events: []executor.Event{text("1"), {Type: api.RunEventText, Data: []byte(`no JSON`)}}})
		r.report(c, runner.Report{Events: slices.Repeat([]executor.Event{text("x")}, 10)})
		r.again()
		me := r1
		me.Instance = "2"
		if c = r.claim(me); c.Events != 12 {
			t.Errorf("%d events are counted, want 12: the runner skips those", c.Events)
		}
		r.report(c, runner.Report{Events: []executor.Event{text("y")}})
		r.report(c, done(""))
		left := `text {"left_out":"the run has told too much: all that follows is not kept"}`
		want := []string{"pending", "claimed", "running", `text "1"`, `text "no JSON"`, `text "x"`, `text "x"`, `text "x"`, left, "running", "completed"}
		if got := r.events(run); !slices.Equal(got, want) {
			t.Errorf("events %q\nwant   %q", got, want)
		}
		run = r.agent(ada, "worker")
		me.Instance = "3"
		c = r.claim(me)
		r.report(c, runner.Report{Events: []executor.Event{text(strings.Repeat("l", 50)), text(strings.Repeat("m", 30)), text(strings.Repeat("n", 30))}})
		got := r.events(run)
		if len(got) != 6 || !strings.Contains(got[3], "larger than") || !strings.Contains(got[4], "mmm") || got[5] != left {
			t.Errorf("events %q", got)
		}
	})
}

func TestToldEvents(t *testing.T) {
	var told []string
	bubble(t, func(t *testing.T, r *rig) {
		run := r.agent(ada, "worker")
		r.do(run, done(""))
		stored := must(r.db.Feed(t.Context(), store.FeedFilter{Run: run.ID})).Events
		if len(told) != 4 || len(stored) != 4 {
			t.Errorf("told %v, stored %d", told, len(stored))
		}
		for i, e := range stored {
			if want := fmt.Sprint(e.N, " ", string(e.Data)); told[i] != want {
				t.Errorf("told %s, want %s", told[i], want)
			}
			if !json.Valid(e.Data) {
				t.Errorf("event %s", e.Data)
			}
		}
	}, func(r *rig) {
		r.o.Told = func(all []store.Event) {
			for _, e := range all {
				told = append(told, fmt.Sprint(e.N, " ", string(e.Data)))
			}
		}
	})
}

func TestErrandsAreKept(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.book.all["hooked"] = Resolved{Resolved: blueprint.Resolved{Executor: "exec", Finish: []blueprint.Command{{Command: "x"}}}}
		run := r.agent(ada, "hooked")
		r.book.fail = 1 << 30
		r.do(run, done(""))
		must(r.Shut(t.Context(), ada, CloseSession{Session: run.Session}))
		synctest.Wait()
		r.book.mu.Lock()
		r.book.fail = 0
		r.book.mu.Unlock()
		r.again()
		synctest.Wait()
		if len(r.book.finished) != 1 || !slices.Equal(r.book.closed, []string{run.Session}) {
			t.Errorf("after a restart: finished %v, closed %v", r.book.finished, r.book.closed)
		}
		if left := must(r.db.WaitingCallbacks(t.Context())); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
		// Hooks that never work are given up; a world that can't be closed is not.
		run = r.agent(ada, "hooked")
		r.book.fail = 1 << 30
		r.do(run, done(""))
		must(r.Shut(t.Context(), ada, CloseSession{Session: run.Session}))
		later(time.Hour)
		if left := must(r.db.WaitingCallbacks(t.Context())); len(left) != 1 || readCallback(left[0]).Errand != errandClose {
			t.Errorf("left: %+v", left)
		}
	})
}

func TestRetention(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		old, open := r.agent(ada, "worker"), r.agent(ada, "worker")
		r.do(old, done(""))
		r.do(open, done(""))
		if err := r.WorldClosed(ctx, old.Session); err != nil {
			t.Fatal(err)
		}
		if err := r.WorldClosed(ctx, "ses_other"); err != nil {
			t.Errorf("a session of no agent: %v", err)
		}
		r.check(old, api.RunCompleted, api.AgentFinished)
		later(7*24*time.Hour - time.Hour)
		r.check(old, api.RunCompleted, api.AgentFinished)
		later(2 * time.Hour)
		_, err := r.Run(ctx, otto, old.ID)
		refusedWith(t, err, api.KindInvalid, "no run")
		if n := len(must(r.db.Events(ctx, old.Session))); n != 0 {
			t.Errorf("%d events are left", n)
		}
		r.check(open, api.RunCompleted, api.AgentIdle)
	}, func(r *rig) { r.o.Idle = 30 * 24 * time.Hour })
}

// A hook may put a secret of its own into the parameters, which the caller is not shown.
func TestSecretsInParameters(t *testing.T) {
	r := &run{d: runData{
		Job:       executor.Job{Parameters: map[string]any{"prompt": "with secret-of-the-hook", "n": json.Number("9007199254740993")}},
		Blueprint: blueprint.Resolved{Secrets: []string{"secret-of-the-hook"}},
	}}
	if got, want := string(r.api().Parameters), `{"n":9007199254740993,"prompt":"with ****"}`; got != want {
		t.Errorf("shown are %s, want %s", got, want)
	}
	testkit.Has(t, "what its hooks get", string(r.parameters()), "secret-of-the-hook")
}
