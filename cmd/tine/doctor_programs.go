package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"time"
)

// probeTime bounds how long one program or engine may take to say its version.
const probeTime = 10 * time.Second

// program is one that MCP servers are commonly run with.
type program struct {
	name    string
	names   []string // of the executable; the first that works counts
	major   int      // the least version
	minor   int
	install string
}

var programs = []program{
	{"node", []string{"node"}, 18, 0, "install Node.js 18 or newer; servers from npm run with it"},
	{"npx", []string{"npx"}, 0, 0, "install Node.js with npm; servers from npm are started with npx"},
	{"python", []string{"python3", "python", "py"}, 3, 10, "install Python 3.10 or newer; servers from PyPI run with it"},
	{"uv", []string{"uv"}, 0, 0, "install uv; it brings uvx, which starts servers from PyPI"},
	{"uvx", []string{"uvx"}, 0, 0, "install uv; it brings uvx, which starts servers from PyPI"},
}

var versionText = regexp.MustCompile(`([0-9]+)\.([0-9]+)(\.[0-9]+)?`)

func (p program) check(ctx context.Context) check {
	ch := check{Name: p.name, Status: checkMissing, Detail: "not found on PATH", Mend: p.install}
	for _, name := range p.names {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		text, err := output(ctx, path, "--version")
		if err != nil {
			ch.Status, ch.Detail = checkWarn, fmt.Sprintf("%s does not run: %v", path, err)
			continue // a shim may stand before a program that works
		}
		m := versionText.FindStringSubmatch(text)
		if m == nil {
			ch.Status, ch.Detail = checkWarn, fmt.Sprintf("%s says its version is %q", path, clip(oneLine(text)))
			continue
		}
		major, _ := strconv.Atoi(m[1])
		minor, _ := strconv.Atoi(m[2])
		if major < p.major || major == p.major && minor < p.minor {
			ch.Status, ch.Detail = checkWarn, fmt.Sprintf("%s is version %s, which is old", path, m[0])
			continue
		}
		return check{Name: p.name, Status: checkOK, Detail: m[0] + " at " + path}
	}
	return ch
}

// output runs a program and returns what it printed.
func output(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second // a grandchild may hold the pipe open
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", errors.New("it did not answer in time")
	}
	if err != nil {
		if text := firstLine(string(out)); text != "" {
			return "", fmt.Errorf("%w: %s", err, clip(text))
		}
		return "", err
	}
	return string(out), nil
}
