package model

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/model/spec"
)

const (
	maxPrograms = 4               // that run at once for one model
	maxTurns    = 8               // requests of one run; one or two are usual
	endGrace    = 5 * time.Second // between the result and the end of the program
	maxWords    = 4 << 10         // of standard error that are kept
)

// A program is the user's own claude in print mode. It has the user's login, so no key
// is needed, and the text of the conversation as its only input: none of its tools,
// settings or servers are there. Each attempt runs it once, in an empty folder.
//
// The tools of a request are offered as a form that the program has the model fill in.
type program struct {
	path    string
	model   string
	base    *url.URL
	environ func(string) string
	max     int64
	prices  Prices
	start   func(*exec.Cmd) (*Process, error)
}

func newProgram(o Options, base *url.URL, model string, prices Prices) *program {
	p := &program{path: o.CLI, model: model, base: base, environ: o.Environ, max: o.MaxReply, prices: prices, start: o.Start}
	if p.start == nil {
		p.start = Start
	}
	return p
}

// A Process is a program that runs.
type Process struct {
	Stdout io.ReadCloser
	Wait   func() error // waits for its end, once its output was read
	Kill   func()       // ends it and what it started, also when it has ended
}

// Start starts a program as the leader of a group of processes.
func Start(cmd *exec.Cmd) (*Process, error) {
	cmd.WaitDelay = endGrace
	ownGroup(cmd)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	return &Process{Stdout: out, Wait: cmd.Wait, Kill: func() { endGroup(cmd) }}, nil
}

func (p *program) host() string    { return "the program claude" }
func (p *program) maxTokens() int  { return 0 }
func (p *program) tellsCost() bool { return true }

func (p *program) send(ctx context.Context, a *attempt) (Reply, error) {
	if a.Temperature != nil || len(a.Stop) > 0 {
		return Reply{}, p.failed(api.KindInvalid, "it takes neither a temperature nor stop sequences; leave them out")
	}
	path, err := p.find()
	if err != nil {
		return Reply{}, err
	}
	dir, err := os.MkdirTemp("", "tine-claude-")
	if err != nil {
		return Reply{}, p.failed(api.KindInfrastructure, "no folder for the program claude: %v", err)
	}
	defer os.RemoveAll(dir)
	// An argument is limited to 128 KiB, and other users can read it.
	system := filepath.Join(dir, "system.txt")
	if err := os.WriteFile(system, []byte(systemText(a.Request)), 0o600); err != nil {
		return Reply{}, p.failed(api.KindInfrastructure, "no system prompt for the program claude: %v", err)
	}
	cmd := exec.Command(path, p.arguments(a, system)...)
	cmd.Dir, cmd.Env = dir, append(p.environment(a), "CLAUDE_CODE_TMPDIR="+dir)
	cmd.Stdin = strings.NewReader(promptText(a.Request))
	return p.run(ctx, cmd, a)
}

// find returns the absolute path of the program.
func (p *program) find() (string, error) {
	path, err := exec.LookPath(cmp.Or(p.path, "claude"))
	if err == nil {
		path, err = filepath.Abs(path) // it runs in another folder
	}
	switch {
	case err != nil && p.path == "":
		return "", p.failed(api.KindInfrastructure, "the program claude is not on PATH; install Claude Code, or set cli to its path")
	case err != nil:
		return "", p.failed(api.KindInfrastructure, "%v; install Claude Code, or set cli to its path", err)
	}
	return path, nil
}

// run starts the program and reads what it prints.
func (p *program) run(ctx context.Context, cmd *exec.Cmd, a *attempt) (Reply, error) {
	words := &tail{max: maxWords}
	cmd.Stderr = words
	proc, err := p.start(cmd)
	if err != nil {
		return Reply{}, p.failed(api.KindInfrastructure, "the program claude does not start: %v; run claude -p to see why", err)
	}
	defer proc.Kill() // also what the program left behind
	// A process that left the group may keep the pipe open.
	defer context.AfterFunc(ctx, func() {
		proc.Kill()
		proc.Stdout.Close()
	})()
	run := &programRun{delta: a.delta, asked: len(a.Tools) > 0, prices: p.prices}
	if err = run.read(&limited{body: proc.Stdout, left: p.max, max: p.max}); err != nil || run.cut {
		proc.Kill()
	}
	late := time.AfterFunc(endGrace, proc.Kill)
	defer late.Stop()
	ended := proc.Wait()
	switch {
	case err != nil:
		return run.reply(), err
	case run.cut:
		return run.finish()
	case !run.ended:
		return run.reply(), p.noResult(ended, words.String(), a.key)
	}
	if err := run.problem(); err != nil {
		return Reply{Usage: run.reply().Usage}, err
	}
	return run.finish()
}

// noResult is the error of a program that ended without a result.
func (p *program) noResult(ended error, words, key string) error {
	how := "ended without a result"
	if ended != nil {
		how = fmt.Sprintf("failed: %v", ended)
	}
	if words = masked(words, key); words != "" {
		how += fmt.Sprintf(": %q", words)
	}
	f := p.failed(api.KindInfrastructure, "the program claude %s; run claude -p to see why", how)
	f.again, f.api.Retryable = true, true
	return f
}

func (p *program) failed(kind api.Kind, format string, args ...any) *failure {
	name := spec.Claude
	if p.model != "" {
		name += "/" + p.model
	}
	return &failure{api: &api.Error{Kind: kind, Message: fmt.Sprintf("model %q: ", name) + fmt.Sprintf(format, args...)}}
}

// A tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	max  int
	text []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if over := len(t.text) - t.max; over > 0 {
		t.text = append(t.text[:0], t.text[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
