//go:build linux && (amd64 || arm64)

package e2e

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/torture"
)

// TestRLMKillAtRandom kills the kernel, its sandbox, the helper of sandboxes, tine rlm, its
// helper, and several of them at once, at any moment of a series of calls. No answer is wrong:
// what a kernel knows is what was acknowledged last, and only after an error that says
// so something that it knew earlier. Nothing is left in the end.
func TestRLMKillAtRandom(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, w *rlmWorld) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		s := &killing{w: w, rng: rand.New(rand.NewPCG(seed, 0)), project: w.project(t, nil), told: map[string]int{}}
		s.c = w.open(t, s.project)
		for n := range torture.Or(20, 200) {
			s.step(t, n)
			if t.Failed() {
				t.Fatalf("at call %d, after %v", n, s.trace)
			}
		}
		if _, err := s.c.request("ping", object{}); err != nil { // it was killed after the last answer
			s.c.drain()
			s.c = w.open(t, s.project)
		}
		s.c.leave(t)
		w.nothing(t)
		t.Log(s.told)
	}
	t.Run("sandbox", func(t *testing.T) {
		t.Parallel()
		run(t, rlmSandbox(t))
	})
	if torture.Or(false, true) {
		t.Run("docker", func(t *testing.T) {
			t.Parallel()
			run(t, rlmDocker(t, needEngine(t, "docker")))
		})
	}
}

// killing is a series of calls, each of which appends its number to a list.
type killing struct {
	w       *rlmWorld
	rng     *rand.Rand
	project string
	c       *rlmClient

	known   [][]int    // what the list was, each time that it was told
	pending []int      // calls of which nothing was told, since the last of these
	lost    bool       // a loss was told since
	killed  []string   // since the call before that one
	orphan  *rlmClient // whose helper was killed, which ends tine rlm soon
	bomb    bool       // something in the kernel kills it when its time has come
	told    map[string]int
	trace   []string
}

const killingCode = `
import time
steps = globals().get("steps", [])
steps.append(%d)
time.sleep(%f)
last = steps[-1]
print(steps)
`

// step makes one call while something may be killed, and holds that it is right.
func (s *killing) step(t *testing.T, n int) {
	var killer sync.WaitGroup
	before := len(s.killed)
	switch s.rng.IntN(4) {
	case 0:
	case 1:
		s.leave(t)
	default:
		s.kill(t, &killer)
	}
	got, err := s.c.exec(fmt.Sprintf(killingCode, n, s.rng.Float64()/20))
	killer.Wait()
	if slices.Contains(s.killed[before:], roleHelper) {
		s.orphan = s.c
	}
	s.trace = append(s.trace, fmt.Sprintf("%d: %s %v", n, got, err))
	if err != nil {
		s.pending = append(s.pending, n)
		s.failed(t, err)
		return
	}
	s.told["answered"]++
	var list []int
	if json.Unmarshal([]byte(got), &list) != nil || len(list) == 0 || list[len(list)-1] != n {
		t.Errorf("call %d is answered with %s", n, got)
		return
	}
	if held := list[:len(list)-1]; !s.lost {
		// All that was acknowledged is there, and of the rest what it may be.
		if last := s.last(); len(held) < len(last) || !slices.Equal(held[:len(last)], last) || !s.all(held[len(last):]) {
			t.Errorf("the list was %v, or has some of %v more, and is %v; no loss was told", last, s.pending, held)
		}
	} else if !s.earlier(held) {
		t.Errorf("the list is %v after a loss, which it never was", held)
	}
	// What is killed now may have been so after the answer.
	s.known, s.pending, s.lost, s.killed = append(s.known, list), nil, false, s.killed[before:]
}

func (s *killing) last() []int {
	if len(s.known) == 0 {
		return nil
	}
	return s.known[len(s.known)-1]
}

// all reports whether these are calls that were not answered, in their order.
func (s *killing) all(steps []int) bool {
	return slices.IsSorted(steps) && !slices.ContainsFunc(steps, func(n int) bool {
		return !slices.Contains(s.pending, n) && slices.ContainsFunc(s.known, func(k []int) bool { return k[len(k)-1] == n })
	})
}

// earlier reports whether the list was like this, as far as was told.
func (s *killing) earlier(list []int) bool {
	for _, was := range append(s.known, nil) {
		if len(list) >= len(was) && slices.Equal(list[:len(was)], was) && s.all(list[len(was):]) {
			return true
		}
	}
	return false
}

// failed holds that an error is one that a kill explains, and connects anew where tine
// rlm is gone.
func (s *killing) failed(t *testing.T, err error) {
	e := kindOf(err)
	switch {
	case e == nil && strings.Contains(err.Error(), "ended before it answered"), e == nil && strings.Contains(err.Error(), "broken pipe"),
		e != nil && e.Kind == api.KindRefused && strings.Contains(err.Error(), "the gateway is stopping"):
		if !slices.Contains(s.killed, roleRLM) && s.orphan != s.c {
			t.Errorf("tine rlm ended, and nobody killed it: %v", err)
		}
		s.told["tine rlm is gone"]++
		s.c.drain()
		s.c = s.w.open(t, s.project)
	case e == nil:
		t.Errorf("an error that is none of ours: %v", err)
	case e.Kind == api.KindLost:
		if !s.bomb && !slices.ContainsFunc(s.killed, func(role string) bool { return role != roleRLM && role != roleHelper }) {
			t.Errorf("after a kill of %v alone something is lost: %v", s.killed, err)
		}
		s.lost, s.bomb = true, false
		s.told["lost"]++
	case e.Kind == api.KindInfrastructure && e.Retryable:
		s.told["another try"]++
		time.Sleep(time.Duration(e.RetryAfter) * time.Second) // as it says
	default:
		t.Errorf("an error of the kind %s: %v", e.Kind, err)
	}
}

// leave ends tine rlm as its client does, or in the midst of that, as Claude Code does: it
// gives tine rlm half a second. The next one goes on.
func (s *killing) leave(t *testing.T) {
	if s.c.in.Close(); s.rng.IntN(3) > 0 {
		time.Sleep(time.Duration(s.rng.IntN(400)) * time.Millisecond) // killed at any moment
		s.c.cmd.Process.Kill()
	}
	s.trace, s.told["left"] = append(s.trace, "left"), s.told["left"]+1
	s.c.drain()
	s.c = s.w.open(t, s.project)
}

// kill has something killed in a moment, whatever is done then.
func (s *killing) kill(t *testing.T, killer *sync.WaitGroup) {
	roles := [][]string{{"kernel"}, {roleBox}, {roleMaker}, {roleRLM}, {roleHelper}, {roleRLM, roleHelper}, {roleRLM, roleHelper, roleMaker}}
	if s.w.engine != nil {
		roles = [][]string{{"kernel"}, {roleBox}, {roleRLM}, {roleHelper}, {roleRLM, roleHelper}}
	}
	role := roles[s.rng.IntN(len(roles))]
	delay := time.Duration(s.rng.IntN(60)) * time.Millisecond
	s.trace = append(s.trace, fmt.Sprintf("kill of %v in %s", role, delay))
	s.told["kill of "+strings.Join(role, " with ")]++
	s.killed = append(s.killed, role...)
	if role[0] == "kernel" { // which only it can do
		_, err := s.c.exec(fmt.Sprintf("import os, threading\nthreading.Timer(%f, os.kill, (os.getpid(), 9)).start()", delay.Seconds()))
		s.trace = append(s.trace, fmt.Sprint(err))
		if err != nil {
			s.failed(t, err)
		}
		s.bomb = true
		return
	}
	killer.Go(func() {
		time.Sleep(delay) // killed at any moment
		var pids []int
		if role[0] == roleBox {
			pids = s.w.kernels(t)
		} else {
			for _, p := range s.w.processes() {
				if slices.Contains(role, p.role) {
					pids = append(pids, p.pid)
				}
			}
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
}
