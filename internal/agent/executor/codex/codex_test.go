//go:build unix

package codex

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/executor/executortest"
	"github.com/tine-mcp/tine/internal/testkit"
)

func standIn(t *testing.T, c executortest.Case) *Executor {
	return New(executor.Options{Program: executortest.Script(t, "testdata/codex.sh", c)})
}

func TestSuite(t *testing.T) {
	executortest.Suite{SilentFails: true, Make: func(t *testing.T, c executortest.Case, job *executor.Job) executor.Executor {
		return standIn(t, c)
	}}.Run(t)
}

func TestEvents(t *testing.T) {
	job := executortest.Job(t)
	x := standIn(t, executortest.Answers)
	plan, err := x.Plan(job)
	if err != nil {
		t.Fatal(err)
	}
	lines := executortest.Run(t, job, plan).Lines
	told := func() (got []string) {
		for _, e := range executortest.Read(x.Read(job), lines) {
			got = append(got, e.Type+" "+string(e.Data)+e.ExecutorSession)
		}
		return got
	}
	const id = "01a1f088-1d59-7480-93e5-dbb48112adc2"
	want := []string{
		`state {"executor_session_id":"` + id + `"}` + id,
		`text {"text":"Let me see."}`,
		`tool {"id":"i1","name":"files/multiply","arguments":{"a":6}}`,
		`tool {"id":"i1","done":true,"text":"42"}`,
		`text {"text":"forty-two"}`,
		`usage {"input_tokens":20,"output_tokens":10}`,
	}
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	job.ExecutorSession = id // the usage is of all runs of the conversation
	if got := told(); !slices.Equal(got, want[:5]) {
		t.Errorf("resumed: events %q, want %q", got, want[:5])
	}
}

func TestPlan(t *testing.T) {
	x := New(executor.Options{Program: executor.Program{Args: []string{"-c", "model_provider=\"mine\""}, Env: map[string]string{"CODEX_API_KEY": "k"}}})
	job := executortest.Job(t)
	job.Config = map[string]any{"model": `a"b`, "shell": "workspace-write"}
	job.ExecutorSession = "conversation"
	plan, err := x.Plan(job)
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Join(plan.Args, "|")
	testkit.Has(t, "arguments", args, `-c|model_provider="mine"|exec|resume|--json|`, `|-c|sandbox_mode="workspace-write"|`, `|-c|model="a\"b"|`, "|conversation|-")
	testkit.Lacks(t, "arguments", args, "shell_tool")
	if plan.Env[homeDir] != filepath.Join(job.Dir, ".codex") {
		t.Errorf("its folder is %q", plan.Env[homeDir])
	}
	x = New(executor.Options{Getenv: func(name string) string { return map[string]string{"CODEX_API_KEY": "key-of-the-gateway"}[name] }})
	if plan, err := x.Plan(job); err != nil || plan.Env["CODEX_API_KEY"] != "key-of-the-gateway" || !slices.Equal(x.Secrets(), []string{"key-of-the-gateway"}) {
		t.Errorf("with a key of the gateway it gets %v, %v, and its secrets are %q", plan.Env, err, x.Secrets())
	}
	job.Agent.Servers["my server"] = executor.Server{}
	if _, err := x.Plan(job); err == nil || !strings.Contains(err.Error(), `the server "my server" can't be given`) {
		t.Errorf("got %v", err)
	}
	for config, want := range map[string]string{"model": "must be the name", "shell": "must be read-only", "sandbox": "unknown key"} {
		testkit.Has(t, "the error", fmt.Sprint(x.Check(map[string]any{config: 1})), want)
	}
}
