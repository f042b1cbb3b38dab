package blueprint

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// Known is what a blueprint may name that stands elsewhere.
type Known struct {
	Servers   []string // ids of the config
	Executors []string
	Agents    []string
	// Env says of each variable that the config allows whether it is set.
	Env map[string]bool
	// Config holds the settings of an executor against what it knows. An error begins with
	// the setting that it is about, such as executor_config.model. Nil for no check.
	Config func(executor string, settings map[string]any) error
	// Program says why a program can't be run; nil for no check.
	Program func(command string) error
}

// Check looks for what can't work though the blueprint by itself is right. Problems keep
// every run of it from starting; warnings may keep some.
func (b Blueprint) Check(k Known) (problems []config.Problem, warnings []string) {
	c := checker{b: b, k: k}
	c.servers()
	if b.Executor != "" && !slices.Contains(k.Executors, b.Executor) {
		c.fail(b.spotOf("executor"), "there is no executor %q%s", b.Executor, mend(b.Executor, k.Executors, "name one of agents.executors of the config"))
	} else {
		c.settings()
	}
	c.hooks()
	for i, pattern := range b.Agents {
		if !slices.ContainsFunc(k.Agents, func(name string) bool { return Matches(pattern, name) }) {
			c.warn(b.spotOf(fmt.Sprintf("agents[%d]", i)), "no agent is called %s", pattern)
		}
	}
	c.placeholders()
	return sortProblems(c.problems), c.warnings
}

// Matches reports whether a name fits a pattern of agents.
func Matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// MayStart reports whether the agent may start another.
func (b Blueprint) MayStart(name string) bool {
	return slices.ContainsFunc(b.Agents, func(pattern string) bool { return Matches(pattern, name) })
}

type checker struct {
	b        Blueprint
	k        Known
	problems []config.Problem
	warnings []string
}

func (c *checker) fail(at spot, format string, args ...any) {
	c.problems = append(c.problems, at.problem(format, args...))
}

func (c *checker) warn(at spot, format string, args ...any) {
	text := at.problem(format, args...).String()
	if !slices.Contains(c.warnings, text) {
		c.warnings = append(c.warnings, text)
	}
}

func (b Blueprint) spotOf(key string) spot {
	if s, ok := b.spots[key]; ok {
		return s
	}
	return spot{file: b.Source, path: key}
}

func mend(word string, known []string, otherwise string) string {
	if g := config.Nearest(word, known); g != "" {
		return fmt.Sprintf("; did you mean %q?", g)
	}
	return "; " + otherwise
}

// CheckServers reports the references to servers that there are not. It is an
// *InvalidError.
func (b Blueprint) CheckServers(known []string) error {
	c := checker{b: b, k: Known{Servers: known}}
	c.servers()
	if len(c.problems) == 0 {
		return nil
	}
	cause := &config.Error{Problems: c.problems}
	return &InvalidError{Code: CodeServerRef, Message: cause.Error(), cause: cause}
}

// settings holds executor_config against what the executor knows. A setting with a
// placeholder has no value yet, and is left out.
func (c *checker) settings() {
	if c.k.Config == nil {
		return
	}
	settings := make(map[string]any, len(c.b.Config.fields))
	for key, v := range c.b.Config.fields {
		if v.fixed() {
			settings[key] = v.literal()
		}
	}
	err := c.k.Config(c.b.Executor, settings)
	if err == nil {
		return
	}
	setting, _, _ := strings.Cut(err.Error(), ":")
	setting, _, _ = strings.Cut(setting, "[")
	if v, ok := c.b.Config.fields[strings.TrimPrefix(setting, "executor_config.")]; ok && !v.fixed() {
		return // it is there
	}
	at, ok := c.b.spots[setting]
	switch {
	case ok:
	case len(c.b.Config.fields) > 0:
		at = c.b.spotOf("executor_config")
	default:
		at = c.b.spotOf("executor")
	}
	at.path = "" // which the error names
	c.fail(at, "%v", err)
}

// hooks looks for programs that can't be run.
func (c *checker) hooks() {
	if c.k.Program == nil {
		return
	}
	for i, h := range slices.Concat(c.b.Hooks.Start, c.b.Hooks.Finish) {
		if _, own := h.Env["PATH"]; own && !strings.ContainsAny(h.Command, `/\`) {
			continue
		}
		err := c.k.Program(h.Command)
		switch {
		case err == nil:
		case h.Continue || i >= len(c.b.Hooks.Start):
			c.warn(h.at, "%v", err)
		default:
			c.fail(h.at, "%v", err)
		}
	}
}

func (c *checker) servers() {
	for _, name := range c.b.serverNames() {
		if s := c.b.Servers[name]; s.Ref != "" && !slices.Contains(c.k.Servers, s.Ref) {
			c.fail(s.at, "there is no server %q in the config%s", s.Ref, mend(s.Ref, c.k.Servers, "add it to servers, or write its entry here"))
		}
	}
}

// placeholders looks for those that never have a value.
func (c *checker) placeholders() {
	may, must, open := c.parameters()
	c.b.each(func(t Text) {
		for _, p := range t.placeholders() {
			switch p.prefix {
			case prefixParams:
				switch {
				case !may[p.key] && !open:
					c.fail(p.at, "%s: the schema has no parameter %q%s", p.text, p.key, mend(p.key, slices.Sorted(maps.Keys(may)), "add it to parameters"))
				case !must[p.key]:
					c.warn(p.at, "%s: the parameter is neither required nor has a default; a run without it fails", p.text)
				}
			case prefixEnv:
				set, allowed := c.k.Env[p.key]
				switch {
				case !allowed:
					c.fail(p.at, "%s: blueprints may not read this variable%s", p.text, mend(p.key, slices.Sorted(maps.Keys(c.k.Env)), "name it in agents.env of the config"))
				case !set:
					c.warn(p.at, "%s: the variable is not set here; a run fails unless it is set where the gateway starts", p.text)
				}
			case prefixScope:
				if _, ok := c.b.Scope[p.key]; !ok {
					c.warn(p.at, "%s: there is no default under scope; a run without this value fails", p.text)
				}
			case prefixRunner:
				if !slices.Contains(RunnerKeys, p.key) {
					c.fail(p.at, "%s: no runner has this value%s", p.text, mend(p.key, RunnerKeys, "there are "+config.OrList(RunnerKeys)))
				}
			}
		}
	})
}

// each calls f with every text of the blueprint.
func (b Blueprint) each(f func(Text)) {
	f(b.SystemPrompt)
	for _, name := range b.serverNames() {
		s := b.Servers[name]
		eachText(s.Headers, f)
		s.Inline.each(f)
	}
	b.Config.each(f)
	eachText(b.Env, f)
	for _, h := range slices.Concat(b.Hooks.Start, b.Hooks.Finish) {
		for _, t := range h.Args {
			f(t)
		}
		eachText(h.Env, f)
	}
}

func eachText(m map[string]Text, f func(Text)) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		f(m[key])
	}
}

// parameters are those that the schema knows, and those that a run always has. open says
// that there may be others.
func (c *checker) parameters() (may, must map[string]bool, open bool) {
	var s struct {
		Properties           map[string]struct{ Default json.RawMessage }
		Required             []string
		AdditionalProperties json.RawMessage            `json:"additionalProperties"`
		Pattern              map[string]json.RawMessage `json:"patternProperties"`
		Ref                  string                     `json:"$ref"`
		AllOf, AnyOf, OneOf  []json.RawMessage
	}
	may, must = map[string]bool{}, map[string]bool{}
	if err := json.Unmarshal(c.b.ParametersSchema(), &s); err != nil {
		return may, must, true
	}
	for name, p := range s.Properties {
		may[name] = true
		must[name] = p.Default != nil
	}
	for _, name := range s.Required {
		must[name] = true
	}
	open = string(s.AdditionalProperties) != "false" || len(s.Pattern) > 0 || s.Ref != "" || len(s.AllOf)+len(s.AnyOf)+len(s.OneOf) > 0
	return may, must, open
}

// fixed reports whether a value has no placeholders.
func (t Tree) fixed() bool {
	ok := true
	t.each(func(t Text) { ok = ok && len(t.placeholders()) == 0 })
	return ok
}
