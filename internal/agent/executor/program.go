package executor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/secret"
)

// Program is the program of an executor, of the gateway's config or, where that names
// none, of executor_config: command, args.
type Program struct {
	Command string
	Args    []string
	Env     map[string]string
}

// Options are what executors are made with.
type Options struct {
	Name    string  // in blueprints; default that of the kind
	Program Program // default that of the kind, if it has one
	// Getenv looks up a variable of the runner's own environment; by default there is none.
	Getenv func(name string) string
}

// Or fills in what is not given.
func (o Options) Or(name, command string) Options {
	if o.Getenv == nil {
		o.Getenv = func(string) string { return "" }
	}
	o.Name, o.Program.Command = cmp.Or(o.Name, name), cmp.Or(o.Program.Command, command)
	return o
}

// Login fills in the login of the user who runs the runner, which these variables of the
// runner's own environment are, unless there is one of them: a key goes nowhere but where
// its owner has said.
func (o Options) Login(env map[string]string, names ...string) {
	for _, name := range names {
		if env[name] != "" {
			return
		}
	}
	for _, name := range names {
		if value := o.Getenv(name); value != "" {
			env[name] = value
		}
	}
}

// minSecret is the length below which hiding a value wherever it stands would tear holes
// into everything else.
const minSecret = 6

// Secrets are the values of the program's variables that nobody may be shown, with those
// of a login.
func (o Options) Secrets(login ...string) (all []string) {
	env := make(map[string]string)
	maps.Copy(env, o.Program.Env)
	o.Login(env, login...)
	for name, value := range env {
		if secret.ClassOf(name).Hides(value) {
			all = append(all, value)
		}
		for _, span := range secret.Find(value) {
			all = append(all, value[span.From:span.To])
		}
	}
	return slices.DeleteFunc(all, func(s string) bool { return len(s) < minSecret })
}

// With fills in what executor_config has of the program.
func (p Program) With(config map[string]any) (Program, error) {
	if p.Command != "" {
		return p, nil
	}
	command, _ := config["command"].(string)
	if command == "" {
		return p, errors.New("executor_config.command: the program is missing; give its name or path")
	}
	p.Command, p.Args = command, slices.Clone(p.Args)
	args, ok := config["args"].([]any)
	if !ok && config["args"] != nil {
		return p, errors.New("executor_config.args: must be a list of strings")
	}
	for n, a := range args {
		text, ok := a.(string)
		if !ok {
			return p, fmt.Errorf("executor_config.args[%d]: must be a string", n)
		}
		p.Args = append(p.Args, text)
	}
	return p, nil
}

// Environment joins the program's variables with those of a job, which win.
func (p Program) Environment(job Job) map[string]string {
	env := make(map[string]string, len(p.Env)+len(job.Env))
	maps.Copy(env, p.Env)
	maps.Copy(env, job.Env)
	return env
}

// APIVar is the variable with the URL of the executor API.
const APIVar = "AGENT_ORCHESTRATOR_API_URL"

// WithAPI are the variables of a program that may use the executor API. Those of the
// blueprint win.
func (p Program) WithAPI(job Job) map[string]string {
	env := p.Environment(job)
	if _, ok := job.Env[APIVar]; !ok && job.API != "" {
		env[APIVar] = job.API
	}
	return env
}

// WorkDir is where the program of a job works.
func (j Job) WorkDir() string {
	if j.ProjectDir != "" {
		return j.ProjectDir
	}
	return j.Dir
}

// Prompt is the parameter of that name, where it is a text.
func (j Job) Prompt() (string, bool) {
	prompt, ok := j.Parameters["prompt"].(string)
	return prompt, ok
}

// Message is what the user of a chat says: the parameter prompt, or without it all
// parameters as JSON. Others than the prompt are for placeholders.
func (j Job) Message() (string, error) {
	if prompt, ok := j.Prompt(); ok {
		if strings.TrimSpace(prompt) == "" {
			return "", errors.New("parameter \"prompt\": is empty, and the executor needs a message")
		}
		return prompt, nil
	}
	if len(j.Parameters) == 0 {
		return "", errors.New("the run has no parameters, and the executor needs a message; give it a prompt")
	}
	text, err := json.Marshal(j.Parameters)
	return string(text), err
}
