package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/testkit"
)

// gatewayVar makes the test binary the gateway that dies: it holds its home and
// the orchestrator's URL.
const gatewayVar = "TINE_REMOTE_GATEWAY"

// busySpec is that of an instance of the gateway that dies.
func busySpec(home, url, name string) driver.Spec {
	return driver.Spec{
		Server: "box", Dir: filepath.Join(home, "instances", name),
		Header:  http.Header{"Authorization": {"Bearer " + ours}},
		Options: &Config{URL: url, Resource: "box", Attempts: 1, Snapshot: "/instances/{remote_instance_id}/snapshot"},
	}
}

// gateway starts, forks and ends without rest, and waits to be killed.
func gateway(order string) {
	home, url, _ := strings.Cut(order, " ")
	time.AfterFunc(time.Minute, func() { os.Exit(1) }) // should the test die before us
	d := New(Options{Dir: filepath.Join(home, "ledger")})
	ctx := context.Background()
	kept, err := d.Start(ctx, busySpec(home, url, "kept"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	b, err := json.Marshal(kept.Handle())
	if err != nil {
		panic(err)
	}
	for worker := range 4 {
		go func() {
			for n := 0; ; n++ {
				name := fmt.Sprintf("%d-%d", worker, n)
				if worker%2 == 0 {
					if inst, err := d.Start(ctx, busySpec(home, url, name)); err == nil {
						_ = inst.Stop(ctx)
					}
					continue
				}
				spec, child := busySpec(home, url, name), busySpec(home, url, name+"c")
				spec.State, child.State = filepath.Join(home, "states", name), filepath.Join(home, "states", name+"c")
				_ = d.Seed(ctx, spec, driver.Source{})
				inst, err := d.Start(ctx, spec)
				if err != nil {
					continue
				}
				if snap, err := d.Freeze(ctx, spec, inst, ""); err == nil {
					_ = d.Seed(ctx, child, driver.Source{From: &snap})
					_ = d.Discard(ctx, snap)
				}
				_ = inst.Stop(ctx)
				_ = d.Erase(ctx, spec)
				_ = d.Erase(ctx, child)
			}
		}()
	}
	fmt.Println(string(b))
	select {}
}

// A gateway that is killed with no warning, at whatever moment, leaves nothing that its
// successor does not remove, and keeps what it had answered.
func TestKilledAtAnyMoment(t *testing.T) {
	t.Parallel()
	for round := range 8 {
		r := newRig(t)
		h := crash(t, r.home, r.URL)
		next := r.driver(t)
		r.sweep(t, next, h.Dir)
		if err := next.Recover(t.Context(), nil, nil, true); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the removal of what is left", func() bool {
			files, err := os.ReadDir(r.ledger())
			return err == nil && len(files) == 1
		})
		if n := r.left(); n != 1 {
			t.Errorf("round %d: %d are left at the orchestrator", round, n)
		}
		inst, err := next.Adopt(t.Context(), h, nil)
		if err != nil {
			t.Fatalf("round %d: adopt: %v", round, err)
		}
		echo(t, inst, "still here")
		stop(t, inst)
		r.clears(t)
	}
}

// crash runs a busy gateway and kills it.
func crash(t *testing.T, home, url string) driver.Handle {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), gatewayVar+"="+home+" "+url)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	time.Sleep(time.Duration(rand.IntN(200)) * time.Millisecond) // killed at any moment
	cmd.Process.Kill()
	cmd.Wait()
	var h driver.Handle
	if err != nil || json.Unmarshal(line, &h) != nil {
		t.Fatalf("the gateway printed %q, %v", line, err)
	}
	return h
}
