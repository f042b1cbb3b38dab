//go:build linux

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/torture"
)

// TestSessionTwoGateways runs two gateways with a state folder each and the same
// config. Each is killed and started again: it goes on with its own sessions and
// leaves those of the other alone. A third on a folder that is taken says so.
func TestSessionTwoGateways(t *testing.T) {
	t.Parallel()
	config := "servers:\n" + yamlBuiltins + yamlState(t, "prog")
	prog, mem := programShelf("prog"), memoryShelf("mem")
	type side struct {
		*gateway
		session, pid string
	}
	var sides []*side
	for range 2 {
		g := startGateway(t, config)
		c := g.client(t)
		s := openSession(t, c, api.NewSession{})
		prog.mustPut(t, c, s.ID, "k", s.ID)
		mem.mustPut(t, c, s.ID, "k", s.ID)
		sides = append(sides, &side{g, s.ID, mustUse(t, c, s.ID, "prog__pid", object{})})
	}
	same := func(when string) {
		t.Helper()
		for i, s := range sides {
			c := s.client(t)
			if got := mustUse(t, c, s.session, "prog__pid", object{}); got != s.pid {
				t.Errorf("%s: the program of gateway %d is process %s, was %s", when, i, got, s.pid)
			}
			prog.mustHold(t, c, s.session, map[string]string{"k": s.session})
			mem.mustHold(t, c, s.session, map[string]string{"k": s.session})
		}
	}
	same("at first")
	for i, s := range sides {
		s.kill()
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
		same(fmt.Sprintf("after a kill of gateway %d", i))
	}
	out, err := exec.CommandContext(t.Context(), tineBinary, "serve", "--listen", "127.0.0.1:0", "--state", sides[0].state(), "--config", sides[0].configPath()).CombinedOutput()
	pid := fmt.Sprint(sides[0].cmd.Process.Pid)
	if err == nil || !strings.Contains(string(out), "state folder") || !strings.Contains(string(out), pid) {
		t.Errorf("a second gateway on one state folder: %v, want an error with the folder's owner, process %s:\n%s", err, pid, out)
	}
	same("after another came for the folder of the first")

	// One ends in good order, with all that it has.
	if err := closeAll(t.Context(), sides[0].client(t)); err != nil {
		t.Error(err)
	}
	nothingLeft(t, sides[0].gateway)
	sides = sides[1:]
	same("after the first has closed all")
}

// nextBinary builds the programs once more, with another version.
var nextBinary = sync.OnceValues(func() (string, error) {
	program := filepath.Join(filepath.Dir(badServer), "next", "tine")
	return program, build(filepath.Dir(program)+string(filepath.Separator), "e2e-next", "../cmd/...")
})

// TestSessionUpgrade replaces the binary while sessions are alive, once in good
// order and once after a kill: the next version goes on with the sessions, their
// tokens, their programs and their snapshots, and so does the first one again.
func TestSessionUpgrade(t *testing.T) {
	t.Parallel()
	next, err := nextBinary()
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, "servers:\n"+yamlBuiltins+yamlState(t, "prog"))
	g.args = append(g.args, "--keep-instances")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c := g.client(t)
	shelves := []*shelf{memoryShelf("mem"), filesShelf("files"), sqliteShelf("db"), programShelf("prog")}
	root := openSession(t, c, api.NewSession{Labels: map[string]string{"who": "root"}})
	for _, s := range shelves {
		s.mustPut(t, c, root.ID, "k", "of-the-root")
	}
	snap, err := c.MakeSnapshot(t.Context(), root.ID, api.SnapshotRequest{Name: "start"})
	if err != nil {
		t.Fatal(err)
	}
	child := fork(t, c, root.ID, 1)[0]
	for _, s := range shelves {
		s.mustPut(t, c, child.ID, "own", "of-the-child")
	}
	pids := map[string]string{}
	for _, id := range []string{root.ID, child.ID} {
		pids[id] = mustUse(t, c, id, "prog__pid", object{})
	}
	check := func(version string) {
		t.Helper()
		c := g.client(t)
		status, err := c.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got := status.Version == "e2e-next"; got != (version == "next") {
			t.Fatalf("version %s runs, want the %s one", status.Version, version)
		}
		for _, s := range shelves {
			s.mustHold(t, g.clientAs(t, root.Token), root.ID, map[string]string{"k": "of-the-root"})
			s.mustHold(t, g.clientAs(t, child.Token), child.ID, map[string]string{"k": "of-the-root", "own": "of-the-child"})
		}
		for id, pid := range pids {
			if got := mustUse(t, c, id, "prog__pid", object{}); got != pid {
				t.Errorf("%s version: the program of %s is process %s, was %s", version, id, got, pid)
			}
		}
		for _, id := range []string{openSession(t, c, api.NewSession{From: snap.ID}).ID, fork(t, c, root.ID, 1)[0].ID} {
			for _, s := range shelves {
				s.mustHold(t, c, id, map[string]string{"k": "of-the-root"})
			}
			if err := c.CloseSession(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
	}
	check("first")
	for _, tt := range []struct {
		version, program string
		end              func() error
	}{
		{"next", next, func() error { _, err := g.stop(); return err }},
		{"first", "", func() error { g.kill(); return nil }},
		{"next", next, func() error { g.kill(); return nil }},
	} {
		if err := tt.end(); err != nil {
			t.Fatal(err)
		}
		g.program = tt.program
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		check(tt.version)
	}
	c = g.client(t)
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}

// TestSessionManyOpens opens many sessions at once: all of them where there
// is room, and else those that fit. Each of the others is refused with what would
// fit, and none is half there.
func TestSessionManyOpens(t *testing.T) {
	t.Parallel()
	opens, most := torture.Or(200, 1000), torture.Or(60, 300)
	for _, tt := range []struct {
		name, config string
		fit          int
		waits        bool // for room
	}{
		{"room", "servers:\n" + yamlBuiltins, opens, false},
		{"memory", "sessions: {memory: 640MiB}\nservers:\n" + yamlBuiltins + yamlState(t, "prog", "eager: true", "budget: {memory: 61MiB}"), 10, true},
		{"instances", "sessions: {memory: off, instances: 25}\nservers:\n" + yamlBuiltins + yamlState(t, "prog", "eager: true"), 25, true},
		{"max", fmt.Sprintf("sessions: {max: %d}\nservers:\n", most) + yamlBuiltins, most, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t, tt.config)
			c := g.client(t)
			var mu sync.Mutex
			var opened []string
			var refused atomic.Int64
			var all sync.WaitGroup
			for i := range opens {
				all.Go(func() {
					s, err := c.OpenSession(t.Context(), api.NewSession{Wait: "1ms", Labels: map[string]string{"i": fmt.Sprint(i)}})
					if err == nil {
						mu.Lock()
						defer mu.Unlock()
						opened = append(opened, s.ID)
						return
					}
					refused.Add(1)
					if e := kindOf(err); e == nil || e.Kind != api.KindRefused || !strings.Contains(e.Message, "sessions.") {
						t.Errorf("open %d: %v (%+v), want it refused with the setting that says so", i, err, e)
					}
				})
			}
			all.Wait()
			if len(opened) != tt.fit {
				t.Errorf("%d sessions were opened and %d refused, want %d", len(opened), refused.Load(), tt.fit)
			}
			there, err := openSessions(t.Context(), c, client.SessionQuery{})
			if err != nil {
				t.Fatal(err)
			}
			mem := memoryShelf("mem")
			for _, id := range opened {
				if _, ok := there[id]; !ok {
					t.Errorf("session %s was opened and is not there", id)
				}
				delete(there, id)
				all.Go(func() {
					mem.mustHold(t, c, id, map[string]string{})
					if err := mem.put(t.Context(), mem.on(c, id), "k", id, false); err != nil {
						t.Error(err)
					}
					mem.mustHold(t, c, id, map[string]string{"k": id})
				})
			}
			all.Wait()
			for id := range there {
				t.Errorf("session %s is there and was not opened", id)
			}
			if tt.fit < opens {
				// A fork needs room as well: all of it, or none.
				if _, err := c.Fork(t.Context(), opened[0], api.ForkRequest{Count: 2, Wait: "1ms"}); err == nil {
					t.Error("a fork was let into a house that is full")
				}
			}
			if tt.waits {
				// Waiting calls get the room of sessions that close.
				waiting := make(chan error, 1)
				go func() {
					_, err := c.OpenSession(t.Context(), api.NewSession{Wait: "1m"})
					waiting <- err
				}()
				if err := c.CloseSession(t.Context(), opened[1]); err != nil {
					t.Error(err)
				}
				if err := <-waiting; err != nil {
					t.Errorf("an open that waits for room: %v", err)
				}
			}
			if err := closeAll(t.Context(), c); err != nil {
				t.Error(err)
			}
			nothingLeft(t, g)
		})
	}
}
