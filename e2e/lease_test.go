//go:build unix

package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// TestLease is a trainer that renews its lease over a kill of the gateway and then
// dies: its worlds go on with the renewals, and end without them, with their processes.
func TestLease(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBuiltins+yamlState(t, "prog"))
	c := g.client(t)
	l, err := c.NewLease(t.Context(), api.NewLease{TTL: "5s"})
	if err != nil {
		t.Fatal(err)
	}
	s := openSession(t, c, api.NewSession{Lease: l.ID})
	mustUse(t, c, s.ID, "prog__put", object{"key": "k", "value": "v"})
	forks := fork(t, c, s.ID, 3)
	free := openSession(t, c, api.NewSession{})
	renew := func() {
		t.Helper()
		got, err := c.RenewLease(t.Context(), l.ID)
		if err != nil || got.Sessions != 4 {
			t.Fatalf("renewed %+v, %v", got, err)
		}
	}
	for range 3 {
		renew()
		time.Sleep(2 * time.Second) // more than the ttl in all
	}
	g.kill()
	time.Sleep(5 * time.Second) // the gateway is away for longer than the lease lasts
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.client(t)
	renew()
	if got := mustUse(t, c, forks[1].ID, "prog__all", object{}); got != `{"k":"v"}` {
		t.Errorf("a fork has %s", got)
	}
	// The trainer is dead from here on.
	err = eventually(func() error {
		open, err := openSessions(t.Context(), c, client.SessionQuery{})
		if err != nil {
			return final{err}
		}
		if _, there := open[free.ID]; !there {
			return final{fmt.Errorf("the session without a lease is closed")}
		}
		if len(open) > 1 {
			return fmt.Errorf("%d sessions are open", len(open))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if was, err := c.Session(t.Context(), forks[0].ID); err != nil || was.Reason != "lease" {
		t.Errorf("a fork is %+v, %v", was, err)
	}
	if err := c.CloseSession(t.Context(), free.ID); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}
