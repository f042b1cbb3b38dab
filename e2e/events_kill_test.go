//go:build linux

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
	"github.com/tine-mcp/tine/internal/torture"
)

// eventLog is what a follower of the feed was told.
type eventLog struct {
	mu  sync.Mutex
	all []api.Event
}

func (l *eventLog) add(e api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

func (l *eventLog) closed(session string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(l.all, func(e api.Event) bool { return e.Type == api.EventSessionClosed && e.Session == session }) {
		return nil
	}
	return fmt.Errorf("the end of %s is not among %d events", session, len(l.all))
}

// parts are the events of sessions and the calls, each in their order.
func (l *eventLog) parts() (sessions, calls []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.all {
		switch {
		case e.Call != nil:
			calls = append(calls, e.Call.ID)
		case e.Durable:
			sessions = append(sessions, e.Type+" "+e.Session+" "+e.At.Format(time.RFC3339Nano))
		case e.Type == api.EventGap:
			sessions = append(sessions, "gap")
		}
	}
	return sessions, calls
}

// TestEventsOverKills kills the gateway again and again under load. Those who follow the
// feed, in Go and on the command line, are told every durable event once and in order.
func TestEventsOverKills(t *testing.T) {
	t.Parallel()
	const token = "ops-ops-ops-ops-ops-ops"
	g := startGateway(t, "auth:\n  tokens:\n    - {name: ops, token: "+token+", role: operator}\nservers:\n  mem: {builtin: memory}\n  clock: {builtin: time}\n")
	followers := map[string]*eventLog{"in Go": {}, "on the command line": {}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var following sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		following.Wait()
	})
	c := g.clientAs(t, token)
	following.Go(func() {
		for e, err := range c.Events(ctx, client.EventFilter{After: api.EventsFromStart}) {
			if err != nil {
				if ctx.Err() == nil {
					t.Error(err)
				}
				return
			}
			followers["in Go"].add(e)
		}
	})
	cmd := exec.CommandContext(ctx, tineBinary, "events", "--follow", "--json", "--after", "start", "--state", g.state())
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	following.Go(func() {
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var e api.Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Errorf("%v in %s", err, lines.Text())
			}
			followers["on the command line"].add(e)
		}
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			t.Errorf("tine events --follow: %v", err)
		}
	})

	for range torture.Or(4, 20) {
		load, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for load.Err() == nil {
					s, err := c.OpenSession(load, api.NewSession{})
					for i := 0; i < 5 && err == nil; i++ {
						_, err = c.CallIn(load, s.ID, "mem__read_graph", nil)
					}
					if err == nil && rand.IntN(2) == 0 {
						_, err = c.Fork(load, s.ID, api.ForkRequest{Count: 2})
					}
					if err == nil {
						_ = c.CloseSession(load, s.ID)
					}
				}
			})
		}
		time.Sleep(time.Duration(200+rand.IntN(500)) * time.Millisecond) // killed at any moment
		g.kill()
		stop()
		all.Wait()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
	}

	last, err := c.OpenSession(t.Context(), api.NewSession{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.CloseSession(t.Context(), last.ID); err != nil {
		t.Fatal(err)
	}
	for name, l := range followers {
		if err := eventually(func() error { return l.closed(last.ID) }); err != nil {
			t.Fatalf("who follows %s: %v", name, err)
		}
	}
	cancel()
	following.Wait()
	truth := &eventLog{}
	for e, err := range c.Events(t.Context(), client.EventFilter{After: api.EventsFromStart, Once: true}) {
		if err != nil {
			t.Fatal(err)
		}
		truth.add(e)
	}
	sessions, calls := truth.parts()
	t.Logf("%d events of sessions and %d calls", len(sessions), len(calls))
	if len(sessions) < 50 || len(calls) < 50 || slices.Contains(sessions, "gap") || !slices.IsSorted(calls) {
		t.Errorf("from the start there are %d events of sessions and %d calls", len(sessions), len(calls))
	}
	for name, l := range followers {
		gotSessions, gotCalls := l.parts()
		if !reflect.DeepEqual(gotSessions, sessions) || !reflect.DeepEqual(gotCalls, calls) {
			t.Errorf("who follows %s was told %d events of sessions and %d calls, of %d and %d, or in another order", name, len(gotSessions), len(gotCalls), len(sessions), len(calls))
		}
	}
}
