package agent

import (
	"context"
	"errors"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/store"
)

// TestMoves tries every pair of states.
func TestMoves(t *testing.T) {
	const (
		p, c, r, g = api.RunPending, api.RunClaimed, api.RunRunning, api.RunStopping
		ok, f, x   = api.RunCompleted, api.RunFailed, api.RunStopped
	)
	runs := map[[2]string]bool{
		{"", p}: true,
		{p, c}:  true, {p, f}: true, {p, x}: true,
		{c, r}: true, {c, g}: true, {c, f}: true, {c, p}: true,
		{r, ok}: true, {r, f}: true, {r, g}: true, {r, p}: true,
		{g, x}: true,
	}
	sessions := map[[2]string]bool{
		{"", api.AgentPending}:               true,
		{api.AgentPending, api.AgentRunning}: true, {api.AgentPending, api.AgentFailed}: true, {api.AgentPending, api.AgentStopped}: true,
		{api.AgentRunning, api.AgentIdle}: true,
		{api.AgentIdle, api.AgentRunning}: true, {api.AgentIdle, api.AgentFinished}: true, {api.AgentIdle, api.AgentFailed}: true, {api.AgentIdle, api.AgentStopped}: true,
	}
	bubble(t, func(t *testing.T, rig *rig) {
		nothing := errors.New("nothing is written")
		try := func(do func(c *change) error) (err error) {
			if got := rig.change(context.Background(), func(c *change) error {
				err = do(c)
				return nothing
			}); got != nothing {
				t.Fatal(got)
			}
			return err
		}
		states := []string{"", p, c, r, g, ok, f, x}
		for _, from := range states {
			for _, to := range states {
				one := &run{Run: store.Run{ID: "run_1", Session: "ses_1", State: from}}
				err := try(func(c *change) error { return c.move(one, to) })
				if (err == nil) != runs[[2]string{from, to}] {
					t.Errorf("a run that is %q becomes %q: %v", from, to, err)
				}
				if moved := one.State == to; moved != (err == nil) && from != to {
					t.Errorf("a run that was %q is %q after %v", from, one.State, err)
				}
			}
		}
		states = []string{"", api.AgentPending, api.AgentRunning, api.AgentIdle, api.AgentFinished, api.AgentFailed, api.AgentStopped}
		for _, from := range states {
			for _, to := range states {
				one := &session{AgentSession: store.AgentSession{ID: "ses_1", State: from}}
				if err := try(func(c *change) error { return c.moveSession(one, to) }); (err == nil) != sessions[[2]string{from, to}] {
					t.Errorf("a session that is %q becomes %q: %v", from, to, err)
				}
			}
		}
	})
}
