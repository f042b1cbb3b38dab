//go:build linux || darwin

package runner

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/blueprint"
	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/telemetry"
	"github.com/tine-mcp/tine/internal/testkit"
)

// lone is a queue with one run, and the world of it.
type lone struct {
	claims chan Claim
	events chan []executor.Event
	ended  chan Report
}

func (q *lone) Claimed(context.Context, string) ([]string, error) { return nil, nil }

func (q *lone) Claim(ctx context.Context, _ Description) (Claim, error) {
	select {
	case c := <-q.claims:
		return c, nil
	case <-ctx.Done():
		return Claim{}, ctx.Err()
	}
}

func (q *lone) Renew(context.Context, string, int64) (Answer, error) {
	return Answer{Until: time.Now().Add(time.Minute)}, nil
}

func (q *lone) Report(_ context.Context, _ string, _ int64, r Report) (Answer, error) {
	q.events <- r.Events
	if r.Ended {
		q.ended <- r
	}
	return Answer{Until: time.Now().Add(time.Minute)}, nil
}

func (q *lone) Stopping(ctx context.Context, _ string, _ int64) error {
	<-ctx.Done()
	return ctx.Err()
}

func (q *lone) Open(context.Context, World) error { return nil }
func (q *lone) Mint(context.Context, string, string, []string, time.Duration) (string, error) {
	return "token of the run", nil
}
func (q *lone) Revoke(context.Context, string, string) error { return nil }
func (q *lone) URL(session, server string) string            { return "http://gateway.test/" + server }

// scripted is an executor of one script, whose Reader fails at the line "fail".
type scripted struct{ text string }

func (scripted) Name() string               { return "scripted" }
func (scripted) Check(map[string]any) error { return nil }
func (scripted) Secrets() []string          { return []string{"word-of-mouth"} }
func (s scripted) Plan(job executor.Job) (executor.Plan, error) {
	return executor.Plan{Command: "sh", Args: []string{"-c", s.text}, Env: job.Env, Dir: job.WorkDir()}, nil
}
func (scripted) Read(executor.Job) executor.Reader { return fragile{} }

type fragile struct{}

func (fragile) Line(line []byte) []executor.Event {
	if string(line) == "fail" {
		panic("a line that no one thought of")
	}
	return []executor.Event{executor.Text(string(line))}
}

func (fragile) End(exit executor.Exit) (api.RunResult, error) {
	return api.RunResult{Text: string(exit.Stdout)}, executor.Failed(exit)
}

// A program goes on with the trace of its run, and has no such variables without one.
func TestTraceOfAProgram(t *testing.T) {
	for want, trace := range map[string]telemetry.Parent{
		"00-1-2-01 a=1\n": {Traceparent: "00-1-2-01", Tracestate: "a=1"},
		"00-1-2-01 -\n":   {Traceparent: "00-1-2-01"},
		"- -\n":           {},
	} {
		_, end := runOnce(t, `echo "${TRACEPARENT--} ${TRACESTATE--}"`, Claim{Trace: trace})
		if end.Result == nil || end.Result.Text != want {
			t.Errorf("with %+v it printed %+v, want %q: %+v", trace, end.Result, want, end.Error)
		}
	}
}

// A program that writes too much, or what its executor can't read, is ended, and its run
// fails.
func TestProgramsThatAreEnded(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		kind       api.Kind
		words      string
	}{
		{"it writes too much", `while :; do echo something; done`, api.KindTool, "wrote more than 10000 bytes to its standard output"},
		{"its words can't be read", `echo fail; sleep 1000`, api.KindInfrastructure, "the gateway failed inside"},
		{"it kills itself", `kill -KILL $$`, api.KindTool, "killed by SIGKILL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, end := runOnce(t, tt.text, Claim{})
			if end.Error == nil || end.Error.Kind != tt.kind || !strings.Contains(end.Error.Message, tt.words) {
				t.Errorf("it ended with %+v, %+v", end.Result, end.Error)
			}
		})
	}
}

// A program prints its token, a secret of its blueprint and one of its executor. Nobody is
// shown them.
func TestSecretsThatAProgramPrints(t *testing.T) {
	told, end := runOnce(t, `echo "token of the run, secret-of-the-blueprint, word-of-mouth"`, Claim{})
	if want := "****, ****, ****"; end.Result == nil || end.Result.Text != want+"\n" || !strings.Contains(told, `{"text":"`+want+`"}`) {
		t.Errorf("it told %s and ended with %+v, %+v", told, end.Result, end.Error)
	}
}

// runOnce does the run of a claim with a script, and returns what it told. Nothing of it is
// left.
func runOnce(t *testing.T, text string, c Claim) (told string, end Report) {
	t.Helper()
	q := &lone{claims: make(chan Claim, 1), events: make(chan []executor.Event, 10000), ended: make(chan Report, 1)}
	dir := t.TempDir()
	r, err := New(Options{Queue: q, Worlds: q, Offer: Offer{Executors: []executor.Executor{scripted{text}}}, Me: Description{ID: "here"}, Dir: dir, Environ: os.Environ(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	r.host.limits.output = 10_000
	c.Run, c.Number, c.Until = "run_1", 1, time.Now().Add(time.Minute)
	c.Blueprint = blueprint.Resolved{Executor: "scripted", Secrets: []string{"secret-of-the-blueprint"}}
	c.Job = executor.Job{Run: "run_1", Session: "ses_1"}
	q.claims <- c
	over := make(chan struct{})
	go func() {
		defer close(over)
		r.Run(t.Context())
	}()
	end = testkit.Within(t, "its end", q.ended)
	r.Close(false)
	testkit.Within(t, "the end of the claiming", over)
	left, err := os.ReadDir(r.host.root)
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	close(q.events)
	for events := range q.events {
		for _, e := range events {
			told += e.Type + " " + string(e.Data) + "\n"
		}
	}
	return told, end
}
