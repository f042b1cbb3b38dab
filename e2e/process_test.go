//go:build unix

package e2e

import (
	"testing"
	"time"

	"github.com/tine-mcp/tine/api"
)

// TestMemberProcess asks which process a member is, before and after a kill of the
// gateway.
func TestMemberProcess(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBuiltins+yamlState(t, "prog"))
	c := g.client(t)
	s := openSession(t, c, api.NewSession{})
	process := func(server string) *api.Process {
		t.Helper()
		got, err := g.client(t).Session(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got.Members {
			if m.Server == server {
				return m.Process
			}
		}
		t.Fatalf("there is no %s in %+v", server, got.Members)
		return nil
	}
	if p := process("prog"); p != nil {
		t.Errorf("before it starts it is %+v", p)
	}
	before := time.Now().Add(-time.Second)
	mustUse(t, c, s.ID, "prog__put", object{"key": "k", "value": "v"})
	p := process("prog")
	if p == nil || p.PID <= 1 || p.Container != "" || p.Started.Before(before) || p.Started.After(time.Now().Add(time.Second)) {
		t.Fatalf("it is %+v", p)
	}
	found := false
	for _, pid := range g.servers() {
		found = found || pid == p.PID
	}
	if !found {
		t.Errorf("process %d is not among %v", p.PID, g.servers())
	}
	mustUse(t, c, s.ID, "mem__read_graph", object{})
	if p := process("mem"); p != nil {
		t.Errorf("a built-in server is %+v", p)
	}
	g.kill()
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	mustUse(t, g.client(t), s.ID, "prog__all", object{})
	if again := process("prog"); again == nil || again.PID != p.PID || again.Started.Sub(p.Started).Abs() > time.Second {
		t.Errorf("after a kill of the gateway it is %+v, and was %+v", again, p)
	}
	if err := closeAll(t.Context(), g.client(t)); err != nil {
		t.Error(err)
	}
	nothingLeft(t, g)
}
