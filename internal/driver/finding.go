package driver

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// What a check finds.
const (
	FoundOK      = "ok"
	FoundWarn    = "warn"    // works, but needs a look
	FoundMissing = "missing" // not there; some servers may need it
	FoundBroken  = "broken"  // the gateway needs it
)

// A Finding is what a check found of one thing on this machine. A driver exports the
// checks of what it needs, and tine doctor prints them.
type Finding struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Detail string `json:"detail"`         // in several lines where there is more to say
	Mend   string `json:"mend,omitempty"` // what to do about it
}

// Found is a finding.
func Found(name, status, detail, mend string) Finding { return Finding{name, status, detail, mend} }

// Works reports whether the thing can be used.
func (f Finding) Works() bool { return f.Status == FoundOK || f.Status == FoundWarn }

// CheckTime bounds how long one program, engine or orchestrator may take to answer a
// check.
const CheckTime = 10 * time.Second

// Output runs a program for a check and returns what it printed.
func Output(ctx context.Context, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, CheckTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second // a grandchild may hold the pipe open
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return "", errors.New("it did not answer in time")
	}
	if err != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		if line = Brief(line); line != "" {
			return "", fmt.Errorf("%w: %s", err, line)
		}
		return "", err
	}
	return string(out), nil
}

// Brief is the beginning of a text, in one line.
func Brief(text string) string {
	const most = 60
	r := []rune(strings.Join(strings.Fields(text), " "))
	if len(r) <= most {
		return string(r)
	}
	return strings.TrimRight(string(r[:most-1]), " ") + "…"
}
