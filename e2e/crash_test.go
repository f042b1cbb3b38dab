//go:build linux

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKill kills the gateway in the middle of calls, again and again, and holds
// that the next one goes on where it was: the same session ids, the same
// children with what they remember, and no answer at the wrong call.
func TestKill(t *testing.T) {
	t.Parallel()
	const rounds, sessions, callers = 4, 3, 4
	upstream := serve(t, badServer, func(addr string) []string { return []string{"-http", addr} })
	g := startGateway(t, "servers:\n"+
		yamlServer("mine", badServer, nil)+
		yamlServer("ours", badServer, nil, "scope: shared")+
		"  far:\n    url: http://"+upstream+"/mcp\n")

	open := make([]*session, sessions)
	pids := make([]string, sessions)
	for i := range open {
		open[i] = mustOpen(t, g.url+"/mcp")
		pids[i] = open[i].mustCall(t, "mine__remember", map[string]any{"key": "who", "value": open[i].id})
	}
	shared := open[0].mustCall(t, "ours__remember", map[string]any{"key": "who", "value": "everyone"})

	for round := range rounds {
		var answered, lost, wrong atomic.Int64
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for i, s := range open {
			for c := range callers {
				all.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						server := []string{"mine", "ours", "far"}[n%3]
						word := fmt.Sprintf("round %d session %d caller %d call %d", round, i, c, n)
						r, err := s.call(ctx, server+"__sleep", map[string]any{"ms": n % 5, "text": word})
						switch {
						case err != nil || r.IsError:
							lost.Add(1)
							return // the gateway was killed under this call
						case r.text() != word:
							wrong.Add(1)
							t.Errorf("call %q was answered %q", word, r.text())
						default:
							answered.Add(1)
						}
					}
				})
			}
		}
		// Killed once enough calls were answered that others are running.
		if err := eventually(func() error {
			if n := answered.Load(); n < 100 {
				return fmt.Errorf("%d calls answered", n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		g.kill()
		cancel()
		all.Wait()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		t.Logf("round %d: %d answered, %d lost, %d wrong", round, answered.Load(), lost.Load(), wrong.Load())

		for i, s := range open {
			if got := s.mustCall(t, "mine__recall", map[string]any{"key": "who"}); got != s.id {
				t.Errorf("round %d: the server of session %d remembers %q, want %q", round, i, got, s.id)
			}
			if got := s.mustCall(t, "mine__remember", map[string]any{"key": "again", "value": "x"}); got != pids[i] {
				t.Errorf("round %d: session %d has process %s, had %s", round, i, got, pids[i])
			}
			if got := s.mustCall(t, "ours__recall", map[string]any{"key": "who"}); got != "everyone" {
				t.Errorf("round %d: the shared server remembers %q", round, got)
			}
			if got := s.mustCall(t, "far__echo", map[string]any{"text": s.id}); got != s.id {
				t.Errorf("round %d: the far server answers %q", round, got)
			}
		}
		if got := open[0].mustCall(t, "ours__remember", map[string]any{"key": "x"}); got != shared {
			t.Errorf("round %d: the shared server is process %s, was %s", round, got, shared)
		}
		if n := len(children(g)); n != sessions+1 {
			t.Errorf("round %d: %d children, want one a session and the shared one", round, n)
		}
	}

	// A client that leaves takes its server along.
	for _, s := range open {
		if err := s.close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := eventually(func() error {
		if n := len(children(g)); n > 1 {
			return fmt.Errorf("%d children after the sessions were closed, want the shared one alone", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// children are the processes that hold files of the gateway's state folder
// open, apart from the gateway itself.
func children(g *gateway) []int {
	var pids []int
	for _, pid := range holders(g.state()) {
		if pid != g.cmd.Process.Pid {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestKillLeavesNoChild kills the gateway for good while children run, lets
// a gateway follow whose config has no use for them, and holds that none is left.
func TestKillLeavesNoChild(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlServer("mine", badServer, nil)+yamlServer("ours", badServer, nil, "scope: shared"))
	s := mustOpen(t, g.url+"/mcp")
	s.mustCall(t, "mine__echo", map[string]any{"text": "x"})
	s.mustCall(t, "ours__echo", map[string]any{"text": "x"})
	if err := eventually(func() error { // those that were asked for their lists end
		if n := len(children(g)); n != 2 {
			return fmt.Errorf("%d children, want 2", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	g.kill()
	if n := len(holders(g.state())); n != 2 {
		t.Fatalf("%d children outlive the gateway, want 2", n)
	}
	// One of them dies while no gateway runs.
	syscall.Kill(holders(g.state())[0], syscall.SIGKILL)
	g.writeConfig(t, "servers: {}\n")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	if err := eventually(func() error {
		if left := children(g); len(left) != 0 {
			return fmt.Errorf("children %v are left", left)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestKillDuringStart kills the gateway at many moments of a child's start, of
// which no record may be complete yet, and holds that the next one leaves
// nothing behind without an owner.
func TestKillDuringStart(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "servers:\n"+yamlServer("mine", badServer, nil)+yamlServer("ours", badServer, nil, "scope: shared", "eager: true"))
	for round := range 8 {
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(round)*4*time.Millisecond)
		if s, err := open(ctx, g.url+"/mcp", nil); err == nil {
			s.call(ctx, "mine__echo", map[string]any{"text": "x"})
		}
		cancel()
		g.kill()
	}
	g.writeConfig(t, "servers: {}\n")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	if err := eventually(func() error {
		if left := children(g); len(left) != 0 {
			return fmt.Errorf("children %v are left", left)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	instances, err := filepath.Glob(filepath.Join(g.state(), "instances", "*"))
	if err != nil || len(instances) != 0 {
		t.Errorf("folders of instances are left: %v %v", instances, err)
	}
}

// TestTornWrite kills the gateway while it writes a message that is larger than
// a pipe holds, so that the child has half a line, and holds that the child goes
// on with the next gateway.
func TestTornWrite(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlServer("ours", badServer, nil, "scope: shared"))
	s := mustOpen(t, g.url+"/mcp")
	pid := s.mustCall(t, "ours__remember", map[string]any{"key": "k", "value": "v"})
	var child int
	fmt.Sscan(pid, &child)
	// Stopped, the child reads nothing, so the write can't end.
	standStill(t, child)
	ctx, cancel := context.WithCancel(t.Context())
	stuck := make(chan error, 1)
	go func() {
		_, err := s.call(ctx, "ours__echo", map[string]any{"text": strings.Repeat("x", 4<<20)})
		stuck <- err
	}()
	fifo, err := os.Open(fmt.Sprintf("/proc/%d/fd/0", child))
	if err != nil {
		t.Fatal(err)
	}
	defer fifo.Close()
	if err := eventually(func() error {
		waiting, err := unix.IoctlGetInt(int(fifo.Fd()), unix.TIOCINQ)
		if err != nil {
			return final{fmt.Errorf("look into the pipe: %w", err)}
		}
		if waiting < 32<<10 {
			return fmt.Errorf("%d bytes wait in the pipe", waiting)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	g.kill()
	cancel()
	<-stuck
	if err := syscall.Kill(child, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	if got := s.mustCall(t, "ours__recall", map[string]any{"key": "k"}); got != "v" {
		t.Errorf("the server remembers %q, want %q", got, "v")
	}
}

// standStill stops a process from outside, and returns when none of its threads
// runs: they do for some time after the signal.
func standStill(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := eventually(func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return final{err}
		}
		for _, stat := range threads {
			if stands, err := standsStill(stat); err == nil && !stands {
				return fmt.Errorf("%s: a thread runs", stat)
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// standsStill reports whether a process, or a thread, is stopped.
func standsStill(stat string) (bool, error) {
	data, err := os.ReadFile(stat)
	_, after, _ := strings.Cut(string(data), ") ")
	return strings.HasPrefix(after, "T"), err
}
