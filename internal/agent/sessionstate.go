package agent

import (
	"fmt"
	"slices"

	"github.com/tine-mcp/tine/api"
)

//	(new) ─▶ pending ──▶ running ◀──▶ idle ──▶ finished | failed | stopped
//	            └──────────────────────────────────────▶ failed | stopped
//
// A first run that ends before it began leaves nothing that a run could resume, so its
// session ends with it.
var sessionMoves = map[string][]string{
	"":               {api.AgentPending},
	api.AgentPending: {api.AgentRunning, api.AgentFailed, api.AgentStopped},
	api.AgentRunning: {api.AgentIdle},
	api.AgentIdle:    {api.AgentRunning, api.AgentFinished, api.AgentFailed, api.AgentStopped},
}

// moveSession changes the state of a session. The caller puts it.
func (c *change) moveSession(s *session, to string) error {
	if !slices.Contains(sessionMoves[s.State], to) {
		return fmt.Errorf("agent session %s is %s, and can't become %s", s.ID, s.State, to)
	}
	s.State = to
	if !s.ended() {
		return nil
	}
	// Nothing resumes it any more, so what waits for it is told to nobody.
	waiting, err := c.Callbacks(s.ID)
	if err != nil {
		return err
	}
	for _, cb := range waiting {
		if err := c.DeleteCallback(cb.N); err != nil {
			return err
		}
	}
	return c.leave(errandClose, s.ID, s.d.Run)
}

// endState is the state that a session ends in after a run.
func endState(run string) string {
	switch run {
	case api.RunCompleted:
		return api.AgentFinished
	case api.RunStopped:
		return api.AgentStopped
	}
	return api.AgentFailed
}
