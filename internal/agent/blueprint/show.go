package blueprint

import (
	"encoding/json"
	"maps"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/secret"
)

// Shown is a blueprint as people may see it: capabilities mixed in, defaults filled in,
// placeholders as they are written, secrets masked.
type Shown struct {
	Name         string            `json:"name"`
	Description  string            `json:"description,omitempty"`
	Tags         []string          `json:"tags,omitempty"`
	SystemPrompt string            `json:"system_prompt,omitempty"`
	Parameters   json.RawMessage   `json:"parameters"`
	Result       json.RawMessage   `json:"result,omitempty"`
	Servers      map[string]any    `json:"mcp_servers,omitempty"`
	Executor     string            `json:"executor"`
	Config       any               `json:"executor_config,omitempty"`
	Env          map[string]string `json:"env,omitempty"`
	Demands      *api.Demands      `json:"demands,omitempty"`
	Hooks        map[string][]any  `json:"hooks,omitempty"`
	Scope        map[string]string `json:"scope,omitempty"`
	Agents       []string          `json:"agents,omitempty"`
	Limits       map[string]any    `json:"limits,omitempty"`
	Lost         string            `json:"on_runner_lost"`
}

// Show is the blueprint as people may see it.
func (b Blueprint) Show() Shown {
	s := Shown{
		Name: b.Name, Description: secret.Masked(b.Description), Tags: b.Tags, SystemPrompt: secret.Masked(b.SystemPrompt.Source()),
		Parameters: b.ParametersSchema(), Result: b.Result, Executor: b.Executor, Env: shownTexts(b.Env, false),
		Demands: b.API().Demands, Agents: b.Agents, Lost: "fail",
	}
	if b.Retry {
		s.Lost = "retry"
	}
	if len(b.Config.fields) > 0 {
		s.Config = b.Config.shown("", false)
	}
	for _, name := range b.serverNames() {
		if s.Servers == nil {
			s.Servers = map[string]any{}
		}
		s.Servers[name] = b.Servers[name].shown()
	}
	for key, hooks := range map[string][]Hook{"on_run_start": b.Hooks.Start, "on_run_finish": b.Hooks.Finish} {
		for _, h := range hooks {
			if s.Hooks == nil {
				s.Hooks = map[string][]any{}
			}
			s.Hooks[key] = append(s.Hooks[key], h.shown())
		}
	}
	for key, v := range b.Scope {
		if s.Scope == nil {
			s.Scope = map[string]string{}
		}
		s.Scope[key] = masked(key, v, false)
	}
	limits := map[string]any{"depth": b.Limits.Depth, "children": b.Limits.Children, "runs": b.Limits.Runs}
	maps.DeleteFunc(limits, func(_ string, n any) bool { return n == 0 })
	if b.Limits.Time > 0 {
		limits["time"] = config.Brief(b.Limits.Time)
	}
	if len(limits) > 0 {
		s.Limits = limits
	}
	return s
}

func (s Server) shown() any {
	if s.Ref == "" {
		return s.Inline.shown("", false)
	}
	m := map[string]any{"ref": s.Ref}
	if len(s.Headers) > 0 {
		m["headers"] = shownTexts(s.Headers, false)
	}
	return m
}

func (h Hook) shown() any {
	m := map[string]any{"command": h.Command, "timeout": config.Brief(h.Timeout.Round(time.Second)), "on_error": "block"}
	if h.Continue {
		m["on_error"] = "continue"
	}
	var args []string
	for _, t := range h.Args {
		args = append(args, secret.Masked(t.Source()))
	}
	if len(args) > 0 {
		m["args"] = args
	}
	if len(h.Env) > 0 {
		m["env"] = shownTexts(h.Env, false)
	}
	return m
}

func shownTexts(m map[string]Text, hide bool) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for key, t := range m {
		out[key] = t.shown(key, hide)
	}
	return out
}

// masked is a value as it may be shown under a name.
func masked(name, v string, hide bool) string {
	if v != "" && (hide || secret.ClassOf(name).Hides(v)) {
		return secret.Mask
	}
	return secret.Masked(v)
}

// shown is a text under a name. Placeholders tell nothing and stay; plain text beside them
// may be a secret.
func (t Text) shown(name string, hide bool) string {
	var s string
	for _, p := range t.parts {
		if p.prefix != "" || p.kept != "" {
			s += p.text
			continue
		}
		s += masked(name, Text{[]part{p}}.Source(), hide)
	}
	return s
}

// shown is the value as it may be shown. Headers of a server are credentials, whatever
// they are called.
func (t Tree) shown(name string, hide bool) any {
	switch t.kind {
	case treeText:
		return t.text.shown(name, hide)
	case treeList:
		list := make([]any, len(t.list))
		for i, item := range t.list {
			list[i] = item.shown(name, hide)
		}
		return list
	case treeMap:
		m := make(map[string]any, len(t.fields))
		for key, v := range t.fields {
			m[key] = v.shown(key, hide || key == "headers")
		}
		return m
	}
	if hide {
		return secret.Mask
	}
	return t.value
}
