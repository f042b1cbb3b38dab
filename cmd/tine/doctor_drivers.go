package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/builtin"
	"github.com/tine-mcp/tine/internal/driver/process"
)

// surroundings decide which drivers work on a machine.
type surroundings struct {
	drivers   []string // that this program has
	bare      bool     // no shell: a container image with little but this program
	engine    bool     // an engine for containers answers
	sandboxes bool     // one was made
	pipes     error    // why no named pipe can be made in the state folder
	roots     bool     // whether there are certificate authorities
}

// surroundings examines this machine.
func (c *cli) surroundings() surroundings {
	s := surroundings{drivers: []string{builtin.Name, "docker", "process", "remote", "sandbox", "url"}, bare: bare(), roots: true}
	if pool, err := x509.SystemCertPool(); err != nil || pool.Equal(x509.NewCertPool()) {
		s.roots = false
	}
	dir, err := c.stateDir()
	if err != nil {
		return s // the state check says so
	}
	if _, at, err := writable(dir); err == nil {
		s.pipes = process.CheckPipes(at)
	}
	return s
}

// bare is whether this is an image that nothing can be installed in.
func bare() bool {
	_, err := os.Stat("/bin/sh")
	return runtime.GOOS != "windows" && errors.Is(err, fs.ErrNotExist)
}

// left lists the drivers that work.
func (s surroundings) left() []string {
	return slices.DeleteFunc(slices.Clone(s.drivers), func(name string) bool {
		return name == "process" && s.pipes != nil || name == "docker" && !s.engine || name == "sandbox" && !s.sandboxes
	})
}

// check names the drivers that work and says why the others don't.
func (s surroundings) check() driver.Finding {
	lines, mends := []string{strings.Join(s.left(), ", ")}, []string{}
	switch {
	case s.pipes != nil:
		lines = append(lines, fmt.Sprintf("process does not work: %v", s.pipes))
		mends = append(mends, "set --state or TINE_STATE to a folder on a local disk")
	case s.bare:
		lines = append(lines, "process runs what is in this image and nothing else; there is no shell")
	}
	if !s.roots {
		lines = append(lines, "url and remote can't trust any https server: there are no certificate authorities")
		mends = append(mends, "install ca-certificates, or set SSL_CERT_FILE, or ca_file of the server")
	}
	status := driver.FoundOK
	if len(mends) > 0 {
		status = driver.FoundWarn
	}
	return driver.Found("drivers", status, strings.Join(lines, "\n"), strings.Join(mends, "; "))
}

// gather merges the checks for programs that are not in a bare image: nothing can
// be installed there, and one line is enough.
func gather(checks []driver.Finding) []driver.Finding {
	var names []string
	rest := slices.DeleteFunc(slices.Clone(checks), func(ch driver.Finding) bool {
		if ch.Status == driver.FoundMissing {
			names = append(names, ch.Name)
		}
		return ch.Status == driver.FoundMissing
	})
	if len(names) == 0 {
		return rest
	}
	return append(rest, driver.Found(
		"programs", driver.FoundMissing, "not in this image: "+strings.Join(names, ", "),
		"run servers that want one in an image of your own that has both, or elsewhere and by url",
	))
}
