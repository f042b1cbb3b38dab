package main

import (
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
