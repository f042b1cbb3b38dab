//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/torture"
)

// TestSessionServersDie kills the programs of sessions at random under load:
// each comes back on its state with all that was answered, and what fails says
// that it is lost and whose server died.
func TestSessionServersDie(t *testing.T) {
	t.Parallel()
	sessions, deaths := 8, torture.Or(12, 40)
	g := startGateway(t, "servers:\n"+yamlBuiltins+yamlState(t, "prog", "policy: {breaker: off, retry: off}"))
	w := &crowd{c: g.client(t), frozen: map[string]bool{}, counts: map[string]int{}}
	shelves := []*shelf{memoryShelf("mem"), programShelf("prog")}
	for range sessions {
		s := openSession(t, w.c, api.NewSession{})
		w.add(newCrowdMember(s.ID, shelves))
	}
	// Calls end with their answers: one that is cut off may be carried out later.
	ctx := t.Context()
	var enough atomic.Bool
	defer enough.Store(true)
	var answered, died atomic.Int64
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(rand.Uint64(), uint64(i)))
			for !enough.Load() && ctx.Err() == nil {
				m := w.pick(rng)
				s := pick(rng, shelves)
				err := m.put(ctx, w.c, s, w.word())
				if err == nil {
					answered.Add(1)
					continue
				}
				died.Add(1)
				if e := kindOf(err); e == nil || e.Server != "prog" || e.Kind != api.KindLost && e.Kind != api.KindInfrastructure {
					t.Errorf("%v (%+v), want kind lost or infrastructure of server prog", err, e)
					return
				}
			}
		})
	}
	// Until a call was running at one of them.
	for n := 0; n < deaths || died.Load() == 0 && n < 50*deaths; {
		// After some calls, so that each of them runs again.
		before := answered.Load()
		if err := eventually(func() error {
			if n := answered.Load(); n < before+20 {
				return fmt.Errorf("%d calls answered", n)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, pid := range children(g) {
			if rand.IntN(3) == 0 {
				syscall.Kill(pid, syscall.SIGKILL)
				n++
			}
		}
	}
	enough.Store(true)
	all.Wait()
	t.Logf("%d calls answered, %d failed", answered.Load(), died.Load())
	if died.Load() == 0 {
		t.Error("no call met a server that died")
	}
	// One that died often is left alone for a while before it is started again.
	if err := eventually(func() error { return w.check(t.Context()) }); err != nil {
		t.Error(err)
	}
	// They fork as before, too.
	for _, m := range w.members {
		sure, _ := m.known()
		for _, child := range fork(t, w.c, m.id, 1) {
			for _, s := range shelves {
				s.mustHold(t, w.c, child.ID, sure[s.server])
			}
		}
	}
	if err := closeAll(t.Context(), w.c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}

// TestSessionForkWhileServersStart forks and rewinds a session while lists, which
// no gate keeps out, start its program anew: a start and a freeze wait for each
// other, one after the other, and never both.
func TestSessionForkWhileServersStart(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBuiltins+yamlState(t, "prog", "workspace: true", "policy: {breaker: off, cache: off}"))
	c := g.client(t)
	prog, files := programShelf("prog"), filesShelf("files")
	s := openSession(t, c, api.NewSession{})
	prog.mustPut(t, c, s.ID, "k", strings.Repeat("v", 1<<20))
	files.mustPut(t, c, s.ID, "k", "v")
	snap, err := c.MakeSnapshot(t.Context(), s.ID, api.SnapshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var lists sync.WaitGroup
	for range 3 {
		lists.Go(func() {
			for ctx.Err() == nil {
				c.ToolsIn(ctx, s.ID, "prog") // of a program that is being ended it may fail
			}
		})
	}
	defer lists.Wait()
	defer cancel()
	for round := range torture.Or(12, 40) {
		within, stop := context.WithTimeout(t.Context(), patience)
		if round%4 == 0 {
			_, err = c.Fork(within, s.ID, api.ForkRequest{})
		} else {
			_, err = c.Rewind(within, s.ID, api.RewindRequest{Snapshot: snap.ID})
		}
		stuck := within.Err() != nil
		stop()
		if stuck {
			t.Fatalf("round %d: no answer within %s: %v", round, patience, err)
		}
		if err != nil {
			t.Errorf("round %d: %v (%+v)", round, err, kindOf(err))
		}
	}
	cancel()
	lists.Wait()
	all, err := openSessions(t.Context(), c, client.SessionQuery{})
	if err != nil {
		t.Fatal(err)
	}
	for id := range all {
		prog.mustHold(t, c, id, map[string]string{"k": strings.Repeat("v", 1<<20)})
		files.mustHold(t, c, id, map[string]string{"k": "v"})
	}
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}

// TestSessionDiskFull fills the disk under the state folder. What can't be
// written is refused and says why, what was answered stays, and once there is
// room again everything goes on, also in the next gateway.
func TestSessionDiskFull(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "journal: {max_size: 1MiB}\nservers:\n"+yamlBuiltins+yamlState(t, "prog"))
	if err := os.Mkdir(g.state(), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tine-e2e", g.state(), "tmpfs", 0, "size=24m,mode=700"); err != nil {
		if os.Geteuid() != 0 && os.Getenv("CI") == "" {
			t.Skipf("can't mount a small filesystem: %v; run as root", err)
		}
		t.Fatalf("mount a small filesystem: %v", err)
	}
	t.Cleanup(func() {
		g.end()
		if err := syscall.Unmount(g.state(), syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	w := &crowd{c: g.client(t), frozen: map[string]bool{}, counts: map[string]int{}}
	shelves := []*shelf{memoryShelf("mem"), filesShelf("files"), sqliteShelf("db"), programShelf("prog")}
	for range 3 {
		s := openSession(t, w.c, api.NewSession{})
		m := newCrowdMember(s.ID, shelves)
		w.add(m)
		for _, shelf := range shelves {
			if err := m.put(t.Context(), w.c, shelf, w.word()); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := w.members[0]

	// Another program fills the disk to the last byte.
	ballast := filepath.Join(g.state(), "ballast")
	fill := func() {
		t.Helper()
		f, err := os.OpenFile(ballast, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for size := 1 << 20; size > 0; {
			if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
				size /= 2
			} else if err != nil {
				t.Fatal(err)
			}
		}
	}
	fill()
	full := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "no space") && !strings.Contains(err.Error(), "disk is full") {
			t.Errorf("%s on a full disk: %v, want an error that says so", what, err)
		}
	}
	for _, m := range w.members {
		for _, shelf := range shelves {
			// The first ones may still fit into blocks that are half full.
			var err error
			for range 50 {
				word := w.word() + strings.Repeat("x", 8<<10)
				m.mu.Lock()
				m.maybe[shelf.server][word[:8]] = word
				m.mu.Unlock()
				if err = shelf.put(t.Context(), shelf.on(w.c, m.id), word[:8], word, false); err != nil {
					break
				}
			}
			full("a put on "+shelf.server, err)
			if e := kindOf(err); shelf.server != "prog" && (e == nil || e.Kind != api.KindInfrastructure) {
				t.Errorf("a put on %s on a full disk is told as %+v, and is no failure of the tool", shelf.server, e)
			}
		}
	}
	_, err := w.c.Fork(t.Context(), first.id, api.ForkRequest{Count: 50})
	full("a fork", err)
	_, err = w.c.OpenSession(t.Context(), api.NewSession{Eager: true})
	full("an open", err)

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := w.check(t.Context()); err != nil {
		t.Errorf("once there is room: %v", err)
	}
	again := func(when string) {
		t.Helper()
		for _, m := range w.members {
			for _, shelf := range shelves {
				if err := m.put(t.Context(), w.c, shelf, w.word()); err != nil {
					t.Errorf("%s: %v", when, err)
				}
			}
			sure, _ := m.known()
			for _, child := range fork(t, w.c, m.id, 2) {
				for _, s := range shelves {
					s.mustHold(t, w.c, child.ID, sure[s.server])
				}
				if err := w.c.CloseSession(t.Context(), child.ID); err != nil {
					t.Errorf("%s: %v", when, err)
				}
			}
		}
		if err := w.check(t.Context()); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	again("once there is room")

	// Killed on a full disk, the next one starts when there is room.
	fill()
	g.kill()
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	w.c = g.client(t)
	if err := w.check(t.Context()); err != nil {
		t.Errorf("the next gateway: %v", err)
	}
	again("in the next gateway")
	if err := closeAll(t.Context(), w.c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}
