package blueprint

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/config"
)

// Bounds of a blueprint.
const (
	mostPrompt  = 256 << 10 // of one file, in bytes
	mostTexts   = 256       // entries of a list or map of texts
	mostServers = 64
	mostHooks   = 8
	mostText    = 8 << 10 // of a text for people, and of a scope value
	mostSchema  = 64 << 10
)

// draft is a blueprint or a capability while it is read.
type draft struct {
	Blueprint
	promptFile string
	kind       string
	tools      []string
	model      string
	color      string
	own        *config.Node // mcp_servers; nil for none
}

// blueprintTable are the keys of a blueprint.
var blueprintTable = config.Table[draft]{
	config.Put("name", func(d *draft) *string { return &d.Name }, nameValue, "the agent's name: letters, digits, dashes and underscores, at most 64. In a file it is the name of the file or folder, and needs not be given"),
	config.Put("description", func(d *draft) *string { return &d.Description }, line("Reviews changes"), "what the agent is for; other agents choose by it"),
	config.Put("system_prompt", func(d *draft) *Text { return &d.SystemPrompt }, promptValue, "the system prompt; may have placeholders"),
	config.Put("system_prompt_file", func(d *draft) *string { return &d.promptFile }, config.Text("prompt.md").As("path"), "a file with the system prompt, in the folder of the blueprint"),
	config.Put("parameters", func(d *draft) *json.RawMessage { return &d.Parameters }, schemaValue.Unless("`{prompt: string}`"), "the JSON Schema of the parameters of a run, see [parameters](#parameters-and-results)"),
	config.Put("result", func(d *draft) *json.RawMessage { return &d.Result }, schemaValue.Unless("none"), "the JSON Schema of the result"),
	config.Put("mcp_servers", func(d *draft) **config.Node { return &d.own }, nodeValue, "the agent's MCP servers, see [servers](#servers); may have placeholders"),
	config.Put("capabilities", func(d *draft) *[]string { return &d.Capabilities }, names("[web-research]", "a capability"), "what is mixed in, see [capabilities](#capabilities)"),
	config.Put("executor", func(d *draft) *string { return &d.Executor }, config.Text("claude-code").As("an executor's name").Unless("`claude-code`").Then(validName("an executor")), "the program that does the work: `claude-code`, `codex`, `command`, `procedural`, or one of [`agents.executors`](config.md#agents)"),
	config.Put("executor_config", func(d *draft) *Tree { return &d.Config }, treeValue, "settings of the executor; may have placeholders. A value that is one `${params.NAME}` and nothing else keeps the parameter's type"),
	config.Put("env", func(d *draft) *map[string]Text { return &d.Env }, textsValue("{LANG: C.UTF-8}", kind{}), "variables of the executor's program; may have placeholders"),
	config.Put("tools", func(d *draft) *[]string { return &d.tools }, toolsValue, "`executor_config.tools`: which of its own tools the executor may use. A list, or one line as Claude Code has it"),
	config.Put("model", func(d *draft) *string { return &d.model }, line("sonnet"), "`executor_config.model`; `inherit` says nothing"),
	config.Put("demands", func(d *draft) *api.Demands { return &d.Demands }, config.Map(demandsTable, nil), "what a runner must have to do its runs"),
	config.Put("hooks", func(d *draft) *Hooks { return &d.Hooks }, config.Map(hooksTable, nil), "commands around each run, see [hooks](#hooks)"),
	config.Put("scope", func(d *draft) *map[string]string { return &d.Scope }, scopeValue, "defaults of scope values: the model never sees them, and runs that the agent starts inherit them"),
	config.Put("agents", func(d *draft) *[]string { return &d.Agents }, config.Patterns(`["worker-*"]`, "an agent's name", true).Unless("none").Then(count[[]string](mostTexts)), "the agents that it may start"),
	config.Put("limits", func(d *draft) *Limits { return &d.Limits }, config.Map(limitsTable, nil), "bounds of its runs and of what it starts, below those of the config"),
	config.Put("on_runner_lost", func(d *draft) *bool { return &d.Retry }, lostValue, "what follows when the runner of a run is lost: the run fails, or a runner does it again, three times at most"),
	config.Put("tags", func(d *draft) *[]string { return &d.Tags }, names("[internal]", "a tag"), "words by which agents are listed"),
	config.Put("color", func(d *draft) *string { return &d.color }, line("blue"), "has no meaning here; Claude Code shows an agent in it"),
	config.Put("type", func(d *draft) *string { return &d.kind }, config.OneOf("autonomous", "procedural").Unless("`autonomous`"), "`procedural` is short for `executor: procedural`"),
}

// aliases are other names of keys, with those that they stand for.
var aliases = map[string]string{"parameters_schema": "parameters", "output_schema": "result", "mcpServers": "mcp_servers"}

var demandsTable = config.Table[api.Demands]{
	config.Put("tags", func(d *api.Demands) *[]string { return &d.Tags }, names("[gpu]", "a tag"), "tags, all of which the runner must have"),
	config.Put("hostname", func(d *api.Demands) *string { return &d.Hostname }, line("build-1"), "the runner's host"),
	config.Put("project_dir", func(d *api.Demands) *string { return &d.ProjectDir }, line("/srv/project"), "a folder that the runner works in"),
	config.Put("executor_type", func(d *api.Demands) *string { return &d.ExecutorType }, line("claude-code"), "an executor that the runner has"),
}

// mostTime bounds limits.time.
const mostTime = 365 * 24 * time.Hour

var limitsTable = config.Table[Limits]{
	config.Put("depth", func(l *Limits) *int { return &l.Depth }, config.Int[int](1, 100).Unless("`agents.depth` of the config"), "generations of agents below it"),
	config.Put("children", func(l *Limits) *int { return &l.Children }, config.Int[int](1, 10_000).Unless("`agents.children`"), "runs at once that it has started"),
	config.Put("runs", func(l *Limits) *int { return &l.Runs }, config.Int[int](1, 1_000_000).Unless("`agents.runs`"), "runs of one session of it in all"),
	config.Put("time", func(l *Limits) *time.Duration { return &l.Time }, config.Duration(time.Second, mostTime).Unless("`agents.time`"), "how long a run may take; then it is ended and has failed"),
}

var hooksTable = config.Table[Hooks]{
	config.Put("on_run_start", func(h *Hooks) *[]Hook { return &h.Start }, hooksValue, "commands before a run: each may change its parameters, or refuse it"),
	config.Put("on_run_finish", func(h *Hooks) *[]Hook { return &h.Finish }, hooksValue, "commands after a run"),
}

var hookTable = config.Table[Hook]{
	config.Put("command", func(h *Hook) *string { return &h.Command }, config.Text("./check").As("path, or a program on `PATH`").Then(plain), "the program; a relative path with a slash starts at the folder of the blueprint"),
	config.Put("args", func(h *Hook) *[]Text { return &h.Args }, argsValue, "its arguments; may have placeholders, but none of a runner"),
	config.Put("env", func(h *Hook) *map[string]Text { return &h.Env }, textsValue("{LEVEL: high}", kind{noRunner: true}), "variables for it; likewise"),
	config.Put("timeout", func(h *Hook) *time.Duration { return &h.Timeout }, config.Duration(time.Second, time.Hour).Default(time.Minute), "how long it may take"),
	config.Put("on_error", func(h *Hook) *bool { return &h.Continue }, errorValue, "what follows when the hook itself fails: the run is refused, or goes on. After a run nothing is refused"),
}

// keysOf are the keys of a table, and their aliases.
func keysOf(t interface{ Names() []string }) []string {
	keys := t.Names()
	for alias, name := range aliases {
		if slices.Contains(keys, name) {
			keys = append(keys, alias)
		}
	}
	slices.Sort(keys[len(t.Names()):])
	return keys
}

// renamed gives the values of aliases the names that they stand for.
func renamed(o config.Object) {
	for alias, name := range aliases {
		n := o.Get(alias)
		switch {
		case n == nil:
		case o.Get(name) != nil:
			o.Fail(o.KeyPos(alias), "%s and %s say the same; keep %s", alias, name, name)
		default:
			o.Set(name, n)
		}
	}
}
