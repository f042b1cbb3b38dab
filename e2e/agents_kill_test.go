//go:build unix

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// TestAgentOverKill kills the gateway while runs go on and one waits its turn. One
// program ends while there is no gateway, another one when there is the next.
func TestAgentOverKill(t *testing.T) {
	t.Parallel()
	g := newAgents(t, "  concurrency: 2\n")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.client(t)
	dir := t.TempDir()
	release := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "go-"+name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	begun := func(name string) []string {
		data, err := os.ReadFile(filepath.Join(dir, "begun-"+name))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Fields(string(data))
	}
	runs, pids := map[string]*api.Run{}, map[string]int{}
	for _, name := range []string{"one", "two"} {
		runs[name] = startRun(t, c, api.NewRun{Agent: "patient", Parameters: map[string]any{"prompt": name, "after": name == "two"}, ProjectDir: dir})
		firstText(t, c, runs[name].ID)
		all := begun(name)
		if len(all) != 1 {
			t.Fatalf("%s has begun as %v", name, all)
		}
		pids[name], _ = strconv.Atoi(all[0])
	}
	runs["three"] = startRun(t, c, api.NewRun{Agent: "patient", Prompt: "three", ProjectDir: dir})
	if r, err := c.Run(t.Context(), runs["three"].ID, 0); err != nil || r.State != api.RunPending {
		t.Fatalf("the run that waits its turn is %+v, %v", r, err)
	}
	g.kill()
	release("one")
	if err := eventually(func() error {
		if lives(pids["one"]) {
			return errors.New("the program has not ended")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !lives(pids["two"]) {
		t.Fatal("a program did not outlive the gateway")
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.client(t)
	ended(t, c, runs["one"].ID, api.RunCompleted)
	if firstText(t, c, runs["three"].ID); !lives(pids["two"]) {
		t.Fatal("the next gateway has not adopted a program")
	}
	release("two")
	release("three")
	for name, run := range runs {
		r := ended(t, c, run.ID, api.RunCompleted)
		pid := resultOf[struct{ PID int }](t, r).PID
		if all := begun(name); r.Result.Text != "done "+name || !slices.Equal(all, []string{strconv.Itoa(pid)}) {
			t.Errorf("%s has begun as %v and says %q as %d", name, all, r.Result.Text, pid)
		}
		// The claim of the next gateway is told with the state that the run has.
		order := []string{"pending", "claimed", "running", "text", "running", "completed"}
		if name == "three" {
			order = []string{"pending", "claimed", "running", "text", "completed"}
		}
		if got := runEvents(t, c, run.ID); !slices.Equal(got, order) {
			t.Errorf("the events of %s are %v, want %v", name, got, order)
		}
		want := map[string]int{"one": 1, "two": 2, "three": 1}[name]
		if calls := g.journal(t, client.CallQuery{Run: run.ID}); len(calls) != want {
			t.Errorf("the calls of %s are %+v, want %d", name, calls, want)
		}
	}
	closeAgents(t, g)
}

// TestAgentWaitOverKill kills the gateway while commands wait for a run and follow it.
func TestAgentWaitOverKill(t *testing.T) {
	t.Parallel()
	g := newAgents(t, "")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	type printed struct {
		out string
		err error
	}
	all := map[string]chan printed{}
	for _, how := range []string{"--wait", "--follow"} {
		done := make(chan printed, 1)
		all[how] = done
		go func() {
			out, err := g.tine(t.Context(), "run", "patient", how[2:], "--project-dir", dir, how)
			done <- printed{out, err}
		}()
	}
	c := g.client(t)
	var begun *api.RunList
	if err := eventually(func() (err error) {
		begun, err = c.Runs(t.Context(), client.RunQuery{})
		if err == nil && len(begun.Runs) < len(all) {
			err = errors.New("they have not been accepted")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, run := range begun.Runs { // before that they call their server
		firstText(t, c, run.ID)
	}
	g.kill()
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	for how, done := range all {
		if err := os.WriteFile(filepath.Join(dir, "go-"+how[2:]), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		got := <-done
		if got.err != nil || strings.Count(got.out, "done "+how[2:]+"\n") != 1 || how == "--follow" && strings.Count(got.out, "waiting\n") != 1 {
			t.Errorf("%s printed %q, %v", how, got.out, got.err)
		}
	}
	closeAgents(t, g)
}
