package agent

import (
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

// A session without a run is closed in time, but not while it waits for an agent that it
// has started.
func TestIdleSessionsAreClosed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		idle, boss := r.agent(ada, "worker"), r.agent(ada, "boss")
		r.do(idle, done(""))
		own := r.running(boss)
		child := r.running(r.start(as(boss), api.NewRun{Agent: "worker", Mode: api.ModeAsyncCallback}))
		r.report(own, done(""))
		busy := r.running(r.agent(ada, "worker"))
		for range 4 * 60 * 6 {
			later(10 * time.Second)
			for _, c := range []string{child.Run, busy.Run} {
				if _, err := r.Renew(t.Context(), c, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.check(idle, api.RunCompleted, api.AgentFinished)
		r.check(boss, api.RunCompleted, api.AgentIdle)
		if state := r.sessionState(busy.Job.Session); state != api.AgentRunning {
			t.Errorf("a session with a run is %s", state)
		}
		if len(r.book.closed) != 1 || r.book.closed[0] != idle.Session {
			t.Errorf("closed worlds: %v", r.book.closed)
		}
	}, func(r *rig) { r.o.Idle = 2 * time.Hour })
}
