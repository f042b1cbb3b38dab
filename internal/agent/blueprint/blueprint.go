// Package blueprint reads the definitions of agents, from files and from the API, and
// makes of them what a run needs: capabilities mixed in, parameters checked, placeholders
// filled in.
//
// Placeholders are filled in exactly once, in two stages. A Text is taken apart when its
// file is read; Resolve makes a Pending of it, in which values are plain text and only
// placeholders of a runner are left; Resolved.Fill makes a string of that. No function
// looks for placeholders in what another has filled in, and a Pending stays one in JSON.
package blueprint

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
)

// A Blueprint is the definition of an agent. Its texts may have placeholders.
type Blueprint struct {
	Name         string
	Description  string
	Source       string // its file; empty for one of the API
	Operator     bool   // a document of the API that an operator has written
	Tags         []string
	SystemPrompt Text
	Parameters   json.RawMessage // a JSON Schema; nil for {prompt: string}
	Result       json.RawMessage // likewise; nil for none
	// Servers are the MCP servers of the agent, by the names that it knows them by.
	Servers      map[string]Server
	Capabilities []string
	Executor     string
	Config       Tree            // executor_config
	Env          map[string]Text // of the executor's program
	Demands      api.Demands
	Hooks        Hooks
	Scope        map[string]string // defaults of scope values
	Agents       []string          // that it may start, as patterns; nil for none
	Limits       Limits
	// Retry has a run whose runner was lost done again by another; otherwise it fails.
	Retry bool

	spots map[string]spot // where keys stand, by their paths
}

// A Server is a reference to a server of the config, or a server of the blueprint's own.
type Server struct {
	Ref string // the server's id in the config; empty for an inline one
	// Headers are what a reference sends with each request, beside the token of the run.
	Headers map[string]Text
	Inline  Tree // an entry as in a config's servers

	at spot
}

// Hooks are commands that see a run before it starts and after it has ended.
type Hooks struct {
	Start  []Hook // may change its parameters, or refuse it
	Finish []Hook
}

// A Hook is a command: a JSON document on its standard input, one on its output.
type Hook struct {
	Command string
	Args    []Text
	Env     map[string]Text
	Timeout time.Duration
	// Continue has a run go on where the hook itself fails; otherwise that refuses the run.
	Continue bool

	at spot // of the command
}

// Limits bound the runs of an agent, and what it may start. Zero fields are the config's.
type Limits struct {
	Depth    int           // generations below it
	Children int           // that run at once
	Runs     int           // of a session, in all
	Time     time.Duration `json:",omitzero"` // of a run
}

// DefaultExecutor does the runs of an agent that names no executor.
const DefaultExecutor = "claude-code"

// Orchestrator is the server that starts other agents. A server of the blueprint at the URL
// ${runner.orchestrator_mcp_url} is a reference to it.
const Orchestrator = "orchestrator"

// API is the blueprint as it is listed.
func (b Blueprint) API() api.Agent {
	a := api.Agent{
		Name: b.Name, Description: b.Description, Source: b.Source, Executor: b.Executor, Tags: b.Tags,
		Parameters: b.ParametersSchema(), Result: b.Result, Servers: b.serverNames(), Capabilities: b.Capabilities, Agents: b.Agents,
	}
	if d := b.Demands; len(d.Tags) > 0 || d.Hostname != "" || d.ProjectDir != "" || d.ExecutorType != "" {
		a.Demands = &d
	}
	return a
}

// Privileged are the keys by which a blueprint runs commands of its own, or reaches
// servers that the config does not have, and the placeholders by which it reads variables
// of the gateway. One of the API may have them only from an operator.
func (b Blueprint) Privileged() []string {
	var keys []string
	for _, name := range b.serverNames() {
		if b.Servers[name].Ref == "" {
			keys = append(keys, "mcp_servers."+name)
		}
	}
	for _, k := range []struct {
		name string
		used bool
	}{
		{"executor_config", len(b.Config.fields) > 0},
		{"env", len(b.Env) > 0},
		{"hooks.on_run_start", len(b.Hooks.Start) > 0},
		{"hooks.on_run_finish", len(b.Hooks.Finish) > 0},
	} {
		if k.used {
			keys = append(keys, k.name)
		}
	}
	b.each(func(t Text) {
		for _, p := range t.placeholders() {
			if p.prefix == prefixEnv && !slices.Contains(keys, p.text) {
				keys = append(keys, p.text)
			}
		}
	})
	return keys
}
