package api

import (
	"bytes"
	"encoding/json"
	"time"
)

// Agent is a blueprint as it is listed: what an agent is for, and how it is started.
type Agent struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// Source is the file that it was read from; empty for one that came by the API.
	Source   string `json:"source,omitempty"`
	Executor string `json:"executor"`
	// Procedural says that a program does the work, which can't be resumed.
	Procedural   bool            `json:"procedural,omitempty"`
	Parameters   json.RawMessage `json:"parameters,omitempty"` // a JSON Schema
	Result       json.RawMessage `json:"result,omitempty"`     // likewise
	Servers      []string        `json:"servers,omitempty"`
	Capabilities []string        `json:"capabilities,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
	Agents       []string        `json:"agents,omitempty"` // that it may start, as patterns
	Demands      *Demands        `json:"demands,omitempty"`
	// Problems are why it can't be started, each with its place.
	Problems []string `json:"problems,omitempty"`
}

// AgentList is the answer to GET /v1/agents.
type AgentList struct {
	Agents []Agent `json:"agents"`
}

// Demands are what a runner must have to get a run.
type Demands struct {
	Tags         []string `json:"tags,omitempty"` // all of them
	Hostname     string   `json:"hostname,omitempty"`
	ProjectDir   string   `json:"project_dir,omitempty"`
	ExecutorType string   `json:"executor_type,omitempty"`
}

// Modes of a run that an agent starts.
const (
	ModeSync          = "sync"           // the caller waits for the result
	ModeAsyncPoll     = "async_poll"     // the caller asks for the result
	ModeAsyncCallback = "async_callback" // the caller's session is resumed with the result
)

// Parameters are those of a run, by name. Numbers that are read keep all their digits.
type Parameters map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (p *Parameters) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode((*map[string]any)(p))
}

// NewRun is the body of POST /v1/runs: work for a new agent session, or for one that is
// there. An Idempotency-Key header makes a repeated request give the same run.
type NewRun struct {
	Agent   string `json:"agent,omitempty"`   // of a new session
	Session string `json:"session,omitempty"` // to resume
	// Parameters are checked against the agent's schema. Prompt is short for
	// {"prompt": ...}; an empty one is left out, and is given as a parameter.
	Parameters Parameters `json:"parameters,omitempty"`
	Prompt     string     `json:"prompt,omitempty"`
	// ProjectDir is the folder that the executor works in.
	ProjectDir string `json:"project_dir,omitempty"`
	// Scope are values for placeholders, which the model never sees and children inherit.
	Scope   map[string]string `json:"scope,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	Demands *Demands          `json:"demands,omitempty"` // besides those of the blueprint
	Mode    string            `json:"mode,omitempty"`    // of a run with a parent
}

// UnmarshalJSON implements json.Unmarshaler. A prompt that is given is a parameter, also an
// empty one.
func (r *NewRun) UnmarshalJSON(data []byte) error {
	type plain NewRun
	var given struct {
		plain
		Prompt *string `json:"prompt"`
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&given); err != nil {
		return err
	}
	*r = NewRun(given.plain)
	if given.Prompt == nil {
		return nil
	}
	if r.Prompt = *given.Prompt; r.Prompt == "" && r.Parameters["prompt"] == nil {
		if r.Parameters == nil {
			r.Parameters = make(Parameters)
		}
		r.Parameters["prompt"] = ""
	}
	return nil
}

// States of runs.
//
//	pending -> claimed -> running -> completed | failed
//	           claimed | running -> stopping -> stopped
//	pending | claimed -> failed | stopped
//	claimed | running -> pending, where its runner was lost and the blueprint says so
const (
	RunPending   = "pending"
	RunClaimed   = "claimed"
	RunRunning   = "running"
	RunStopping  = "stopping"
	RunCompleted = "completed"
	RunFailed    = "failed"
	RunStopped   = "stopped"
)

// RunEnded reports whether a state is one that a run ends in.
func RunEnded(state string) bool {
	return state == RunCompleted || state == RunFailed || state == RunStopped
}

// States of agent sessions.
//
//	pending -> running <-> idle -> finished | failed | stopped
//	pending -> failed | stopped, where its first run ended before it began
//
// A session is idle after each of its runs, also one that failed. The state that it ends
// in says how its last run ended.
const (
	AgentPending  = "pending"
	AgentRunning  = "running"
	AgentIdle     = "idle"
	AgentFinished = "finished" // closed, after a run that completed
	AgentFailed   = "failed"   // closed, after a run that failed; or it never ran
	AgentStopped  = "stopped"  // closed, after a run that was stopped
)

// Run is one piece of work of an agent in its session.
type Run struct {
	ID      string `json:"id"`
	Session string `json:"session"`
	Agent   string `json:"agent"`
	Owner   string `json:"owner,omitempty"`
	Resume  bool   `json:"resume,omitempty"` // the session was there before
	State   string `json:"state"`
	// Parent is the session of the agent that started it.
	Parent     string            `json:"parent,omitempty"`
	Mode       string            `json:"mode,omitempty"`
	Parameters json.RawMessage   `json:"parameters,omitempty"`
	ProjectDir string            `json:"project_dir,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Runner     string            `json:"runner,omitempty"`
	// WaitsFor is what a pending run waits for, in the answer to GET /v1/runs/{run}; empty
	// where a runner is about to claim it.
	WaitsFor string `json:"waits_for,omitempty"`
	// CalledBack is the last run of the session that was told of agents which this run has
	// started in the mode async_callback, and Awaits is of how many it is still to be told,
	// with those that such runs have started. Both are in the answer to GET /v1/runs/{run}
	// of a run that is completed.
	CalledBack string    `json:"called_back,omitempty"`
	Awaits     int       `json:"awaits,omitempty"`
	Created    time.Time `json:"created"`
	Started    time.Time `json:"started,omitzero"`
	Ended      time.Time `json:"ended,omitzero"`
	// StoppedBy is who has stopped a run that is stopping or stopped.
	StoppedBy string     `json:"stopped_by,omitempty"`
	Result    *RunResult `json:"result,omitempty"`
	Error     *Error     `json:"error,omitempty"`
	Usage     *RunUsage  `json:"usage,omitempty"`
	// Withheld says that parameters, the result, and who or what has ended it are left out:
	// only its owner and operators read them.
	Withheld bool `json:"withheld,omitempty"`
}

// RunResult is what a run has come to.
type RunResult struct {
	Text string          `json:"text,omitempty"`
	Data json.RawMessage `json:"data,omitempty"` // fits the blueprint's schema, where it has one
}

// RunUsage is what a run has used of a language model, as far as its executor told.
type RunUsage struct {
	InputTokens  int64   `json:"input_tokens"`
	OutputTokens int64   `json:"output_tokens"`
	Cost         float64 `json:"cost,omitempty"` // in US dollars
}

// RunList is the answer to GET /v1/runs.
type RunList struct {
	Runs []Run  `json:"runs"`
	Next string `json:"next,omitempty"`
}

// AgentSession is the session of an agent, with the state of its work.
type AgentSession struct {
	ID         string            `json:"id"`
	Agent      string            `json:"agent"`
	Owner      string            `json:"owner,omitempty"`
	Parent     string            `json:"parent,omitempty"`
	State      string            `json:"state"`
	ProjectDir string            `json:"project_dir,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	// ExecutorSession is the executor's own name for the conversation.
	ExecutorSession string    `json:"executor_session_id,omitempty"`
	Run             string    `json:"run,omitempty"` // the last one
	Created         time.Time `json:"created"`
	Changed         time.Time `json:"changed"`
}

// AgentSessionList is the answer to GET /v1/agents/sessions.
type AgentSessionList struct {
	Sessions []AgentSession `json:"sessions"`
	Next     string         `json:"next,omitempty"`
}

// StopRun is the body of POST /v1/runs/{run}/stop, which may be left out.
type StopRun struct {
	// Children stops the agents that the run's agent has started, too, and those that they
	// have started.
	Children bool `json:"children,omitempty"`
}

// StoppedRun is the answer to it: the run as it is now, which is stopping where a runner
// has it.
type StoppedRun struct {
	Run
	// Below are the runs that were stopped with it, the nearest first.
	Below []Run `json:"below,omitempty"`
}

// RunTree is a run with the runs that its agent has started.
type RunTree struct {
	Run
	Children []RunTree `json:"children,omitempty"`
}

// Types of what an executor tells of a run.
const (
	RunEventText   = "text"   // what the model said
	RunEventTool   = "tool"   // a call that it made, or its result
	RunEventUsage  = "usage"  // what it has used so far
	RunEventStderr = "stderr" // a line of standard error
	RunEventState  = "state"  // the run's state has changed
)
