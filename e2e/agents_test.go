//go:build unix

package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/torture"
)

// noted is the data of what the worker answers.
type noted struct {
	Mode            string   `json:"mode"`
	ExecutorSession string   `json:"executor_session_id"`
	Noted           []string `json:"noted"`
	Depth           int      `json:"depth"`
}

// TestAgentRun runs an agent that calls a tool, and resumes it in the same world.
func TestAgentRun(t *testing.T) {
	t.Parallel()
	g := newAgents(t, "")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.client(t)
	first := startRun(t, c, api.NewRun{Agent: "worker", Prompt: "Ada"})
	r := ended(t, c, first.ID, api.RunCompleted)
	if data, want := resultOf[noted](t, r), (noted{Mode: "start", Noted: []string{"Ada"}, Depth: 2}); r.Result.Text != "hello Ada" || !reflect.DeepEqual(data, want) {
		t.Errorf("its result is %q, %+v, want %+v", r.Result.Text, data, want)
	}
	if want := (&api.RunUsage{InputTokens: 10, OutputTokens: 3}); !reflect.DeepEqual(r.Usage, want) {
		t.Errorf("it has used %+v, want %+v", r.Usage, want)
	}
	order := []string{"pending", "claimed", "running", "bound", "tool", "tool", "text", "usage", "completed"}
	if got := runEvents(t, c, first.ID); !slices.Equal(got, order) {
		t.Errorf("its events are %v, want %v", got, order)
	}
	if calls := g.journal(t, client.CallQuery{Run: first.ID}); len(calls) != 2 || calls[0].Session != first.Session || calls[0].Server != "mem" {
		t.Errorf("its calls are %+v", calls)
	}

	again := startRun(t, c, api.NewRun{Session: first.Session, Parameters: map[string]any{"prompt": "Bob", "depth": 9007199254740993}})
	r = ended(t, c, again.ID, api.RunCompleted)
	if data, want := resultOf[noted](t, r), (noted{Mode: "resume", ExecutorSession: "conversation-1", Noted: []string{"Ada", "Bob"}, Depth: 9007199254740993}); !r.Resume || r.Session != first.Session || !reflect.DeepEqual(data, want) {
		t.Errorf("resumed, it is %+v with the result %+v, want %+v", r, data, want)
	}
	if got := runEvents(t, c, again.ID); !slices.Equal(got, order) {
		t.Errorf("its events as it is resumed are %v, want %v", got, order)
	}
	closeAgents(t, g)
}

// TestAgentRefused starts what can't be started. No run is made of it.
func TestAgentRefused(t *testing.T) {
	t.Parallel()
	g := newAgents(t, "")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.client(t)
	for path, parameters := range map[string]map[string]any{
		"/prompt": {"depth": 3},
		"/depth":  {"prompt": "Ada", "depth": "deep"},
	} {
		_, err := c.StartRun(t.Context(), api.NewRun{Agent: "worker", Parameters: parameters})
		e := kindOf(err)
		if e == nil || e.Code != api.CodeParameters || e.Status != 400 || len(e.ValidationErrors) != 1 || e.ValidationErrors[0].Path != path {
			t.Errorf("with %v: %v (%+v), want the place %q", parameters, err, e, path)
		}
	}
	_, err := c.StartRun(t.Context(), api.NewRun{Agent: "nobody", Prompt: "Ada"})
	if e := kindOf(err); e == nil || e.Status != 404 || !strings.Contains(e.Message, "nobody") {
		t.Errorf("an agent that is not there: %v (%+v)", err, e)
	}
	_, err = c.StartRun(t.Context(), api.NewRun{Session: "ses_000000000000", Prompt: "Ada"})
	if e := kindOf(err); e == nil || e.Status != 404 {
		t.Errorf("a session that is not there: %v (%+v)", err, e)
	}
	if list, err := c.Runs(t.Context(), client.RunQuery{}); err != nil || len(list.Runs) != 0 {
		t.Errorf("there are the runs %+v, %v", list, err)
	}
}

// TestAgentRunCommand waits for runs on the command line.
func TestAgentRunCommand(t *testing.T) {
	t.Parallel()
	g := newAgents(t, "")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	out, err := g.tine(t.Context(), "run", "worker", "Ada", "--wait")
	if err != nil || !strings.HasPrefix(out, "hello Ada\n") {
		t.Errorf("a run that completes: %v and %q", err, out)
	}
	// A user may call the tools of agents, too.
	out, err = g.tine(t.Context(), "call", "orchestrator__start_session", "agent_name=worker", "prompt=Ada")
	if err != nil || !strings.Contains(out, `"result_text":"hello Ada"`) {
		t.Errorf("a tool that starts an agent: %v and %q", err, out)
	}
	if _, err = g.tine(t.Context(), "call", "orchestrator__start_session", "agent_name=worker", "prompt=Ada", "mode=async_callback"); err == nil || !strings.Contains(err.Error(), "only an agent can be called back") {
		t.Errorf("a user who wants a callback: %v", err)
	}
	if _, err = g.tine(t.Context(), "runs", "logs", "run_000000000000", "--follow"); err == nil || !strings.Contains(err.Error(), "there is no run run_000000000000") {
		t.Errorf("the logs of a run that is not there: %v", err)
	}
	_, err = g.tine(t.Context(), "run", "failing", "Ada", "--wait")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(err.Error(), "status 1") {
		t.Errorf("a run that fails: %v, want the exit code 1 and the program's status", err)
	}
}

// TestAgentStartsAgents has an agent start others, wait for one of them and be resumed
// with the results of the two others.
func TestAgentStartsAgents(t *testing.T) {
	t.Parallel()
	g := newAgents(t, "")
	g.writeConfig(t, sessionAuth+agentsConfig(t, ""))
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.clientAs(t, "token-of-ada-0123456789")
	other := openSession(t, c, api.NewSession{})
	first := startRun(t, c, api.NewRun{Agent: "boss", Parameters: map[string]any{"prompt": "go", "other": other.ID}})
	r := ended(t, c, first.ID, api.RunCompleted)
	data := resultOf[struct {
		Reached  map[string]int
		Children []struct {
			Session string `json:"session_id"`
			Status  string
			Text    string `json:"result_text"`
		}
	}](t, r)
	if len(data.Reached) != 11 {
		t.Errorf("it has tried %v", data.Reached)
	}
	for what, status := range data.Reached {
		if allowed := what == "its own server"; allowed != (status == 200) || !allowed && status != 401 && status != 403 && status != 404 {
			t.Errorf("with the token of the run, %s: %d", what, status)
		}
	}
	if len(data.Children) != 3 || data.Children[0].Text != "hello one" || data.Children[1].Status != api.AgentPending || data.Children[2].Status != api.AgentPending {
		t.Fatalf("it has started %+v", data.Children)
	}

	// The results come with one resume, or with one each.
	var runs []api.Run
	told := map[string]string{}
	err := eventually(func() error {
		runs = nil
		clear(told)
		for run, err := range c.AllRuns(t.Context(), client.RunQuery{}) {
			if err != nil {
				return final{err}
			}
			runs = append(runs, run)
			if run.Agent != "boss" || !run.Resume || run.State != api.RunCompleted {
				continue
			}
			for _, e := range resultOf[struct{ Ended [][3]string }](t, &run).Ended {
				if told[e[0]] != "" {
					return final{fmt.Errorf("the boss was told of %s twice", e[0])}
				}
				told[e[0]] = e[1] + " " + e[2]
			}
		}
		if len(told) < 2 {
			return fmt.Errorf("the boss was told of %v", told)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, child := range data.Children[1:] {
		texts = append(texts, told[child.Session])
	}
	if len(texts) != 2 || !strings.HasSuffix(texts[0], "hello two") || !strings.HasSuffix(texts[1], "hello three") {
		t.Errorf("the boss was told %v", told)
	}
	for _, run := range runs {
		ended(t, c, run.ID, api.RunCompleted)
		endedOnce(t, c, run.ID, api.RunPending, api.RunClaimed, api.RunRunning, api.RunCompleted)
		if child := run.Agent == "worker"; child != (run.Parent == first.Session) || run.Owner != r.Owner {
			t.Errorf("run %s of %s has the parent %q and the owner %q", run.ID, run.Agent, run.Parent, run.Owner)
		}
	}
	tree, err := c.RunTree(t.Context(), first.ID)
	if err != nil {
		t.Fatal(err)
	}
	var below, started []string
	for _, child := range tree.Children {
		below = append(below, child.Session+" "+child.Mode)
	}
	for i, mode := range []string{api.ModeSync, api.ModeAsyncCallback, api.ModeAsyncCallback} {
		started = append(started, data.Children[i].Session+" "+mode)
	}
	slices.Sort(below)
	slices.Sort(started)
	if tree.ID != first.ID || !slices.Equal(below, started) {
		t.Errorf("below %s are %v, want %v", tree.ID, below, started)
	}
	if _, err := c.Session(t.Context(), other.ID); err != nil {
		t.Errorf("the other session: %v", err)
	}
	// Another user has no part in it.
	_, err = g.clientAs(t, "token-of-bob-0123456789").Run(t.Context(), first.ID, 0)
	forbidden(t, "bob looks at the run", err)
	closeAgents(t, g)
}

// TestAgentStop stops agents that are asked to end in each way, the last of which is none:
// a program that ignores SIGTERM, as does a process that it has started.
func TestAgentStop(t *testing.T) {
	t.Parallel()
	g := newAgents(t, "")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.client(t)
	dir := t.TempDir()
	// How a persistent program is asked to end before it does.
	asked := map[string][]string{"shutdown": {"shutdown"}, "TERM": {"shutdown", "TERM"}}
	if torture.Or(false, true) { // it takes ten seconds
		asked["KILL"] = asked["TERM"]
	}
	runs := []*api.Run{startRun(t, c, api.NewRun{Agent: "stubborn", Prompt: "go"})}
	for end := range asked {
		runs = append(runs, startRun(t, c, api.NewRun{Agent: "asked", Parameters: api.Parameters{"end": end}, ProjectDir: dir}))
	}
	var pids []string
	for _, run := range runs {
		pids = append(pids, strings.Fields(firstText(t, c, run.ID))...)
		if _, err := c.StopRun(t.Context(), run.ID); err != nil {
			t.Fatal(err)
		}
	}
	if len(pids) != len(runs)+1 {
		t.Fatalf("their processes are %v", pids)
	}
	for _, run := range runs {
		ended(t, c, run.ID, api.RunStopped)
		endedOnce(t, c, run.ID, api.RunPending, api.RunClaimed, api.RunRunning, api.RunStopping, api.RunStopped)
	}
	for _, text := range pids {
		pid, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		if lives(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
	for end, want := range asked {
		got, err := os.ReadFile(filepath.Join(dir, "asked-"+end))
		if err != nil || !slices.Equal(strings.Fields(string(got)), want) {
			t.Errorf("the program that ends by %s was asked by %q, %v, want %q", end, got, err, want)
		}
	}
	if again, err := c.StopRun(t.Context(), runs[0].ID); err != nil || again.State != api.RunStopped {
		t.Errorf("stopped twice: %+v, %v", again, err)
	}
	closeAgents(t, g)
}

// TestAgentStopTree stops an agent by itself, and another one with the agent that it has
// started.
func TestAgentStopTree(t *testing.T) {
	t.Parallel()
	g := newAgents(t, "")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.client(t)
	for _, tree := range []bool{false, true} {
		lead := startRun(t, c, api.NewRun{Agent: "lead", Prompt: "go"})
		session := firstText(t, c, lead.ID)
		list, err := c.Runs(t.Context(), client.RunQuery{Session: session})
		if err != nil || len(list.Runs) != 1 {
			t.Fatalf("it has started %+v, %v", list, err)
		}
		child := list.Runs[0]
		firstText(t, c, child.ID)
		args, want := []string{"runs", "stop", "--wait", lead.ID}, lead.ID+": stopped\n"
		if tree {
			args, want = append(args, "--tree"), want+child.ID+": stopped\n"
		}
		if out, err := g.tine(t.Context(), args...); err != nil || out != want {
			t.Errorf("%q printed %q, %v, want %q", args, out, err, want)
		}
		if r, err := c.Run(t.Context(), child.ID, 0); err != nil || tree != (r.State == api.RunStopped) || !tree && r.State != api.RunRunning {
			t.Errorf("with --tree %t the child is %+v, %v", tree, r, err)
		}
		if _, err := g.tine(t.Context(), "runs", "show", "--wait", lead.ID); err == nil || !strings.Contains(err.Error(), "was stopped by ") {
			t.Errorf("the stopped run: %v", err)
		}
	}
	closeAgents(t, g)
}

// lives reports whether there is a process that has not ended. One that only waits for
// its parent to ask has ended.
func lives(pid int) bool {
	if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil {
		_, rest, _ := strings.Cut(string(stat), ") ")
		return !strings.HasPrefix(rest, "Z")
	}
	return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
}

// TestAgentsReload changes what an executor is and how many runs work at once, and adds an
// executor. A run that works goes on.
func TestAgentsReload(t *testing.T) {
	t.Parallel()
	g := newAgents(t, "")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.client(t)
	g.writeAgents(t, map[string]string{"say": "executor: mine\n", "later": "executor: other\n"})
	reload := func(places int, executors string) {
		t.Helper()
		g.writeConfig(t, agentsConfig(t, fmt.Sprintf("  concurrency: %d\n", places))+executors)
		if err := c.Reload(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	says := func(run *api.Run, want string) *api.Run {
		t.Helper()
		r := ended(t, c, run.ID, api.RunCompleted)
		if r.Result.Text != want {
			t.Errorf("%s says %q, want %q", r.Agent, r.Result.Text, want)
		}
		return r
	}
	dir := t.TempDir()
	works := startRun(t, c, api.NewRun{Agent: "patient", Prompt: "it", ProjectDir: dir})
	firstText(t, c, works.ID)
	const one, two = "    mine: {command: sh, args: [-c, echo one]}\n", "    mine: {command: sh, args: [-c, echo two]}\n    other: {command: sh, args: [-c, echo three]}\n"
	reload(4, one)
	says(startRun(t, c, api.NewRun{Agent: "say", Prompt: "x"}), "one")
	reload(4, two)
	says(startRun(t, c, api.NewRun{Agent: "say", Prompt: "x"}), "two")
	says(startRun(t, c, api.NewRun{Agent: "later", Prompt: "x"}), "three")

	reload(1, two)
	last := startRun(t, c, api.NewRun{Agent: "say", Prompt: "x"})
	if err := os.WriteFile(filepath.Join(dir, "go-it"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if first, then := says(works, "done it"), says(last, "two"); then.Started.Before(first.Ended) {
		t.Errorf("with one place a run has started at %s, before the other had ended at %s", then.Started, first.Ended)
	}
	closeAgents(t, g)
}

// TestAgentPut keeps a blueprint at the gateway, on the command line and by the API, and runs
// it again after a restart.
func TestAgentPut(t *testing.T) {
	t.Parallel()
	g := newAgents(t, "")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	blueprint := agentBlueprints["worker"]
	if out, err := g.tineWith(t, blueprint, "agent", "put", "kept"); err != nil || !strings.HasPrefix(out, "kept: kept\n") {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := g.tineWith(t, blueprint, "agent", "put", "worker"); err == nil || !strings.Contains(out, "worker/agent.yaml; change the file") {
		t.Errorf("over a file: %v: %s", err, out)
	}
	c := g.client(t)
	first := startRun(t, c, api.NewRun{Agent: "kept", Prompt: "Ada"})
	ended(t, c, first.ID, api.RunCompleted)
	written, err := c.Blueprint(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}

	g.kill()
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.client(t)
	if again, err := c.Blueprint(t.Context(), "kept"); err != nil || string(again) != string(written) {
		t.Errorf("after a restart it is %s, %v, want %s", again, err, written)
	}
	again := startRun(t, c, api.NewRun{Session: first.Session, Prompt: "Bob"})
	if data := resultOf[noted](t, ended(t, c, again.ID, api.RunCompleted)); !slices.Equal(data.Noted, []string{"Ada", "Bob"}) {
		t.Errorf("resumed after a restart, its result is %+v", data)
	}
	if a, err := c.PutAgent(t.Context(), "kept", []byte(`{"executor":"failing"}`)); err != nil || a.Executor != "failing" {
		t.Errorf("replaced it is %+v, %v", a, err)
	}
	ended(t, c, startRun(t, c, api.NewRun{Agent: "kept", Prompt: "Ada"}).ID, api.RunFailed)
	if out, err := g.tineWith(t, "", "agent", "delete", "kept"); err != nil || out != "kept: deleted\n" {
		t.Errorf("%v: %s", err, out)
	}
	_, err = c.StartRun(t.Context(), api.NewRun{Agent: "kept", Prompt: "Ada"})
	if e := kindOf(err); e == nil || e.Status != 404 {
		t.Errorf("deleted: %v", err)
	}
	_, err = c.StartRun(t.Context(), api.NewRun{Session: first.Session, Prompt: "Ada"})
	if e := kindOf(err); e == nil || e.Status != 404 {
		t.Errorf("deleted, a session of it is resumed: %v", err)
	}
	closeAgents(t, g)
}
