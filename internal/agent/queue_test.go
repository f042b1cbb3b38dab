package agent

import (
	"context"
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
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

func TestALife(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		full, err := blueprint.Parse("full", []byte(`{"executor": "exec", "system_prompt": "be good on ${runner.host}", "executor_config": {"model": "m"}, "env": {"A": "b"},
			"mcp_servers": {"fs": {"ref": "files"}, "own": {"command": "x"}, "too": {"ref": "files"}}, "hooks": {"on_run_finish": [{"command": "tell"}]}}`))
		if err != nil {
			t.Fatal(err)
		}
		resolved, err := blueprint.Resolve(full, blueprint.Input{Parameters: map[string]any{"prompt": "x"}})
		if err != nil {
			t.Fatal(err)
		}
		r.book.all["full"] = Resolved{Resolved: resolved}
		run := r.start(ada, api.NewRun{Agent: "full", Prompt: "hi", Parameters: map[string]any{"n": 12}, Labels: map[string]string{"a": "b"}, Scope: map[string]string{"k": "v"}})
		if run.State != api.RunPending || run.Owner != "ada" || run.Resume || string(run.Parameters) != `{"n":12,"prompt":"hi"}` {
			t.Errorf("started: %+v", run)
		}
		r.check(run, api.RunPending, api.AgentPending)
		waited := make(chan api.Run, 1)
		go func() { waited <- must(r.Wait(ctx, ada, run.ID)) }()

		me := r1
		me.Tags = []string{"gpu", "big"}
		c := r.claim(me)
		if c.Run != run.ID || c.Number != 1 || c.Adopted || c.Events != 0 || time.Until(c.Until) != 30*time.Second {
			t.Errorf("claim: %+v", c)
		}
		w, job := c.World, c.Job
		if w.Session != run.Session || w.Owner != "ada" || w.Labels["a"] != "b" || len(w.Pinned) == 0 {
			t.Errorf("world: %+v", w)
		}
		filled, err := c.Blueprint.Fill(map[string]string{"host": "here"})
		if s := filled.Servers; err != nil || filled.SystemPrompt != "be good on here" || filled.Config["model"] != "m" || filled.Env["A"] != "b" ||
			s["fs"].Ref != "files" || s["too"].Ref != "files" || string(s["own"].Inline) != `{"command":"x"}` {
			t.Errorf("filled: %+v, %v", filled, err)
		}
		if job.Agent.Name != "full" || job.Metadata["runner_id"] != "r1" || job.Metadata["capability_tags"] != "gpu,big" || job.Parameters["prompt"] != "hi" {
			t.Errorf("job: %+v", job)
		}
		r.check(run, api.RunClaimed, api.AgentPending)
		r.report(c, runner.Report{Running: true})
		r.check(run, api.RunRunning, api.AgentRunning)
		r.report(c, runner.Report{Events: []executor.Event{text("a"), {Type: api.RunEventUsage, Data: []byte(`{"input_tokens":5,"output_tokens":2}`)}, {Type: api.RunEventText, Data: []byte(`"b"`), ExecutorSession: "conv"}}})
		r.report(c, done("it is done"))
		got := <-waited
		if got.State != api.RunCompleted || got.Result.Text != "it is done" || got.Usage.InputTokens != 5 || got.Started.IsZero() || got.Ended.IsZero() || got.Runner != "r1" {
			t.Errorf("ended: %+v", got)
		}
		r.check(run, api.RunCompleted, api.AgentIdle)
		if res, err := r.Result(ctx, ada, run.Session); err != nil || res.Text != "it is done" {
			t.Errorf("result: %+v, %v", res, err)
		}
		want := []string{"pending", "claimed", "running", `text "a"`, `usage {"input_tokens":5,"output_tokens":2}`, `text "b"`, "completed"}
		if got := r.events(run); !slices.Equal(got, want) {
			t.Errorf("events %q\nwant   %q", got, want)
		}
		for name, err := range map[string]error{
			"renew":  func() error { _, err := r.Renew(ctx, c.Run, c.Number); return err }(),
			"report": func() error { _, err := r.Report(ctx, c.Run, c.Number, done("twice")); return err }(),
			"stop":   r.Stopping(ctx, c.Run, c.Number),
		} {
			if !errors.Is(err, runner.ErrStale) {
				t.Errorf("%s after the end: %v", name, err)
			}
		}
		synctest.Wait()
		if len(r.book.finished) != 1 || r.book.finished[0].Result.Text != "it is done" {
			t.Errorf("finished: %+v", r.book.finished)
		}

		// The resume has what the executor called its conversation, and the scope.
		next := r.start(ada, api.NewRun{Session: run.Session, Prompt: "more"})
		if !next.Resume || next.Session != run.Session || next.Agent != "full" {
			t.Errorf("resumed: %+v", next)
		}
		r.check(next, api.RunPending, api.AgentRunning)
		_, err = r.Start(ctx, ada, NewRun{NewRun: api.NewRun{Session: run.Session, Prompt: "x"}})
		refusedWith(t, err, api.KindRefused, "busy with run "+next.ID)
		c = r.claim(r1)
		if c.Job.ExecutorSession != "conv" || !c.Job.Resume || r.book.inputs[1].Scope["k"] != "v" || !r.book.inputs[1].Resume {
			t.Errorf("resumed job: %+v, input %+v", c.Job, r.book.inputs[1])
		}
		r.report(c, failed("no luck"))
		r.check(next, api.RunFailed, api.AgentIdle)
		_, err = r.Result(ctx, ada, next.ID)
		refusedWith(t, err, api.KindTool, "no luck")

		closed, err := r.Shut(ctx, ada, CloseSession{Session: run.Session})
		if err != nil || closed.State != api.AgentFailed {
			t.Errorf("closed: %+v, %v", closed, err)
		}
		synctest.Wait()
		if !slices.Equal(r.book.closed, []string{run.Session}) {
			t.Errorf("closed worlds: %v", r.book.closed)
		}
		_, err = r.Start(ctx, ada, NewRun{NewRun: api.NewRun{Session: run.Session, Prompt: "x"}})
		refusedWith(t, err, api.KindInvalid, "has ended")
	})
}

func TestQueueIsFair(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var want []string
		owner := make(map[string]string)
		for i := range 4 {
			run := r.agent(ada, "worker")
			owner[run.ID] = fmt.Sprint("a", i)
		}
		for i := range 2 {
			run := r.agent(bob, "worker")
			owner[run.ID] = fmt.Sprint("b", i)
		}
		var got []string
		var claims []runner.Claim
		for range 6 {
			c := r.claim(r1)
			claims = append(claims, c)
			got = append(got, owner[c.Run])
		}
		want = []string{"a0", "b0", "a1", "b1", "a2", "a3"}
		if !slices.Equal(got, want) {
			t.Errorf("claimed in the order %v, want %v", got, want)
		}
		// With all of ada's at work and none of bob's, bob is next.
		for _, c := range claims {
			if owner[c.Run][0] == 'b' {
				r.report(c, done(""))
			}
		}
		r.agent(ada, "worker")
		late := r.agent(bob, "worker")
		if c := r.claim(r1); c.Run != late.ID {
			t.Error("the owner with less at work was not next")
		}
	})
}

func TestClaimWaits(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		claims := make(chan runner.Claim, 2)
		for range 2 {
			go func() {
				if c, err := r.Claim(t.Context(), r1); err == nil {
					claims <- c
				}
			}()
		}
		synctest.Wait()
		a, b := r.agent(ada, "worker"), r.agent(ada, "worker")
		got := []string{(<-claims).Run, (<-claims).Run}
		slices.Sort(got)
		want := []string{a.ID, b.ID}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("claimed %v, want %v", got, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 2)
		go func() { _, err := r.Claim(ctx, r1); gone <- err }()
		synctest.Wait()
		cancel()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("a claim that is given up: %v", err)
		}
		go func() { _, err := r.Claim(t.Context(), r1); gone <- err }()
		synctest.Wait()
		r.Close()
		if err := <-gone; !errors.Is(err, ErrClosed) {
			t.Errorf("a claim of a coordinator that closes: %v", err)
		}
	})
}

func TestDemands(t *testing.T) {
	full := runner.Description{ID: "full", Instance: "1", Hostname: "h", Tags: []string{"a", "b", "c"}, Executors: []string{"exec", "x"}, ProjectDirs: []string{"/p", "/q"}}
	bare := runner.Description{ID: "bare", Instance: "1", Executors: []string{"exec"}}
	for name, tt := range map[string]struct {
		demands api.Demands
		project string
		full    bool
		bare    bool
	}{
		"nothing":          {api.Demands{}, "", true, true},
		"tags":             {api.Demands{Tags: []string{"a", "c"}}, "", true, false},
		"one tag too many": {api.Demands{Tags: []string{"a", "d"}}, "", false, false},
		"hostname":         {api.Demands{Hostname: "h"}, "", true, false},
		"other hostname":   {api.Demands{Hostname: "H"}, "", false, false},
		"executor type":    {api.Demands{ExecutorType: "x"}, "", true, false},
		"project dir":      {api.Demands{ProjectDir: "/p"}, "", true, false},
		"below it":         {api.Demands{ProjectDir: "/p/x"}, "", false, false},
		"work below it":    {api.Demands{}, "/p/x", true, true},
		"work beside it":   {api.Demands{}, "/px", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := &live{demands: tt.demands, project: tt.project, executor: "exec"}
			if l.fits(full) != tt.full || l.fits(bare) != tt.bare {
				t.Errorf("fits: %v and %v, want %v and %v", l.fits(full), l.fits(bare), tt.full, tt.bare)
			}
		})
	}
	if (&live{executor: "other"}).fits(full) {
		t.Error("a runner without the executor fits")
	}
	if _, err := JoinDemands(api.Demands{Hostname: "a"}, api.Demands{Hostname: "b"}); err == nil {
		t.Error("two hostnames are joined")
	}
	if d, err := JoinDemands(api.Demands{Tags: []string{"b", "a"}}, api.Demands{Tags: []string{"a", "c"}, Hostname: "h"}); err != nil || fmt.Sprint(d.Tags) != "[a b c]" || d.Hostname != "h" {
		t.Errorf("joined: %+v, %v", d, err)
	}
}

func TestNoMatch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.idle(runner.Description{ID: "small", Instance: "1", Hostname: "box", Tags: []string{"cpu"}, Executors: []string{"exec"}})
		run := r.start(ada, api.NewRun{Agent: "worker", Demands: &api.Demands{Tags: []string{"gpu"}}})
		later(5*time.Minute - time.Second)
		r.check(run, api.RunPending, api.AgentPending)
		later(time.Second)
		r.check(run, api.RunFailed, api.AgentFailed)
		got := must(r.Run(t.Context(), ada, run.ID)).Error
		for _, words := range []string{"5m0s", "the tags gpu", "the executor exec", "small (hostname box; tags cpu; executors exec"} {
			if got.Kind != api.KindInfrastructure || !strings.Contains(got.Message, words) {
				t.Errorf("the error is %+v, without %q", got, words)
			}
		}
		if want := []string{"pending", "failed"}; !slices.Equal(r.events(run), want) {
			t.Errorf("events %v", r.events(run))
		}
		// A runner that is busy fits all the same.
		busy := r.agent(ada, "worker")
		c := r.running(busy)
		waits := r.agent(ada, "worker")
		for range 40 {
			later(20 * time.Second)
			if _, err := r.Renew(t.Context(), c.Run, c.Number); err != nil {
				t.Fatal(err)
			}
		}
		r.check(waits, api.RunPending, api.AgentPending)
		r.report(c, done(""))
		later(5 * time.Minute) // the runner has gone
		r.check(waits, api.RunFailed, api.AgentFailed)
		later(20 * time.Minute)
		run = r.agent(ada, "worker")
		later(5 * time.Minute)
		if got := must(r.Run(t.Context(), ada, run.ID)).Error; got == nil || !strings.Contains(got.Message, "There are no runners") {
			t.Errorf("without runners: %+v", got)
		}
	})
}

func TestLostRunners(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		run := r.agent(ada, "worker")
		c := r.running(run)
		later(29 * time.Second)
		if a := must(r.Renew(ctx, c.Run, c.Number)); a.Stop || time.Until(a.Until) != 30*time.Second {
			t.Errorf("renewed: %+v", a)
		}
		later(29 * time.Second)
		r.check(run, api.RunRunning, api.AgentRunning)
		later(time.Second)
		r.check(run, api.RunFailed, api.AgentIdle)
		if e := must(r.Run(ctx, ada, run.ID)).Error; e.Kind != api.KindLost || !strings.Contains(e.Message, "runner r1") {
			t.Errorf("lost: %+v", e)
		}
		if _, err := r.Report(ctx, c.Run, c.Number, done("late")); !errors.Is(err, runner.ErrStale) {
			t.Errorf("a late report: %v", err)
		}

		// One that its blueprint has retried is pending again, until it was lost too often.
		run = r.agent(ada, "again")
		for i := range mostLost {
			c := r.running(run)
			if c.Number != int64(i+1) || c.Events != 0 {
				t.Errorf("claim %d: %+v", i, c)
			}
			r.report(c, runner.Report{Events: []executor.Event{text("x")}})
			later(30 * time.Second)
			r.check(run, api.RunPending, api.AgentRunning)
			if _, err := r.Report(ctx, c.Run, c.Number, done("late")); !errors.Is(err, runner.ErrStale) {
				t.Errorf("a late report: %v", err)
			}
		}
		c = r.running(run)
		later(30 * time.Second)
		r.check(run, api.RunFailed, api.AgentIdle)
		testkit.Has(t, "the error", must(r.Run(ctx, ada, run.ID)).Error.Message, "begun 4 times")
		// One that is stopping was stopped.
		run = r.agent(ada, "again")
		c = r.running(run)
		must(r.Stop(ctx, ada, StopRun{Run: run.ID}))
		later(30 * time.Second)
		r.check(run, api.RunStopped, api.AgentIdle)
	})
}

func TestStops(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		stop := func(run api.Run) api.Run {
			t.Helper()
			return must(r.Stop(ctx, ada, StopRun{Run: run.ID})).Run
		}
		run := r.agent(ada, "worker")
		if got := stop(run); got.State != api.RunStopped || !strings.Contains(got.Error.Message, "stopped by ada") {
			t.Errorf("stopped: %+v", got)
		}
		stop(run)
		r.check(run, api.RunStopped, api.AgentStopped)

		run = r.agent(ada, "worker")
		c := r.claim(r1)
		told := make(chan error, 1)
		go func() { told <- r.Stopping(ctx, c.Run, c.Number) }()
		synctest.Wait()
		if got := stop(run); got.State != api.RunStopping {
			t.Errorf("stopped: %+v", got)
		}
		if err := <-told; err != nil {
			t.Errorf("the runner is told %v", err)
		}
		if a := must(r.Renew(ctx, c.Run, c.Number)); !a.Stop {
			t.Error("a renewal does not say stop")
		}
		r.report(c, failed("never began"))
		r.check(run, api.RunStopped, api.AgentStopped)

		run = r.agent(ada, "worker")
		c = r.running(run)
		stop(run)
		stop(run)
		if a := r.report(c, runner.Report{Events: []executor.Event{text("x")}}); !a.Stop {
			t.Error("a report's answer does not say stop")
		}
		r.again()
		c = r.claim(runner.Description{ID: "r1", Instance: "2", Executors: []string{"exec"}})
		if err := r.Stopping(ctx, c.Run, c.Number); err != nil || !c.Adopted {
			t.Errorf("after a restart: %v, %+v", err, c)
		}
		r.report(c, done("just in time"))
		r.check(run, api.RunStopped, api.AgentIdle)
		if got := stop(run); got.Result.Text != "just in time" || got.Error != nil {
			t.Errorf("ended while stopping: %+v", got)
		}
		if want := []string{"pending", "claimed", "running", "stopping", `text "x"`, "stopping", "stopped"}; !slices.Equal(r.events(run), want) {
			t.Errorf("events %q", r.events(run))
		}
	})
}

func TestRestart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		var queued []api.Run
		had := r.agent(ada, "worker")
		c := r.running(had)
		r.report(c, runner.Report{Events: []executor.Event{text("1"), text("2")}})
		for range 5 {
			queued = append(queued, r.agent(ada, "worker"))
		}
		later(20 * time.Second)
		r.again()
		later(29 * time.Second) // the lease began anew
		r.check(had, api.RunRunning, api.AgentRunning)
		// The runner did not restart: its claim is good.
		if _, err := r.Renew(ctx, c.Run, c.Number); err != nil {
			t.Errorf("renew after a restart: %v", err)
		}
		if got := r.claim(r1); got.Run != queued[0].ID || got.Adopted {
			t.Errorf("claimed %+v, want the oldest", got)
		}
		// Now it does, and has two runs.
		again := r1
		again.Instance = "2"
		a, b := r.claim(again), r.claim(again)
		if a.Run != had.ID || !a.Adopted || a.Number != 2 || a.Events != 2 || b.Run != queued[0].ID || !b.Adopted {
			t.Errorf("adopted %+v and %+v", a, b)
		}
		if _, err := r.Renew(ctx, c.Run, c.Number); !errors.Is(err, runner.ErrStale) {
			t.Errorf("renew of the runner before: %v", err)
		}
		if _, err := r.Claim(ctx, r1); err == nil || !strings.Contains(err.Error(), "runner r1 has been started again") {
			t.Errorf("claim of the runner before: %v", err)
		}
		for _, want := range queued[1:] {
			if got := r.claim(again); got.Run != want.ID {
				t.Errorf("claimed %s, want %s", got.Run, want.ID)
			}
		}
		later(31 * time.Second)
		for _, run := range append(queued, had) {
			if s := r.state(run.ID); s != api.RunFailed {
				t.Errorf("%s is %s without its runner", run.ID, s)
			}
		}
	})
}

func TestDamagedRecords(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		bad, good, badSession := r.agent(ada, "worker"), r.agent(ada, "worker"), r.agent(ada, "worker")
		r.do(bad, done(""))
		bad = r.start(ada, api.NewRun{Session: bad.Session, Prompt: "x"})
		err := r.db.ChangeAgents(ctx, func(tx store.AgentTx) error {
			row, _, err := tx.Run(bad.ID)
			row.Data = []byte(`{"job": tor`)
			sess, _, err2 := tx.AgentSession(badSession.Session)
			sess.Data = nil
			return errors.Join(err, err2, tx.PutRun(row), tx.PutAgentSession(sess))
		})
		if err != nil {
			t.Fatal(err)
		}
		r.again()
		r.check(bad, api.RunFailed, api.AgentIdle)
		if e := must(r.Run(ctx, ada, bad.ID)).Error; !strings.Contains(e.Message, "damaged") {
			t.Errorf("a damaged run: %+v", e)
		}
		r.do(good, done("fine"))
		r.do(badSession, done("fine"))
		_, err = r.Start(ctx, ada, NewRun{NewRun: api.NewRun{Session: good.Session, Prompt: "x"}})
		if err != nil {
			t.Error(err)
		}
	})
}

// A run that its runner did not see to its end fails, or is done again where its blueprint
// says so, or was stopped.
func TestLostByItsRunner(t *testing.T) {
	lost := runner.Report{Ended: true, Error: &api.Error{Kind: api.KindLost, Message: "the runner ended"}}
	bubble(t, func(t *testing.T, r *rig) {
		run := r.agent(ada, "worker")
		r.do(run, lost)
		r.check(run, api.RunFailed, api.AgentIdle)
		run = r.agent(ada, "again")
		c := r.running(run)
		if ids := must(r.Claimed(t.Context(), r1.ID)); len(ids) != 1 || ids[0] != run.ID || len(must(r.Claimed(t.Context(), "other"))) != 0 {
			t.Errorf("claimed are %v", ids)
		}
		r.report(c, lost)
		r.check(run, api.RunPending, api.AgentRunning)
		if ids := must(r.Claimed(t.Context(), r1.ID)); len(ids) != 0 {
			t.Errorf("claimed are %v", ids)
		}
		r.do(run, done("fine"))
		r.check(run, api.RunCompleted, api.AgentIdle)
		run = r.agent(ada, "again")
		c = r.running(run)
		must(r.Stop(t.Context(), ada, StopRun{Run: run.ID}))
		r.report(c, lost)
		r.check(run, api.RunStopped, api.AgentIdle)
		run = r.agent(ada, "again")
		for range mostLost {
			r.do(run, lost)
			r.check(run, api.RunPending, api.AgentRunning)
		}
		r.do(run, lost)
		r.check(run, api.RunFailed, api.AgentIdle)
	})
}

// A persistent program has the token of the first run of its session, and acts for the one
// that goes on.
func TestTokenOfAnEarlierRun(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		first := r.agent(ada, "boss")
		r.do(first, done("fine"))
		_, err := r.Start(t.Context(), as(first), NewRun{NewRun: api.NewRun{Agent: "worker", Prompt: "x"}})
		refusedWith(t, err, api.KindRefused, "is completed")
		second := r.start(ada, api.NewRun{Session: first.Session, Prompt: "again"})
		r.running(second)
		child := r.start(as(first), api.NewRun{Agent: "worker", Prompt: "x"})
		if child.Parent != first.Session {
			t.Errorf("the child is %+v", child)
		}
		row, _, err := r.db.Run(t.Context(), child.ID)
		if err != nil || readRun(row).d.ParentRun != second.ID {
			t.Errorf("its parent run is %q, %v, want %s", readRun(row).d.ParentRun, err, second.ID)
		}
	})
}

func TestPlaces(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		me := r1
		me.Places = 2
		a, b, c := r.agent(ada, "boss"), r.agent(bob, "boss"), r.agent(bob, "worker")
		first, second := r.begin(me), r.begin(me)
		if first.Run != a.ID || second.Run != b.ID || !r.idle(me) {
			t.Fatal("two places are not two runs")
		}
		// A child that its parent does not wait for needs a place of its own; one that it waits
		// for has the parent's, and no other one has it.
		other := r.start(as(a), api.NewRun{Agent: "worker", Prompt: "x", Mode: api.ModeAsyncCallback})
		if !r.idle(me) {
			t.Error("a third run works in two places")
		}
		one := r.start(as(a), api.NewRun{Agent: "worker", Prompt: "x", Mode: api.ModeSync})
		two := r.start(as(a), api.NewRun{Agent: "worker", Prompt: "x", Mode: api.ModeAsyncPoll})
		child := r.begin(me)
		if child.Run != one.ID || !r.idle(me) {
			t.Errorf("the place of %s was lent to %s, and not to %s alone", a.ID, child.Run, one.ID)
		}
		// The parent has its place back.
		r.report(child, done(""))
		if child = r.begin(me); child.Run != two.ID {
			t.Errorf("the place was lent to %s, not to %s", child.Run, two.ID)
		}
		r.report(child, done(""))
		if !r.idle(me) {
			t.Error("a run has the place of one that works again")
		}
		// An end wakes a claim that waits for a place.
		waits := make(chan string, 1)
		go func() { waits <- must(r.Claim(t.Context(), me)).Run }()
		synctest.Wait()
		r.report(second, done(""))
		if got := <-waits; got != c.ID && got != other.ID {
			t.Errorf("claimed %s", got)
		}
		// A runner without places has what it had, and fits no run.
		me.Instance, me.Places = "2", -1
		for range 2 {
			if c := r.claim(me); !c.Adopted {
				t.Errorf("a runner without places claimed %s anew", c.Run)
			}
		}
		if !r.idle(me) {
			t.Error("a runner without places claims")
		}
	})
}

// begin claims a run and reports that it runs.
func (r *rig) begin(me runner.Description) runner.Claim {
	c := r.claim(me)
	r.report(c, runner.Report{Running: true})
	return c
}
