package blueprint

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/secret"
)

// Input is what a run is given, and what the coordinator knows of it.
type Input struct {
	Parameters map[string]any
	// Unchecked holds the parameters against no schema, which gives only defaults: they are
	// the coordinator's own, such as a callback's prompt. Placeholders still want those that
	// the session was started with.
	Unchecked bool
	// Scope is laid over the blueprint's own.
	Scope map[string]string
	// Env are the variables that ${env.NAME} may read, and no others: those that the config
	// allows.
	Env     map[string]string
	Runtime Runtime
}

// Runtime names the run.
type Runtime struct {
	Run     string
	Session string
}

// Resolved is what a run stores of its blueprint. Only placeholders of the runner are left.
type Resolved struct {
	Name         string                    `json:"name"`
	Description  string                    `json:"description,omitempty"`
	Source       string                    `json:"source,omitempty"`
	Tags         []string                  `json:"tags,omitempty"`
	SystemPrompt Pending                   `json:"system_prompt"`
	Parameters   map[string]any            `json:"parameters"` // checked, with defaults
	Result       json.RawMessage           `json:"result,omitempty"`
	Servers      map[string]ResolvedServer `json:"servers,omitempty"`
	Executor     string                    `json:"executor"`
	Config       PendingTree               `json:"config,omitzero"`
	Env          map[string]Pending        `json:"env,omitempty"`
	Demands      api.Demands               `json:"demands,omitzero"`
	Finish       []Command                 `json:"finish,omitempty"` // the hooks after the run
	Scope        map[string]string         `json:"scope,omitempty"`  // which children inherit
	Agents       []string                  `json:"agents,omitempty"`
	Limits       Limits                    `json:"limits,omitzero"`
	Retry        bool                      `json:"retry,omitempty"`
	// Secrets are values that must not be shown: what was filled in or stands in env,
	// executor_config and its own servers, and is a secret by its name or its form; and
	// parameters that are secrets by their names.
	Secrets []string `json:"secrets,omitempty"`
}

// ResolvedServer is a Server of a run.
type ResolvedServer struct {
	Ref     string             `json:"ref,omitempty"`
	Headers map[string]Pending `json:"headers,omitempty"`
	Inline  PendingTree        `json:"inline,omitzero"`
}

// A Command is a hook with its placeholders filled in.
type Command struct {
	Command  string            `json:"command"`
	Args     []string          `json:"args,omitempty"`
	Env      map[string]string `json:"env,omitempty"`
	Timeout  time.Duration     `json:"timeout"`
	Continue bool              `json:"continue,omitempty"`
}

// prepared is what both stages of a run's start need: parameters and scope.
func (b Blueprint) prepared(in Input) (*filler, map[string]any, map[string]string, error) {
	params, err := checkParameters(b.ParametersSchema(), in.Parameters, !in.Unchecked)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(in.Scope) > mostTexts {
		return nil, nil, nil, &InvalidError{Code: CodePlaceholder, Message: fmt.Sprintf("there are more than %d scope values", mostTexts)}
	}
	scope := maps.Clone(b.Scope)
	if scope == nil {
		scope = map[string]string{}
	}
	for key, v := range in.Scope {
		if !keyPattern.MatchString(key) || len(v) > mostText || strings.ContainsRune(v, 0) {
			return nil, nil, nil, &InvalidError{Code: CodePlaceholder, Message: fmt.Sprintf("scope value %q: a name is 1 to 128 letters, digits, dots, dashes and underscores, and a value at most %d bytes without NUL", config.Clip(key), mostText)}
		}
		scope[key] = v
	}
	return newFiller(in, params, scope), params, scope, nil
}

// Resolve makes of a blueprint what a run stores. An error of what was given is an
// *InvalidError.
func Resolve(b Blueprint, in Input) (Resolved, error) {
	f, params, scope, err := b.prepared(in)
	if err != nil {
		return Resolved{}, err
	}
	r := Resolved{
		Name: b.Name, Description: b.Description, Source: b.Source, Tags: b.Tags, SystemPrompt: f.text(b.SystemPrompt),
		Parameters: params, Result: b.Result, Executor: b.Executor, Config: f.tree(b.Config, f.text, true), Env: f.texts(b.Env),
		Demands: b.Demands, Scope: scope, Agents: b.Agents, Limits: b.Limits, Retry: b.Retry,
		Servers: make(map[string]ResolvedServer, len(b.Servers)),
	}
	for _, name := range b.serverNames() {
		s := b.Servers[name]
		to := ResolvedServer{Ref: s.Ref, Headers: f.texts(s.Headers)}
		if s.Ref == "" {
			to.Inline = f.tree(s.Inline, f.entry, false)
		}
		r.Servers[name] = to
	}
	r.Finish = f.commands(b.Hooks.Finish)
	if err := f.err(); err != nil {
		return Resolved{}, err
	}
	r.Secrets = f.secrets(r)
	return r, nil
}

// A Start is what the hooks before a run need.
type Start struct {
	Commands   []Command
	Parameters map[string]any // checked, with defaults
	Secrets    []string       // as in Resolved
}

// StartHooks are the hooks before a run, which see its parameters before the last word on
// them: Resolve comes after. An error of what was given is an *InvalidError.
func StartHooks(b Blueprint, in Input) (Start, error) {
	f, params, _, err := b.prepared(in)
	if err != nil {
		return Start{}, err
	}
	list := f.commands(b.Hooks.Start)
	return Start{Commands: list, Parameters: params, Secrets: f.secrets(Resolved{Parameters: params})}, f.err()
}

func (f *filler) commands(hooks []Hook) []Command {
	var list []Command
	for _, h := range hooks {
		c := Command{Command: h.Command, Timeout: h.Timeout, Continue: h.Continue, Env: make(map[string]string, len(h.Env))}
		for _, t := range h.Args {
			c.Args = append(c.Args, f.hookText(t))
		}
		for _, key := range slices.Sorted(maps.Keys(h.Env)) {
			c.Env[key] = f.hookText(h.Env[key])
		}
		list = append(list, c)
	}
	return list
}

// hookText is a text that has no placeholder of a runner.
func (f *filler) hookText(t Text) string {
	text, _ := f.text(t).plain()
	return text
}

// err is what is missing, as one error.
func (f *filler) err() error {
	if len(f.missing) == 0 {
		return nil
	}
	code := CodePlaceholder
	if f.server {
		code = CodeServerConfig
	}
	cause := &config.Error{Problems: f.missing}
	if len(f.missing) > mostViolations {
		cause = &config.Error{Problems: f.missing[:mostViolations], More: len(f.missing) - mostViolations}
	}
	return &InvalidError{Code: code, Message: cause.Error(), cause: cause}
}

// minSecret is the shortest value that is masked: a shorter one stands in too many texts.
const minSecret = 6

// secrets are what of a run must not be shown.
func (f *filler) secrets(r Resolved) []string {
	found := map[string]bool{}
	add := func(v string) {
		if v = strings.TrimSpace(v); len(v) >= minSecret {
			found[v] = true
		}
	}
	for name := range f.env {
		credentials(name, f.values[prefixEnv][name], add)
	}
	for name := range f.scope {
		credentials(name, f.values[prefixScope][name], add)
	}
	for name, v := range r.Env {
		for _, p := range v.parts {
			credentials(name, p.text, add)
		}
	}
	namedSecrets("", r.Parameters, add)
	r.Config.credentials("", add)
	for _, s := range r.Servers {
		s.Inline.credentials("", add)
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a) // a secret that holds another is masked first
		}
		return strings.Compare(a, b)
	})
}

// namedSecrets calls add with the texts in a value that are secrets by their names. What
// only looks like a secret is the caller's own text, such as a prompt's.
func namedSecrets(name string, v any, add func(string)) {
	switch v := v.(type) {
	case string:
		if secret.ClassOf(name).Hides(v) {
			add(v)
		}
	case []any:
		for _, item := range v {
			namedSecrets(name, item, add)
		}
	case map[string]any:
		for key, item := range v {
			namedSecrets(key, item, add)
		}
	}
}

// credentials calls add with a text that is a secret by its name, and with what in it is
// one by its form.
func credentials(name, text string, add func(string)) {
	if secret.ClassOf(name).Hides(text) {
		add(text)
	}
	for _, span := range secret.Find(text) {
		add(text[span.From:span.To])
	}
}

// credentials calls add with the secrets in a tree.
func (t PendingTree) credentials(name string, add func(string)) {
	if t.Text != nil {
		for _, p := range t.Text.parts {
			credentials(name, p.text, add)
		}
	}
	for _, item := range t.List {
		item.credentials(name, add)
	}
	for key, v := range t.Map {
		v.credentials(key, add)
	}
}

// Filled is a blueprint with all its placeholders filled in.
type Filled struct {
	SystemPrompt string
	Servers      map[string]FilledServer
	Config       map[string]any
	Env          map[string]string
}

// FilledServer is a server of a run: a reference, or an entry of the session's own. What
// reads the entry takes its texts as they are: only ${workspace} and ${state.NAME}, which
// the start of the server fills in, are placeholders in it.
type FilledServer struct {
	Ref     string
	Headers map[string]string
	Inline  json.RawMessage
}

// Fill fills in the values of a runner, by their keys. It is the last stage.
func (r Resolved) Fill(values map[string]string) (Filled, error) {
	f := &runnerFiller{values: values, left: mostFilled}
	out := Filled{
		SystemPrompt: f.text(r.SystemPrompt, "system_prompt"),
		Servers:      make(map[string]FilledServer, len(r.Servers)),
		Env:          f.texts(r.Env, "env"),
	}
	out.Config, _ = r.Config.fill(f, "executor_config").(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(r.Servers)) {
		s, path := r.Servers[name], "mcp_servers."+name
		to := FilledServer{Ref: s.Ref, Headers: f.texts(s.Headers, path+".headers")}
		if s.Ref == "" {
			f.entry = true
			b, err := json.Marshal(s.Inline.fill(f, path))
			f.entry = false
			if err != nil {
				f.fail(path, "%v", err)
			}
			to.Inline = b
		}
		out.Servers[name] = to
	}
	if len(f.wrong) > 0 {
		return Filled{}, errors.New("the blueprint of agent " + r.Name + ": " + strings.Join(f.wrong, "; "))
	}
	return out, nil
}

// Settings are what the executor is given; ok is false where only a runner knows them.
func (r Resolved) Settings() (settings map[string]any, ok bool) {
	f := &runnerFiller{left: mostFilled}
	settings, _ = r.Config.fill(f, "executor_config").(map[string]any)
	return settings, len(f.wrong) == 0
}
