package agent

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/torture"
)

const stormPhase = "storm"

// storm is a gateway that accepts runs and says so until it is killed.
func storm(dir string) {
	g, err := openGate(dir, gateOptions{concurrency: 4})
	for n := 0; err == nil; n++ {
		var run api.Run
		prompt := fmt.Sprintf(`echo ran >>count; echo $$ >pid; echo told >&2; sleep 0.0%d; echo fine`, n%7)
		if run, err = g.Start(context.Background(), ada, NewRun{NewRun: api.NewRun{Agent: "sh", Prompt: prompt}}); err == nil {
			fmt.Println(run.ID)
		}
		if n == 10 {
			select {}
		}
	}
	fmt.Println(err)
	os.Exit(1)
}

// Gateways are killed with -9 at random. Each run that was accepted ends once, as it should,
// its program ran once, and nothing of it is left.
func TestKilledAtRandom(t *testing.T) {
	dir := t.TempDir()
	newGate(t, dir, gateOptions{}).end(t, false) // makes the database
	var accepted []string
	for range torture.Or(8, 100) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), victimVar+"="+dir, victimPhase+"="+stormPhase)
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		if lines.Scan() {
			accepted = append(accepted, lines.Text())
		}
		time.Sleep(rand.N(150 * time.Millisecond)) // the moment of the kill
		cmd.Process.Kill()
		for lines.Scan() {
			accepted = append(accepted, lines.Text())
		}
		cmd.Wait()
	}
	g := newGate(t, dir, gateOptions{concurrency: 4})
	for _, id := range accepted {
		run := g.ended(t, id)
		if run.State != api.RunCompleted || run.Result.Text != "fine" {
			t.Errorf("run %s ended as %s, %+v, %+v", id, run.State, run.Result, run.Error)
			continue
		}
		if count := textOf(t, filepath.Join(dir, "runner", "sessions", run.Session, "count")); count != "ran\n" {
			t.Errorf("the program of run %s: %q", id, count)
		}
	}
	testkit.Eventually(t, "all runs have ended", func() bool { // also those whose acceptance was not told
		all, err := g.Runs(t.Context(), otto, Filter{States: liveStates})
		return err == nil && len(all.Runs) == 0
	})
	g.bare(t)
	t.Logf("%d runs", len(accepted))
}
