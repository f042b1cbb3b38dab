package agent

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
)

// TestStopsTree stops a boss with the agents that it has started and those that they have
// started. A plain stop leaves them at work.
func TestStopsTree(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx := t.Context()
		boss := r.agent(ada, "boss")
		c := r.running(boss)
		child := r.start(as(boss), api.NewRun{Agent: "boss", Prompt: "x", Mode: api.ModeAsyncCallback})
		below := r.running(child)
		ended := r.child(boss)
		r.do(ended, done("early"))
		grandchild := r.start(as(child), api.NewRun{Agent: "worker", Prompt: "x", Mode: api.ModeAsyncPoll})
		pending := r.child(boss)

		stopped := must(r.Stop(ctx, ada, StopRun{Run: boss.ID}))
		if stopped.State != api.RunStopping || stopped.StoppedBy != "ada" || len(stopped.Below) != 0 {
			t.Errorf("stopped by itself: %+v", stopped)
		}
		r.check(child, api.RunRunning, api.AgentRunning)
		r.check(grandchild, api.RunPending, api.AgentPending)

		stopped = must(r.Stop(ctx, ada, StopRun{Run: boss.ID, Below: true}))
		var got []string
		for _, one := range stopped.Below {
			got = append(got, one.ID+" "+one.State+" by "+one.StoppedBy)
		}
		want := []string{pending.ID + " stopped by ada", child.ID + " stopping by ada", grandchild.ID + " stopped by ada"}
		if stopped.State != api.RunStopping || !slices.Equal(got, want) {
			t.Errorf("stopped with it: %q, want %q", got, want)
		}
		r.report(below, failed("killed"))
		r.report(c, failed("killed"))
		later(time.Hour)
		r.check(boss, api.RunStopped, api.AgentIdle)
		r.check(child, api.RunStopped, api.AgentIdle)
		if last := r.last(boss.Session); last.ID != boss.ID {
			t.Errorf("the boss was resumed with %s", prompt(last))
		}
		if run := must(r.Run(ctx, vera, child.ID)); run.StoppedBy != "" {
			t.Errorf("a viewer is shown that %s has stopped it", run.StoppedBy)
		}
	})
}

// TestStoppedTreeIsNotResumed stops a tree below a boss that has ended its own work and is
// resumed by callbacks.
func TestStoppedTreeIsNotResumed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		boss := r.agent(ada, "boss")
		c := r.running(boss)
		child := r.child(boss)
		r.report(c, done("the rest comes later"))
		below := r.running(child)
		stopped := must(r.Stop(t.Context(), ada, StopRun{Run: boss.ID, Below: true}))
		if stopped.State != api.RunCompleted || stopped.StoppedBy != "" || len(stopped.Below) != 1 || stopped.Below[0].ID != child.ID {
			t.Errorf("stopped: %+v", stopped)
		}
		r.report(below, failed("killed"))
		later(time.Hour)
		r.again() // it is stored
		later(time.Hour)
		if last := r.last(boss.Session); last.ID != boss.ID || r.waiting() != 1 {
			t.Errorf("the last run of the boss is %+v, and %d callbacks wait", last, r.waiting())
		}
		// Once it is resumed, it is told.
		mine := r.start(ada, api.NewRun{Session: boss.Session, Prompt: "go on"})
		r.do(mine, done(""))
		synctest.Wait()
		if last := r.last(boss.Session); !strings.Contains(prompt(last), "stopped by ada") {
			t.Errorf("told %q", prompt(last))
		}
	})
}
