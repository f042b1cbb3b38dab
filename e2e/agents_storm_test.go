//go:build linux

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/torture"
)

// stormAgents are the agents of the storm. Each notes in its project folder that it has
// run, by its mark.
func stormAgents(t testing.TB) map[string]string {
	t.Helper()
	dir, err := filepath.Abs("testdata/agents")
	if err != nil {
		t.Fatal(err)
	}
	const marked = "parameters: {type: object, required: [mark], properties: {mark: {type: string}"
	return map[string]string{
		"step": marked + ", takes: {type: string, default: '0.1'}, end: {enum: [done, fail, wait], default: done}}}\n" +
			fmt.Sprintf("executor: command\nexecutor_config: {command: sh, args: [%q, '${params.mark}', '${params.takes}', '${params.end}']}\n", dir+"/step.sh"),
		"flags": marked + "}}\n" + fmt.Sprintf("executor: procedural\nexecutor_config: {command: sh, args: [%q]}\n", dir+"/flags.sh"),
		"turns": marked + "}}\n" + fmt.Sprintf("executor: command\nexecutor_config: {command: sh, args: [%q], persistent: true}\n", dir+"/turns.sh"),
		"splitter": marked + ", mode: {type: string}, steps: {type: array, items: {type: string}}}}\n" +
			fmt.Sprintf("executor: command\nexecutor_config: {command: python3, args: [-B, %q]}\nagents: [step]\nmcp_servers: {orchestrator: {}}\n", dir+"/splitter.py"),
	}
}

// A storm is a gateway that is killed while agents work.
type storm struct {
	t   *testing.T
	g   *gateway
	c   *client.Client
	dir string // of the agents' work

	mu    sync.Mutex
	runs  map[string]wanted // that were accepted, by their ids
	marks map[string]bool   // of all runs that there may be
	over  chan struct{}     // told of each story that is over
}

// wanted is how a run should end.
type wanted struct {
	mark, state string
	text, data  string
	// later says that it is a later turn of a program: a gateway that is killed while it gives
	// the turn can't know whether the program has it.
	later bool
}

// sure repeats what a killed gateway has not answered.
func (s *storm) sure(what func() error) error {
	return eventually(func() error {
		err := what()
		if e := kindOf(err); e != nil && !e.Retryable && e.Status != 0 {
			return final{err}
		}
		return err
	})
}

// accept has a run accepted, by the API or on the command line. A request that is repeated
// makes no other run.
func (s *storm) accept(in api.NewRun, cli bool, want wanted) (run *api.Run, err error) {
	in.ProjectDir = s.dir
	if in.Session != "" {
		in.ProjectDir = ""
	}
	s.mu.Lock()
	s.marks[want.mark] = true
	s.mu.Unlock()
	err = s.sure(func() (err error) {
		if !cli {
			run, err = s.c.StartRun(s.t.Context(), in, client.Once(want.mark))
			return err
		}
		args := []string{"run", in.Agent, "--json", "--key", want.mark, "--project-dir", s.dir}
		for name, value := range in.Parameters {
			args = append(args, "--param", fmt.Sprintf("%s=%s", name, value))
		}
		out, err := s.g.tine(s.t.Context(), args...)
		if err == nil {
			err = json.Unmarshal([]byte(out), &run)
		}
		return err
	})
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.runs[run.ID] = want
	}
	return run, err
}

func (s *storm) ended(run *api.Run) error {
	return s.sure(func() error {
		r, err := s.c.Run(s.t.Context(), run.ID, 5*time.Second)
		if err == nil && !api.RunEnded(r.State) {
			err = fmt.Errorf("run %s of %s is %s", r.ID, r.Agent, r.State)
		}
		return err
	})
}

// step is a run that completes or fails.
func (s *storm) step(mark string, cli bool) error {
	want := wanted{mark: mark, state: api.RunCompleted, text: "done " + mark}
	end := "done"
	if rand.IntN(5) == 0 {
		end, want = "fail", wanted{mark: mark, state: api.RunFailed, text: mark + " can't be done"}
	}
	in := api.NewRun{Agent: "step", Parameters: api.Parameters{"mark": mark, "takes": fmt.Sprintf("0.%d", rand.IntN(8)), "end": end}}
	run, err := s.accept(in, cli, want)
	if err != nil {
		return err
	}
	return s.ended(run)
}

// flags is a run of a procedural agent.
func (s *storm) flags(mark string, cli bool) error {
	run, err := s.accept(api.NewRun{Agent: "flags", Parameters: api.Parameters{"mark": mark}}, cli, wanted{mark: mark, state: api.RunCompleted, data: fmt.Sprintf(`["--mark",%q]`, mark)})
	if err != nil {
		return err
	}
	return s.ended(run)
}

// stopped is a run that is stopped, at once or while its program works.
func (s *storm) stopped(mark string, cli bool) error {
	run, err := s.accept(api.NewRun{Agent: "step", Parameters: api.Parameters{"mark": mark, "end": "wait"}}, cli, wanted{mark: mark, state: api.RunStopped})
	if err != nil {
		return err
	}
	if rand.IntN(4) > 0 {
		err := eventually(func() error {
			_, err := os.Stat(filepath.Join(s.dir, "ran-"+mark))
			return err
		})
		if err != nil {
			return err
		}
	}
	if err := s.sure(func() error { _, err := s.c.StopRun(s.t.Context(), run.ID); return err }); err != nil {
		return err
	}
	return s.ended(run)
}

// turns are three runs of a session with a persistent program.
func (s *storm) turns(mark string, cli bool) error {
	in := api.NewRun{Agent: "turns"}
	for n := range 3 {
		turn := fmt.Sprintf("%s-%d", mark, n)
		in.Parameters = api.Parameters{"mark": turn}
		run, err := s.accept(in, cli && n == 0, wanted{mark: turn, state: api.RunCompleted, text: "done " + turn, later: n > 0})
		if err != nil {
			return err
		}
		if err := s.ended(run); err != nil {
			return err
		}
		in = api.NewRun{Session: run.Session}
	}
	return nil
}

// splits is an agent that starts others in a mode.
func (s *storm) splits(mode string) func(mark string, _ bool) error {
	return func(mark string, _ bool) error {
		steps := []string{mark + "-a", mark + "-b"}
		want := wanted{mark: mark, state: api.RunCompleted, text: "done " + strings.Join(steps, " and done ")}
		if mode == api.ModeAsyncCallback {
			want.text = "started"
		}
		s.mu.Lock()
		for _, step := range steps {
			s.marks[step] = true
		}
		s.mu.Unlock()
		run, err := s.accept(api.NewRun{Agent: "splitter", Parameters: api.Parameters{"mark": mark, "mode": mode, "steps": steps}}, false, want)
		if err != nil {
			return err
		}
		if err := s.ended(run); err != nil || mode != api.ModeAsyncCallback {
			return err
		}
		return eventually(func() error {
			if told := s.notes("told", mark); len(told) < len(steps) {
				return fmt.Errorf("%s was told of %q", mark, told)
			}
			return nil
		})
	}
}

// notes are the lines that an agent has left.
func (s *storm) notes(file, mark string) []string {
	text, err := os.ReadFile(filepath.Join(s.dir, file+"-"+mark))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		s.t.Error(err)
	}
	return strings.FieldsFunc(string(text), func(r rune) bool { return r == '\n' })
}

// TestAgentStorm kills the gateway again and again while agents of every kind work. Each run
// that was accepted ends once and as it should, its program has run once, each callback is
// told once, the feed has each end once, and nothing is left.
func TestAgentStorm(t *testing.T) {
	t.Parallel()
	const token = "ops-ops-ops-ops-ops-ops" // the gateway's own is another one after each start
	g := newGateway(t, "auth: {tokens: [{name: ops, token: "+token+", role: operator}]}\nservers:\n  orchestrator: {builtin: orchestrator}\nagents: {concurrency: 24}\n")
	g.writeAgents(t, stormAgents(t))
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	s := &storm{t: t, g: g, c: g.clientAs(t, token), dir: t.TempDir(), runs: map[string]wanted{}, marks: map[string]bool{}}
	follower := &eventLog{}
	var following sync.WaitGroup
	following.Go(func() {
		for e, err := range s.c.Events(t.Context(), client.EventFilter{Types: []string{"run"}, After: api.EventsFromStart}) {
			if err != nil {
				if t.Context().Err() == nil {
					t.Error(err)
				}
				return
			}
			follower.add(e)
		}
	})

	kinds := []struct {
		name string
		n    int // in a hundred runs
		do   func(mark string, cli bool) error
	}{
		{"step", 32, s.step}, {"flags", 8, s.flags}, {"stopped", 8, s.stopped}, {"turns", 6, s.turns},
		{"sync", 4, s.splits(api.ModeSync)}, {"poll", 4, s.splits(api.ModeAsyncPoll)}, {"callback", 4, s.splits(api.ModeAsyncCallback)},
	}
	var stories []func() error
	for _, k := range kinds {
		for n := range k.n * torture.Or(2, 20) {
			stories = append(stories, func() error {
				if err := k.do(fmt.Sprintf("%s%d", k.name, n), n%5 == 0); err != nil {
					return fmt.Errorf("%s %d: %w", k.name, n, err)
				}
				return nil
			})
		}
	}
	rand.Shuffle(len(stories), func(i, j int) { stories[i], stories[j] = stories[j], stories[i] })
	todo := make(chan func() error, len(stories))
	for _, story := range stories {
		todo <- story
	}
	close(todo)
	s.over = make(chan struct{}, len(stories))
	var telling sync.WaitGroup
	for range 16 {
		telling.Go(func() {
			for story := range todo {
				if err := story(); err != nil {
					t.Error(err)
				}
				s.over <- struct{}{}
			}
		})
	}
	kills := torture.Or(5, 60)
	for range kills {
		for range len(stories) / (kills + 1) {
			<-s.over
		}
		time.Sleep(rand.N(200 * time.Millisecond)) // killed at any moment
		g.kill()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
	}
	telling.Wait()
	if err := eventually(s.allOver); err != nil { // also the runs by which agents are told of others
		t.Fatal(err)
	}
	s.check(follower)
	closeAgents(t, g)
}

func (s *storm) allOver() error {
	list, err := s.c.Runs(s.t.Context(), client.RunQuery{State: []string{api.RunPending, api.RunClaimed, api.RunRunning, api.RunStopping}})
	if err == nil && len(list.Runs) > 0 {
		err = fmt.Errorf("%d runs have not ended, such as %+v", len(list.Runs), list.Runs[0])
	}
	return err
}

// check holds all that there is against what should be.
func (s *storm) check(follower *eventLog) {
	t := s.t
	seen, states := map[string]int{}, map[string]string{}
	lost := 0
	for r, err := range s.c.AllRuns(t.Context(), client.RunQuery{Limit: 200}) {
		if err != nil {
			t.Fatal(err)
		}
		states[r.ID] = r.State
		var parameters struct{ Mark, End string }
		if err := json.Unmarshal(r.Parameters, &parameters); err != nil {
			t.Fatal(err)
		}
		want, accepted := s.runs[r.ID]
		switch {
		case accepted:
		case r.Agent == "splitter" && r.Resume: // it is told how its steps ended
			want = wanted{state: api.RunCompleted, text: "told"}
		case parameters.End == "fail":
			want = wanted{mark: parameters.Mark, state: api.RunFailed, text: parameters.Mark + " can't be done"}
		default:
			want = wanted{mark: parameters.Mark, state: api.RunCompleted, text: "done " + parameters.Mark}
		}
		seen[want.mark]++
		got := wanted{state: r.State}
		if r.Result != nil {
			got.text, got.data = r.Result.Text, string(r.Result.Data)
		}
		if r.State == api.RunFailed && r.Error != nil {
			_, got.text, _ = strings.Cut(r.Error.Message, "status 3: ")
		}
		ran := len(s.notes("ran", want.mark))
		switch {
		case want.later && r.State == api.RunFailed && r.Error.Kind == api.KindLost && ran <= 1:
			lost++
		case got.state != want.state || got.text != want.text || got.data != want.data:
			t.Errorf("run %s of %s %q ended as %+v (%+v), want %+v", r.ID, r.Agent, want.mark, got, r.Error, want)
		case want.mark != "" && ran != 1 && !(want.state == api.RunStopped && ran == 0):
			t.Errorf("the program of %q has run %d times", want.mark, ran)
		}
	}
	delete(seen, "")
	for mark := range s.marks {
		if seen[mark] != 1 {
			t.Errorf("there are %d runs of %q", seen[mark], mark)
		}
	}
	if len(seen) != len(s.marks) {
		t.Errorf("there are runs of %d marks, want %d", len(seen), len(s.marks))
	}
	t.Logf("%d runs, %d of them turns that were lost", len(states), lost)
	s.checkCallbacks()
	s.checkEvents(follower, states)
}

// checkCallbacks holds that each splitter was told of each of its steps once.
func (s *storm) checkCallbacks() {
	files, _ := filepath.Glob(filepath.Join(s.dir, "child-*"))
	for _, file := range files {
		mark := strings.TrimPrefix(filepath.Base(file), "child-")
		children := s.notes("child", mark)
		want := []string{children[0] + " failed", children[1] + " completed"}
		told := s.notes("told", mark)
		slices.Sort(want)
		slices.Sort(told)
		if !slices.Equal(told, want) {
			s.t.Errorf("%s was told %q, want %q", mark, told, want)
		}
	}
}

// checkEvents holds that the feed has told the end of each run once.
func (s *storm) checkEvents(follower *eventLog, states map[string]string) {
	t := s.t
	line := func(e api.Event) string {
		return fmt.Sprint(e.Run, " ", e.Type, " ", e.State, " ", e.At.Format(time.RFC3339Nano))
	}
	var stored []string
	for e, err := range s.c.Events(t.Context(), client.EventFilter{Types: []string{"run"}, After: api.EventsFromStart, Once: true}) {
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, line(e))
	}
	var followed []string
	told := map[string][]string{} // states of runs
	err := eventually(func() error {
		follower.mu.Lock()
		defer follower.mu.Unlock()
		followed = nil
		clear(told)
		for _, e := range follower.all {
			if followed = append(followed, line(e)); e.Type == api.EventGap {
				return final{fmt.Errorf("there is a gap: %+v", e)}
			}
			if e.State != "" {
				told[e.Run] = append(told[e.Run], e.State)
			}
		}
		if len(followed) < len(stored) {
			return fmt.Errorf("%d of %d events were followed", len(followed), len(stored))
		}
		return nil
	})
	if err != nil || !slices.Equal(followed, stored) {
		t.Errorf("the follower was told %d of %d events, or in another order, %v", len(followed), len(stored), err)
	}
	for run, state := range states {
		all := told[run]
		if slices.IndexFunc(all, api.RunEnded) != len(all)-1 || len(all) < 2 || all[0] != api.RunPending || all[len(all)-1] != state {
			t.Errorf("run %s is %s, and the feed says that it was %q", run, state, all)
		}
	}
	if len(told) != len(states) {
		t.Errorf("the feed has %d runs, and there are %d", len(told), len(states))
	}
}
