// Package command is the executor of any program that keeps to a small contract: one
// JSON document on standard input, JSON lines on standard output.
//
// The document is of schema 2.2, or of 2.0 or 1.0 where executor_config.schema says so. A
// program that does one run reads it to the end of its input. With
// executor_config.persistent it is one line, the input stays open, and further runs of
// the session come as {"type":"turn","parameters":{...}} until {"type":"shutdown"}.
//
// Lines of standard output:
//
//	{"type":"bind","executor_session_id":"..."}     names the program's conversation
//	{"type":"text","text":"..."}                    what the model said
//	{"type":"tool","id":"...","name":"...","arguments":{...}}
//	{"type":"tool","id":"...","done":true,"text":"...","is_error":false}
//	{"type":"usage","input_tokens":1,"output_tokens":1,"cost":0.1}   so far, in all
//	{"type":"error","message":"..."}                the run fails
//	{"type":"result","result":...}                  the result
//	{"type":"turn_complete","result":...}           the result of a turn
//
// A result that is a string is text; an object with result_text or result_data is both;
// anything else is data. Where no line says the result, it is what else was printed: JSON,
// or a last line that is a JSON object, or text.
package command

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/agent/executor"
)

// Executor runs programs. Make it with New.
type Executor struct{ opts executor.Options }

var _ executor.Executor = (*Executor)(nil)

// New returns an executor.
func New(opts executor.Options) *Executor {
	return &Executor{opts: opts.Or("command", "")}
}

// Name implements executor.Executor.
func (x *Executor) Name() string { return x.opts.Name }

// Secrets implements executor.Executor.
func (x *Executor) Secrets() []string { return x.opts.Secrets() }

const newest = "2.2"

var schemas = []string{"1.0", "2.0", newest}

// settings are what the executor itself reads of executor_config. The program gets all
// of it.
type settings struct {
	schema     string
	persistent bool
}

func settingsOf(config map[string]any) (s settings, err error) {
	s.schema = newest
	if v, ok := config["schema"]; ok {
		if s.schema, ok = v.(string); !ok || !slices.Contains(schemas, s.schema) {
			return s, fmt.Errorf("executor_config.schema: must be one of the strings %s", strings.Join(schemas, ", "))
		}
	}
	if v, ok := config["persistent"]; ok {
		if s.persistent, ok = v.(bool); !ok {
			return s, fmt.Errorf("executor_config.persistent: must be true or false")
		}
	}
	return s, nil
}

// Check implements executor.Executor.
func (x *Executor) Check(config map[string]any) error {
	if _, err := settingsOf(config); err != nil {
		return err
	}
	_, err := x.opts.Program.With(config)
	return err
}

// invocation is the document that a program gets.
type invocation struct {
	Schema          string          `json:"schema_version"`
	Mode            string          `json:"mode"`
	Session         string          `json:"session_id"`
	ExecutorSession string          `json:"executor_session_id,omitempty"`
	Parameters      map[string]any  `json:"parameters,omitempty"`
	Prompt          *string         `json:"prompt,omitempty"`
	ProjectDir      string          `json:"project_dir,omitempty"`
	AgentName       string          `json:"agent_name,omitempty"`
	Agent           *executor.Agent `json:"agent_blueprint,omitempty"`
	Config          map[string]any  `json:"executor_config,omitempty"`
	Metadata        map[string]any  `json:"metadata,omitempty"`
}

// document makes the document of a job. The system prompt is in the blueprint and
// nowhere else.
func document(schema string, job executor.Job) ([]byte, error) {
	in := invocation{Schema: schema, Mode: "start", Session: job.Session, ProjectDir: job.ProjectDir}
	if job.Resume {
		in.Mode = "resume"
	}
	if prompt, ok := job.Prompt(); ok {
		in.Prompt = &prompt
	}
	if schema != newest {
		for _, key := range slices.Sorted(maps.Keys(job.Parameters)) {
			if key != "prompt" || in.Prompt == nil {
				return nil, fmt.Errorf("the executor declares schema %s, which has a prompt and no other parameters, and can't be given %q; use schema %s", schema, key, newest)
			}
		}
	}
	if schema != "2.0" {
		in.AgentName = job.Agent.Name
	}
	if schema != "1.0" {
		agent := job.Agent
		if agent.Servers == nil {
			agent.Servers = map[string]executor.Server{}
		}
		in.Agent, in.ExecutorSession = &agent, job.ExecutorSession
	}
	if schema == newest {
		in.Parameters, in.Config, in.Metadata = job.Parameters, job.Config, job.Metadata
	}
	return line(in)
}

func line(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("the input of the executor: %w", err)
	}
	return b.Bytes(), nil
}

// Plan implements executor.Executor.
func (x *Executor) Plan(job executor.Job) (executor.Plan, error) {
	s, err := settingsOf(job.Config)
	if err != nil {
		return executor.Plan{}, err
	}
	p, err := x.opts.Program.With(job.Config)
	if err != nil {
		return executor.Plan{}, err
	}
	input, err := document(s.schema, job)
	if err != nil {
		return executor.Plan{}, err
	}
	return executor.Plan{
		Command: p.Command, Args: p.Args, Env: p.WithAPI(job), Dir: job.WorkDir(), Stdin: input, Persistent: s.persistent,
	}, nil
}

// Read implements executor.Executor.
func (x *Executor) Read(job executor.Job) executor.Reader {
	r := &reader{schema: job.Agent.Result}
	if s, err := settingsOf(job.Config); err == nil && s.persistent {
		return &turner{reader: r}
	}
	return r
}
