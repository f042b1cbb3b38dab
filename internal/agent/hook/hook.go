// Package hook runs the commands that a blueprint has around its runs. A command gets one
// JSON document on its standard input. One before a run may answer on its standard output.
//
// A hook works in a private folder that is removed when it has ended. It gets the few
// variables that every program gets, and its own. All that it has started ends with it,
// wherever that has gone, and New ends what ran when an earlier gateway was killed.
package hook

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tine-mcp/tine/internal/agent/blueprint"
)

const (
	mostAtOnce = 64
	mostOutput = 2 << 20 // bytes of an answer
	mostWords  = 4 << 10 // of standard error that are kept
	// openTime is how long the output of a hook may stay open after its end. Only a process
	// that could not be found keeps it open.
	openTime = time.Second
)

// Options of New.
type Options struct {
	// Dir is the folder for those that run. It belongs to this gateway alone.
	Dir string
	// Environ is the gateway's environment; nil for that of the process.
	Environ func() []string
	Log     *slog.Logger
}

// Programs runs hooks. Its methods may be called at once.
type Programs struct {
	hosting
	dir     string
	environ func() []string
	log     *slog.Logger
	places  chan struct{}
}

// New ends the hooks that an earlier gateway has left in the folder, and runs others.
func New(o Options) (*Programs, error) {
	p := &Programs{dir: o.Dir, environ: o.Environ, log: o.Log, places: make(chan struct{}, mostAtOnce)}
	if p.environ == nil {
		p.environ = os.Environ
	}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	entries, err := os.ReadDir(o.Dir)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("look for hooks that were left: %w", err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, filepath.Join(o.Dir, e.Name()))
	}
	if len(left) == 0 {
		return p, nil
	}
	if err := p.sweep(left); err != nil {
		p.log.Error("hooks that were left can't be ended", "err", err)
		return p, nil // their folders stay, so that the next gateway tries again
	}
	for _, dir := range left {
		p.remove(dir)
	}
	return p, nil
}

// remove removes the folder of a hook that has ended. A hook may have made it so that it
// can't be removed, which must stop nothing.
func (p *Programs) remove(dir string) {
	if err := os.RemoveAll(dir); err != nil {
		p.log.Warn("the folder of a hook can't be removed; remove it by hand", "dir", dir, "err", err)
	}
}

// A Failure is a hook that failed itself.
type Failure struct {
	Why   string
	Words string // the end of what it wrote on standard error; may hold secrets
}

func (f *Failure) Error() string { return f.Why }

func failure(format string, args ...any) *Failure { return &Failure{Why: fmt.Sprintf(format, args...)} }

// Run runs a command on an input and returns what it printed. The error is a *Failure, or
// that of ctx.
func (p *Programs) Run(ctx context.Context, c blueprint.Command, input []byte) ([]byte, error) {
	select {
	case p.places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-p.places }()
	for name, value := range c.Env {
		if strings.ContainsRune(value, 0) {
			return nil, failure("the variable %s has a zero byte in it", name)
		}
	}
	late := fmt.Errorf("it took longer than %s; make it faster, or give it a longer timeout", c.Timeout)
	limited, cancel := context.WithTimeoutCause(ctx, c.Timeout, late)
	defer cancel()
	out, err := p.run(limited, c, input)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return out, err
}
