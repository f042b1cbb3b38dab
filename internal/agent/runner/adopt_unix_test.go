//go:build linux || darwin

package runner

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/agent/executor"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"github.com/tine-mcp/tine/internal/testkit"
	"github.com/tine-mcp/tine/internal/torture"
)

// slow writes six lines to each stream when a file is there, and waits for the next.
const slow = `n=0; while [ $n -lt 6 ]; do n=$((n+1)); until [ -e go$n ]; do sleep 0.01; done; echo out $n; echo err $n >&2; done; printf 'no newline'; exit 9`

func letGo(t *testing.T, dir string, n int) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("go%d", n)), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// The gateway is killed with -9 while a program runs, and the next one has all of its
// output and its exit status, whether it ended before or after.
func TestKilledGateway(t *testing.T) {
	for name, before := range map[string]bool{"it ends before the next": true, "it ends later": false} {
		t.Run(name, func(t *testing.T) {
			plan := script(t, `echo $$ >self; `+slow)
			root, kill := gateway(t, t.TempDir(), plan, "starting", "started")
			kill()
			pid := pidIn(t, filepath.Join(plan.Dir, "self"))
			for n := range 3 {
				letGo(t, plan.Dir, n+1)
			}
			if before {
				for n := range 6 {
					letGo(t, plan.Dir, n+1)
				}
				testkit.Eventually(t, "it has ended", func() bool { _, err := procid.Look(pid); return errors.Is(err, os.ErrProcessDone) })
			}
			p := adopted(t, newHost(t, root), "run_1")
			for n := range 6 {
				letGo(t, plan.Dir, n+1)
			}
			got := hear(t, p, 0, all)
			slices.Sort(got.lines)
			if want := "! err 1;! err 2;! err 3;! err 4;! err 5;! err 6;no newline;out 1;out 2;out 3;out 4;out 5;out 6"; strings.Join(got.lines, ";") != want || got.exit.Status != 9 {
				t.Errorf("it told %q and ended with %+v", got.lines, got.exit)
			}
			if err := p.remove(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A gateway that is killed at any moment of a start leaves a program that can be adopted,
// or none at all: the program never runs twice.
func TestKilledWhileStarting(t *testing.T) {
	adopted, never := 0, 0
	for n := range torture.Or(24, 400) {
		plan := script(t, `echo ran >>count; sleep 0.02`)
		root, kill := gateway(t, t.TempDir(), plan, "starting")
		time.Sleep(time.Duration(n%24) * 80 * time.Microsecond) // the moment of the kill
		kill()
		h := newHost(t, root)
		p, err := h.adopt("run_1")
		switch {
		case errors.Is(err, errNever):
			never++
			p = begin(t, h, "run_1", plan)
		case err != nil:
			t.Fatal(err)
		default:
			adopted++
			finally(t, p)
		}
		got := hear(t, p, 0, all)
		text, err := os.ReadFile(filepath.Join(plan.Dir, "count"))
		if err != nil || string(text) != "ran\n" || got.exit.Status != 0 {
			t.Errorf("killed at moment %d: it ran %q, %v, and ended with %+v", n%24, text, err, got.exit)
		}
		if err := p.remove(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d were adopted, %d had not begun", adopted, never)
}

// However often a program is adopted, each event is told once and the order of the two
// streams stays.
func TestFollowedAgain(t *testing.T) {
	h := newHost(t, t.TempDir())
	plan := script(t, slow)
	p := begin(t, h, "run_1", plan)
	var lines []string
	for n := range 12 {
		if n%2 == 0 {
			letGo(t, plan.Dir, n/2+1)
		}
		lines = append(lines, hear(t, p, n, 1).lines...)
		p.leave()
		p = adopted(t, newHost(t, h.root), "run_1")
	}
	rest := hear(t, p, 12, all)
	lines = append(lines, rest.lines...)
	if rest.exit.Status != 9 || len(lines) != 13 || lines[12] != "no newline" {
		t.Errorf("it told %q and ended with %+v", lines, rest.exit)
	}
	for told := range 13 { // also when it has ended
		again := hear(t, adopted(t, newHost(t, h.root), "run_1"), told, all)
		if !slices.Equal(again.lines, lines[told:]) || again.exit.Status != 9 {
			t.Errorf("after %d events it told %q, want %q", told, again.lines, lines[told:])
		}
	}
}

func TestAdopt(t *testing.T) {
	h := newHost(t, t.TempDir())
	// run starts a program of which this gateway knows nothing more.
	run := func(t *testing.T, run, text string) (dir string, rec record) {
		t.Helper()
		p := begin(t, h, run, script(t, "echo begun; "+text))
		hear(t, p, 0, 1)
		p.leave()
		rec, err := records.Read(p.dir)
		if err != nil {
			t.Fatal(err)
		}
		return p.dir, rec
	}
	write := func(t *testing.T, dir string, rec record) {
		t.Helper()
		if err := records.Write(dir, rec); err != nil {
			t.Fatal(err)
		}
	}
	killAll := func(t *testing.T, rec record) {
		t.Helper()
		syscall.Kill(-rec.PID, syscall.SIGKILL)
		testkit.Eventually(t, "it is dead", func() bool { return !procid.GroupLives(rec.PID) })
		reap(rec.PID)
	}
	forget := record{}
	t.Run("killed with its shell", func(t *testing.T) {
		_, rec := run(t, "run_1", "sleep 1000")
		killAll(t, rec)
		if got := hear(t, adopted(t, h, "run_1"), 1, all); got.exit.Status != -1 || len(got.lines) != 0 {
			t.Errorf("it told %q and ended with %+v", got.lines, got.exit)
		}
	})
	t.Run("the number is another's", func(t *testing.T) {
		dir, rec := run(t, "run_2", "sleep 1000")
		killAll(t, rec)
		other := exec.Command("sleep", "1000")
		other.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := other.Start(); err != nil {
			t.Fatal(err)
		}
		defer other.Wait()
		defer other.Process.Kill()
		rec.PID = other.Process.Pid
		rec.Start-- // as if it had started before
		write(t, dir, rec)
		p := adopted(t, h, "run_2")
		if err := p.stop(t.Context(), nil); err != nil || hear(t, p, 0, all).exit.Status != -1 || !procid.GroupLives(other.Process.Pid) {
			t.Errorf("stopped with %v, and the other process may be dead", err)
		}
	})
	t.Run("only the shell was killed", func(t *testing.T) {
		dir, rec := run(t, "run_3", "exec sleep 1000")
		syscall.Kill(rec.PID, syscall.SIGKILL)
		reap(rec.PID)
		if got := hear(t, adopted(t, h, "run_3"), 0, all); got.exit.Status != -1 {
			t.Errorf("it ended with %+v", got.exit)
		}
		if left := h.census.Members(h.family(dir, rec)); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
	})
	t.Run("runs, and was not noted", func(t *testing.T) {
		dir, rec := run(t, "run_4", "sleep 1000")
		id := rec.ID
		rec.ID = forget.ID
		write(t, dir, rec)
		p := adopted(t, h, "run_4")
		if p.id != id {
			t.Errorf("it is %+v, want %+v", p.id, id)
		}
		p.kill()
		testkit.Within(t, "its end", p.ended)
	})
	t.Run("has ended, and was not noted", func(t *testing.T) {
		dir, rec := run(t, "run_5", "exit 5")
		testkit.Eventually(t, "it has ended", func() bool { return !rec.Lives() })
		rec.ID = forget.ID
		write(t, dir, rec)
		if got := hear(t, adopted(t, h, "run_5"), 0, all); got.exit.Status != 5 {
			t.Errorf("it ended with %+v", got.exit)
		}
	})
	t.Run("the status is cut off", func(t *testing.T) {
		dir, _ := run(t, "run_5b", "exit 5")
		testkit.Eventually(t, "it has ended", func() bool { return exitOf(dir).Status == 5 })
		if err := os.WriteFile(filepath.Join(dir, statusName), []byte("5"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := exitOf(dir); got.Status != -1 {
			t.Errorf("it ended with %+v", got)
		}
	})
	t.Run("never began", func(t *testing.T) {
		for n, make := range []func(dir string) error{
			func(string) error { return nil },
			func(dir string) error { return os.Mkdir(dir, 0o700) },
			func(dir string) error {
				return errors.Join(os.Mkdir(dir, 0o700), records.Write(dir, record{Token: "tok", Turn: turn{Run: filepath.Base(dir)}}))
			},
		} {
			name := fmt.Sprintf("run_6%d", n)
			if err := make(filepath.Join(h.root, name)); err != nil {
				t.Fatal(err)
			}
			if _, err := h.adopt(name); !errors.Is(err, errNever) {
				t.Errorf("%d: %v", n, err)
			}
			if got := hear(t, begin(t, h, name, script(t, "exit 1")), 0, all); got.exit.Status != 1 {
				t.Errorf("%d: it ended with %+v", n, got.exit)
			}
		}
	})
	t.Run("was not given its turn", func(t *testing.T) {
		dir, rec := run(t, "run_7", "sleep 1000")
		rec.Turn = turn{Run: "run_8"}
		write(t, dir, rec)
		if err := os.WriteFile(filepath.Join(dir, turnName), []byte("x\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		var swept []pass
		h.swept = func(p pass) { swept = append(swept, p) }
		defer func() { h.swept = nil }()
		if _, err := h.adopt("run_8"); !errors.Is(err, errNever) {
			t.Errorf("got %v", err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || procid.GroupLives(rec.PID) || !slices.Equal(swept, []pass{rec.Pass}) {
			t.Errorf("something is left: %v, and swept is %v", err, swept)
		}
	})
	t.Run("is given its turn", func(t *testing.T) {
		plan := script(t, "read a; read b; read c; echo $a $b; sleep 1000")
		plan.Stdin, plan.Persistent = []byte("one\n"), true
		p := begin(t, h, "run_8a", plan)
		testkit.Eventually(t, "its first input is fed", p.fed)
		if err := p.note(turn{Run: "run_8b"}); err != nil {
			t.Fatal(err)
		}
		// The gateway is killed while the input is fed, which goes on.
		if err := os.WriteFile(filepath.Join(p.dir, inputName), []byte("two\nthree\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		p.leave()
		p = adopted(t, h, "run_8b")
		if out, err := exec.Command("/bin/sh", "-c", strings.TrimPrefix(feeder, `command -p mv "$1/turn" "$1/stdin" && `), "sh", p.dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if got := hear(t, p, 0, 1); !slices.Equal(got.lines, []string{"one two"}) {
			t.Errorf("it says %q", got.lines)
		}
	})
	t.Run("a torn record", func(t *testing.T) {
		dir := filepath.Join(h.root, "run_9")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, recordName), []byte(`{"tok`), 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := h.adopt("run_9"); err == nil || errors.Is(err, errNever) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a folder without a record", func(t *testing.T) {
		dir := filepath.Join(h.root, "run_10")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "data"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if _, err := h.adopt("run_10"); err == nil || !strings.Contains(err.Error(), "has no record") {
			t.Errorf("got %v", err)
		}
	})
}

func TestSweep(t *testing.T) {
	h := newHost(t, t.TempDir())
	kept := begin(t, h, "run_kept", script(t, "echo $$; sleep 1000"))
	lost := begin(t, h, "run_lost", script(t, detached+"; echo $$; sleep 1000"))
	for _, p := range []*program{kept, lost} {
		hear(t, p, 0, 1)
		p.leave()
	}
	for name, text := range map[string]string{"run_torn": "{", "run_theirs": ""} {
		dir := filepath.Join(h.root, name)
		file := map[bool]string{true: recordName, false: "data"}[text != ""]
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(h.root, "run_empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	gone, err := h.sweep(func(run string) bool { return run == "run_kept" })
	for n := range gone {
		gone[n] = filepath.Base(gone[n])
	}
	if want := []string{"run_empty", "run_lost", "run_torn"}; err != nil || !slices.Equal(gone, want) {
		t.Errorf("gone are %v, %v, want %v", gone, err, want)
	}
	if !procid.GroupLives(kept.id.PID) || procid.GroupLives(lost.id.PID) || len(h.census.Members(lost.kin)) > 0 {
		t.Error("the wrong one lives")
	}
	if left, _ := os.ReadDir(h.root); len(left) != 2 {
		t.Errorf("left are %v", left)
	}
	reap(lost.id.PID)
}

// A program that ends in the middle of a line of input does not end the gateway.
func TestBrokenPipe(t *testing.T) {
	h := newHost(t, t.TempDir())
	plan := executor.Plan{Command: "true", Dir: t.TempDir(), Persistent: true}
	p := begin(t, h, "run_1", plan)
	testkit.Within(t, "its end", p.ended)
	if err := p.write([]byte("x\n"), testkit.Patience); err == nil {
		t.Error("a program that has ended took input")
	}
	if got := hear(t, p, 0, all); got.exit.Status != 0 {
		t.Errorf("it ended with %+v", got.exit)
	}
}
