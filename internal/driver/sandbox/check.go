package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/packages"
)

// A Step is what Probe found of one thing that sandboxes need or use.
type Step struct {
	Name   string // such as namespaces
	OK     bool
	Needed bool // without it there are no sandboxes
	Detail string
	Mend   string
}

// Summary says what of sandboxes works here and why the rest does not, which servers
// need one and, where there can be none, which drivers are left. Without sandboxes the
// gateway is broken where servers need one, and else only lacks them.
func Summary(steps []Step, servers, left []string) driver.Finding {
	f := driver.Finding{Name: "sandbox", Status: driver.FoundOK}
	var lines, mends []string
	for _, s := range steps {
		lines = append(lines, s.Name+": "+s.Detail)
		if !s.OK {
			f.Status = driver.FoundWarn
			if s.Mend != "" {
				mends = append(mends, s.Mend)
			}
		}
	}
	if Work(steps) {
		if len(servers) > 0 {
			lines = append(lines, "servers in sandboxes: "+strings.Join(servers, ", "))
		}
	} else {
		f.Status = driver.FoundMissing
		use := "; servers with sandbox want it"
		if len(servers) > 0 {
			f.Status, use = driver.FoundBroken, ""
			lines = append(lines, "these servers don't start: "+strings.Join(servers, ", "))
		}
		lines = append(lines, "what is left: "+strings.Join(left, ", "))
		mends = append(mends, "until then use docker, or no sandbox for servers that you trust"+use)
	}
	f.Detail, f.Mend = strings.Join(lines, "\n"), strings.Join(mends, "; ")
	return f
}

// Work reports whether nothing is missing that a sandbox needs.
func Work(steps []Step) bool {
	return !slices.ContainsFunc(steps, func(s Step) bool { return s.Needed && !s.OK })
}

// Servers names the servers that run in sandboxes.
func Servers(servers []config.Server) []string {
	var ids []string
	for _, s := range servers {
		if optionsOf(s) != nil {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// Warnings say what of servers can't work since tine-sandbox is not where binary says, or
// not there at all. Only Probe can tell whether this machine can make sandboxes.
func Warnings(servers []config.Server, binary string) []string {
	ids := Servers(servers)
	if len(ids) == 0 && (binary == "" || runtime.GOOS != "linux") {
		return nil
	}
	_, err := Find(binary)
	switch {
	case err == nil:
		return nil
	case len(ids) == 0:
		return []string{err.Error()}
	}
	return []string{fmt.Sprintf("these servers don't start, since they want a sandbox: %s: %v", strings.Join(ids, ", "), err)}
}

// CheckServer looks for the root of a server, or for what fetches its packages. It
// returns what is wrong. settled is false where the program is one of this machine.
func CheckServer(s config.Server) (found []driver.Finding, settled bool) {
	f := driver.Finding{Name: "server " + s.ID, Status: driver.FoundMissing}
	key := "servers." + s.ID
	if root := optionsOf(s).Root; root != RootAllow && root != RootHost {
		if _, err := os.Stat(root); err == nil {
			return nil, true
		}
		// The path may have a secret in it.
		f.Detail, f.Mend = "its sandbox.root is not there, or can't be looked at", "make it, or mend "+key+".sandbox.root"
		return []driver.Finding{f}, true
	}
	if s.Command == "" || s.Env["PATH"] != "" {
		return nil, true
	}
	f.Detail, f.Mend, settled = packages.Check(s.Command, s.Args, key)
	if f.Detail == "" {
		return nil, settled
	}
	return []driver.Finding{f}, true
}
