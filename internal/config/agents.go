package config

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Agents says where blueprints are, and what their runs may use of this machine.
type Agents struct {
	// Dirs are the folders of blueprints that the config names; see Config.AgentDirs.
	Dirs []string
	// Env names the variables of the gateway that ${env.NAME} may read in a blueprint.
	Env []string
	// Concurrency is how many runs the gateway's own runner does at once.
	Concurrency int
	// Tags are those of the gateway's own runner, which demands of runs are matched with.
	Tags      []string
	Executors []Executor
	Depth     int // generations below a run that nobody's agent started
	Children  int // runs of one parent at once
	Runs      int // of one session, in all
	// Time is how long a run may take; zero for as long as it wants.
	Time time.Duration
	// Match is how long a run waits for a runner that fits it.
	Match time.Duration
	// Lease is how long a runner may be silent.
	Lease time.Duration
	// Idle is how long an agent session may be without a run.
	Idle time.Duration
	// Keep is how long ended sessions of agents are kept.
	Keep time.Duration
}

// An Executor is a program that does runs, by the name that blueprints have for it.
type Executor struct {
	Name    string
	Type    string // one of ExecutorTypes
	Command string // empty for that of its type
	Args    []string
	Env     map[string]string
}

// Types of executors. Each but command is also the name of an executor, unless the config
// has another one of that name.
const (
	ExecutorCommand    = "command"
	ExecutorProcedural = "procedural"
	ExecutorClaudeCode = "claude-code"
	ExecutorCodex      = "codex"
)

// ExecutorTypes are all of them.
var ExecutorTypes = []string{ExecutorCommand, ExecutorProcedural, ExecutorClaudeCode, ExecutorCodex}

// ExecutorNamed is the executor that a blueprint means: one of the config, else the one of
// the type with that name.
func (a Agents) ExecutorNamed(name string) (Executor, bool) {
	if i := slices.IndexFunc(a.Executors, func(e Executor) bool { return e.Name == name }); i >= 0 {
		return a.Executors[i], true
	}
	if slices.Contains(ExecutorTypes, name) {
		return Executor{Name: name, Type: name}, true
	}
	return Executor{}, false
}

// ExecutorNames are all names that a blueprint may have for an executor.
func (a Agents) ExecutorNames() []string {
	names := slices.Clone(ExecutorTypes)
	for _, e := range a.Executors {
		if !slices.Contains(names, e.Name) {
			names = append(names, e.Name)
		}
	}
	return names
}

// Environ are the variables that blueprints may read, as far as they are set.
func (a Agents) Environ(getenv func(string) (string, bool)) map[string]string {
	env := map[string]string{}
	for _, name := range a.Env {
		if v, ok := getenv(name); ok {
			env[name] = v
		}
	}
	return env
}

var agentsTable = Table[Agents]{
	Put("dir", func(a *Agents) *[]string { return &a.Dirs }, agentDirs, "the folders of [blueprints](agents.md); capabilities are in the folder `capabilities` beside each"),
	Put("env", func(a *Agents) *[]string { return &a.Env }, Set(agentEnv), "the variables of the gateway that `${env.NAME}` may read in a blueprint"),
	Put("concurrency", func(a *Agents) *int { return &a.Concurrency }, Int[int](0, 10_000).Begin(16), "runs that work at once on this machine; with `0` only other runners do any"),
	Put("tags", func(a *Agents) *[]string { return &a.Tags }, Set(agentTags), "what this machine offers to runs whose blueprints demand tags"),
	Put("executors", func(a *Agents) *[]Executor { return &a.Executors }, executorsValue, "executors by the names that blueprints have for them, besides `"+strings.Join(ExecutorTypes, "`, `")+"`: a map of a name to `{type, command, args, env}`"),
	Put("depth", func(a *Agents) *int { return &a.Depth }, Int[int](0, 100).Begin(5), "how many generations of agents may be started by agents, unless the blueprint says less; with `0` no agent starts another"),
	Put("children", func(a *Agents) *int { return &a.Children }, Int[int](0, 10_000).Begin(16), "runs at once that one agent session may have started, unless the blueprint says less"),
	Put("runs", func(a *Agents) *int { return &a.Runs }, Int[int](1, 1_000_000).Begin(1000), "runs of one agent session in all, its first and those that resume it, unless the blueprint says less"),
	Put("time", func(a *Agents) *time.Duration { return &a.Time }, Duration(0, 365*day).Unless("no limit"), "how long a run may take, unless the blueprint says less; then it is ended and has failed"),
	Put("match", func(a *Agents) *time.Duration { return &a.Match }, Duration(time.Second, 30*day).Begin(5*time.Minute), "how long a run waits for a runner that meets its demands; then it fails"),
	Put("lease", func(a *Agents) *time.Duration { return &a.Lease }, Duration(time.Second, time.Hour).Begin(30*time.Second), "how long a runner may be silent until its runs count as lost"),
	Put("idle", func(a *Agents) *time.Duration { return &a.Idle }, Duration(time.Minute, 3650*day).Begin(7*day), "how long an agent session that is `idle` stays open for another run; then it is closed"),
	Put("keep", func(a *Agents) *time.Duration { return &a.Keep }, Duration(time.Minute, 3650*day).Begin(7*day), "how long an agent session that has ended is kept, with its runs and events"),
}

var executorTable = Table[Executor]{
	Put("type", func(e *Executor) *string { return &e.Type }, OneOf(ExecutorTypes...).Default(ExecutorCommand), "how Tine speaks to the program"),
	Put("command", func(e *Executor) *string { return &e.Command }, Text("./bin/agent").As("path, or a program on `PATH`").Unless("that of the type").Then(executorProgram), "the program; a relative path with a slash starts at the folder of the config"),
	Put("args", func(e *Executor) *[]string { return &e.Args }, Texts("[--quiet]").Unless("none"), "arguments before those of the type"),
	Put("env", func(e *Executor) *map[string]string { return &e.Env }, TextMap("{LANG: C.UTF-8}").Unless("none").Then(variableNames), "variables for it, besides the few that every program gets"),
}

// agentName is what agents, capabilities and executors may be called.
var agentName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)

// AgentName reports whether an agent, a capability or an executor may have a name.
func AgentName(name string) bool { return agentName.MatchString(name) }

const agentNameRule = "use 1 to 64 letters, digits, dashes and underscores"

const (
	mostAgentDirs  = 16
	mostExecutors  = 64
	mostAgentTexts = 256
)

// DefaultAgentDir is the folder of blueprints beside a config that names none.
const DefaultAgentDir = "agents"

var agentDirs = func() Value[[]string] {
	v := Texts("[./agents]").As("path, or list of paths").Unless("`agents` beside the config")
	v.About.Schema = v.About.Schema.orOne()
	return v.By(func(o Object, key string, dst *[]string) bool {
		if !o.oneOrMore(key, dst, false, "[./agents]") {
			return false
		}
		if o.EmptyList(key, "is empty; name a folder, or remove it") {
			return false
		}
		o.atMost(key, len(*dst), mostAgentDirs)
		for _, it := range o.Items(key, false) {
			if strings.TrimSpace(it.Text) == "" {
				o.d.fail(it.Pos, "%s: is empty; name a folder, or remove it", it.Path)
			}
			if it.Index < len(*dst) {
				(*dst)[it.Index] = o.Resolve(it.Text)
			}
		}
		return true
	})
}()

var envName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)

var agentEnv = Texts("[GITHUB_TOKEN]").As("list of names").Unless("none").Then(func(o Object, key string, dst *[]string) {
	o.atMost(key, len(*dst), mostAgentTexts)
	for _, it := range o.Items(key, false) {
		if !envName.MatchString(it.Text) {
			o.d.fail(it.Pos, "%s: %s is not the name of a variable; name each one, such as GITHUB_TOKEN", it.Path, it.Shown)
		}
	}
})

var agentTags = Texts("[gpu]").As("list of words").Unless("none").Then(func(o Object, key string, dst *[]string) {
	o.atMost(key, len(*dst), mostAgentTexts)
	for _, it := range o.Items(key, false) {
		if !idPattern.MatchString(it.Text) {
			o.d.fail(it.Pos, "%s: %s is not a tag; use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first", it.Path, it.Shown)
		}
	}
})

// atMost bounds what a key may hold.
func (o Object) atMost(key string, n, most int) {
	if n > most {
		o.Wrong(key, o.Get(key), "has %d entries, and at most %d are allowed", n, most)
	}
}

func variableNames(o Object, key string, dst *map[string]string) {
	o.atMost(key, len(*dst), mostAgentTexts)
	for _, p := range o.Get(key).Pairs {
		if p.Key == "" || strings.ContainsAny(p.Key, "=\x00") {
			o.d.fail(p.KeyPos, "%s: %q can't name a variable", join(o.Path, key), Clip(p.Key))
		}
	}
}

func executorProgram(o Object, key string, dst *string) {
	switch {
	case strings.TrimSpace(*dst) == "":
		o.Wrong(key, o.Get(key), "is empty; name a program")
	case strings.ContainsAny(*dst, `/\`):
		*dst = o.Resolve(*dst)
	default:
		*dst = o.ExpandHome(*dst)
	}
}

// executorsValue is a map of names to executors.
var executorsValue = entries[Executor]{
	what: "an executor", example: "executors: {mine: {command: ./agent}}", table: executorTable,
	name: func(e *Executor) *string { return &e.Name }, pattern: agentName, rule: agentNameRule, most: mostExecutors,
	read: func(o Object, p Pair, to *Executor) {
		executorTable.Read(o, to)
		executorTable.Fill(to)
		if to.Type == ExecutorCommand && o.Get("command") == nil {
			o.d.fail(p.KeyPos, "%s: command is missing; name the program, or another type: %s", o.Path, OrList(ExecutorTypes[1:]))
		}
	},
}.value()

// AgentWarnings says what of agents is not there on this machine: folders that the config
// names, and programs of executors.
func (c *Config) AgentWarnings() []string {
	var list []string
	for _, dir := range c.Agents.Dirs {
		info, err := os.Stat(dir)
		switch {
		case err != nil:
			list = append(list, fmt.Sprintf("agents.dir: %v; create it, or name another", err))
		case !info.IsDir():
			list = append(list, fmt.Sprintf("agents.dir: %s is not a folder; name the folder of the blueprints", dir))
		}
	}
	for _, e := range c.Agents.Executors {
		if e.Command == "" {
			continue
		}
		if _, err := exec.LookPath(e.Command); err != nil {
			list = append(list, fmt.Sprintf("agents.executors.%s: command %q can't be run: %v; install it, or mend the command", e.Name, e.Command, unwrapExec(err)))
		}
	}
	return list
}

// unwrapExec is an error of exec without the program's name, which the message has.
func unwrapExec(err error) error {
	if e, ok := err.(*exec.Error); ok {
		return e.Err
	}
	return err
}

// AgentDirs are the folders of blueprints: those of the config, or the one beside it.
func (c *Config) AgentDirs() []string {
	if len(c.Agents.Dirs) > 0 {
		return c.Agents.Dirs
	}
	return []string{filepath.Join(folderOf(c.Path), DefaultAgentDir)}
}
