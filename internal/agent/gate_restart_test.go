package agent

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/agent/runner"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
)

// steps runs once, and goes on when it may.
const steps = `echo ran >>count; echo one >&2; until [ -e go ]; do sleep 0.01; done; echo two >&2; echo fine`

// victim is a gateway that starts a run, comes to a phase of it, says so, and waits to be
// killed.
func victim(dir, phase string) {
	if phase == stormPhase {
		storm(dir)
	}
	reached := func(at string) {
		if at == phase {
			fmt.Println("reached")
			select {}
		}
	}
	g, err := openGate(dir, gateOptions{prepare: func(g *gate) {
		g.queue.claim = func(*runner.Claim) { reached("claimed") }
		g.worlds.open = func(context.Context, runner.World) error { reached("opening"); return nil }
		g.worlds.minted = func() { reached("minted") }
		g.queue.report = func(r runner.Report) error {
			switch {
			case r.Running:
				reached("started")
			case r.Ended:
				reached("reporting")
			}
			return nil
		}
		g.queue.reported = func(r runner.Report) {
			switch {
			case r.Ended:
				reached("reported")
			case len(r.Events) > 0:
				reached("told")
			}
		}
	}})
	if err == nil {
		_, err = g.Start(context.Background(), ada, NewRun{NewRun: api.NewRun{Agent: "sh", Prompt: steps}})
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	select {}
}

// The gateway is killed with -9 in each phase of a run. The next one brings the run to its
// end: its program ran once, and each of its events was told once.
func TestKilledInEachPhase(t *testing.T) {
	for _, phase := range []string{"claimed", "opening", "minted", "started", "told", "told, and it ends", "reporting", "reported"} {
		t.Run(phase, func(t *testing.T) {
			dir := t.TempDir()
			first := newGate(t, dir, gateOptions{}) // makes the database
			first.end(t, false)
			cmd := exec.Command(os.Args[0])
			at, _, ends := strings.Cut(phase, ",")
			cmd.Env = append(os.Environ(), victimVar+"="+dir, victimPhase+"="+at)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cmd.Process.Kill() })
			goOn := func() {
				sessions, err := filepath.Glob(filepath.Join(dir, "runner", "sessions", "*"))
				if err != nil || len(sessions) != 1 {
					t.Fatal(sessions, err)
				}
				if err := os.WriteFile(filepath.Join(sessions[0], "go"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if strings.HasPrefix(phase, "report") {
				testkit.Eventually(t, "its program has begun", func() bool {
					counts, err := filepath.Glob(filepath.Join(dir, "runner", "sessions", "*", "count"))
					return err == nil && len(counts) == 1
				})
				goOn()
			}
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "reached\n" {
				t.Fatalf("the gateway said %q, %v", line, err)
			}
			cmd.Process.Kill()
			cmd.Wait()
			if ends {
				goOn()
			}
			g := newGate(t, dir, gateOptions{})
			all, err := g.Runs(t.Context(), otto, Filter{})
			if err != nil || len(all.Runs) != 1 {
				t.Fatalf("there are %+v, %v", all, err)
			}
			session := filepath.Join(dir, "runner", "sessions", all.Runs[0].Session)
			written(t, filepath.Join(session, "count"))
			goOn()
			run := g.ended(t, all.Runs[0].ID)
			if run.State != api.RunCompleted || run.Result.Text != "fine" {
				t.Errorf("it ended as %s, %+v, %+v", run.State, run.Result, run.Error)
			}
			if count := textOf(t, filepath.Join(session, "count")); count != "ran\n" {
				t.Errorf("its program: %q", count)
			}
			page, err := g.db.Feed(t.Context(), store.FeedFilter{Run: run.ID, Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, e := range page.Events {
				for _, word := range []string{`"one"`, `"two"`} {
					if strings.Contains(string(e.Data), word) {
						lines = append(lines, word)
					}
				}
			}
			if strings.Join(lines, "") != `"one""two"` {
				t.Errorf("told was %q", lines)
			}
			g.bare(t)
		})
	}
}

// A gateway that closes keeps the programs for the next one, or ends them: then their
// runs fail, or are done again.
func TestGatewayCloses(t *testing.T) {
	for _, tt := range []struct {
		name, agent string
		keep        bool
		state       string
		count       string
	}{
		{"programs are kept", "sh", true, api.RunCompleted, "ran\n"},
		{"programs end", "sh", false, api.RunFailed, "ran\n"},
		{"programs end, and are started again", "again", false, api.RunCompleted, "ran\nran\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			g := newGate(t, dir, gateOptions{})
			run := g.begin(t, api.NewRun{Agent: tt.agent, Prompt: `echo $$ >>pids; ` + steps})
			session := filepath.Join(dir, "runner", "sessions", run.Session)
			written(t, filepath.Join(session, "count"))
			g.wait(t, run.ID, api.RunRunning)
			g.end(t, tt.keep)
			g = newGate(t, dir, gateOptions{})
			if err := os.WriteFile(filepath.Join(session, "go"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			got := g.ended(t, run.ID)
			if got.State != tt.state || tt.state == api.RunFailed && got.Error.Kind != api.KindLost {
				t.Errorf("it ended as %s, %+v", got.State, got.Error)
			}
			if count := textOf(t, filepath.Join(session, "count")); count != tt.count {
				t.Errorf("its program: %q", count)
			}
			g.bare(t)
		})
	}
}

// A persistent program does the runs of its session, until the session ends, or it has
// waited for too long, or it can't be given another.
func TestPersistentPrograms(t *testing.T) {
	// Prompts have no double quotes.
	says := func(word string) string { return `echo $$ >>life; say ` + word }
	first, second := says("one"), says("two")
	dir := t.TempDir()
	open := func(idle time.Duration) *gate { return newGate(t, dir, gateOptions{idle: idle}) }
	g := open(0)
	turn := func(session, text, want string) api.Run {
		t.Helper()
		in := api.NewRun{Agent: "stay", Session: session, Prompt: text}
		if session != "" {
			in.Agent = ""
		}
		run := g.begin(t, in)
		if got := g.ended(t, run.ID); got.State != api.RunCompleted || got.Result.Text != want {
			t.Fatalf("it ended as %s, %+v, %+v", got.State, got.Result, got.Error)
		}
		return run
	}
	life := func(session string) []string {
		return strings.Fields(textOf(t, filepath.Join(dir, "runner", "sessions", session, "life")))
	}
	session := turn("", first, "one").Session
	turn(session, second, "two")
	if got := life(session); len(got) != 2 || got[0] != got[1] {
		t.Errorf("the programs of the two turns: %v", got)
	}
	// The gateway closes: the program ends, and another one resumes.
	g.end(t, true)
	g.bare(t)
	g = open(0)
	turn(session, first, "one")
	if got := life(session); len(got) != 4 || got[2] != "down" || got[3] == got[0] {
		t.Errorf("the programs of three turns: %v", got)
	}
	// It closes its input.
	turn(session, `exec 0</dev/null; `+first, "one")
	turn(session, second, "two")
	if got := life(session); len(got) != 6 || got[5] == got[4] {
		t.Errorf("the programs of five turns: %v", got)
	}
	if err := g.runner.EndSession(t.Context(), session); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "runner", "sessions", session)); !os.IsNotExist(err) {
		t.Errorf("the folder of the session: %v", err)
	}
	g.bare(t)
	// It waits for too long.
	g.end(t, true)
	g = open(time.Millisecond)
	session = turn("", first, "one").Session
	g.bare(t)
	if got := life(session); len(got) != 2 || got[1] != "down" {
		t.Errorf("the program that waited: %v", got)
	}
}

// A persistent program that ends by itself before it has read its second turn has done
// nothing of it: another one does.
func TestPersistentProgramEndsUnasked(t *testing.T) {
	dir := t.TempDir()
	g := newGate(t, dir, gateOptions{})
	first := g.begin(t, api.NewRun{Agent: "stay", Prompt: `echo $$ >>life; say one; until [ -e go ]; do sleep 0.01; done; exit 0`})
	session := filepath.Join(dir, "runner", "sessions", first.Session)
	g.wait(t, first.ID, api.RunCompleted)
	second := g.begin(t, api.NewRun{Session: first.Session, Prompt: `echo $$ >>life; say two`})
	g.wait(t, second.ID, api.RunRunning)
	if err := os.WriteFile(filepath.Join(session, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := g.ended(t, second.ID); got.State != api.RunCompleted || got.Result.Text != "two" {
		t.Errorf("it ended as %s, %+v, %+v", got.State, got.Result, got.Error)
	}
	life := strings.Fields(textOf(t, filepath.Join(session, "life")))
	if len(life) < 2 || life[0] == life[1] {
		t.Errorf("the programs of the two turns: %v", life)
	}
	g.end(t, true)
}

// A persistent program that is in its second turn when the gateway closes finishes it with
// the next gateway, which gives it the third.
func TestPersistentProgramIsAdopted(t *testing.T) {
	dir := t.TempDir()
	g := newGate(t, dir, gateOptions{})
	run := g.begin(t, api.NewRun{Agent: "stay", Prompt: `echo $$ >>life; say one`})
	session := filepath.Join(dir, "runner", "sessions", run.Session)
	g.wait(t, run.ID, api.RunCompleted)
	run = g.begin(t, api.NewRun{Session: run.Session, Prompt: `echo $$ >>life; : >up; until [ -e go ]; do sleep 0.01; done; say two`})
	appears(t, filepath.Join(session, "up"))
	g.wait(t, run.ID, api.RunRunning)
	g.end(t, true)
	g = newGate(t, dir, gateOptions{})
	if err := os.WriteFile(filepath.Join(session, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := g.ended(t, run.ID); got.State != api.RunCompleted || got.Result.Text != "two" {
		t.Errorf("the second run ended as %s, %+v, %+v", got.State, got.Result, got.Error)
	}
	run = g.begin(t, api.NewRun{Session: run.Session, Prompt: `echo $$ >>life; say three`})
	if got := g.ended(t, run.ID); got.State != api.RunCompleted || got.Result.Text != "three" {
		t.Errorf("the third run ended as %s, %+v, %+v", got.State, got.Result, got.Error)
	}
	if pids := strings.Fields(textOf(t, filepath.Join(session, "life"))); len(pids) != 3 || pids[0] != pids[1] || pids[1] != pids[2] {
		t.Errorf("the programs of the turns: %v", pids)
	}
	// A run that is stopped takes the program with it.
	run = g.begin(t, api.NewRun{Session: run.Session, Prompt: `: >long; while :; do sleep 0.01; done`})
	appears(t, filepath.Join(session, "long"))
	g.wait(t, run.ID, api.RunRunning)
	if _, err := g.Stop(t.Context(), ada, StopRun{Run: run.ID}); err != nil {
		t.Fatal(err)
	}
	if got := g.ended(t, run.ID); got.State != api.RunStopped {
		t.Errorf("the fourth run ended as %s", got.State)
	}
	g.bare(t)
}

// There are no more programs that wait than runs at once, and the one that has waited for
// longest ends.
func TestIdleProgramsAreBounded(t *testing.T) {
	dir := t.TempDir()
	g := newGate(t, dir, gateOptions{concurrency: 2})
	var lives []string
	for range 4 {
		run := g.begin(t, api.NewRun{Agent: "stay", Prompt: `echo $$ >>life; say one`})
		g.wait(t, run.ID, api.RunCompleted)
		lives = append(lives, filepath.Join(dir, "runner", "sessions", run.Session, "life"))
	}
	testkit.Eventually(t, "the first two have ended", func() bool {
		return strings.HasSuffix(textOf(t, lives[0]), "down\n") && strings.HasSuffix(textOf(t, lives[1]), "down\n")
	})
	for _, path := range lives[2:] {
		testkit.Lacks(t, "the life of a later one", textOf(t, path), "down")
	}
}

// A run whose program has not been started when the gateway closes is done by the next
// one, whatever its blueprint says.
func TestGatewayClosesBeforeTheStart(t *testing.T) {
	for _, keep := range []bool{true, false} {
		dir := t.TempDir()
		opening := make(chan string, 1)
		g := newGate(t, dir, gateOptions{prepare: func(g *gate) {
			g.worlds.open = func(ctx context.Context, w runner.World) error {
				opening <- w.Session
				<-ctx.Done()
				return ctx.Err()
			}
		}})
		run := g.sh(t, `echo fine`)
		testkit.Within(t, "its world is opened", opening)
		g.end(t, keep)
		g = newGate(t, dir, gateOptions{})
		if got := g.ended(t, run.ID); got.State != api.RunCompleted || got.Result.Text != "fine" {
			t.Errorf("keep %v: it ended as %s, %+v", keep, got.State, got.Error)
		}
		g.bare(t)
	}
}
