// Package executortest is one suite that every executor passes. It runs the programs that
// the executor plans, on files as the runner does, and reads what they print.
package executortest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/executor"
)

// A Case is what the program of a job is to do.
type Case string

// The cases.
const (
	Answers    Case = "answers"    // has the result Answer, in text or data
	Silent     Case = "silent"     // ends with the status 0 and has no result
	Fails      Case = "fails"      // says Words on standard error and ends with another status
	Killed     Case = "killed"     // is killed by SIGKILL
	Structured Case = "structured" // has the result {"sum": 3}, and the job has Schema
	Misfit     Case = "misfit"     // has a result that does not fit Schema, which the job has
)

// Texts of the cases.
const (
	Answer = "forty-two"
	Words  = "no such thing"
	Schema = `{"type":"object","required":["sum"],"properties":{"sum":{"type":"integer"}}}`
	Token  = "tok_of_the_run" // of the server in a Job: for no eyes but the program's
	System = "You are the system prompt."
)

// Suite is what the suite is run with.
type Suite struct {
	// Make returns the executor, and changes the job so that its program does what the
	// case says.
	Make func(t *testing.T, c Case, job *executor.Job) executor.Executor
	// SilentFails says that to print nothing is a failure.
	SilentFails bool
}

// Job is a job with all fields that need no executor's help.
func Job(t testing.TB) executor.Job {
	top := t.TempDir()
	job := executor.Job{
		Run: "run_0123456789ab", Session: "ses_0123456789ab",
		Parameters: map[string]any{"prompt": "What is six times seven?"},
		Dir:        filepath.Join(top, "session"), Folder: filepath.Join(top, "run"),
		Agent: executor.Agent{
			Name: "tester", SystemPrompt: System,
			Servers: map[string]executor.Server{"files": {Type: "http", URL: "http://127.0.0.1:1/s/x/mcp/files", Headers: map[string]string{"Authorization": "Bearer " + Token}}},
		},
		Env: map[string]string{"GIVEN": "yes"},
	}
	for _, dir := range []string{job.Dir, job.Folder} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return job
}

// Script is a shell script that stands in for a program in a case.
func Script(t testing.TB, path string, c Case) executor.Program {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return executor.Program{Command: "sh", Args: []string{path, string(c)}}
}

// Output is what a program has done.
type Output struct {
	Lines [][]byte
	Exit  executor.Exit
}

// Run runs the program of a plan to its end.
func Run(t testing.TB, job executor.Job, plan executor.Plan) Output {
	t.Helper()
	for name, data := range plan.Files {
		if err := os.WriteFile(filepath.Join(job.Folder, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	stdin := filepath.Join(job.Folder, "stdin")
	if err := os.WriteFile(stdin, plan.Stdin, 0o600); err != nil {
		t.Fatal(err)
	}
	in, err := os.Open(stdin)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var out, errs bytes.Buffer
	cmd := exec.Command(plan.Command, plan.Args...)
	cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr = plan.Dir, in, &out, &errs
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
	for name, value := range plan.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	err = cmd.Run()
	if failed := new(exec.ExitError); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	o := Output{Exit: executor.Exit{Status: cmd.ProcessState.ExitCode(), Stdout: out.Bytes(), Stderr: errs.Bytes()}}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		o.Exit.Status = 128 + int(ws.Signal())
		o.Exit.Signal = strings.ToUpper(ws.Signal().String())
	}
	for lines := bufio.NewReader(bytes.NewReader(out.Bytes())); ; {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			o.Lines = append(o.Lines, bytes.TrimSuffix(line, []byte("\n")))
		}
		if err != nil {
			return o
		}
	}
}

// Read has a Reader read some lines.
func Read(r executor.Reader, lines [][]byte) []executor.Event {
	var events []executor.Event
	for _, line := range lines {
		// The bytes are the caller's, and are used again.
		own := bytes.Clone(line)
		events = append(events, r.Line(own)...)
		for i := range own {
			own[i] = '#'
		}
	}
	return events
}

// done runs a case and reads it.
func (s Suite) done(t *testing.T, c Case) (executor.Executor, executor.Job, Output) {
	t.Helper()
	job := Job(t)
	if c == Structured || c == Misfit {
		job.Agent.Result = json.RawMessage(Schema)
	}
	x := s.Make(t, c, &job)
	if err := x.Check(job.Config); err != nil {
		t.Fatalf("its config: %v", err)
	}
	plan, err := x.Plan(job)
	if err != nil {
		t.Fatal(err)
	}
	return x, job, Run(t, job, plan)
}

// Run runs the suite.
func (s Suite) Run(t *testing.T) {
	t.Run("plan", s.plan)
	t.Run("results", s.results)
	t.Run("replay", s.replay)
	t.Run("odd lines", s.oddLines)
}

func (s Suite) plan(t *testing.T) {
	job := Job(t)
	x := s.Make(t, Answers, &job)
	if x.Name() == "" {
		t.Error("it has no name")
	}
	one, err := x.Plan(job)
	two, again := x.Plan(job)
	if err != nil || again != nil || !reflect.DeepEqual(one, two) {
		t.Errorf("two plans of a job differ: %+v and %+v; %v, %v", one, two, err, again)
	}
	for _, arg := range append([]string{one.Command}, one.Args...) {
		if strings.Contains(arg, Token) {
			t.Errorf("the token is in an argument, which every user can read: %q", arg)
		}
	}
	if one.Command == "" || one.Dir == "" || one.Env["GIVEN"] != "yes" {
		t.Errorf("the plan is %+v", one)
	}
	job.ProjectDir = t.TempDir()
	if p, err := x.Plan(job); err != nil || p.Dir != job.ProjectDir {
		t.Errorf("with a project it works in %q, %v", p.Dir, err)
	}
}

func (s Suite) results(t *testing.T) {
	failed := func(t *testing.T, err error, words string) {
		t.Helper()
		var e *api.Error
		if !errors.As(err, &e) || e.Kind != api.KindTool || !strings.Contains(e.Message, words) {
			t.Errorf("the error is %v, want one of the agent's with %q", err, words)
		}
	}
	for c, check := range map[Case]func(t *testing.T, r api.RunResult, err error){
		Answers: func(t *testing.T, r api.RunResult, err error) {
			if err != nil || !strings.Contains(r.Text+string(r.Data), Answer) {
				t.Errorf("the result is %+v, %v", r, err)
			}
		},
		Silent: func(t *testing.T, r api.RunResult, err error) {
			if (err != nil) != s.SilentFails {
				t.Errorf("the result is %+v, %v", r, err)
			}
		},
		Fails:  func(t *testing.T, _ api.RunResult, err error) { failed(t, err, Words) },
		Killed: func(t *testing.T, _ api.RunResult, err error) { failed(t, err, "KILL") },
		Structured: func(t *testing.T, r api.RunResult, err error) {
			var got struct{ Sum int }
			if err != nil || json.Unmarshal(r.Data, &got) != nil || got.Sum != 3 {
				t.Errorf("the result is %+v, %v", r, err)
			}
		},
		Misfit: func(t *testing.T, _ api.RunResult, err error) { failed(t, err, "") },
	} {
		t.Run(string(c), func(t *testing.T) {
			x, job, out := s.done(t, c)
			r := x.Read(job)
			Read(r, out.Lines)
			result, err := r.End(out.Exit)
			check(t, result, err)
		})
	}
	t.Run("killed with its shell", func(t *testing.T) {
		job := Job(t)
		_, err := s.Make(t, Answers, &job).Read(job).End(executor.Exit{Status: -1})
		var e *api.Error
		if !errors.As(err, &e) || e.Kind != api.KindInfrastructure {
			t.Errorf("the error is %v", err)
		}
	})
}

// replay reads the same output again, as after a restart at any line.
func (s Suite) replay(t *testing.T) {
	x, job, out := s.done(t, Answers)
	whole := x.Read(job)
	want := Read(whole, out.Lines)
	result, err := whole.End(out.Exit)
	for n := range len(out.Lines) + 1 {
		got := Read(x.Read(job), out.Lines[:n])
		if len(got) > len(want) || !reflect.DeepEqual(got, want[:len(got):len(got)]) && len(got) > 0 {
			t.Fatalf("after %d lines it told %+v, want the first of %+v", n, got, want)
		}
	}
	again := x.Read(job)
	Read(again, out.Lines)
	if r, e := again.End(out.Exit); !reflect.DeepEqual(r, result) || !reflect.DeepEqual(e, err) {
		t.Errorf("again the result is %+v, %v, want %+v, %v", r, e, result, err)
	}
}

// oddLines are what no program should print. None may be taken for a mistake of the gateway,
// and no event may be as large as they are.
func (s Suite) oddLines(t *testing.T) {
	huge := strings.Repeat("x", 3<<20)
	odd := []string{
		"", " ", "{", "}", "null", "[]", "{}", "0", `"text"`, "\xff\xfe", "\x00", `{"type":null}`, `{"type":7}`, `{"type":{}}`,
		`{"type":"result"}`, `{"type":"text"}`, `{"type":"assistant"}`, `{"type":"tool"}`, `{"type":"bind"}`, huge,
		`{"type":"text","text":"` + huge + `"}`, `{"type":"tool","arguments":"` + huge + `"}`,
		strings.Repeat("[", 100_000), strings.Repeat(`{"a":`, 100_000),
	}
	job := Job(t)
	x := s.Make(t, Answers, &job)
	_, _, out := s.done(t, Answers)
	for _, line := range odd {
		r := x.Read(job)
		lines := slices.Concat([][]byte{[]byte(line)}, out.Lines)
		for _, e := range Read(r, lines) {
			if len(e.Data) > 1<<20 || !json.Valid(e.Data) || e.Type == "" {
				t.Errorf("line %.40q: an event of type %q with %d bytes", line, e.Type, len(e.Data))
			}
		}
		_, _ = r.End(out.Exit) // may be an error
	}
}
