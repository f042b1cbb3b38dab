package main

import (
	"testing"

	"github.com/tine-mcp/tine/internal/driver/builtin"
)

// TestFilesOfAFolder makes the server files of a folder of this machine, as settings.root
// has it, and of one with a setting that there is not.
func TestFilesOfAFolder(t *testing.T) {
	kind := kinds(nil, nil, nil, nil, rlmOptions{})["files"]
	given := map[string]any{"root": t.TempDir(), "readonly": true}
	if _, _, err := kind.New(builtin.Env{Settings: given}); err != nil {
		t.Error(err)
	}
	if len(given) != 2 {
		t.Errorf("the settings have become %v", given)
	}
	given["rot"] = "/"
	if _, _, err := kind.New(builtin.Env{Settings: given}); err == nil {
		t.Error("an unknown setting is accepted")
	}
}
