package process

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
)

// CheckServer looks for the program of a server where that is possible without starting
// it. It returns what is wrong.
func CheckServer(s config.Server) []driver.Finding {
	relative := strings.ContainsAny(s.Command, `/\`) && !filepath.IsAbs(s.Command)
	if s.Command == "" || s.Env["PATH"] != "" || relative {
		return nil
	}
	if _, err := exec.LookPath(s.Command); err != nil {
		return []driver.Finding{{
			Name: "server " + s.ID, Status: driver.FoundMissing, Detail: fmt.Sprintf("command %q: %v", s.Command, err),
			Mend: fmt.Sprintf("install it, or set servers.%s.command", s.ID),
		}}
	}
	return nil
}

// CheckWorkspace says where the programs of servers see the workspace. It returns
// nothing where none of them sees it.
func CheckWorkspace(servers []config.Server, o Options) []driver.Finding {
	path := ""
	for i := range servers {
		if s := &servers[i]; s.Driver == "process" && s.Workspace {
			path = s.SeenWorkspace()
		}
	}
	if path == "" {
		return nil
	}
	at, why := New(o).WouldPlace(path)
	f := driver.Finding{Name: "workspace", Status: driver.FoundOK, Detail: "programs see it at " + at}
	switch {
	case at == "":
		f.Status = driver.FoundWarn
		f.Detail = "programs see it in the session's own folder, whose path differs in each fork: " + why
		f.Mend = "run tine as root, or let its user make user namespaces; or set sandbox: true for these servers"
	case why != "":
		f.Status = driver.FoundWarn
		f.Detail += fmt.Sprintf(" and not at %s: %s", path, why)
		f.Mend = fmt.Sprintf("make an empty folder %s, or set workspace.path to one", path)
	}
	return []driver.Finding{f}
}
