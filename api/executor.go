package api

import (
	"encoding/json"
	"time"
)

// The executor API is what the program of a run tells the gateway, and asks of it. Its words
// are those of the coordinator that such programs were written for.

// ExecutorSession is the session of an agent, there.
type ExecutorSession struct {
	ID              string    `json:"session_id"`
	Status          string    `json:"status"`
	Agent           string    `json:"agent_name"`
	ProjectDir      string    `json:"project_dir,omitempty"`
	Parent          string    `json:"parent_session_id,omitempty"`
	ExecutorSession string    `json:"executor_session_id,omitempty"`
	Created         time.Time `json:"created_at"`
}

// ExecutorSessions is the answer to GET /sessions.
type ExecutorSessions struct {
	Sessions []ExecutorSession `json:"sessions"`
}

// ExecutorSessionIs is the answer to what is about one session. OK is set where something was
// changed.
type ExecutorSessionIs struct {
	OK      bool            `json:"ok,omitempty"`
	Session ExecutorSession `json:"session"`
}

// ExecutorOK is the answer where there is nothing to say.
type ExecutorOK struct {
	OK bool `json:"ok"`
}

// ExecutorBind is the body of POST /bind and PATCH /metadata. The gateway knows the fields
// behind ExecutorSession by itself, and does not look at them.
type ExecutorBind struct {
	Session         string `json:"session_id,omitempty"`
	ExecutorSession string `json:"executor_session_id,omitempty"`
	ProjectDir      string `json:"project_dir,omitempty"`
	Hostname        string `json:"hostname,omitempty"`
	Type            string `json:"executor_type,omitempty"`
	Profile         string `json:"executor_profile,omitempty"`
	Resumed         string `json:"last_resumed_at,omitempty"`
	Agent           string `json:"agent_name,omitempty"`
}

// ExecutorStatus is the answer to GET /sessions/{session}/status.
type ExecutorStatus struct {
	Status string `json:"status"`
}

// ExecutorResult is what the last run of a session has come to. Result is Text again.
type ExecutorResult struct {
	Text   *string         `json:"result_text"`
	Data   json.RawMessage `json:"result_data"`
	Result string          `json:"result"`
}

// Types of a run of the executor API.
const (
	ExecutorStart  = "start_session"
	ExecutorResume = "resume_session"
)

// ExecutorRun is the body of POST /runs.
type ExecutorRun struct {
	Type       string     `json:"type"`                 // start_session or resume_session
	Session    string     `json:"session_id,omitempty"` // to resume
	Agent      string     `json:"agent_name,omitempty"` // to start
	Parameters Parameters `json:"parameters,omitempty"`
	Prompt     string     `json:"prompt,omitempty"`
	ProjectDir string     `json:"project_dir,omitempty"`
	// Parent is the session of the agent that asks, which the token says as well.
	Parent  string   `json:"parent_session_id,omitempty"`
	Mode    string   `json:"execution_mode,omitempty"`
	Demands *Demands `json:"additional_demands,omitempty"`
}

// ExecutorRunIs is a run, there. A run that was just accepted has its ids and its status.
type ExecutorRunIs struct {
	ID         string          `json:"run_id"`
	Type       string          `json:"type,omitempty"`
	Session    string          `json:"session_id"`
	Agent      string          `json:"agent_name,omitempty"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
	ProjectDir string          `json:"project_dir,omitempty"`
	Parent     string          `json:"parent_session_id,omitempty"`
	Mode       string          `json:"execution_mode,omitempty"`
	Status     string          `json:"status"`
	Runner     string          `json:"runner_id,omitempty"`
	Error      string          `json:"error,omitempty"`
	Created    time.Time       `json:"created_at"`
	Started    time.Time       `json:"started_at,omitzero"`
	Ended      time.Time       `json:"completed_at,omitzero"`
}

// ExecutorRuns is the answer to GET /runs.
type ExecutorRuns struct {
	Runs []ExecutorRunIs `json:"runs"`
}

// ExecutorAgent is an agent that may be started.
type ExecutorAgent struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Type        string          `json:"type"` // autonomous or procedural
	Tags        []string        `json:"tags"`
	Parameters  json.RawMessage `json:"parameters_schema,omitempty"`
	Result      json.RawMessage `json:"output_schema,omitempty"`
	Status      string          `json:"status"` // active
}
