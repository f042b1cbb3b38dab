package config

import (
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/api"
)

// An Environment is an OpenEnv environment: what the sessions of its episodes are, and how
// long an episode may last.
type Environment struct {
	Name        string
	Description string
	// Template is the snapshot that each episode begins with; empty for none.
	Template string
	// Servers are those whose tools an agent has; empty for all.
	Servers []string
	// Reward is the tool that scores each step, as server and tool; empty for none.
	Reward   string
	Labels   map[string]string
	Episodes int
	TTL      time.Duration
	Idle     time.Duration
}

// EnvironmentNamed is the environment of a name.
func (c *Config) EnvironmentNamed(name string) (Environment, bool) {
	for i := range c.Environments {
		if c.Environments[i].Name == name {
			return c.Environments[i], true
		}
	}
	return Environment{}, false
}

// environmentTable are the keys of an entry of environments.
var environmentTable = Table[Environment]{
	Put("description", func(e *Environment) *string { return &e.Description }, Text("A game of Go").Unless("its servers"), "what `/metadata` says of it"),
	Put("template", func(e *Environment) *string { return &e.Template }, Text("start").As("name or id of a snapshot").Unless("none"), "the snapshot that each episode begins with"),
	Put("servers", func(e *Environment) *[]string { return &e.Servers }, environmentServers, "the servers of an episode, whose tools an agent has; with one server its tools have their own names, otherwise those of the merged view"),
	Put("reward", func(e *Environment) *string { return &e.Reward }, rewardTool, "the tool that is called after each step and returns its reward, see [openenv.md](openenv.md#rewards); agents don't see it"),
	Put("labels", func(e *Environment) *map[string]string { return &e.Labels }, TextMap("{run: baseline}").Unless("none").Then(checkLabels), "labels of the episodes' sessions, besides `openenv` and `openenv_episode`"),
	Put("episodes", func(e *Environment) *int { return &e.Episodes }, Int[int](1, mostSessions).Begin(1000), "how many episodes may be open at once"),
	Put("ttl", func(e *Environment) *time.Duration { return &e.TTL }, Duration(time.Second, 3650*day).Begin(day), "the longest that an episode lasts"),
	Put("idle", func(e *Environment) *time.Duration { return &e.Idle }, Duration(time.Second, 30*day).Begin(30*time.Minute), "how long an episode is kept without a message"),
}

// The labels that every episode's session has.
const (
	LabelEnvironment = "openenv"
	LabelEpisode     = "openenv_episode"
)

func checkLabels(o Object, key string, dst *map[string]string) {
	n := o.Get(key)
	if err := api.ValidLabels(*dst); err != nil {
		o.Wrong(key, n, "%v", err)
	}
	for _, own := range []string{LabelEnvironment, LabelEpisode} {
		if _, ok := (*dst)[own]; ok {
			o.Wrong(key, n, "%q is set by Tine; choose another name", own)
		}
	}
}

// environmentServers is a list of servers, by their ids.
var environmentServers = func() Value[[]string] {
	v := Texts("[files]").As("list of ids").Unless("all")
	return v.Then(func(o Object, key string, dst *[]string) {
		if o.EmptyList(key, "%s", mostHint) {
			return
		}
		for i, it := range o.Items(key, false) {
			if slices.Contains((*dst)[:i], it.Text) {
				o.d.fail(it.Pos, "%s: %s stands twice; remove one", it.Path, it.Shown)
			}
			o.d.members = append(o.d.members, named{it, ""})
		}
	})
}()

// rewardTool is a tool, as server and tool.
var rewardTool = func() Value[string] {
	v := Text("grader__score").As("`server__tool`").Unless("none")
	return v.Then(func(o Object, key string, dst *string) {
		n := o.Get(key)
		server, tool, ok := strings.Cut(*dst, o.d.separator)
		if !ok || server == "" || tool == "" {
			o.Wrong(key, n, "%s names no tool; write SERVER%sTOOL, like grader%sscore", n.Shown(), o.d.separator, o.d.separator)
			return
		}
		o.d.members = append(o.d.members, named{Item{Pos: n.Pos, Path: join(o.Path, key), Text: server, Shown: n.Shown()}, ""})
	})
}()

// environmentsValue is a map of names to environments.
var environmentsValue = entries[Environment]{
	what: "an environment", example: "environments: {game: {servers: [files]}}", table: environmentTable,
	name: func(e *Environment) *string { return &e.Name }, pattern: idPattern,
	rule: "use 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first",
	read: func(o Object, _ Pair, to *Environment) {
		before := len(o.d.members)
		environmentTable.Begin(to)
		environmentTable.Read(o, to)
		if to.Template != "" { // a snapshot may have servers that the config no longer has
			o.d.members = o.d.members[:before]
		}
	},
}.value()

// checkMembers looks for the servers that environments name.
func (d *decoder) checkMembers(c *Config) {
	ids := make([]string, 0, len(c.Servers))
	for i := range c.Servers {
		ids = append(ids, c.Servers[i].ID)
	}
	for _, n := range d.members {
		if slices.Contains(ids, n.Text) {
			continue
		}
		mend := "name one of servers"
		if g := Nearest(n.Text, ids); g != "" {
			mend = "did you mean " + g + "?"
		}
		d.fail(n.Pos, "%s: there is no server %q; %s", n.Path, Clip(n.Text), mend)
	}
}
