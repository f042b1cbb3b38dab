package gateway

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent"
)

// What the control API does with agents is package agent's; the principal says of which
// run it is, if it is a run's agent that asks.

func (g *Gateway) listAgents(a *ask, _ none) (api.AgentList, error) {
	return g.agentsFor(a.ctx(), a.who, a.r)
}

func (g *Gateway) getAgent(a *ask, _ none) (api.Agent, error) {
	return g.agentFor(a.ctx(), a.who, a.r, a.args["agent"])
}

// getBlueprint is not getAgent: a blueprint may hold secrets, and is for those who may
// change it.
func (g *Gateway) getBlueprint(a *ask, _ none) (rawJSON, error) {
	body, err := g.o.Book.Document(a.ctx(), a.who, a.args["agent"])
	return rawJSON(body), err
}

func (g *Gateway) putAgent(a *ask, in json.RawMessage) (made[api.Agent], error) {
	out, isNew, err := g.o.Book.PutAgent(a.ctx(), a.who, a.args["agent"], in)
	return made[api.Agent]{out, isNew}, err
}

func (g *Gateway) deleteAgent(a *ask, _ none) (none, error) {
	return none{}, g.o.Book.DeleteAgent(a.ctx(), a.who, a.args["agent"])
}

func (g *Gateway) startRun(a *ask, in api.NewRun) (api.Run, error) {
	r, err := a.request()
	if err != nil {
		return api.Run{}, err
	}
	return g.startFor(a.ctx(), a.who, a.r, agent.NewRun{NewRun: in, Key: r.Key, Trace: traceOf(a.r.Header)})
}

type runsQuery struct {
	Session string   `query:"session" doc:"only runs of this session"`
	Parent  string   `query:"parent" doc:"only runs that the agent of this session has started"`
	Agent   string   `query:"agent" doc:"only runs of this agent"`
	State   []string `query:"state" doc:"only runs in this state, or in any of them when repeated"`
	Limit   int64    `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	After   string   `query:"after" doc:"the next of an earlier answer"`
}

func (g *Gateway) listRuns(a *ask, q runsQuery) (api.RunList, error) {
	return g.o.Agents.Runs(a.ctx(), a.who, agent.Filter{
		Session: q.Session, Parent: q.Parent, Agent: q.Agent, States: q.State, Limit: int(q.Limit), Before: q.After,
	})
}

type runQuery struct {
	Wait string `query:"wait" doc:"answer when the run has ended, or after so long, up to 10m"`
}

// maxRunWait bounds how long a request waits for the end of a run.
const maxRunWait = 10 * time.Minute

func (g *Gateway) getRun(a *ask, q runQuery) (api.Run, error) {
	if q.Wait == "" {
		return g.o.Agents.Run(a.ctx(), a.who, a.args["run"])
	}
	wait, err := time.ParseDuration(q.Wait)
	if err != nil || wait <= 0 || wait > maxRunWait {
		return api.Run{}, invalid("wait must be a duration like 30s, up to %s", maxRunWait)
	}
	ctx, cancel := context.WithTimeout(a.ctx(), wait)
	defer cancel()
	stop := context.AfterFunc(g.open, cancel)
	defer stop()
	return g.waitRun(ctx, a, a.args["run"])
}

// waitRun is a run when it has ended, or as it is when ctx has.
func (g *Gateway) waitRun(ctx context.Context, a *ask, id string) (api.Run, error) {
	run, err := g.o.Agents.Wait(ctx, a.who, id)
	if err != nil && ctx.Err() != nil { // which may have broken off the reading
		return g.o.Agents.Run(a.ctx(), a.who, id)
	}
	return run, err
}

func (g *Gateway) stopRun(a *ask, in api.StopRun) (api.StoppedRun, error) {
	return g.o.Agents.Stop(a.ctx(), a.who, agent.StopRun{Run: a.args["run"], Below: in.Children})
}

func (g *Gateway) runTree(a *ask, _ none) (api.RunTree, error) {
	return g.o.Agents.Tree(a.ctx(), a.who, a.args["run"])
}

type agentSessionsQuery struct {
	Parent string   `query:"parent" doc:"only sessions of agents that the agent of this one has started"`
	Agent  string   `query:"agent" doc:"only sessions of this agent"`
	State  []string `query:"state" doc:"only sessions in this state, or in any of them when repeated"`
	Limit  int64    `query:"limit" min:"1" max:"1000" default:"100" doc:"how many at most"`
	After  string   `query:"after" doc:"the next of an earlier answer"`
}

func (g *Gateway) listAgentSessions(a *ask, q agentSessionsQuery) (api.AgentSessionList, error) {
	return g.o.Agents.Sessions(a.ctx(), a.who, agent.Filter{Parent: q.Parent, Agent: q.Agent, States: q.State, Limit: int(q.Limit), Before: q.After})
}

func (g *Gateway) getAgentSession(a *ask, _ none) (api.AgentSession, error) {
	return g.o.Agents.Session(a.ctx(), a.who, a.args["session"])
}

func (g *Gateway) closeAgentSession(a *ask, _ none) (api.AgentSession, error) {
	return g.o.Agents.Shut(a.ctx(), a.who, agent.CloseSession{Session: a.args["session"], Below: true})
}
