package client

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"

	"github.com/tine-mcp/tine/api"
)

// Agents lists the agents that the caller may start.
func (c *Client) Agents(ctx context.Context) (*api.AgentList, error) {
	return get[api.AgentList](ctx, c, nil, "v1", "agents")
}

// Agent returns one agent.
func (c *Client) Agent(ctx context.Context, name string) (*api.Agent, error) {
	return get[api.Agent](ctx, c, nil, "v1", "agents", name)
}

// Blueprint returns the blueprint of an agent that was put, as it was written.
func (c *Client) Blueprint(ctx context.Context, name string) (json.RawMessage, error) {
	out, err := get[json.RawMessage](ctx, c, nil, "v1", "agents", name, "blueprint")
	if err != nil {
		return nil, err
	}
	return *out, nil
}

// PutAgent keeps a blueprint as an agent, in the place of the one that it had. What keeps
// the agent from being started for now is in its Problems.
func (c *Client) PutAgent(ctx context.Context, name string, blueprint json.RawMessage) (*api.Agent, error) {
	var out api.Agent
	// As it is, so that a mistake has the place that it was written at.
	r := request{method: http.MethodPut, upload: bytes.NewReader(blueprint), media: "application/json", path: []string{"v1", "agents", name}}
	if err := c.exchange(ctx, r, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// DeleteAgent forgets a blueprint that was put. Runs of it continue.
func (c *Client) DeleteAgent(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, nil, "v1", "agents", name)
}

// StartRun starts an agent, or resumes the session that the request names. It returns as
// soon as the run is accepted.
func (c *Client) StartRun(ctx context.Context, in api.NewRun, options ...CreateOption) (*api.Run, error) {
	return create[api.Run](ctx, c, in, options, "v1", "runs")
}

// RunQuery chooses runs. Zero fields choose all that the caller may see.
type RunQuery struct {
	Session string
	Parent  string // the session of the agent that started them
	Agent   string
	State   []string // any of them
	Limit   int      // of one page; zero leaves it to the gateway
	After   string   // the Next of the page before
}

func (q RunQuery) values() url.Values {
	v := page(q.Limit, q.After)
	set(v, "session", q.Session)
	set(v, "parent", q.Parent)
	set(v, "agent", q.Agent)
	for _, state := range q.State {
		v.Add("state", state)
	}
	return v
}

// Runs returns a page of runs, the newest first.
func (c *Client) Runs(ctx context.Context, q RunQuery) (*api.RunList, error) {
	return get[api.RunList](ctx, c, q.values(), "v1", "runs")
}

// AllRuns goes through the runs of all pages. It ends after the first error.
func (c *Client) AllRuns(ctx context.Context, q RunQuery) iter.Seq2[api.Run, error] {
	return pages(q.After, func(after string) ([]api.Run, string, error) {
		q.After = after
		list, err := c.Runs(ctx, q)
		if err != nil {
			return nil, "", err
		}
		return list.Runs, list.Next, nil
	})
}

// Run returns one run. With a wait it returns when the run has ended, or after so long.
func (c *Client) Run(ctx context.Context, id string, wait time.Duration) (*api.Run, error) {
	v := url.Values{}
	if wait > 0 {
		v.Set("wait", wait.String())
	}
	return get[api.Run](ctx, c, v, "v1", "runs", id)
}

const (
	// runWait is how long one request waits for the end of a run.
	runWait = 30 * time.Second
	// runPause is between two of them: a gateway that is ending answers at once.
	runPause = 250 * time.Millisecond
)

// WaitRun returns a run when it has ended.
func (c *Client) WaitRun(ctx context.Context, id string) (*api.Run, error) {
	for {
		run, err := c.Run(ctx, id, runWait)
		if err != nil || api.RunEnded(run.State) {
			return run, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(runPause):
		}
	}
}

// StopRun asks a run to end. One that has ended stays as it is.
func (c *Client) StopRun(ctx context.Context, id string) (*api.Run, error) {
	out, err := c.stopRun(ctx, id, api.StopRun{})
	if err != nil {
		return nil, err
	}
	return &out.Run, nil
}

// StopRunTree asks a run to end, and all runs of agents that its agent has started, and
// those have started. None of these agents is resumed by the end of another one.
func (c *Client) StopRunTree(ctx context.Context, id string) (*api.StoppedRun, error) {
	return c.stopRun(ctx, id, api.StopRun{Children: true})
}

func (c *Client) stopRun(ctx context.Context, id string, in api.StopRun) (*api.StoppedRun, error) {
	var out api.StoppedRun
	if err := c.do(ctx, http.MethodPost, nil, in, &out, "v1", "runs", id, "stop"); err != nil {
		return nil, err
	}
	return &out, nil
}

// RunTree returns a run with the runs that its agent has started.
func (c *Client) RunTree(ctx context.Context, id string) (*api.RunTree, error) {
	return get[api.RunTree](ctx, c, nil, "v1", "runs", id, "tree")
}

// AgentSessionQuery chooses sessions of agents. Zero fields choose all that the caller may
// see.
type AgentSessionQuery struct {
	Agent  string
	Parent string
	State  []string
	Limit  int
	After  string
}

// AgentSessions returns a page of sessions of agents, the newest first.
func (c *Client) AgentSessions(ctx context.Context, q AgentSessionQuery) (*api.AgentSessionList, error) {
	v := page(q.Limit, q.After)
	set(v, "agent", q.Agent)
	set(v, "parent", q.Parent)
	for _, state := range q.State {
		v.Add("state", state)
	}
	return get[api.AgentSessionList](ctx, c, v, "v1", "agent-sessions")
}

// AgentSession returns the session of an agent.
func (c *Client) AgentSession(ctx context.Context, id string) (*api.AgentSession, error) {
	return get[api.AgentSession](ctx, c, nil, "v1", "agent-sessions", id)
}

// CloseAgentSession stops the work of an agent and closes its session.
func (c *Client) CloseAgentSession(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, nil, nil, nil, "v1", "agent-sessions", id)
}
