package config

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestEnvironments(t *testing.T) {
	c := mustParse(t, `
servers: {game: {command: x}, grader: {command: y}}
environments:
  plain:
  full: {description: A game, template: start, servers: [game], reward: grader__score, labels: {run: one}, episodes: 5, ttl: 1h, idle: 2m}
`, noEnv())
	want := []Environment{
		{Name: "plain", Episodes: 1000, TTL: 24 * time.Hour, Idle: 30 * time.Minute},
		{Name: "full", Description: "A game", Template: "start", Servers: []string{"game"}, Reward: "grader__score",
			Labels: map[string]string{"run": "one"}, Episodes: 5, TTL: time.Hour, Idle: 2 * time.Minute},
	}
	if !reflect.DeepEqual(c.Environments, want) {
		t.Errorf("read %+v", c.Environments)
	}
	// What is shown can be loaded again.
	again := mustParse(t, string(Marshal(c)), noEnv())
	if !reflect.DeepEqual(again.Environments, want) {
		t.Errorf("shown and read again: %+v\n%s", again.Environments, Marshal(c))
	}
	if e, ok := c.EnvironmentNamed("full"); !ok || e.Episodes != 5 {
		t.Errorf("full: %+v, %v", e, ok)
	}
	if _, ok := c.EnvironmentNamed("none"); ok {
		t.Error("there is an environment none")
	}
	// A reload names the key, and only where it means something else.
	other := mustParse(t, strings.Replace(string(Marshal(c)), "episodes: 5", "episodes: 6", 1), noEnv())
	if got := Diff(c, other).Rest; !reflect.DeepEqual(got, []string{"environments"}) {
		t.Errorf("changed: %v", got)
	}
	if ch := Diff(c, again); !ch.Empty() {
		t.Errorf("changed: %+v", ch)
	}
}

func TestEnvironmentMistakes(t *testing.T) {
	const servers = "servers: {game: {command: x}}\n"
	for _, tt := range []struct{ text, want string }{
		{"environments: [a]", "want a map of a name to an environment"},
		{"environments: {a b: {}}", `environment "a b" is not a name`},
		{"environments: {a: {server: [game]}}", `did you mean "servers"?`},
		{"environments: {a: {servers: [gam]}}", `environments.a.servers[0]: there is no server "gam"; did you mean game?`},
		{"environments: {a: {servers: [game, game]}}", "stands twice"},
		{"environments: {a: {servers: []}}", "environments.a.servers: an empty list would mean all"},
		{"environments: {a: {reward: score}}", "environments.a.reward: \"score\" names no tool; write SERVER__TOOL"},
		{"environments: {a: {reward: grader__score}}", `environments.a.reward: there is no server "grader"`},
		{"environments: {a: {episodes: 0}}", "environments.a.episodes"},
		{"environments: {a: {ttl: 0}}", "environments.a.ttl"},
		{"environments: {a: {labels: {openenv: x}}}", `"openenv" is set by Tine`},
		{"environments: {a: {labels: {'a b': x}}}", "environments.a.labels"},
	} {
		_, err := Parse([]byte(servers+tt.text), noEnv())
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.text, err, tt.want)
		}
	}
	// A snapshot may have servers that the config has no longer.
	mustParse(t, servers+"environments: {a: {template: start, servers: [old]}}", noEnv())
}
