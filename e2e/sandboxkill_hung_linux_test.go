package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestSandboxKillHung stops a sandbox from outside, as one that hangs. Its calls
// time out and say so, a fork of it fails, it can be closed, and when it goes on it
// has what it had. The others notice nothing.
func TestSandboxKillHung(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBox(t, "box", "timeout: 2s"))
	b := watchBoxes(t, g)
	c := g.client(t)
	box := programShelf("box")
	hung, closed, other := openSession(t, c, api.NewSession{}).ID, openSession(t, c, api.NewSession{}).ID, openSession(t, c, api.NewSession{}).ID
	for _, id := range []string{hung, closed, other} {
		box.mustPut(t, c, id, "a", id)
	}
	for _, id := range []string{hung, closed} {
		pid := g.boxOf(t, id).PID
		box.mustHold(t, c, id, map[string]string{"a": id}) // or it may be parked, and would be woken by the call
		standStill(t, pid)
		_, err := use(t.Context(), c, id, "box__put", object{"key": "b", "value": "late"})
		if e := kindOf(err); e == nil || e.Kind != api.KindTimeout || e.Server != "box" {
			t.Errorf("a call to a sandbox that hangs: %v (%+v), want a timeout of the server", err, e)
		}
		box.mustHold(t, c, other, map[string]string{"a": other})
	}
	_, err := c.Fork(t.Context(), closed, api.ForkRequest{Wait: "2s"})
	if e := kindOf(err); e == nil || e.Server != "box" || strings.Count(e.Message, "can't be held") != 1 {
		t.Errorf("a fork of a sandbox that hangs: %v (%+v), want an error of the server that says once what can't be", err, e)
	}
	box.mustHold(t, c, other, map[string]string{"a": other})
	if err := c.CloseSession(t.Context(), closed); err != nil {
		t.Errorf("a session whose sandbox hangs is closed: %v", err)
	}
	if left := g.boxesOf(closed); len(left) > 0 {
		t.Errorf("of a session that was closed there is %+v", left)
	}
	if err := syscall.Kill(g.boxOf(t, hung).PID, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// What was sent may have been read or not.
	if err := eventually(func() error {
		_, err := use(t.Context(), c, hung, "box__put", object{"key": "c", "value": "after"})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	held, err := box.all(t.Context(), box.on(c, hung))
	if err != nil || held["a"] != hung || held["c"] != "after" {
		t.Errorf("after it went on it has %v, %v", held, err)
	}
	box.mustHold(t, c, fork(t, c, hung, 1)[0].ID, held)
	box.mustHold(t, c, other, map[string]string{"a": other})
	b.closeBoxes(t)
}
