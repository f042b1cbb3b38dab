package config

import (
	"strings"
	"testing"
)

func TestSessionErrors(t *testing.T) {
	testErrors(t, []wrongConfig{
		{"unknown key", "sessions: {maximum: 3}\n",
			`tine.yaml:1:12: unknown key "maximum" in sessions; known keys: max, per_principal, ttl, idle, memory, instances, share, snapshots, wait, max_wait, fork_wait, on_loss, implicit, autosnapshot`},
		{"numbers", "sessions: {max: -1, per_principal: many, instances: 1000001}\n",
			`tine.yaml:1:17: sessions.max: -1 is out of range; want 0 to 1000000
tine.yaml:1:36: sessions.per_principal: got "many", want a whole number from 0 to 1000000
tine.yaml:1:53: sessions.instances: 1000001 is out of range; want 0 to 1000000`},
		{"durations", "sessions: {ttl: 5, idle: never, wait: -1s, fork_wait: 2d, max_wait: 0}\n",
			`tine.yaml:1:17: sessions.ttl: 5 has no unit; write 5s or 5ms
tine.yaml:1:26: sessions.idle: "never" is not a duration; write it like 500ms, 30s, 5m, 1h30m or 7d
tine.yaml:1:39: sessions.wait: "-1s" is out of range; want 0s to 1d
tine.yaml:1:55: sessions.fork_wait: "2d" is out of range; want 0s to 1d
tine.yaml:1:69: sessions.max_wait: 0 is out of range; want 1s to 1d`},
		{"memory", "sessions: {memory: much}\n",
			`tine.yaml:1:20: sessions.memory: "much" is not a size; write it like 64KiB, 16MiB, 4MB or 65536`},
		{"memory out of range", "sessions: {memory: 5}\n",
			`tine.yaml:1:20: sessions.memory: 5 is out of range; want 1MiB to 1024TiB`},
		{"percentage", "sessions: {memory: -5%}\n",
			`tine.yaml:1:20: sessions.memory: "-5%" is not a percentage; write it like 75%, or as a size like 8GiB`},
		{"percentage out of range", "sessions: {memory: 101%}\n",
			`tine.yaml:1:20: sessions.memory: "101%" is out of range; want more than 0% and at most 100%, or off for no bound`},
		{"nothing of it", "sessions: {memory: 0%}\n",
			`tine.yaml:1:20: sessions.memory: "0%" is out of range; want more than 0% and at most 100%, or off for no bound`},
		{"snapshots", "sessions: {snapshots: 50%}\n",
			`tine.yaml:1:23: sessions.snapshots: "50%" is not a size; write it like 64KiB, 16MiB, 4MB or 65536`},
		{"autosnapshot", "sessions: {autosnapshot: {every: -1, before: ['[', ''], keep: 0}}\n",
			`tine.yaml:1:34: sessions.autosnapshot.every: -1 is out of range; want 0 to 1000000
tine.yaml:1:47: sessions.autosnapshot.before[0]: "[" is not a pattern; write server__tool, with * for any characters
tine.yaml:1:52: sessions.autosnapshot.before[1]: "" is not a pattern; write server__tool, with * for any characters
tine.yaml:1:63: sessions.autosnapshot.keep: 0 is out of range; want 1 to 1000`},
		{"not a map", "sessions: 3\n",
			`tine.yaml:1:11: sessions: want a map of max, per_principal, ttl, idle, memory, instances, share, snapshots, wait, max_wait, fork_wait, on_loss, implicit, autosnapshot, got a number`},
	})
}

func TestMemoryOfSessions(t *testing.T) {
	for in, want := range map[string]int64{
		"":                               12 << 30,
		"sessions: {max: 3}":             12 << 30,
		"sessions: {memory: 0}":          0,
		"sessions: {memory: off}":        0,
		`sessions: {memory: "0"}`:        0,
		"sessions: {memory: 8GB}":        8e9,
		"sessions: {memory: 25%}":        4 << 30,
		"sessions: {memory: 100 %}":      16 << 30,
		"sessions: {memory: 0.01%}":      1 << 20,
		"sessions: {memory: '${SHARE}'}": 8 << 30,
	} {
		c := mustParse(t, in, env(map[string]string{"SHARE": "50%"}))
		if c.Sessions.Memory != want {
			t.Errorf("%s: got %d, want %d", in, c.Sessions.Memory, want)
		}
	}
	// Where it is not known there is no bound, and no part of it.
	opts := noEnv()
	opts.Memory = func() int64 { return 0 }
	if c := mustParse(t, "", opts); c.Sessions.Memory != 0 {
		t.Errorf("a part of nothing is %d", c.Sessions.Memory)
	}
	if !strings.Contains(string(Marshal(mustParse(t, "", opts))), "\n  memory: \"off\"\n") {
		t.Error("that there is no bound is not shown")
	}
	_, err := Parse([]byte("sessions: {memory: 50%}"), opts)
	if err == nil || !strings.Contains(err.Error(), "is not known here; write a size like 8GiB") {
		t.Errorf("got %v", err)
	}
}

func TestMachineMemory(t *testing.T) {
	// Less than any machine that builds Tine has, and more than any there is.
	if m := machineMemory(); m != 0 && (m < 64<<20 || m > 1<<50) {
		t.Errorf("this machine has %d bytes", m)
	}
	if c := Default(); c.Sessions.Memory != partOf(machineMemory(), 75) {
		t.Errorf("got %d", c.Sessions.Memory)
	}
}

func TestTopWorkspace(t *testing.T) {
	for in, want := range map[string]Workspace{
		"":                                      {},
		"workspace:":                            {},
		"workspace: false":                      {},
		"workspace: ${NO}":                      {},
		"workspace: true":                       {On: true},
		"workspace: {}":                         {On: true},
		"workspace: ~/start":                    {On: true, Template: "/home/ada/start"},
		"workspace: snapshot:base":              {On: true, Template: "snapshot:base"},
		"workspace: {template: ~/a}":            {On: true, Template: "/home/ada/a"},
		"workspace: {template: 'snapshot:a b'}": {On: true, Template: "snapshot:a b"},
		"workspace: ${START}":                   {On: true, Template: "/secret/start"},
	} {
		c := mustParse(t, in, env(map[string]string{"NO": "false", "START": "/secret/start"}))
		if c.Workspace != want {
			t.Errorf("%s: got %+v, want %+v", in, c.Workspace, want)
		}
		if shown := string(Marshal(c)); strings.Contains(shown, "secret") {
			t.Errorf("%s: shown as\n%s", in, shown)
		}
	}
}

func TestAutosnapshotNamesServers(t *testing.T) {
	c := mustParse(t, "sessions: {autosnapshot: {before: flies__write}}\nservers: {files: {builtin: files}}\n", noEnv())
	want := `tine.yaml:1:35: sessions.autosnapshot.before: "flies__write" names a server that is not there; did you mean "files"?`
	if got := strings.Join(c.Warnings, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
