package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
	"github.com/tine-mcp/tine/internal/driver/family"
	"github.com/tine-mcp/tine/internal/driver/procid"
	"github.com/tine-mcp/tine/internal/store"
	"github.com/tine-mcp/tine/internal/testkit"
	"golang.org/x/sys/unix"
)

var rounds = flag.Int("kill-rounds", 25, "how often TestKilledAtAnyMoment kills a gateway")

// A gateway that is killed with no warning, at whatever moment, leaves children
// that its successor adopts or ends, and no other.
func TestKilledAtAnyMoment(t *testing.T) {
	// A program of its own, so that its processes are found by nothing that the
	// driver does.
	program := filepath.Join(family.RealPath(t.TempDir()), "victim")
	if err := copyFile(suite.Program(t), program); err != nil {
		t.Fatal(err)
	}
	adopted, swept, none := 0, 0, 0
	for round := range *rounds {
		state := t.TempDir()
		crash(t, state, program)

		release, err := store.Lock(state)
		if err != nil {
			t.Fatal(err)
		}
		d := New(Options{})
		known := make(map[string]bool)
		var insts []driver.Instance
		for _, h := range handles(t, state) {
			inst, err := d.Adopt(t.Context(), h, nil)
			if errors.Is(err, driver.ErrGone) {
				continue
			}
			if err != nil {
				t.Fatalf("round %d: adopt: %v", round, err)
			}
			defer inst.Stop(context.Background())
			got, err := echo(t, inst, h.Dir)
			if err != nil {
				// The dead gateway had asked it to stop: it must be ending.
				drivertest.Ended(t, inst)
				continue
			}
			if got != h.Dir {
				t.Errorf("round %d: echo said %q", round, got)
			}
			known[h.Dir] = true
			insts = append(insts, inst)
			adopted++
		}
		gone, err := d.Sweep(t.Context(), filepath.Join(state, "instances"), known)
		if err != nil {
			t.Fatalf("round %d: sweep: %v", round, err)
		}
		swept += len(gone)
		if len(gone) == 0 {
			none++
		}
		// Each process that runs now is one that was adopted, two for each that
		// did not end yet because it had been asked to before.
		testkit.Succeeds(t, "only what was adopted runs", func() error {
			n, want := len(processesOf(program)), 0
			for _, inst := range insts {
				select {
				case <-inst.Done():
				default:
					want += 2
				}
			}
			if n != want {
				return fmt.Errorf("round %d: %d processes, want %d, swept %v", round, n, want, gone)
			}
			return nil
		})
		again, err := d.Sweep(t.Context(), filepath.Join(state, "instances"), nil) // now those too
		if err != nil || len(again) != len(known) {
			t.Errorf("round %d: swept %v, %v, want %d", round, again, err, len(known))
		}
		if left := processesOf(program); len(left) != 0 {
			t.Fatalf("round %d: processes %v are left", round, left)
		}
		if left, err := os.ReadDir(filepath.Join(state, "instances")); err == nil && len(left) != 0 {
			t.Fatalf("round %d: folders %v are left", round, left)
		}
		release()
	}
	t.Logf("%d adopted, %d swept, %d rounds with nothing to sweep", adopted, swept, none)
}

func echo(t *testing.T, inst driver.Instance, text string) (string, error) {
	link, err := inst.Dial(t.Context())
	if err != nil {
		return "", err
	}
	return drivertest.NewPeer(inst, link).TryCall(t.Context(), "echo", map[string]any{"text": text})
}

// crash runs a busy gateway and kills it.
func crash(t *testing.T, state, program string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), gatewayVar+"="+state, programVar+"="+program)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && line == "ready\n" {
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond) // killed at any moment
	}
	cmd.Process.Kill()
	cmd.Wait()
	if line != "ready\n" {
		t.Fatalf("the gateway printed %q, %v", line, err)
	}
}

func handles(t *testing.T, state string) []driver.Handle {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(state, "handles", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out []driver.Handle
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var h driver.Handle
		if err := json.Unmarshal(b, &h); err != nil {
			t.Fatal(err)
		}
		out = append(out, h)
	}
	return out
}

func processesOf(program string) []int {
	var out []int
	for _, pid := range procid.All() {
		exe, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe")
		if err == nil && strings.TrimSuffix(exe, " (deleted)") == program {
			out = append(out, pid)
		}
	}
	return out
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o700)
}

// A gateway that is the init of a container becomes the parent of orphans. They
// must be waited for, or they stay in the process table.
func TestOrphansOfInit(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	defer unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	for range 5 {
		inst := suite.Start(t, New(Options{}))
		kin := spawned(t, drivertest.Dial(t, inst))
		suite.Stop(t, inst)
		for how, pid := range kin {
			if s, err := procid.Look(pid); err == nil {
				t.Errorf("%s: process %d is left: %+v", how, pid, s)
			}
		}
	}
}

const (
	gatewayVar = "TINE_TEST_GATEWAY"
	programVar = "TINE_TEST_PROGRAM"
)

// beGateway starts instances, each with a child that has left its group, uses
// and stops some, and does not return.
func beGateway(state string) {
	fail := func(err error) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	time.AfterFunc(time.Minute, func() { os.Exit(1) }) // should the test die before us
	if _, err := store.Lock(state); err != nil {
		fail(err)
	}
	for _, dir := range []string{"instances", "handles"} {
		if err := os.MkdirAll(filepath.Join(state, dir), 0o700); err != nil {
			fail(err)
		}
	}
	d := New(Options{})
	var wg sync.WaitGroup
	fmt.Println("ready")
	for range 4 {
		wg.Go(func() {
			for alive := 0; alive < 3; {
				stopped, err := oneInstance(d, state)
				if err != nil {
					fail(err)
				}
				if !stopped {
					alive++
				}
			}
		})
	}
	wg.Wait()
	select {}
}

func oneInstance(d *Driver, state string) (stopped bool, err error) {
	ctx := context.Background()
	id := fmt.Sprintf("%016x", rand.Uint64())
	inst, err := d.Start(ctx, driver.Spec{Server: "fs", Dir: filepath.Join(state, "instances", id), Command: os.Getenv(programVar)})
	if err != nil {
		return false, err
	}
	b, err := json.Marshal(inst.Handle())
	if err != nil {
		return false, err
	}
	file := filepath.Join(state, "handles", id)
	if err := os.WriteFile(file+".part", b, 0o600); err != nil {
		return false, err
	}
	link, err := inst.Dial(ctx)
	if err != nil {
		return false, err
	}
	// Before the handle is there, so that each instance that is adopted has two
	// processes.
	if err := link.Stream.WriteFrame(ctx, []byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"spawn","arguments":{"how":"detached"}}}`)); err != nil {
		return false, err
	}
	if _, err := link.Stream.ReadFrame(); err != nil {
		return false, err
	}
	if err := os.Rename(file+".part", file+".json"); err != nil {
		return false, err
	}
	if rand.IntN(2) == 0 {
		return false, nil
	}
	if err := inst.Stop(ctx); err != nil {
		return false, err
	}
	return true, os.Remove(file + ".json")
}
