package session

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/config"
)

// Where the workspace is seen is part of what an instance was started with, and
// says nothing of servers that don't see it or see it at the default.
func TestWorkspacePathInHash(t *testing.T) {
	parse := func(top string) *config.Config {
		cfg, err := config.Parse([]byte(top+"servers: {a: {command: x}, b: {command: x, args: ['${workspace}']}}\n"), config.Options{Path: "tine.yaml"})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	plain, same, other := parse("workspace: true\n"), parse("workspace: {path: /workspace}\n"), parse("workspace: {path: /data}\n")
	for i := range plain.Servers {
		raw, err := json.Marshal(plain.Servers[i])
		if err != nil || strings.Contains(string(raw), "WorkspacePath") {
			t.Errorf("%s, %v", raw, err)
		}
		if plain.Servers[i].SpecHash() != same.Servers[i].SpecHash() {
			t.Errorf("server %s differs with the default", plain.Servers[i].ID)
		}
	}
	if plain.Servers[0].SpecHash() != other.Servers[0].SpecHash() || plain.Servers[1].SpecHash() == other.Servers[1].SpecHash() {
		t.Error("another path makes the wrong servers differ")
	}
}
