//go:build linux || darwin

package runner

import (
	"testing"

	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/agent/executor/command"
)

// A persistent program of the contract does two runs of a session and ends when it is
// told to.
func TestPersistentCommand(t *testing.T) {
	const text = `while IFS= read -r line; do case $line in
*'"type":"shutdown"'*) echo '{"type":"text","text":"bye"}'; exit 0 ;;
*'"prompt":"one"'*) echo '{"type":"turn_complete","result":"first"}' ;;
*'"type":"turn"'*) echo '{"type":"text","text":"working"}'; echo '{"type":"turn_complete","result":"second"}' ;;
esac; done`
	h := newHost(t, t.TempDir())
	x := command.New(executor.Options{Program: executor.Program{Command: "sh", Args: []string{"-c", text}}})
	job := executor.Job{Run: "run_1", Session: "ses_1", Dir: t.TempDir(), Parameters: map[string]any{"prompt": "one"}, Config: map[string]any{"persistent": true}}
	plan, err := x.Plan(job)
	if err != nil {
		t.Fatal(err)
	}
	p := begin(t, h, job.Run, plan)
	follow := func(want string, events int, goes bool) executor.Turner {
		t.Helper()
		r, n := x.Read(job).(executor.Turner), 0
		end, err := p.follow(t.Context(), r, 0, func(e []executor.Event) error { n += len(e); return nil })
		if err != nil || end.Result.Text != want || end.Goes != goes || n != events {
			t.Fatalf("the turn ended with %+v, %v after %d events", end, err, n)
		}
		return r
	}
	r := follow("first", 0, true)
	job.Parameters = map[string]any{"prompt": "two"}
	next, err := r.Next(job)
	if err == nil {
		err = p.next("run_2", next)
	}
	if err != nil {
		t.Fatal(err)
	}
	r = follow("second", 1, true)
	if err := p.stop(t.Context(), r.Shutdown()); err != nil || p.exit.Status != 0 {
		t.Errorf("it ended with %+v, %v", p.exit, err)
	}
}
