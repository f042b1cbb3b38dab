// Package body is what a config has to know of the kernel of rlm: the program that is
// started for an entry with builtin: rlm.
package body

import (
	"strings"

	"github.com/tine-mcp/tine/internal/config"
)

// State is the directory of state that a kernel works on.
const State = "rlm"

// Bootstrap is what Python is started with: it reads the kernel from its standard input.
// It stays the same when the kernel changes, so that a kernel that runs is still one of
// its entry after an upgrade.
const Bootstrap = `import json, os
data = b""
while data[-1:] != b"\n":
    more = os.read(0, 1 << 16)
    if not more:
        os._exit(0)
    data += more
exec(compile(json.loads(data)["kernel"], "<kernel>", "exec"), {"__name__": "__kernel__"})
`

// Front describes the server.
var Front = config.Front{
	Name: "rlm", Command: "python3", Args: []string{"-X", "utf8", "-c", Bootstrap}, State: State,
	Memory: 2 << 30, CPUs: 2,
	Image:    "python:3.13-slim",
	Program:  "python",
	Packages: "packages",
	Paths:    "allow_read",
	Tool:     toolName,
	Check:    Check,
}

// toolName is the name by which a tool is listed: rlm_exec may be called as rlm.exec, and
// that as rlm_exec.
func toolName(settings map[string]any, name string) string {
	rest, ok := strings.CutPrefix(name, "rlm")
	if !ok || rest == "" || rest[0] != '_' && rest[0] != '.' {
		return name
	}
	names, _ := settings["names"].(string)
	return Prefix(names) + rest[1:]
}

// Prefix is what names of tools begin with.
func Prefix(names string) string {
	if names == Dots {
		return "rlm."
	}
	return "rlm_"
}
