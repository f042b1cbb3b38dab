//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// rolloutPage returns the blocks of docs/rollouts.md in a language.
func rolloutPage(t testing.TB, language string) []string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "docs", "rollouts.md"))
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllSubmatch(data, -1) {
		blocks = append(blocks, string(m[1]))
	}
	if len(blocks) == 0 {
		t.Fatalf("the page has no %s", language)
	}
	return blocks
}

// TestRolloutDocs runs the loop of docs/rollouts.md as it stands there, on the
// config that stands there. While it runs, the world of one branch is taken away:
// it is dropped and not scored, and the others are whole.
func TestRolloutDocs(t *testing.T) {
	t.Parallel()
	program := need(t, python)[0]
	g := startGateway(t, rolloutPage(t, "yaml")[0])
	dir := t.TempDir()
	script := filepath.Join(dir, "loop.py")
	if err := os.WriteFile(script, []byte(strings.Join(rolloutPage(t, "python"), "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, script)
	cmd.Dir = dir
	cmd.Env = append(toolEnv(t), "TINE_URL="+g.url)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()

	c := g.client(t)
	victim := ""
	err := eventually(func() (err error) {
		select {
		case werr := <-done:
			done <- werr
			return final{errors.New("the loop ended before a branch could be taken away")}
		default:
		}
		victim, err = takeAway(t, c, cmd.Process)
		return err
	})
	if werr := <-done; err != nil || werr != nil {
		t.Fatalf("%v, %v\n%s\n%s", err, werr, stdout.String(), tail(stderr.String(), 8<<10))
	}
	const branches = 8 * 4
	dropped := strings.Count(stderr.String(), "dropped ses_")
	if dropped != 1 || !strings.Contains(stderr.String(), "dropped "+victim) {
		t.Errorf("%d rollouts were dropped, want the one whose session was closed:\n%s", dropped, stderr.String())
	}
	if want := fmt.Sprintf("%d of %d branches scored", branches-dropped, branches); !strings.HasPrefix(stdout.String(), want) {
		t.Errorf("the loop says %q, want %q", stdout.String(), want)
	}

	out, err := os.Open(filepath.Join(dir, "rollouts.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	parents := map[string]int{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	n := 0
	for ; lines.Scan(); n++ {
		var r struct {
			Session string
			Reward  float64
			Steps   []api.Step
		}
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		if r.Session == victim {
			t.Errorf("%s was scored though its world was gone", victim)
		}
		moves, sum := checkSteps(t, r.Session, r.Steps)
		if moves != 6 {
			t.Errorf("the trajectory of %s has %d moves, want 6", r.Session, moves)
		}
		if reward := sum - 21; r.Reward != -max(reward, -reward) {
			t.Errorf("the moves of %s sum to %v, and the reward is %v", r.Session, sum, r.Reward)
		}
		for _, s := range r.Steps {
			if s.Type == "session" && s.Session == r.Session {
				parents[s.Parent]++
			}
		}
	}
	if err := lines.Err(); err != nil || n != branches-dropped {
		t.Errorf("%d trajectories, want %d: %v", n, branches-dropped, err)
	}
	if len(parents) != 8 {
		t.Errorf("the branches have %d parents, want 8: %v", len(parents), parents)
	}
	nothingLeft(t, g)
	for s, err := range c.AllSnapshots(t.Context(), client.SnapshotQuery{Auto: true}) {
		t.Errorf("the loop leaves snapshot %s %v", s.ID, err)
	}
}

// TestRolloutDocsFailures runs the loop with a policy that calls a tool which is not
// there, whose steps are scored, and with one in whose worlds every step fails, so
// that no rollout is left.
func TestRolloutDocsFailures(t *testing.T) {
	t.Parallel()
	program := need(t, python)[0]
	g := startGateway(t, rolloutPage(t, "yaml")[0]+"  gone: {url: \"http://127.0.0.1:1/mcp\", policy: {retry: {attempts: 1}}}\n")
	for tool, want := range map[string]string{
		"files__write_fil": "4 of 4 branches scored, the best -21\n",
		"gone__write_file": "0 of 4 branches scored, the best None\n",
	} {
		script := strings.Join(rolloutPage(t, "python"), "\n")
		for old, now := range map[string]string{"= 32, 6, 3, 8, 4": "= 4, 4, 2, 2, 2", `return "files__write_file"`: `return "` + tool + `"`} {
			if strings.Count(script, old) != 1 {
				t.Fatalf("the page does not have %q once", old)
			}
			script = strings.Replace(script, old, now, 1)
		}
		file := filepath.Join(t.TempDir(), "loop.py")
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(program, file)
		cmd.Dir = filepath.Dir(file)
		cmd.Env = append(toolEnv(t), "TINE_URL="+g.url)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil || string(out) != want {
			t.Errorf("with %s the loop says %q, want %q: %v\n%s", tool, out, want, err, tail(stderr.String(), 4<<10))
		}
		nothingLeft(t, g)
	}
}

// takeAway closes a branch that has not come far. The loop stands still meanwhile,
// so that it can't come further.
func takeAway(t testing.TB, c *client.Client, loop *os.Process) (string, error) {
	early := func() (string, error) {
		for s, err := range c.AllSessions(t.Context(), client.SessionQuery{}) {
			if err != nil {
				return "", final{err}
			}
			if s.Parent != "" && s.Calls <= 2 && s.InFlight == 0 {
				return s.ID, nil
			}
		}
		return "", errors.New("no branch is at its beginning")
	}
	if _, err := early(); err != nil {
		return "", err
	}
	loop.Signal(syscall.SIGSTOP)
	defer loop.Signal(syscall.SIGCONT)
	id, err := early()
	if err != nil {
		return "", err
	}
	return id, c.CloseSession(t.Context(), id)
}

// checkSteps counts the moves of a trajectory, and what they sum to.
func checkSteps(t testing.TB, session string, steps []api.Step) (moves int, sum float64) {
	t.Helper()
	for _, s := range steps {
		if s.Type != "call" || s.Name != "write_file" {
			continue
		}
		var args struct{ Path, Content string }
		if err := json.Unmarshal(s.Arguments, &args); err != nil {
			t.Fatalf("%s: %v in %s", session, err, s.Arguments)
		}
		var move float64
		if _, err := fmt.Sscan(args.Content, &move); err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(args.Path, "move-") {
			moves++
			sum += move
		}
	}
	return moves, sum
}

// TestRolloutDocsConfigs holds that the configs of docs/rollouts.md load.
func TestRolloutDocsConfigs(t *testing.T) {
	t.Parallel()
	for i, block := range rolloutPage(t, "yaml") {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "desk"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "tine.yaml"), []byte(block), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(tineBinary, "config", "check", filepath.Join(dir, "tine.yaml"))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "ORCHESTRATOR_TOKEN=a-token-of-the-orchestrator")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("block %d: %v\n%s", i+1, err, out)
		}
	}
}
