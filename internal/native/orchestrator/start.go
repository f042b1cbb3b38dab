package orchestrator

import (
	"context"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/tine-mcp/tine/api"
)

// begin starts or resumes an agent and, in the mode sync, waits for its result.
func (s *server) begin(ctx context.Context, c call, in api.NewRun) (started, error) {
	switch in.Mode {
	case "":
		in.Mode = api.ModeSync
	case api.ModeSync, api.ModeAsyncPoll, api.ModeAsyncCallback:
	default:
		return started{}, invalid("mode must be sync, async_poll or async_callback")
	}
	if in.Agent == "" && in.Session == "" {
		one, err := s.only(ctx, c)
		if err != nil {
			return started{}, err
		}
		in.Agent = one
	}
	run, err := s.agents.Start(ctx, c.caller, in)
	if err != nil {
		return started{}, err
	}
	if in.Mode != api.ModeSync {
		return started{Session: run.Session, Status: api.AgentPending}, nil
	}
	return s.await(ctx, c, run)
}

// only is the agent that a call means which names none.
func (s *server) only(ctx context.Context, c call) (string, error) {
	all, err := s.usable(ctx, c)
	if err != nil {
		return "", err
	}
	if len(all) != 1 {
		return "", invalid("agent_name is missing; list_agent_blueprints lists the %d agents that you may start", len(all))
	}
	return all[0].Name, nil
}

// pace is how often a caller that waits hears that the agent still works, so that its own
// timeout does not end the call.
const pace = 5 * time.Second

// await waits for the end of a run. A caller that leaves does not end it, and a wait that
// takes too long neither: the result stays, and the answer says how to get it.
func (s *server) await(ctx context.Context, c call, run api.Run) (started, error) {
	token := c.req.Params.GetProgressToken()
	over := time.Now().Add(s.wait)
	for n := 1; ; n++ {
		turn, cancel := context.WithTimeout(ctx, min(pace, time.Until(over)))
		now, err := s.agents.Run(turn, c.caller, run.ID, true)
		cancel()
		switch {
		case err != nil:
			return started{}, err
		case api.RunEnded(now.State):
			return ended(now)
		case ctx.Err() != nil:
			return started{}, fmt.Errorf("the caller has left; the agent goes on, and get_agent_session_result has its result: %w", ctx.Err())
		case !time.Now().Before(over):
			return started{Session: run.Session, Status: api.AgentRunning}, nil
		}
		if token != nil {
			_ = c.req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
				ProgressToken: token, Progress: float64(n), Message: fmt.Sprintf("agent %s is %s", now.Agent, now.State),
			})
		}
	}
}

// ended is the answer of a run that has ended: its result, or why there is none.
func ended(run api.Run) (started, error) {
	out := started{Session: run.Session}
	switch {
	case run.State == api.RunCompleted && run.Result != nil:
		out.Text, out.Data = &run.Result.Text, run.Result.Data
		return out, nil
	case run.State == api.RunCompleted:
		out.Text = new(string)
		return out, nil
	case run.State == api.RunStopped:
		return out, &api.Error{Kind: api.KindTool, Message: fmt.Sprintf("session %s: the agent was stopped", run.Session)}
	case run.Error != nil:
		e := *run.Error
		e.Message = fmt.Sprintf("session %s: the agent failed: %s", run.Session, e.Message)
		return out, &e
	}
	return out, &api.Error{Kind: api.KindInfrastructure, Message: fmt.Sprintf("session %s: the agent failed", run.Session)}
}

// result is the result of the last run of a session.
func (s *server) result(ctx context.Context, c call, in sessionArg) (started, error) {
	a, err := s.agents.Session(ctx, c.caller, in.Session)
	if err != nil {
		return started{}, err
	}
	run, err := s.agents.Run(ctx, c.caller, a.Run, false)
	switch {
	case err != nil:
		return started{}, err
	case !api.RunEnded(run.State):
		return started{}, &api.Error{Kind: api.KindRefused, Retryable: true, Message: fmt.Sprintf("session %s: the agent is still at work (%s); ask get_agent_session_status until it is idle", a.ID, run.State)}
	}
	if run.Withheld {
		return started{}, &api.Error{Kind: api.KindRefused, Message: fmt.Sprintf("session %s: its owner and operators read the results of its agent; it is %s", a.ID, run.State)}
	}
	return ended(run)
}

func invalid(format string, args ...any) error {
	return &api.Error{Kind: api.KindInvalid, Message: fmt.Sprintf(format, args...)}
}
