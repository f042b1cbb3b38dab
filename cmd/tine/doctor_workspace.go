package main

import (
	"fmt"
	"path/filepath"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver/process"
)

// workspaceChecks says where programs outside of sandboxes see the workspace; none
// where no server is one that does.
func (c *cli) workspaceChecks(conf *config.Config) []check {
	if conf == nil {
		return nil
	}
	path := ""
	for i := range conf.Servers {
		if s := &conf.Servers[i]; s.Enabled && s.Disabled == "" && s.Driver == "process" && s.Workspace {
			path = s.SeenWorkspace()
		}
	}
	if path == "" {
		return nil
	}
	other := ""
	if dir, err := c.stateDir(); err == nil {
		other = filepath.Join(dir, "workspace")
	}
	at, why := process.New(process.Options{Self: self, Place: other}).WouldPlace(path)
	ch := check{Name: "workspace", Status: checkOK, Detail: "programs see it at " + at}
	switch {
	case at == "":
		ch.Status = checkWarn
		ch.Detail = fmt.Sprintf("programs see it in the session's own folder, whose path differs in each fork: %s", why)
		ch.Mend = "run tine as root, or let its user make user namespaces; or set sandbox: true for these servers"
	case why != "":
		ch.Status = checkWarn
		ch.Detail += fmt.Sprintf(" and not at %s: %s", path, why)
		ch.Mend = fmt.Sprintf("make an empty folder %s, or set workspace.path to one", path)
	}
	return []check{ch}
}
