//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// waitRunning waits until so many calls are running in a session.
func waitRunning(t testing.TB, c *client.Client, session string, calls int) {
	t.Helper()
	if err := eventually(func() error {
		s, err := c.Session(t.Context(), session)
		if err == nil && s.InFlight != calls {
			err = fmt.Errorf("%d calls are running, want %d", s.InFlight, calls)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// TestSessionForkWaitsForCalls forks a session in which a slow call is running:
// the children have what it did. One that may not wait so long says which call is
// in the way, and the session goes on.
func TestSessionForkWaitsForCalls(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBuiltins+yamlState(t, "prog"))
	c := g.client(t)
	s := openSession(t, c, api.NewSession{})
	prog := programShelf("prog")
	prog.mustPut(t, c, s.ID, "a", "before")

	slow := make(chan error, 1)
	go func() {
		_, err := use(t.Context(), c, s.ID, "prog__put", object{"key": "b", "value": "slow", "ms": 3000})
		slow <- err
	}()
	waitRunning(t, c, s.ID, 1)
	_, err := c.Fork(t.Context(), s.ID, api.ForkRequest{Wait: "50ms"})
	if e := kindOf(err); e == nil || e.Kind != api.KindTimeout || !e.Retryable || !strings.Contains(e.Message, "prog__put") {
		t.Errorf("a fork that may not wait: %v, want kind timeout and the name of the call", err)
	}
	// Calls that come after a fork that gave up are let in.
	mustUse(t, c, s.ID, "mem__read_graph", object{})
	// Several at once: one after the other, each with the whole call.
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			f, err := c.Fork(t.Context(), s.ID, api.ForkRequest{Count: 2, Wait: "1m"})
			if err != nil {
				t.Error(err)
				return
			}
			for _, child := range f.Sessions {
				prog.mustHold(t, c, child.ID, map[string]string{"a": "before", "b": "slow"})
			}
		})
	}
	wg.Go(func() {
		snap, err := c.MakeSnapshot(t.Context(), s.ID, api.SnapshotRequest{Name: "slow"})
		if err != nil {
			t.Error(err)
			return
		}
		from, err := c.OpenSession(t.Context(), api.NewSession{From: snap.ID})
		if err != nil {
			t.Error(err)
			return
		}
		prog.mustHold(t, c, from.ID, map[string]string{"a": "before", "b": "slow"})
	})
	wg.Wait()
	if err := <-slow; err != nil {
		t.Errorf("the call that the forks waited for: %v", err)
	}
	// Forks are independent.
	prog.mustPut(t, c, s.ID, "c", "mine")
	for _, child := range fork(t, c, s.ID, 2) {
		prog.mustPut(t, c, child.ID, "d", child.ID)
		prog.mustHold(t, c, child.ID, map[string]string{"a": "before", "b": "slow", "c": "mine", "d": child.ID})
	}
	prog.mustHold(t, c, s.ID, map[string]string{"a": "before", "b": "slow", "c": "mine"})
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}

// TestSessionForkFromInside lets a program fork, freeze, rewind and close the
// session whose call it is answering. With the name of its call it is refused at
// once; without, the gate can't know that the request comes from inside, so it
// waits for the call and ends with its name. Nothing hangs, and the session goes
// on.
func TestSessionForkFromInside(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "sessions: {fork_wait: 1h}\nservers:\n"+yamlBuiltins+yamlState(t, "prog"))
	c := g.client(t)
	s := openSession(t, c, api.NewSession{})
	prog := programShelf("prog")
	prog.mustPut(t, c, s.ID, "a", "before")
	if _, err := c.MakeSnapshot(t.Context(), s.ID, api.SnapshotRequest{Name: "before"}); err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, body string, says bool) (status int, e api.Error) {
		t.Helper()
		text := mustUse(t, c, s.ID, "prog__ask", object{"method": method, "url": g.url + path, "token": s.Token, "body": body, "says": says})
		code, answer, _ := strings.Cut(text, " ")
		fmt.Sscan(code, &status)
		json.Unmarshal([]byte(answer), &e)
		return status, e
	}
	for _, says := range []bool{false, true} {
		wait, kind := `"100ms"`, api.KindTimeout
		if says {
			wait, kind = `"1h"`, api.KindRefused
		}
		for _, tt := range []struct{ path, body string }{
			{"/forks", `{"wait":` + wait + `}`}, {"/snapshots", `{"name":"inside","wait":` + wait + `}`}, {"/rewind", `{"snapshot":"before","wait":` + wait + `}`},
		} {
			status, e := ask(http.MethodPost, "/v1/sessions/"+s.ID+tt.path, tt.body, says)
			if status < 400 || e.Kind != kind || !strings.Contains(e.Message, "prog__ask") {
				t.Errorf("%s %s from inside: %d %+v, want kind %s and the name of the call", tt.path, tt.body, status, e, kind)
			}
		}
	}
	// What does not touch the session from within works.
	if status, _ := ask(http.MethodGet, "/v1/sessions/"+s.ID, "", true); status != http.StatusOK {
		t.Errorf("to look at the session from inside: %d", status)
	}
	prog.mustHold(t, c, s.ID, map[string]string{"a": "before"})
	fork(t, c, s.ID, 1)

	// A session that closes itself under its own call ends, and so does the call.
	done := make(chan error, 1)
	go func() {
		_, err := use(t.Context(), c, s.ID, "prog__ask", object{"method": http.MethodDelete, "url": g.url + "/v1/sessions/" + s.ID, "token": s.Token})
		done <- err
	}()
	if err := <-done; err != nil {
		if e := kindOf(err); e == nil || e.Kind != api.KindLost && e.Kind != api.KindRefused {
			t.Errorf("the call that closed its session: %v (%+v)", err, e)
		}
	}
	if err := eventually(func() error {
		got, err := c.Session(t.Context(), s.ID)
		if err == nil && got.Closed.IsZero() {
			err = fmt.Errorf("session %s is open", s.ID)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}

// TestSessionCloseWhileForking closes sessions while they are forked, frozen and
// rewound: each fork has all its children or none, and nothing stays behind.
func TestSessionCloseWhileForking(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBuiltins+yamlState(t, "prog"))
	c := g.client(t)
	mem, prog := memoryShelf("mem"), programShelf("prog")
	outcomes := map[string]int{}
	var mu sync.Mutex
	for round := range 12 {
		s := openSession(t, c, api.NewSession{})
		mem.mustPut(t, c, s.ID, "k", s.ID)
		prog.mustPut(t, c, s.ID, "k", s.ID)
		if _, err := c.MakeSnapshot(t.Context(), s.ID, api.SnapshotRequest{}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		try := func(what string, f func(ctx context.Context) error) {
			wg.Go(func() {
				err := f(t.Context())
				outcome := what
				if err != nil {
					e := kindOf(err)
					if e == nil || e.Kind != api.KindRefused && e.Kind != api.KindInvalid && e.Kind != api.KindLost {
						t.Errorf("round %d: %s: %v (%+v)", round, what, err, e)
					}
					outcome += " refused"
				}
				mu.Lock()
				defer mu.Unlock()
				outcomes[outcome]++
			})
		}
		try("fork", func(ctx context.Context) error {
			f, err := c.Fork(ctx, s.ID, api.ForkRequest{Count: 4})
			if err != nil {
				return err
			}
			for _, child := range f.Sessions {
				mem.mustHold(t, c, child.ID, map[string]string{"k": s.ID})
				prog.mustHold(t, c, child.ID, map[string]string{"k": s.ID})
			}
			return nil
		})
		try("snapshot", func(ctx context.Context) error {
			_, err := c.MakeSnapshot(ctx, s.ID, api.SnapshotRequest{})
			return err
		})
		if round%2 == 0 {
			try("rewind", func(ctx context.Context) error {
				_, err := c.Rewind(ctx, s.ID, api.RewindRequest{})
				return err
			})
		}
		for range 2 {
			moment := time.Duration(rand.IntN(12)) * time.Millisecond
			try("close", func(ctx context.Context) error {
				time.Sleep(moment) // before, during and after the others
				return c.CloseSession(ctx, s.ID)
			})
		}
		wg.Wait()
		children, err := openSessions(t.Context(), c, client.SessionQuery{Parent: s.ID})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(children); n != 0 && n != 4 {
			t.Errorf("round %d: %d of 4 children", round, n)
		}
	}
	t.Logf("%v", outcomes)
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}
