package gateway

import (
	"context"
	"errors"
	"slices"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent"
)

// What the server orchestrator does with agents, for the caller behind a handle.

// ofAgents is act for what is about agents, where there are some.
func ofAgents[Out any](c *Control, caller, route string, do func(d *callerAction) (Out, error)) (out Out, err error) {
	return act(c, caller, route, "", func(d *callerAction) (Out, error) {
		if d.g.o.Agents == nil {
			return out, noAgents
		}
		return do(d)
	})
}

// Blueprints are the agents that the caller may start.
func (c *Control) Blueprints(ctx context.Context, caller string) ([]api.Agent, error) {
	return ofAgents(c, caller, "listAgents", func(d *callerAction) ([]api.Agent, error) {
		list, err := d.g.agentsFor(ctx, d.who, d.call.from)
		return list.Agents, err
	})
}

// Start starts an agent, or resumes one.
func (c *Control) Start(ctx context.Context, caller string, in api.NewRun) (api.Run, error) {
	return ofAgents(c, caller, "startRun", func(d *callerAction) (api.Run, error) {
		if d.who.Run == "" { // its runs have no mode: the server waits for them or not
			if in.Mode == api.ModeAsyncCallback {
				return api.Run{}, invalid("mode: only an agent can be called back; use sync or async_poll")
			}
			in.Mode = ""
		}
		return d.g.startFor(ctx, d.who, d.call.from, agent.NewRun{NewRun: in, Trace: d.call.trace})
	})
}

// Run is a run of an agent as it is now, or with wait when it has ended or ctx has.
func (c *Control) Run(ctx context.Context, caller, id string, wait bool) (api.Run, error) {
	return ofAgents(c, caller, "getRun", func(d *callerAction) (api.Run, error) {
		if !wait {
			return d.g.o.Agents.Run(ctx, d.who, id)
		}
		run, err := d.g.o.Agents.Wait(ctx, d.who, id)
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			return run, nil
		}
		return run, err
	})
}

// Sessions are the sessions of the agents that the caller has started.
func (c *Control) Sessions(ctx context.Context, caller string) ([]api.AgentSession, error) {
	return ofAgents(c, caller, "listAgentSessions", func(d *callerAction) ([]api.AgentSession, error) {
		f := agent.Filter{Limit: 1000}
		if d.who.Run != "" {
			f.Parent = d.who.Session
		}
		list, err := d.g.o.Agents.Sessions(ctx, d.who, f)
		// An operator knows of all sessions, and has started his own.
		return slices.DeleteFunc(list.Sessions, func(s api.AgentSession) bool { return s.Owner != d.who.Name }), err
	})
}

// Session is one of them.
func (c *Control) Session(ctx context.Context, caller, id string) (api.AgentSession, error) {
	return ofAgents(c, caller, "getAgentSession", func(d *callerAction) (api.AgentSession, error) {
		return d.g.o.Agents.Session(ctx, d.who, id)
	})
}

// CloseAgent ends the work of a session and closes it.
func (c *Control) CloseAgent(ctx context.Context, caller, id string) error {
	_, err := ofAgents(c, caller, "closeAgentSession", func(d *callerAction) (none, error) {
		_, err := d.g.o.Agents.Shut(ctx, d.who, agent.CloseSession{Session: id, Below: true})
		return none{}, err
	})
	return err
}

// noAgents says why a gateway that does not listen has none: executors reach their
// servers over HTTP.
var noAgents = &api.Error{Kind: api.KindRefused, Message: "this gateway does not listen, so it runs no agents; run tine serve"}
