package packages

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Step is one program that a fetch runs.
type Step struct {
	Command string // a full path
	Args    []string
	Env     []string // all of it
	Dir     string
	Out     io.Writer // stdout and stderr; one writer at a time
}

// A Runner runs the steps of a fetch, with network. When ctx ends, so does all
// that it started, before it returns.
type Runner interface {
	Run(ctx context.Context, step Step) error
}

// Host runs steps as processes of this machine. They don't outlive us.
type Host struct{}

var _ Runner = Host{}

const (
	// grace is how long a program that is asked to end may take to clear up: npx removes
	// what it has half installed, which the next one would take for whole.
	grace = 5 * time.Second
	// patience is how long a program that was killed may hold its output open.
	patience = 2 * time.Second
)

// Run implements Runner.
func (Host) Run(ctx context.Context, step Step) error {
	cmd := exec.CommandContext(ctx, step.Command, step.Args...)
	cmd.Env, cmd.Dir = step.Env, step.Dir
	cmd.Stdout, cmd.Stderr = step.Out, step.Out
	cmd.WaitDelay = grace + patience
	kill := bind(cmd)
	// The kernel ends the child with the thread that started it, where it does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if err == nil {
		stop := context.AfterFunc(ctx, func() { time.AfterFunc(grace, kill) })
		err = cmd.Wait()
		if !stop() {
			kill() // what is left of its group
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// lookPath finds a program on a PATH that is not ours.
func lookPath(name, path string) (string, error) {
	if strings.ContainsAny(name, `/\`) {
		return exec.LookPath(name)
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // it would depend on where the gateway runs
		}
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	return "", fmt.Errorf("%s is not on PATH: %w", name, ErrNoTool)
}
