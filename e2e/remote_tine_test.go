//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// A tandem is a Tine whose servers another Tine runs.
type tandem struct {
	near, far *gateway
}

// newTandem starts both: the far one with the built-in servers and a program, the
// near one with the same under the same names, all of them run by the far one.
// Calls to one of them go through the far one's API, all others by MCP.
func newTandem(t *testing.T) *tandem {
	t.Helper()
	const token = "far-far-far-far-far-far"
	far := newGateway(t, "auth: {tokens: [{name: near, token: "+token+"}]}\nservers:\n"+yamlBuiltins+yamlState(t, "prog"))
	far.verb = []string{"orchestrator", "serve"}
	if err := far.start(); err != nil {
		t.Fatal(err)
	}
	config := "servers:\n"
	for id, resource := range map[string]string{
		"mem": "mem", "files": "files", "db": "db", "prog": "prog",
		"through": "mem\n      call: /instances/{remote_instance_id}/call",
	} {
		config += fmt.Sprintf(`  %s:
    scope: session
    headers: {Authorization: "Bearer %s"}
    remote:
      url: %s
      resource: %s
      fork: /instances/{remote_instance_id}/fork
      snapshot: /instances/{remote_instance_id}/snapshot
      health: /health
`, id, token, far.url, resource)
	}
	return &tandem{startGateway(t, config), far}
}

func (x *tandem) shelves() []*shelf {
	return []*shelf{memoryShelf("mem"), filesShelf("files"), sqliteShelf("db"), programShelf("prog"), memoryShelf("through")}
}

// instance is the one that the far side has of a server for a session.
func (x *tandem) instance(t *testing.T, server, session string) string {
	t.Helper()
	all, err := openSessions(t.Context(), x.far.client(t), client.SessionQuery{Labels: map[string]string{"orchestrator/session": session, "orchestrator/server": server}})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 1 {
		t.Fatalf("the far side has %d instances of %s for session %s", len(all), server, session)
	}
	return slices.Collect(maps.Keys(all))[0]
}

// nothingLeft holds that neither side has anything of a session left.
func (x *tandem) nothingLeft(t *testing.T) {
	t.Helper()
	if err := closeAll(t.Context(), x.near.client(t)); err != nil {
		t.Error(err)
	}
	nothingLeft(t, x.near)
	c := x.far.client(t)
	err := eventually(func() error {
		if err := leftovers(t.Context(), x.far, c); err != nil {
			return err
		}
		for s, err := range c.AllSnapshots(t.Context(), client.SnapshotQuery{Auto: true}) {
			if err != nil {
				return final{err}
			}
			return fmt.Errorf("snapshot %s is left", s.ID)
		}
		return nil
	})
	if err != nil {
		t.Errorf("the far side, after all was closed: %v", err)
	}
	// What was asked for last is crossed out when the answer has come.
	err = eventually(func() error {
		return filepath.WalkDir(filepath.Join(x.near.state(), "remote"), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err == nil && !d.IsDir():
				return fmt.Errorf("%s is left", path)
			}
			return err
		})
	})
	if err != nil {
		t.Error(err)
	}
}

// TestRemoteTine has one Tine run the servers of another: sessions, forks of
// forks, snapshots and rewinds work as with one's own, each on the state that it
// should have, and when all is closed nothing is left on either side.
func TestRemoteTine(t *testing.T) {
	t.Parallel()
	x := newTandem(t)
	c := x.near.client(t)
	shelves := x.shelves()
	root := openSession(t, c, api.NewSession{Eager: true})
	for _, s := range shelves {
		s.mustPut(t, c, root.ID, "k", "root")
	}
	far, err := openSessions(t.Context(), x.far.client(t), client.SessionQuery{})
	if err != nil || len(far) != len(shelves) {
		t.Fatalf("the far side has %d instances of one session, want one for each of %d servers: %v", len(far), len(shelves), err)
	}
	for id, s := range far {
		if s.Labels["orchestrator/session"] != root.ID {
			t.Errorf("instance %s is labelled %v, want session %s", id, s.Labels, root.ID)
		}
	}
	snap, err := c.MakeSnapshot(t.Context(), root.ID, api.SnapshotRequest{Name: "base"})
	if err != nil {
		t.Fatal(err)
	}
	children := fork(t, c, root.ID, 3)
	for i, child := range children {
		for _, s := range shelves {
			s.mustPut(t, c, child.ID, "own", fmt.Sprint("child", i))
		}
	}
	grandchild := fork(t, c, children[0].ID, 1)[0]
	from := openSession(t, c, api.NewSession{From: snap.ID})
	for _, s := range shelves {
		s.mustHold(t, c, root.ID, map[string]string{"k": "root"})
		s.mustHold(t, c, from.ID, map[string]string{"k": "root"})
		s.mustHold(t, c, grandchild.ID, map[string]string{"k": "root", "own": "child0"})
		for i, child := range children {
			s.mustHold(t, c, child.ID, map[string]string{"k": "root", "own": fmt.Sprint("child", i)})
		}
	}
	if _, err := c.Rewind(t.Context(), root.ID, api.RewindRequest{Snapshot: snap.ID}); err != nil {
		t.Errorf("rewind: %v", err)
	}
	for _, s := range shelves {
		s.mustHold(t, c, root.ID, map[string]string{"k": "root"})
	}
	// What the far side forgets is lost, which is said once; then it begins anew.
	forgotten := x.instance(t, "db", children[2].ID)
	if err := x.far.client(t).CloseSession(t.Context(), forgotten); err != nil {
		t.Fatal(err)
	}
	db := sqliteShelf("db")
	if _, err := db.all(t.Context(), db.on(c, children[2].ID)); err == nil || kindOf(err) == nil || kindOf(err).Kind != api.KindLost {
		t.Errorf("a call to an instance that is gone: %v (%+v), want it lost", err, kindOf(err))
	}
	db.mustHold(t, c, children[2].ID, map[string]string{})
	programShelf("prog").mustHold(t, c, children[2].ID, map[string]string{"k": "root", "own": "child2"})
	// What the far side's token is must be nowhere to be seen.
	for _, g := range []*gateway{x.near, x.far} {
		log, err := os.ReadFile(g.logPath())
		if err != nil || strings.Contains(string(log), "tine_ses_") || strings.Contains(string(log), "far-far-far") {
			t.Errorf("a token is in the log, or there is none: %v", err)
		}
	}
	x.nothingLeft(t)
}

// TestRemoteTineKill kills either side in the middle of opens, forks, calls and
// closes. What was answered is still there when it is back, and in the end
// nothing is left on either side.
func TestRemoteTineKill(t *testing.T) {
	t.Parallel()
	x := newTandem(t)
	mem := memoryShelf("mem")
	keep := openSession(t, x.near.client(t), api.NewSession{Servers: []string{"mem", "prog"}})
	prog := programShelf("prog")
	mem.mustPut(t, x.near.client(t), keep.ID, "k", "v")
	prog.mustPut(t, x.near.client(t), keep.ID, "k", "v")
	var opened, forked atomic.Int64
	for round := range 6 {
		before := [2]int64{opened.Load(), forked.Load()}
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 4 {
			c := x.near.client(t)
			all.Go(func() { churn(ctx, c, keep.ID, mem, &opened, &forked) })
		}
		err := eventually(func() error {
			if opened.Load() == before[0] || forked.Load() == before[1] {
				return fmt.Errorf("round %d: of open and fork not each was answered yet", round)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		time.Sleep(time.Duration(rand.IntN(500)) * time.Millisecond) // killed at any moment
		side := x.near
		if round%2 == 1 {
			side = x.far
		}
		side.kill()
		if round%2 == 1 {
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond) // the near one goes on without it for a while
		}
		if err := side.start(); err != nil {
			t.Fatal(err)
		}
		cancel()
		all.Wait()
		c := x.near.client(t)
		err = eventually(func() error { // a breaker may be open for a moment
			for _, s := range []*shelf{mem, prog} {
				got, err := s.all(t.Context(), s.on(c, keep.ID))
				if err != nil {
					return err
				}
				if d := differ(got, map[string]string{"k": "v"}); d != "" {
					return final{errors.New(s.server + d)}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	t.Logf("%d sessions were opened and %d forked", opened.Load(), forked.Load())
	x.nothingLeft(t)
}

// churn opens sessions, forks one that is there, writes into what it gets and
// closes some of it, until ctx ends. Everything may fail: somebody is killed
// meanwhile.
func churn(ctx context.Context, c *client.Client, parent string, mem *shelf, opened, forked *atomic.Int64) {
	for n := 0; ctx.Err() == nil; n++ {
		var ids []string
		if n%2 == 0 {
			if s, err := c.OpenSession(ctx, api.NewSession{Servers: []string{"mem"}, Eager: true}); err == nil {
				ids = append(ids, s.ID)
				opened.Add(1)
			}
		} else if f, err := c.Fork(ctx, parent, api.ForkRequest{Count: 2}); err == nil {
			for _, s := range f.Sessions {
				ids = append(ids, s.ID)
				forked.Add(1)
			}
		}
		for i, id := range ids {
			_ = mem.put(ctx, mem.on(c, id), "other", "x", false)
			if (n+i)%3 != 0 {
				_ = c.CloseSession(ctx, id)
			}
		}
	}
}
