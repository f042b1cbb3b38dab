package main

import (
	"log/slog"
	"runtime"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
)

// TestShares holds that the welcome speaks only of servers that there are.
func TestShares(t *testing.T) {
	const programs, kept = "programs of its own", "share what is in "
	for _, tt := range []struct {
		name, yaml string
		want, not  []string
	}{
		{"rollouts", "servers: {rollout: {builtin: rollout}, far: {url: 'https://x.example/mcp'}}", nil, []string{programs, kept}},
		{"programs", "servers: {a: {command: a}, time: {builtin: time}}", []string{programs}, []string{kept, "time"}},
		{"one for all", "servers: {a: {command: a, scope: shared}}", nil, []string{programs, kept}},
		{"memories", "servers: {notes: {builtin: memory}, docs: {builtin: files}, off: {builtin: sqlite, enabled: false}}", []string{kept + "notes and docs,"}, []string{programs, "off"}},
		{"shared", "sessions: {implicit: shared}\nservers: {a: {command: a}}", []string{"share one session"}, []string{programs}},
		{"shared by nobody", "sessions: {implicit: shared}\nservers: {time: {builtin: time}}", nil, []string{"share one session"}},
		{"", "", []string{kept + "files, memory and sqlite,"}, []string{programs}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := ""
			if tt.name != "" {
				path = write(t, t.TempDir()+"/tine.yaml", tt.yaml+"\n")
			}
			cfg, err := config.Load(path, config.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := shares(cfg)
			for _, w := range tt.want {
				if !strings.Contains(got, w) {
					t.Errorf("%q lacks %q", got, w)
				}
			}
			for _, w := range tt.not {
				if strings.Contains(got, w) {
					t.Errorf("%q has %q", got, w)
				}
			}
			if len(tt.want) == 0 && got != "" {
				t.Errorf("%q, want nothing", got)
			}
		})
	}
}

// TestWelcomeFits holds that each of the next steps works with the config that runs.
func TestWelcomeFits(t *testing.T) {
	all, err := newPlugins(pluginOptions{State: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer all.close()
	const claude, header = "claude mcp add", "TINE_TOKEN"
	const rewardKit = "backends:\n  - {backend_name_ref: notes, backend_type: memory, instance_scoping: session, orchestration_mode: local_docker, docker_image: 'notes:1', container_port: 80}\n"
	for _, tt := range []struct {
		name, yaml string
		open       bool
		want, not  []string
		call       string
		forks      bool
	}{
		{"built in", "", true, []string{claude, "/mcp\n"}, []string{header}, "time__get_current_time", true},
		{"tokens", "auth: {tokens: [{name: a, token: abcdefghijklmnopqrstuvwx}]}\nservers: {a: {command: a}}", false, []string{claude, header}, nil, "a__TOOL", false},
		{"an issuer", "auth: {oidc: {issuer: 'https://login.example.com'}}\npublic_url: https://t.example.com\nservers: {a: {url: 'https://x.example/mcp'}}", false, []string{claude}, []string{header}, "a__TOOL", false},
		{"one server", "default_view: a\nservers: {rollout: {builtin: rollout}, a: {command: a, sandbox: true}}", true, []string{claude}, nil, "a__TOOL", runtime.GOOS == "linux"},
		{"rollouts", "default_view: rollout\nservers: {rollout: {builtin: rollout}, a: {command: a, state: none}, t: {builtin: time, enabled: false}}", true, []string{"/mcp?errors=protocol\n"}, []string{claude, "mcpServers"}, "a__TOOL", false},
		{"rollouts with tokens", "default_view: rollout\nauth: {tokens: [{name: a, token: abcdefghijklmnopqrstuvwx}]}\nservers: {rollout: {builtin: rollout}}", false, []string{"/mcp?errors=protocol\n", header}, []string{claude}, "SERVER__TOOL", false},
		{"a kernel", "servers: {rlm: {builtin: rlm, driver: process}}", true, []string{claude}, nil, "rlm_exec ", true},
		{"a kernel of another name", "servers: {lab: {builtin: rlm, driver: process}}", true, []string{claude}, nil, "lab__rlm_exec ", true},
		{"containers", "servers: {a: {docker: {image: a, state: [/data]}}}", true, []string{claude}, nil, "a__TOOL", true},
		{"containers that nothing is known of", "servers: {a: {docker: a}}", true, []string{claude}, nil, "a__TOOL", false},
		{"orchestrators", "servers: {a: {remote: {url: 'https://x.example', resource: a, fork: '/instances/{remote_instance_id}/fork'}, scope: session}}", true, []string{claude}, nil, "a__TOOL", true},
		{"refused", "servers: {m: {builtin: memory, fork: refuse}}", true, []string{claude}, nil, "m__TOOL", false},
		{"RewardKit", rewardKit, true, []string{"/mcp?errors=protocol\n"}, []string{claude}, "", false},
	} {
		path := ""
		if tt.yaml != "" {
			path = write(t, t.TempDir()+"/tine.yaml", tt.yaml+"\n")
		}
		cfg, err := config.Load(path, config.Options{})
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		got := clients(cfg, "http://127.0.0.1:8463/mcp", tt.open)
		for _, w := range tt.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q lacks %q", tt.name, got, w)
			}
		}
		for _, w := range tt.not {
			if strings.Contains(got, w) {
				t.Errorf("%s: %q has %q", tt.name, got, w)
			}
		}
		if call := firstCall(cfg); !strings.HasPrefix(call, tt.call) || strings.HasPrefix(call, "rollout") {
			t.Errorf("%s: the first call is %q", tt.name, call)
		}
		if tt.name != "RewardKit" && forks(cfg, all.drivers) != tt.forks {
			t.Errorf("%s: forks is %v", tt.name, !tt.forks)
		}
	}
}
