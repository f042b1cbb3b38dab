package gateway

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/control/access"
	"github.com/tine-mcp/tine/internal/identity"
)

// The executor API is for the program of a run. It tells of its work by it, where it does not
// print that, and asks for other agents. The program knows one URL, which has the token of its
// run in it, and sends no other credential:
//
//	/executor/{token}/...
const executorPrefix = "/executor"

// Executors are where events of runs go that their programs post.
type Executors interface {
	// Post takes an event of a run from the program that has the token of the run by. When it
	// returns the event is told, whatever becomes of the gateway.
	Post(ctx context.Context, run, by string, event []byte) error
}

// ExecutorURL is the executor API for the token of a run, at a gateway with a URL.
func ExecutorURL(base, token string) string { return base + executorPrefix + "/" + token }

// withPathToken takes the token out of the path of the executor API, so that it is in no log
// and no error, and is a credential like any other.
func withPathToken(r *http.Request) *http.Request {
	rest, ok := strings.CutPrefix(r.URL.Path, executorPrefix+"/")
	if !ok {
		return r
	}
	token, rest, _ := strings.Cut(rest, "/")
	r = r.Clone(r.Context())
	r.URL.Path, r.URL.RawPath, r.RequestURI = executorPrefix+"/"+rest, "", ""
	if credential := "Bearer " + token; r.Header.Get("Authorization") != credential {
		r.Header.Add("Authorization", credential) // a second one is refused
	}
	return r
}

// serveExecutor answers the program of a run.
func (g *Gateway) serveExecutor(w http.ResponseWriter, r *http.Request, who identity.Principal) {
	switch {
	case g.o.Agents == nil:
		refuseError(w, noAgents)
	case who.Run == "":
		refuse(w, http.StatusForbidden, api.KindRefused, "the executor API is for programs of runs: its URL has the token of one")
	default:
		g.serveActions(w, r, who, g.executors)
	}
}

// executorActions is the executor API with its document.
func executorActions(version string) *actions {
	return newActions("Tine executors",
		"What the program of a run tells the gateway, and asks of it. The paths begin with the URL in AGENT_ORCHESTRATOR_API_URL, which has the token of the run in it.",
		executorPrefix, executorRoutes(), version)
}

func executorRoutes() []action {
	list := []action{
		{method: get, pattern: "/openapi.json", name: "openAPI", summary: "This document", operation: op((*Gateway).executorDocument)},
		{method: get, pattern: "/health", name: "health", summary: "Whether the gateway is there, and the token good", operation: op((*Gateway).health)},

		{method: post, pattern: "/bind", name: "bind", summary: "Say what the program calls its conversation", operation: op((*Gateway).executorBind)},
		{method: post, pattern: "/events", name: "event", summary: "Tell of the run: a message, a tool's call or return, the result", operation: op((*Gateway).executorEvent)},
		{method: patch, pattern: "/metadata", name: "metadata", summary: "The same as bind, which may say nothing", operation: op((*Gateway).executorMetadata)},
		{method: post, pattern: "/sessions/{session}/bind", name: "bindSession", summary: "bind, with the session in the path", operation: op((*Gateway).executorBind)},
		{method: post, pattern: "/sessions/{session}/events", name: "sessionEvent", summary: "event, with the session in the path", operation: op((*Gateway).executorEvent)},
		{method: patch, pattern: "/sessions/{session}/metadata", name: "sessionMetadata", summary: "metadata, with the session in the path", operation: op((*Gateway).executorMetadata)},

		{method: get, pattern: "/sessions", name: "listSessions", heavy: true, summary: "The program's own session, and those below it", operation: op((*Gateway).executorSessions)},
		{method: get, pattern: "/sessions/{session}", name: "getSession", summary: "One of them", operation: op((*Gateway).executorSession)},
		{method: get, pattern: "/sessions/{session}/status", name: "sessionStatus", summary: "Its state; not_existent where there is none", operation: op((*Gateway).executorStatus)},
		{method: get, pattern: "/sessions/{session}/result", name: "sessionResult", summary: "What its last run has come to", operation: op((*Gateway).executorResult)},
		{method: post, pattern: "/sessions/{session}/stop", name: "stopSession", empty: true, summary: "Stop the run of a session below", operation: op((*Gateway).executorStopSession)},
		{method: del, pattern: "/sessions/{session}", name: "deleteSession", summary: "Close a session below", operation: op((*Gateway).executorDelete)},

		{method: get, pattern: "/runs", name: "listRuns", heavy: true, summary: "The runs of these sessions, newest first", operation: op((*Gateway).executorRuns)},
		{method: post, pattern: "/runs", name: "startRun", keyed: true, summary: "Start an agent, or resume the session of one", operation: op((*Gateway).executorStart)},
		{method: get, pattern: "/runs/{run}", name: "getRun", summary: "One run", operation: op((*Gateway).executorRun)},
		{method: post, pattern: "/runs/{run}/stop", name: "stopRun", empty: true, summary: "Stop a run below", operation: op((*Gateway).executorStop)},

		{method: get, pattern: "/agents", name: "listAgents", summary: "The agents that the program may start", operation: op((*Gateway).executorAgents)},
		{method: get, pattern: "/agents/{agent}", name: "getAgent", summary: "One of them", operation: op((*Gateway).executorAgent)},
	}
	for i := range list {
		list[i].role, list[i].bound, list[i].right = api.RoleUser, true, access.Freely
	}
	return list
}

func (g *Gateway) executorDocument(*ask, none) (rawJSON, error) { return g.executors.document() }

// own refuses a session that is not the program's.
func (a *ask) own(named string) error {
	for _, id := range []string{named, a.args["session"]} {
		if id != "" && id != a.who.Session {
			return &api.Error{Kind: api.KindRefused, Status: http.StatusForbidden,
				Message: "session " + clip(id) + " is not the one of this token, which is for " + a.who.Session}
		}
	}
	return nil
}

// tellRun tells of the run of the program.
func (g *Gateway) tellRun(a *ask, named string, event []byte) error {
	if err := a.own(named); err != nil {
		return err
	}
	run, err := g.o.Agents.Self(a.ctx(), a.who)
	if err != nil {
		return err
	}
	return g.o.Executors.Post(a.ctx(), run.ID, a.who.Run, event)
}

func (g *Gateway) executorBind(a *ask, in api.ExecutorBind) (api.ExecutorSessionIs, error) {
	event, err := json.Marshal(executor.Posted{Type: executor.PostedBind, ExecutorSession: in.ExecutorSession})
	if err == nil {
		err = g.tellRun(a, in.Session, event)
	}
	if err != nil {
		return api.ExecutorSessionIs{}, err
	}
	out, err := g.executorSessionOf(a, a.who.Session)
	if err == nil {
		out.ExecutorSession = in.ExecutorSession // which is on its way
	}
	return api.ExecutorSessionIs{OK: true, Session: out}, err
}

func (g *Gateway) executorMetadata(a *ask, in api.ExecutorBind) (api.ExecutorSessionIs, error) {
	if in.ExecutorSession != "" {
		return g.executorBind(a, in)
	}
	if err := a.own(in.Session); err != nil {
		return api.ExecutorSessionIs{}, err
	}
	out, err := g.executorSessionOf(a, a.who.Session)
	return api.ExecutorSessionIs{OK: true, Session: out}, err
}

// executorEvent takes what the program's library sends, which may have fields that say
// nothing here.
func (g *Gateway) executorEvent(a *ask, in json.RawMessage) (made[api.ExecutorOK], error) {
	var of struct {
		executor.Posted
		Session string `json:"session_id"`
	}
	if err := json.Unmarshal(in, &of); err != nil {
		return made[api.ExecutorOK]{}, invalid("unreadable body: %s", jsonMistake(err))
	}
	return made[api.ExecutorOK]{api.ExecutorOK{OK: true}, true}, g.tellRun(a, of.Session, in)
}

func shownSession(s api.AgentSession) api.ExecutorSession {
	return api.ExecutorSession{ID: s.ID, Status: s.State, Agent: s.Agent, ProjectDir: s.ProjectDir, Parent: s.Parent, ExecutorSession: s.ExecutorSession, Created: s.Created}
}

func (g *Gateway) executorSessionOf(a *ask, id string) (api.ExecutorSession, error) {
	s, err := g.o.Agents.Session(a.ctx(), a.who, id)
	return shownSession(s), err
}

func (g *Gateway) executorSessions(a *ask, _ none) (api.ExecutorSessions, error) {
	out := api.ExecutorSessions{Sessions: []api.ExecutorSession{}}
	for f := (agent.Filter{Limit: 1000}); ; {
		list, err := g.o.Agents.Sessions(a.ctx(), a.who, f)
		if err != nil {
			return out, err
		}
		for _, s := range list.Sessions {
			out.Sessions = append(out.Sessions, shownSession(s))
		}
		if f.Before = list.Next; f.Before == "" {
			return out, nil
		}
	}
}

func (g *Gateway) executorSession(a *ask, _ none) (api.ExecutorSessionIs, error) {
	s, err := g.executorSessionOf(a, a.args["session"])
	return api.ExecutorSessionIs{Session: s}, err
}

func (g *Gateway) executorStatus(a *ask, _ none) (api.ExecutorStatus, error) {
	s, err := g.executorSessionOf(a, a.args["session"])
	if err != nil && asError(err).Status == http.StatusNotFound {
		return api.ExecutorStatus{Status: "not_existent"}, nil
	}
	return api.ExecutorStatus{Status: s.Status}, err
}

func (g *Gateway) executorResult(a *ask, _ none) (out api.ExecutorResult, err error) {
	r, err := g.o.Agents.Result(a.ctx(), a.who, a.args["session"])
	if r.Text != "" {
		out.Text = &r.Text
	}
	out.Data, out.Result = r.Data, r.Text
	return out, err
}

// executorStopped is what stopRun and stopSession answer.
func (g *Gateway) executorStopped(a *ask, run string) (api.ExecutorRunIs, error) {
	r, err := g.o.Agents.Stop(a.ctx(), a.who, agent.StopRun{Run: run})
	return shownRun(r.Run), err
}

func (g *Gateway) executorStop(a *ask, _ none) (api.ExecutorRunIs, error) {
	return g.executorStopped(a, a.args["run"])
}

func (g *Gateway) executorStopSession(a *ask, _ none) (api.ExecutorRunIs, error) {
	s, err := g.o.Agents.Session(a.ctx(), a.who, a.args["session"])
	if err != nil {
		return api.ExecutorRunIs{}, err
	}
	return g.executorStopped(a, s.Run)
}

func (g *Gateway) executorDelete(a *ask, _ none) (api.ExecutorOK, error) {
	_, err := g.o.Agents.Shut(a.ctx(), a.who, agent.CloseSession{Session: a.args["session"], Below: true})
	return api.ExecutorOK{OK: true}, err
}

func shownRun(r api.Run) api.ExecutorRunIs {
	out := api.ExecutorRunIs{
		ID: r.ID, Type: api.ExecutorStart, Session: r.Session, Agent: r.Agent, Parameters: r.Parameters, ProjectDir: r.ProjectDir, Parent: r.Parent, Mode: r.Mode,
		Status: r.State, Runner: r.Runner, Created: r.Created, Started: r.Started, Ended: r.Ended,
	}
	if r.Resume {
		out.Type = api.ExecutorResume
	}
	if r.Error != nil {
		out.Error = r.Error.Message
	}
	return out
}

func (g *Gateway) executorStart(a *ask, in api.ExecutorRun) (made[api.ExecutorRunIs], error) {
	run := api.NewRun{Agent: in.Agent, Parameters: in.Parameters, Prompt: in.Prompt, ProjectDir: in.ProjectDir, Mode: in.Mode, Demands: in.Demands}
	switch in.Type {
	case api.ExecutorStart:
		if in.Session != "" {
			return made[api.ExecutorRunIs]{}, invalid("session_id: a new session gets an id of the gateway's; leave it out, or say %s", api.ExecutorResume)
		}
	case api.ExecutorResume:
		run.Session = in.Session
	default:
		return made[api.ExecutorRunIs]{}, invalid("type must be %s or %s", api.ExecutorStart, api.ExecutorResume)
	}
	if err := a.own(in.Parent); err != nil {
		return made[api.ExecutorRunIs]{}, err
	}
	r, err := a.request()
	if err != nil {
		return made[api.ExecutorRunIs]{}, err
	}
	out, err := g.startFor(a.ctx(), a.who, a.r, agent.NewRun{NewRun: run, Key: r.Key})
	return made[api.ExecutorRunIs]{shownRun(out), true}, err
}

func (g *Gateway) executorRun(a *ask, _ none) (api.ExecutorRunIs, error) {
	r, err := g.o.Agents.Run(a.ctx(), a.who, a.args["run"])
	return shownRun(r), err
}

func (g *Gateway) executorRuns(a *ask, _ none) (api.ExecutorRuns, error) {
	out := api.ExecutorRuns{Runs: []api.ExecutorRunIs{}}
	for f := (agent.Filter{Limit: 1000}); ; {
		list, err := g.o.Agents.Runs(a.ctx(), a.who, f)
		if err != nil {
			return out, err
		}
		for _, r := range list.Runs {
			out.Runs = append(out.Runs, shownRun(r))
		}
		if f.Before = list.Next; f.Before == "" {
			return out, nil
		}
	}
}

func shownAgent(a api.Agent) api.ExecutorAgent {
	out := api.ExecutorAgent{Name: a.Name, Description: a.Description, Type: "autonomous", Tags: a.Tags, Parameters: a.Parameters, Result: a.Result, Status: "active"}
	if a.Procedural {
		out.Type = "procedural"
	}
	if out.Tags == nil {
		out.Tags = []string{}
	}
	return out
}

type executorAgentsQuery struct {
	Tags string `query:"tags" doc:"only agents with all of these tags, with commas between them"`
}

// executorAgentList is a list of agents, which such programs want as it is.
type executorAgentList []api.ExecutorAgent

func (g *Gateway) executorAgents(a *ask, q executorAgentsQuery) (executorAgentList, error) {
	if q.Tags != "" {
		a.r.Header.Add(headerAgentTags, q.Tags)
	}
	list, err := g.agentsFor(a.ctx(), a.who, a.r)
	out := executorAgentList{}
	for _, one := range list.Agents {
		if len(one.Problems) == 0 {
			out = append(out, shownAgent(one))
		}
	}
	return out, err
}

func (g *Gateway) executorAgent(a *ask, _ none) (api.ExecutorAgent, error) {
	one, err := g.agentFor(a.ctx(), a.who, a.r, a.args["agent"])
	return shownAgent(one), err
}
