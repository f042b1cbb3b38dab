package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/executor/command"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/store/sqlite"
	"github.com/tine-mcp/tine/internal/testkit"
)

// script is the program of the runs: the prompt is a shell script without double quotes.
const script = `in=$(cat); p=$(printf '%s' "$in" | sed 's/.*"prompt":"\([^"]*\)".*/\1/'); eval "$p"`

// stays is the same, and waits for turns, which say ends.
const stays = `say() { printf '{"type":"turn_complete","result":"%s"}\n' $1; }
while IFS= read -r in; do case $in in
*'"type":"shutdown"'*) echo down >>life; exit 0 ;;
*) p=$(printf '%s' "$in" | sed 's/.*"prompt":"\([^"]*\)".*/\1/'); eval "$p" ;;
esac; done`

// tokenWord is in every token.
const tokenWord = "tok_secret"

// field is Worlds that are nowhere. Its tokens are files of a folder.
type field struct {
	mu     sync.Mutex
	opened []runner.World
	tokens string
	made   int
	open   func(ctx context.Context, w runner.World) error // nil for nothing
	minted func()
}

func (f *field) Open(ctx context.Context, w runner.World) error {
	f.mu.Lock()
	f.opened = append(f.opened, w)
	f.mu.Unlock()
	if f.open != nil {
		return f.open(ctx, w)
	}
	return nil
}

func (f *field) Mint(_ context.Context, session, run string, servers []string, ttl time.Duration) (string, error) {
	f.mu.Lock()
	f.made++
	token := fmt.Sprintf("%s_%s_%d_%d", tokenWord, run, os.Getpid(), f.made)
	err := os.WriteFile(filepath.Join(f.tokens, token), nil, 0o600)
	f.mu.Unlock()
	if err != nil {
		return "", err
	}
	if f.minted != nil {
		f.minted()
	}
	return token, nil
}

func (f *field) Revoke(_ context.Context, session, run string) error {
	all, err := filepath.Glob(filepath.Join(f.tokens, tokenWord+"_"+run+"_*"))
	for _, token := range all {
		err = errors.Join(err, os.Remove(token))
	}
	return err
}

func (f *field) URL(session, server string) string {
	return "http://gateway.test/s/" + session + "/mcp/" + server
}

// hitch is a queue in which things go wrong.
type hitch struct {
	runner.Queue
	mu        sync.Mutex
	now, most int // runs at once
	claim     func(*runner.Claim)
	renew     func() error
	report    func(runner.Report) error
	reported  func(runner.Report)
}

func (h *hitch) Claim(ctx context.Context, me runner.Description) (runner.Claim, error) {
	c, err := h.Queue.Claim(ctx, me)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.now++
		h.most = max(h.most, h.now)
		if h.claim != nil {
			h.claim(&c)
		}
	}
	return c, err
}

func (h *hitch) Renew(ctx context.Context, run string, number int64) (runner.Answer, error) {
	h.mu.Lock()
	f := h.renew
	h.mu.Unlock()
	if f != nil {
		if err := f(); err != nil {
			return runner.Answer{}, err
		}
	}
	return h.Queue.Renew(ctx, run, number)
}

func (h *hitch) Report(ctx context.Context, run string, number int64, r runner.Report) (runner.Answer, error) {
	h.mu.Lock()
	f := h.report
	if r.Ended {
		h.now--
	}
	h.mu.Unlock()
	if f != nil {
		if err := f(r); err != nil {
			return runner.Answer{}, err
		}
	}
	a, err := h.Queue.Report(ctx, run, number, r)
	if h.reported != nil {
		h.reported(r)
	}
	return a, err
}

func (h *hitch) set(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
}

// A gate is a coordinator with a runner, on a folder.
type gate struct {
	*Service
	dir    string
	db     *sqlite.DB
	queue  *hitch
	worlds *field
	log    *testkit.Log
	runner *runner.Runner
	loop   sync.WaitGroup
}

type gateOptions struct {
	lease       time.Duration
	idle        time.Duration
	concurrency int
	executors   []executor.Executor
	prepare     func(*gate)
}

func openGate(dir string, o gateOptions) (*gate, error) {
	g := &gate{dir: dir, log: &testkit.Log{}, worlds: &field{tokens: filepath.Join(dir, "tokens")}}
	err := os.MkdirAll(g.worlds.tokens, 0o700)
	if err != nil {
		return nil, err
	}
	if g.db, err = sqlite.Open(context.Background(), filepath.Join(dir, "tine.db")); err != nil {
		return nil, err
	}
	b := &book{all: map[string]Resolved{
		"sh": {Resolved: blueprint.Resolved{Executor: "exec", Servers: map[string]blueprint.ResolvedServer{
			"docs": {Ref: "files"},
			"own":  {Inline: blueprint.PendingTree{Map: map[string]blueprint.PendingTree{"command": {Value: json.RawMessage(`"x"`)}}}},
		}}},
		"short": {Resolved: blueprint.Resolved{Executor: "exec", Limits: blueprint.Limits{Time: 500 * time.Millisecond}}},
		"again": {Resolved: blueprint.Resolved{Executor: "exec", Retry: true}},
		"stay": {Resolved: blueprint.Resolved{Executor: "stay", Config: blueprint.PendingTree{
			Map: map[string]blueprint.PendingTree{"persistent": {Value: json.RawMessage(`true`)}},
		}}},
	}}
	g.Service, err = Open(context.Background(), Options{Store: g.db, Blueprints: b, Worlds: b, Bounds: Bounds{Lease: o.lease}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, errors.Join(err, g.db.Close())
	}
	g.queue = &hitch{Queue: g.Service}
	if o.prepare != nil {
		o.prepare(g)
	}
	sh := func(name, text string) executor.Executor {
		return command.New(executor.Options{Name: name, Program: executor.Program{Command: "sh", Args: []string{"-c", text}}})
	}
	g.runner, err = runner.New(runner.Options{
		Queue: g.queue, Worlds: g.worlds, Offer: runner.Offer{Executors: append(o.executors, sh("exec", script), sh("stay", stays)), Concurrency: o.concurrency},
		Me: runner.Description{ID: "here"}, Dir: filepath.Join(dir, "runner"), Idle: o.idle,
		API:     func(token string) string { return "http://gateway.test/agent/" + token },
		Environ: os.Environ(), Log: g.log.Logger(),
	})
	if err != nil {
		return nil, err
	}
	g.loop.Go(func() { g.runner.Run(context.Background()) })
	return g, nil
}

// newGate opens a gate, which the test ends.
func newGate(t *testing.T, dir string, o gateOptions) *gate {
	t.Helper()
	g, err := openGate(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.end(t, false) })
	return g
}

// end ends it once.
func (g *gate) end(t *testing.T, keep bool) {
	t.Helper()
	if g.runner == nil {
		return
	}
	g.runner.Close(keep)
	g.loop.Wait()
	g.runner = nil
	g.Close()
	if err := g.db.Close(); err != nil {
		t.Error(err)
	}
	testkit.Lacks(t, "the log", g.log.String(), tokenWord, "panic")
}

func (g *gate) begin(t *testing.T, in api.NewRun) api.Run {
	t.Helper()
	run, err := g.Start(t.Context(), ada, NewRun{NewRun: in})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func (g *gate) sh(t *testing.T, text string) api.Run {
	t.Helper()
	return g.begin(t, api.NewRun{Agent: "sh", Prompt: text})
}

// wait waits until a run is in a state.
func (g *gate) wait(t *testing.T, id string, states ...string) (run api.Run) {
	t.Helper()
	testkit.Succeeds(t, "run "+id+" is "+fmt.Sprint(states), func() (err error) {
		if run, err = g.Run(t.Context(), otto, id); err == nil && !slices.Contains(states, run.State) {
			err = fmt.Errorf("it is %s, %+v", run.State, run.Error)
		}
		return err
	})
	return run
}

func (g *gate) ended(t *testing.T, id string) api.Run {
	t.Helper()
	return g.wait(t, id, api.RunCompleted, api.RunFailed, api.RunStopped)
}

// bare waits until nothing is left of any run: no folder, no token.
func (g *gate) bare(t *testing.T) {
	t.Helper()
	testkit.Succeeds(t, "nothing is left of the runs", func() error {
		left, err := os.ReadDir(filepath.Join(g.dir, "runner", "runs"))
		tokens, again := os.ReadDir(g.worlds.tokens)
		if err = errors.Join(err, again); err == nil && len(left)+len(tokens) > 0 {
			err = fmt.Errorf("left are %v and %v", left, tokens)
		}
		return err
	})
}

// appears waits for a file.
func appears(t *testing.T, path string) string {
	t.Helper()
	testkit.Eventually(t, path+" is there", func() bool { _, err := os.Stat(path); return err == nil })
	return path
}

// written waits for what a program writes to a file, which is there before that.
func written(t *testing.T, path string) {
	t.Helper()
	testkit.Eventually(t, path+" is written", func() bool { st, err := os.Stat(path); return err == nil && st.Size() > 0 })
}

func textOf(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Error(err)
	}
	return string(b)
}
