package agent

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/runner"
)

// TestWaitsFor asks why runs are pending.
func TestWaitsFor(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		waits := func(run api.Run) string {
			t.Helper()
			return must(r.Run(t.Context(), ada, run.ID)).WaitsFor
		}
		at := time.Now().Add(5 * time.Minute).UTC().Format(time.RFC3339)
		run := r.agent(ada, "worker")
		if got, want := waits(run), "a runner; none is there that takes runs, and it fails at "+at; got != want {
			t.Errorf("without runners it waits for %q, want %q", got, want)
		}
		me := r1
		me.Tags, me.Places = []string{"cpu"}, 1
		c := r.begin(me)
		demanding := r.start(ada, api.NewRun{Agent: "worker", Demands: &api.Demands{Tags: []string{"cpu", "gpu"}, Hostname: "mars"}})
		queued := r.agent(ada, "worker")
		left := make(chan runner.Claim)
		go func() { left <- must(r.Claim(t.Context(), me)) }()
		synctest.Wait()
		if got, want := waits(demanding), `a runner with the tag "gpu", on the host "mars"; none is there, and it fails at `+at; got != want {
			t.Errorf("a run that no runner fits waits for %q, want %q", got, want)
		}
		if got := must(r.Run(t.Context(), vera, demanding.ID)).WaitsFor; got != "" {
			t.Errorf("a viewer is shown what it demands: %q", got)
		}
		if got, want := waits(queued), "a place; another run has the only one (agents.concurrency of the config)"; got != want {
			t.Errorf("a run without a place waits for %q, want %q", got, want)
		}
		if got := waits(run); got != "" {
			t.Errorf("a run that works waits for %q", got)
		}
		r.report(c, done(""))
		c = <-left
		r.report(c, done(""))
		other := r.agent(ada, "worker")
		if got, want := waits(other), "a runner that fits; none has been heard of since "+time.Now().UTC().Format(time.RFC3339)+", and it fails at "+at; got != want {
			t.Errorf("without its runner it waits for %q, want %q", got, want)
		}
	})
}
