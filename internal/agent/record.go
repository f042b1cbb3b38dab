package agent

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/secret"
	"github.com/tine-mcp/tine/internal/store"
)

// A run is one with its data.
type run struct {
	store.Run
	d       runData
	damaged bool // its data can't be read, so d is empty
}

// runData is what the coordinator keeps of a run besides the columns. It may hold
// secrets: those of the blueprint, and what the run was given.
type runData struct {
	// Blueprint is that of the run, but for what stands below: its parameters are in the
	// job, and its demands and limits are joined with others.
	Blueprint blueprint.Resolved `json:"blueprint"`
	Job       executor.Job       `json:"job"`
	World     runner.World       `json:"world"`
	Demands   api.Demands        `json:"demands,omitzero"`
	Labels    map[string]string  `json:"labels,omitempty"`
	Mode      string             `json:"mode,omitempty"`
	// ParentRun is the run that has started it.
	ParentRun   string `json:"parent_run,omitempty"`
	ParentAgent string `json:"parent_agent,omitempty"`

	Procedural bool             `json:"procedural,omitempty"`
	Limits     blueprint.Limits `json:"limits,omitzero"` // of the agents that it starts
	// Carries says that it tells callbacks, and Tells are the runs of its session that have
	// started the agents which it tells of.
	Carries bool     `json:"carries,omitempty"`
	Tells   []string `json:"tells,omitempty"`

	Key     string `json:"key,omitempty"`     // a digest of the idempotency key
	Request string `json:"request,omitempty"` // and of what came with it

	Trace    runTrace       `json:"trace,omitzero"`
	Instance string         `json:"instance,omitempty"` // of the runner that has claimed it
	Lost     int            `json:"lost,omitempty"`     // how often its runner was lost
	Started  time.Time      `json:"started,omitzero"`
	Ended    time.Time      `json:"ended,omitzero"`
	Stopped  string         `json:"stopped,omitempty"` // who stopped it
	Result   *api.RunResult `json:"result,omitempty"`
	Error    *api.Error     `json:"error,omitempty"`
	Usage    *api.RunUsage  `json:"usage,omitempty"`

	Events int   `json:"events,omitempty"` // of the executor that runs now
	Rows   int   `json:"rows,omitempty"`   // events that are stored
	Bytes  int64 `json:"bytes,omitempty"`  // and their size
	Cut    bool  `json:"cut,omitempty"`    // the rest is left out
}

func readRun(r store.Run) *run {
	out := &run{Run: r}
	if decode(r.Data, &out.d) != nil {
		out.d, out.damaged = runData{}, true
	}
	return out
}

func (r *run) ended() bool { return api.RunEnded(r.State) }

// claimed reports whether a runner has it.
func (r *run) claimed() bool {
	return r.State == api.RunClaimed || r.State == api.RunRunning || r.State == api.RunStopping
}

// api is what a caller who may read it is shown.
func (r *run) api() api.Run {
	out := api.Run{
		ID: r.ID, Session: r.Session, Agent: r.Agent, Owner: r.Owner, Resume: r.d.Job.Resume, State: r.State,
		Parent: r.Parent, Mode: r.d.Mode, ProjectDir: r.d.Job.ProjectDir, Labels: r.d.Labels, Runner: r.Runner,
		Created: r.Created, Started: r.d.Started, Ended: r.d.Ended, StoppedBy: r.d.Stopped, Result: r.d.Result, Error: r.d.Error, Usage: r.d.Usage,
	}
	// A hook may have put a secret into them.
	out.Parameters = runner.Masked(r.parameters(), r.d.Blueprint.Secrets)
	var shown any
	if decode(out.Parameters, &shown) == nil {
		if hidden, some := hide("", shown); some {
			out.Parameters = encode(hidden)
		}
	}
	if r.damaged {
		out.Error = damaged("run", r.ID)
	}
	return out
}

// hide masks the texts in a value that are secrets by their names, however short they are,
// and reports whether there are some.
func hide(name string, v any) (_ any, some bool) {
	switch v := v.(type) {
	case string:
		if v != secret.Mask && v != "" && secret.ClassOf(name).Hides(v) {
			return secret.Mask, true
		}
	case []any:
		for i := range v {
			var s bool
			v[i], s = hide(name, v[i])
			some = some || s
		}
	case map[string]any:
		for key := range v {
			var s bool
			v[key], s = hide(key, v[key])
			some = some || s
		}
	}
	return v, some
}

func (r *run) parameters() json.RawMessage {
	if len(r.d.Job.Parameters) == 0 {
		return nil
	}
	b, err := json.Marshal(r.d.Job.Parameters)
	if err != nil {
		return nil
	}
	return b
}

// outside is what is shown to those who may know of it and not read it.
func outside(r api.Run) api.Run {
	r.Parameters, r.Result, r.StoppedBy, r.Withheld = nil, nil, "", true
	if r.Error != nil {
		r.Error = &api.Error{Kind: r.Error.Kind, Message: "its owner and operators read why"}
	}
	return r
}

// A session is that of an agent, with its data.
type session struct {
	store.AgentSession
	d       sessionData
	damaged bool
}

// sessionData is what the coordinator keeps of a session besides the columns. It may hold
// secrets.
type sessionData struct {
	Pinned     json.RawMessage   `json:"pinned,omitempty"`
	Scope      map[string]string `json:"scope,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	ProjectDir string            `json:"project_dir,omitempty"`
	Executor   string            `json:"executor_session_id,omitempty"`
	Procedural bool              `json:"procedural,omitempty"`
	First      string            `json:"first,omitempty"` // its first run
	Run        string            `json:"run,omitempty"`   // the last one
	Runs       int               `json:"runs,omitempty"`  // in all
	Span       string            `json:"span,omitempty"`  // of the last one
	// Room is how many generations its parent lets there be below it; nil without one.
	Room *int `json:"room,omitempty"`
	// Closing says that it ends with its run.
	Closing bool `json:"closing,omitempty"`
	// Held says that it was stopped with those around it, so that it is told nothing until
	// it is resumed.
	Held bool `json:"held,omitempty"`
}

func readSession(s store.AgentSession) *session {
	out := &session{AgentSession: s}
	if decode(s.Data, &out.d) != nil {
		out.d, out.damaged = sessionData{}, true
	}
	return out
}

func (s *session) ended() bool {
	return s.State == api.AgentFinished || s.State == api.AgentFailed || s.State == api.AgentStopped
}

func (s *session) api() api.AgentSession {
	return api.AgentSession{
		ID: s.ID, Agent: s.Agent, Owner: s.Owner, Parent: s.Parent, State: s.State, ProjectDir: s.d.ProjectDir, Labels: s.d.Labels,
		ExecutorSession: s.d.Executor, Run: s.d.Run, Created: s.Created, Changed: s.Changed,
	}
}

// callbackData is what a callback says.
type callbackData struct {
	// Errand is set for what is to be done after a run or a session has ended, and is no
	// callback; see errand.
	Errand    string          `json:"errand,omitempty"`
	ParentRun string          `json:"parent_run,omitempty"`
	Status    string          `json:"status,omitempty"`
	Text      string          `json:"text,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	// Attempts are the carriers that failed before they ran, or how often an errand was
	// begun.
	Attempts int `json:"attempts,omitempty"`
}

func readCallback(c store.Callback) callbackData {
	var d callbackData
	if decode(c.Data, &d) != nil {
		d = callbackData{Status: api.RunFailed, Text: "what came of it can't be read any more; ask for the result of run " + c.Run}
	}
	return d
}

// decode keeps the digits of numbers.
func decode(data json.RawMessage, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	return d.Decode(v)
}

func encode(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // what is in it was JSON
	}
	return b
}

func damaged(what, id string) *api.Error {
	return &api.Error{Kind: api.KindInfrastructure, Message: "the record of " + what + " " + id + " is damaged and can't be read; the run has to be started anew", Final: true}
}
