package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/agent/hook"
	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// ownPrograms are the programs of executors by their type, where the config names no other.
var ownPrograms = map[string]string{config.ExecutorClaudeCode: "claude", config.ExecutorCodex: "codex"}

// lookAtAgents looks at blueprints in files, and at the programs that would do their runs.
// There is nothing to say where there are no agents.
func (c *cli) lookAtAgents(ctx context.Context, conf *config.Config) []driver.Finding {
	const name = "agents"
	if conf == nil {
		return nil
	}
	f := agentFilesOf(conf)
	all, err := f.store.List(ctx)
	if err != nil {
		return []driver.Finding{driver.Found(name, driver.FoundBroken, err.Error(), "mend agents.dir of the config, or the folder")}
	}
	known := f.known(c, all)
	used := make(map[string]bool)
	for _, e := range f.conf.Agents.Executors {
		used[e.Name] = true
	}
	wrong := 0
	for _, l := range all {
		used[l.Executor] = true
		if found, _ := l.Check(known); l.Err != nil || len(found) > 0 {
			wrong++
		}
	}
	if len(used) == 0 {
		return nil
	}
	path, _ := c.lookupEnv("PATH")
	var there, missing []string
	for _, name := range slices.Sorted(maps.Keys(used)) {
		e, _ := f.conf.Agents.ExecutorNamed(name)
		program := e.Command
		if program == "" {
			program = ownPrograms[e.Type]
		}
		switch {
		case program == "": // each blueprint names its own
		case hook.Find(program, path) != nil:
			missing = append(missing, fmt.Sprintf("%s, of the executor %s", program, name))
		default:
			there = append(there, program)
		}
	}
	detail := count(len(all), "blueprint")
	if len(there) > 0 {
		detail += "; executors run " + strings.Join(slices.Compact(there), ", ")
	}
	switch {
	case len(missing) > 0:
		return []driver.Finding{driver.Found(name, driver.FoundMissing, detail+"; not found: "+strings.Join(missing, "; "), "install it where the gateway's PATH has it, or give its full path as command of agents.executors")}
	case wrong > 0:
		return []driver.Finding{driver.Found(name, driver.FoundWarn, detail+", "+fmt.Sprintf("%d with mistakes", wrong), "tine agent check names them")}
	}
	return []driver.Finding{driver.Found(name, driver.FoundOK, detail, "")}
}
