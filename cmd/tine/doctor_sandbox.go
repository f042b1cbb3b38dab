package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver/packages"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
)

// sandboxTime bounds how long it may take to make a sandbox and fork it.
const sandboxTime = time.Minute

// lookAtSandboxes tries them on the disk of the state folder, in a folder that is
// gone afterwards.
func (c *cli) lookAtSandboxes(ctx context.Context, conf *config.Config) []sandbox.Finding {
	ctx, cancel := context.WithTimeout(ctx, sandboxTime)
	defer cancel()
	var o sandbox.Options
	if conf != nil {
		o.Binary = conf.SandboxBinary
	}
	if dir, err := c.stateDir(); err == nil {
		if _, at, err := writable(dir); err == nil {
			o.Dir = at
		}
	}
	return c.probeSandbox(ctx, o)
}

// sandboxesWork reports whether nothing is missing that a sandbox needs.
func sandboxesWork(found []sandbox.Finding) bool {
	return !slices.ContainsFunc(found, func(f sandbox.Finding) bool { return f.Needed && !f.OK })
}

// sandboxCheck says what of sandboxes works here and why the rest does not, which
// servers want one and, where there can be none, which drivers are left. Without
// sandboxes the gateway is broken where servers want one, and else only lacks them.
func sandboxCheck(found []sandbox.Finding, servers, left []string, noNamespaces func() (why, mend string)) check {
	ch := check{Name: "sandbox", Status: checkOK}
	var lines, mends []string
	for _, f := range found {
		why, mend := f.Detail, f.Mend
		if !f.OK {
			ch.Status = checkWarn
			if f.Name == "namespaces" {
				if setting, set := noNamespaces(); setting != "" {
					why, mend = setting, set
				}
			}
			if mend != "" {
				mends = append(mends, mend)
			}
		}
		lines = append(lines, f.Name+": "+why)
	}
	if sandboxesWork(found) {
		if len(servers) > 0 {
			lines = append(lines, "servers in sandboxes: "+strings.Join(servers, ", "))
		}
	} else {
		ch.Status = checkMissing
		use := "; servers with sandbox want it"
		if len(servers) > 0 {
			ch.Status, use = checkBroken, ""
			lines = append(lines, "these servers don't start: "+strings.Join(servers, ", "))
		}
		lines = append(lines, "what is left: "+strings.Join(left, ", "))
		mends = append(mends, "until then use docker, or no sandbox for servers that you trust"+use)
	}
	ch.Detail, ch.Mend = strings.Join(lines, "\n"), strings.Join(mends, "; ")
	return ch
}

// sandboxServers are the servers that run in sandboxes.
func sandboxServers(conf *config.Config) []string {
	if conf == nil {
		return nil
	}
	var ids []string
	for _, s := range conf.Servers {
		if s.Enabled && s.Disabled == "" && s.Sandbox != nil {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// sandboxWarnings say what of a config can't work since tine-sandbox is not where the
// config says, or not there at all. Whether this machine can make sandboxes takes a try,
// which only the doctor makes.
func sandboxWarnings(conf *config.Config) []string {
	servers := sandboxServers(conf)
	if len(servers) == 0 && (conf.SandboxBinary == "" || runtime.GOOS != "linux") {
		return nil
	}
	_, err := sandbox.Find(conf.SandboxBinary)
	switch {
	case err == nil:
		return nil
	case len(servers) == 0:
		return []string{err.Error()}
	}
	return []string{fmt.Sprintf("these servers don't start, since they want a sandbox: %s: %v", strings.Join(servers, ", "), err)}
}

// ownRoot reports whether the program of a server is looked for in a root of its
// own, and not on this machine.
func ownRoot(s config.Server) bool {
	return s.Sandbox != nil && s.Sandbox.Root != config.RootAllow && s.Sandbox.Root != config.RootHost
}

// checkRoot looks for such a root. Its path may have a secret in it.
func checkRoot(s config.Server) (check, bool) {
	if _, err := os.Stat(s.Sandbox.Root); err == nil {
		return check{}, true
	}
	return check{
		"server " + s.ID, checkMissing, "its sandbox.root is not there, or can't be looked at",
		"make it, or mend servers." + s.ID + ".sandbox.root",
	}, false
}

// checkFetched looks for what fetches the packages of a server in a sandbox, which
// is not the npx or uvx that its command names. fetched is false where it needs no
// packages.
func checkFetched(s config.Server) (ch check, ok, fetched bool) {
	if s.Sandbox == nil {
		return check{}, true, false
	}
	w, fetched, err := packages.Parse(s.Command, s.Args)
	if !fetched {
		return check{}, true, false
	}
	ch = check{Name: "server " + s.ID, Status: checkMissing}
	if err != nil {
		ch.Detail, ch.Mend = err.Error(), "mend servers."+s.ID+".args"
		return ch, false, true
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { _, err := exec.LookPath(name); return err == nil })
	}
	switch {
	case strings.ContainsAny(w.Tool, `/\`):
		return check{}, true, true // the folder of it is looked in first
	case w.Kind == packages.NPM && !has("node"):
		ch.Detail, ch.Mend = "its packages come from npm, and node is not found on PATH", "install Node.js with npm"
	case w.Kind == packages.NPM && !has("npm", "npx"):
		ch.Detail, ch.Mend = "its packages come from npm, which is not found on PATH", "install npm"
	case w.Kind == packages.Python && !has("uv", "python3", "python"):
		ch.Detail, ch.Mend = "its packages come from PyPI, and neither uv nor Python is found on PATH", "install uv, or Python with venv"
	default:
		return check{}, true, true
	}
	return ch, false, true
}
