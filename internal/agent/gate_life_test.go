package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

// A run from its start to its end: its world, its events, its result, and no token and no
// file of it afterwards, although the program tells all that it was given.
func TestRunOfAProgram(t *testing.T) {
	dir := t.TempDir()
	g := newGate(t, dir, gateOptions{})
	run := g.sh(t, `printf '%s' $in >&2; echo $AGENT_ORCHESTRATOR_API_URL >&2; echo '{}' | sed s/.*/said/; printf '%s' $in`)
	got := g.ended(t, run.ID)
	if got.State != api.RunCompleted || got.Error != nil || got.Result == nil {
		t.Fatalf("it ended as %+v, %+v", got, got.Error)
	}
	testkit.Has(t, "the result", got.Result.Text+string(got.Result.Data), `Bearer****`, "/s/"+run.Session+"/mcp/files", "/s/"+run.Session+"/mcp/own", `X-Agent-Session-Id`)
	g.bare(t)
	w := g.worlds.opened[0]
	if w.Session != run.Session || w.Owner != "ada" || !slices.Equal(w.Servers, []string{"files"}) || string(w.Inline["own"]) != `{"command":"x"}` {
		t.Errorf("its world is %+v", w)
	}
	page, err := g.db.Feed(t.Context(), store.FeedFilter{Run: run.ID, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for _, e := range page.Events {
		told = append(told, string(e.Data))
	}
	all := strings.Join(told, "\n")
	testkit.Has(t, "the events", all, api.RunPending, api.RunClaimed, api.RunRunning, api.RunCompleted, "http://gateway.test/agent/****")
	g.end(t, false)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if strings.Contains(textOf(t, path), tokenWord) {
			t.Errorf("the token is in %s", path)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A run that takes longer than it may has failed, also where another gateway goes on with it.
func TestRunsThatTakeTooLong(t *testing.T) {
	dir := t.TempDir()
	g := newGate(t, dir, gateOptions{})
	quick := g.begin(t, api.NewRun{Agent: "short", Prompt: "echo fine"})
	runs := []api.Run{
		g.begin(t, api.NewRun{Agent: "short", Prompt: "trap '' TERM; sleep 1000"}),
		g.begin(t, api.NewRun{Agent: "short", Prompt: "exec sleep 1000"}),
	}
	if got := g.ended(t, quick.ID); got.State != api.RunCompleted {
		t.Errorf("the quick one ended as %+v, %+v", got, got.Error)
	}
	late := func(run api.Run) {
		t.Helper()
		if got := g.ended(t, run.ID); got.State != api.RunFailed || got.Error.Kind != api.KindTimeout || got.Result != nil {
			t.Errorf("it ended as %+v, %+v", got, got.Error)
		}
	}
	for _, run := range runs {
		late(run)
	}
	kept := g.begin(t, api.NewRun{Agent: "short", Prompt: "exec sleep 1000"})
	g.wait(t, kept.ID, api.RunRunning)
	g.end(t, true)
	g = newGate(t, dir, gateOptions{})
	late(kept)
	g.bare(t)
}

func TestRunsAtOnce(t *testing.T) {
	g := newGate(t, t.TempDir(), gateOptions{concurrency: 3})
	var runs []api.Run
	for n := range 10 {
		runs = append(runs, g.sh(t, fmt.Sprintf("echo %d", n)))
	}
	for n, run := range runs {
		if got := g.ended(t, run.ID); got.State != api.RunCompleted || got.Result.Text != fmt.Sprint(n) {
			t.Errorf("run %d ended as %+v", n, got)
		}
	}
	g.bare(t)
	if g.queue.most > 3 {
		t.Errorf("there were %d at once", g.queue.most)
	}
}

func TestRunsThatFail(t *testing.T) {
	g := newGate(t, t.TempDir(), gateOptions{executors: []executor.Executor{panics{}}, prepare: func(g *gate) {
		g.worlds.open = func(_ context.Context, w runner.World) error {
			if w.Labels["bad"] != "" {
				return &api.Error{Kind: api.KindRefused, Message: "no rule gives this server"}
			}
			return nil
		}
		g.queue.claim = func(c *runner.Claim) {
			if x := c.World.Labels["executor"]; x != "" {
				c.Blueprint.Executor = x
			}
		}
	}})
	for words, in := range map[string]api.NewRun{
		"refused open the session of the run: no rule":        {Agent: "sh", Prompt: "echo", Labels: map[string]string{"bad": "yes"}},
		`invalid this runner has no executor "gone"`:          {Agent: "sh", Prompt: "echo", Labels: map[string]string{"executor": "gone"}},
		"infrastructure the gateway failed inside":            {Agent: "sh", Prompt: "echo", Labels: map[string]string{"executor": "panics"}},
		"tool the executor exited with status 3":              {Agent: "sh", Prompt: "exit 3"},
		"infrastructure start the executor: the folder \"/no": {Agent: "sh", Prompt: "echo", ProjectDir: "/no/such"},
	} {
		who := otto // may choose any folder
		run, err := g.Start(t.Context(), who, NewRun{NewRun: in})
		if err != nil {
			t.Fatal(err)
		}
		got := g.ended(t, run.ID)
		if got.State != api.RunFailed || got.Error == nil || !strings.HasPrefix(string(got.Error.Kind)+" "+got.Error.Message, words) {
			t.Errorf("it ended as %s, %+v, want %q", got.State, got.Error, words)
		}
	}
	g.bare(t)
	g.log = &testkit.Log{} // it tells of the panic
}

// panics is an executor that panics.
type panics struct{}

func (panics) Name() string                             { return "panics" }
func (panics) Check(map[string]any) error               { return nil }
func (panics) Plan(executor.Job) (executor.Plan, error) { panic("no plan") }
func (panics) Read(executor.Job) executor.Reader        { return nil }
func (panics) Secrets() []string                        { return nil }

// A run is stopped in each of its phases, and nothing of it is left.
func TestStopsOfRuns(t *testing.T) {
	opening := make(chan string, 1)
	var hang bool
	dir := t.TempDir()
	g := newGate(t, dir, gateOptions{concurrency: 1, prepare: func(g *gate) {
		g.worlds.open = func(ctx context.Context, w runner.World) error {
			if hang {
				opening <- w.Session
				<-ctx.Done()
			}
			return ctx.Err()
		}
	}})
	stop := func(run api.Run) {
		t.Helper()
		if _, err := g.Stop(t.Context(), ada, StopRun{Run: run.ID}); err != nil {
			t.Fatal(err)
		}
		got := g.ended(t, run.ID)
		if got.State != api.RunStopped || got.Error == nil || !strings.Contains(got.Error.Message, "stopped by ada") {
			t.Errorf("it ended as %s, %+v", got.State, got.Error)
		}
		g.bare(t)
	}
	for name, text := range map[string]string{"it ends": `sleep 1000`, "it handles TERM": `trap 'exit 0' TERM; : >up; while :; do sleep 0.01; done`, "it ignores TERM": `trap '' TERM; : >up; while :; do sleep 0.01; done`} {
		run := g.sh(t, text)
		g.wait(t, run.ID, api.RunRunning)
		if strings.Contains(text, "up") {
			appears(t, filepath.Join(dir, "runner", "sessions", run.Session, "up"))
		}
		t.Log(name)
		stop(run)
	}
	hang = true
	run := g.sh(t, "echo")
	testkit.Within(t, "its world is opened", opening)
	queued := g.sh(t, "echo")
	stop(queued)
	stop(run)
}

// A runner whose claim is not its own any more ends the program, and tells nothing more.
func TestClaimIsLost(t *testing.T) {
	away := errors.New("the coordinator is away")
	for name, fail := range map[string]error{"stale": runner.ErrStale, "away": away} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			g := newGate(t, dir, gateOptions{lease: time.Second})
			run := g.sh(t, `echo $$ >pid; sleep 1000`)
			written(t, filepath.Join(dir, "runner", "sessions", run.Session, "pid"))
			g.wait(t, run.ID, api.RunRunning)
			g.queue.set(func() {
				g.queue.renew = func() error { return fail }
				g.queue.report = func(runner.Report) error { return fail }
			})
			if got := g.ended(t, run.ID); got.State != api.RunFailed || got.Error.Kind != api.KindLost {
				t.Errorf("it ended as %s, %+v", got.State, got.Error)
			}
			testkit.Eventually(t, "its folder is gone", func() bool {
				left, err := os.ReadDir(filepath.Join(dir, "runner", "runs"))
				return err == nil && len(left) == 0
			})
		})
	}
}

// While the queue is away reports wait, and none is lost or told twice.
func TestQueueIsAway(t *testing.T) {
	dir := t.TempDir()
	g := newGate(t, dir, gateOptions{})
	failures := 0
	g.queue.report = func(runner.Report) error { // with the lock of the test's queue not held
		g.queue.mu.Lock()
		defer g.queue.mu.Unlock()
		if failures++; failures%3 != 0 {
			return errors.New("away")
		}
		return nil
	}
	run := g.sh(t, `for n in 1 2 3 4 5 6; do echo line$n >&2; sleep 0.03; done; echo fine`)
	if got := g.ended(t, run.ID); got.State != api.RunCompleted || got.Result.Text != "fine" {
		t.Fatalf("it ended as %+v", got)
	}
	page, err := g.db.Feed(t.Context(), store.FeedFilter{Run: run.ID, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, e := range page.Events {
		if strings.Contains(string(e.Data), `"line`) {
			if n++; !strings.Contains(string(e.Data), fmt.Sprintf("line%d", n)) {
				t.Errorf("event %d is %s", n, e.Data)
			}
		}
	}
	if n != 6 {
		t.Errorf("%d lines were told", n)
	}
}
