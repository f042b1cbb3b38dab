package main

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"github.com/tine-mcp/tine/internal/config"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/process"
	"github.com/tine-mcp/tine/internal/driver/remote"
	"github.com/tine-mcp/tine/internal/driver/sandbox"
	"github.com/tine-mcp/tine/internal/upstream/credential"
)

// sandboxTime bounds how long it may take to make a sandbox and fork it.
const sandboxTime = time.Minute

// checkServer looks for the program of a server. It returns what is wrong.
func checkServer(s config.Server) []driver.Finding {
	if s.Driver == "sandbox" {
		if found, settled := sandbox.CheckServer(s); settled {
			return found
		}
	}
	return process.CheckServer(s)
}

// checkRemote asks the orchestrator of a server, with as much of the server as that
// takes.
func checkRemote(ctx context.Context, s config.Server) driver.Finding {
	wallet := credential.New(credential.Options{})
	defer wallet.Close()
	spec := driver.Spec{Server: s.ID, Header: make(http.Header), CAFile: s.CAFile, Options: s.Options, Authorize: authorizing(s, wallet)}
	for k, v := range s.Headers {
		spec.Header.Set(k, v)
	}
	return remote.Check(ctx, spec)
}

// checkWorkspace says where programs outside of sandboxes see the workspace.
func (c *cli) checkWorkspace(servers []config.Server) []driver.Finding {
	o := process.Options{Self: self}
	if dir, err := c.stateDir(); err == nil {
		o.Place = filepath.Join(dir, "workspace")
	}
	return process.CheckWorkspace(servers, o)
}

// lookAtSandboxes tests sandboxes on the disk of the state folder, in a folder that
// is removed afterwards.
func (c *cli) lookAtSandboxes(ctx context.Context, conf *config.Config) []sandbox.Step {
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
