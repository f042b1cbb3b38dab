// Package procedural is the executor of agents that are programs: parameters come as
// flags, and what the program prints is the result.
//
// A parameter is --key value. true is a bare flag, false and null are left out, a list is
// joined by commas, an object is JSON. A value that begins with a dash, or is empty, is
// --key=value, so that it can't be taken for a flag. A list whose elements have commas is
// refused, because the program could not tell it from a longer one.
//
// JSON on standard output is the result. Anything else is {return_code, stdout, stderr}.
// A program that exits with another status than 0 has failed, and has its result all the
// same.
package procedural

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
)

// Executor runs programs. Make it with New.
type Executor struct{ opts executor.Options }

var _ executor.Executor = (*Executor)(nil)

// New returns an executor.
func New(opts executor.Options) *Executor {
	return &Executor{opts: opts.Or("procedural", "")}
}

// Name implements executor.Executor.
func (x *Executor) Name() string { return x.opts.Name }

// Secrets implements executor.Executor.
func (x *Executor) Secrets() []string { return x.opts.Secrets() }

// Check implements executor.Executor.
func (x *Executor) Check(config map[string]any) error {
	if x.opts.Program.Command != "" && config["command"] != nil {
		return fmt.Errorf("executor_config.command: the config of the gateway has the program of the executor %q; leave it out", x.opts.Name)
	}
	for _, key := range slices.Sorted(maps.Keys(config)) {
		if key != "command" && key != "args" {
			return fmt.Errorf("executor_config.%s: unknown key; there are command and args", key)
		}
	}
	_, err := x.opts.Program.With(config)
	return err
}

// Plan implements executor.Executor.
func (x *Executor) Plan(job executor.Job) (executor.Plan, error) {
	if job.Resume {
		return executor.Plan{}, errors.New("the agent is a program and can't be resumed; start a new session")
	}
	p, err := x.opts.Program.With(job.Config)
	if err != nil {
		return executor.Plan{}, err
	}
	args := slices.Clone(p.Args)
	for _, key := range slices.Sorted(maps.Keys(job.Parameters)) {
		flags, err := flag(key, job.Parameters[key])
		if err != nil {
			return executor.Plan{}, fmt.Errorf("parameter %q: %w", key, err)
		}
		args = append(args, flags...)
	}
	return executor.Plan{Command: p.Command, Args: args, Env: p.WithAPI(job), Dir: job.WorkDir()}, nil
}

var keys = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]*$`)

// flag is a parameter as arguments.
func flag(key string, value any) ([]string, error) {
	if !keys.MatchString(key) {
		return nil, errors.New("can't be the name of a flag; use letters, digits, _ . and -")
	}
	switch v := value.(type) {
	case nil:
		return nil, nil
	case bool:
		if v {
			return []string{"--" + key}, nil
		}
		return nil, nil
	case []any:
		if len(v) == 0 {
			return nil, nil
		}
		elements := make([]string, len(v))
		for n, e := range v {
			text, err := word(e)
			if err != nil {
				return nil, err
			}
			if strings.Contains(text, ",") {
				return nil, fmt.Errorf("element %d has a comma, and lists are joined by commas", n)
			}
			elements[n] = text
		}
		return pair(key, strings.Join(elements, ","))
	}
	text, err := word(value)
	if err != nil {
		return nil, err
	}
	return pair(key, text)
}

func pair(key, value string) ([]string, error) {
	switch {
	case strings.ContainsRune(value, 0):
		return nil, errors.New("has a zero byte, which no argument can have")
	case value == "" || value[0] == '-':
		return []string{"--" + key + "=" + value}, nil
	}
	return []string{"--" + key, value}, nil
}

// word is a value as text: a string as it is, anything else as JSON.
func word(value any) (string, error) {
	if s, ok := value.(string); ok {
		return s, nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(value); err != nil {
		return "", err
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// Read implements executor.Executor.
func (x *Executor) Read(job executor.Job) executor.Reader { return reader{schema: job.Agent.Result} }

// reader has nothing to tell before the end.
type reader struct{ schema json.RawMessage }

// Line implements executor.Reader.
func (reader) Line([]byte) []executor.Event { return nil }

// output is the result of a program that does not print JSON.
type output struct {
	Code   int    `json:"return_code"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Cut    bool   `json:"stdout_cut,omitempty"`
}

// End implements executor.Reader.
func (r reader) End(exit executor.Exit) (api.RunResult, error) {
	var result api.RunResult
	printed := bytes.TrimSpace(exit.Stdout)
	isJSON := !exit.Cut && len(printed) > 0 && json.Valid(printed)
	if isJSON {
		result.Data = printed
	} else {
		text := strings.ToValidUTF8(string(exit.Stdout), "\uFFFD")
		raw, err := json.Marshal(output{exit.Status, text, strings.ToValidUTF8(string(exit.Stderr), "\uFFFD"), exit.Cut})
		if err != nil {
			return result, err
		}
		result.Data = raw
	}
	if err := executor.Failed(exit); err != nil {
		return result, err
	}
	if !isJSON && len(r.schema) > 0 {
		return result, executor.Fault("the program printed no JSON, and the agent has a schema for its result")
	}
	return executor.Fit(r.schema, result)
}
