package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestSandboxKillIdle kills idle sandboxes, beside a gateway that
// runs and one that does not: the next call hears that the memory is lost, once,
// and the one after it begins anew.
func TestSandboxKillIdle(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "servers:\n"+yamlBox(t, "box"))
	b := watchBoxes(t, g)
	c := g.client(t)
	box := programShelf("box")
	live, left, other := openSession(t, c, api.NewSession{}).ID, openSession(t, c, api.NewSession{}).ID, openSession(t, c, api.NewSession{}).ID
	for _, id := range []string{live, left, other} {
		box.mustPut(t, c, id, "a", id)
	}
	kill := func(id string) {
		t.Helper()
		if err := syscall.Kill(g.boxOf(t, id).PID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	heard := func(id string) {
		t.Helper()
		_, err := use(t.Context(), c, id, "box__put", object{"key": "b", "value": "late"})
		if e := kindOf(err); e == nil || e.Kind != api.KindLost || e.Server != "box" || !strings.Contains(err.Error(), "memory is lost") {
			t.Errorf("the first call after its sandbox died: %v (%+v), want that the memory is lost", err, e)
		}
		damagedBy(t, c, id, "box", api.KeptNothing)
		box.mustHold(t, c, id, map[string]string{})
		box.mustPut(t, c, id, "c", "anew")
		box.mustHold(t, c, id, map[string]string{"c": "anew"})
	}
	kill(live)
	dead := deadSnapshot(t, c, live)
	heard(live)
	heard(openSession(t, c, api.NewSession{From: dead}).ID)
	if _, err := c.Rewind(t.Context(), live, api.RewindRequest{Snapshot: dead}); err != nil {
		t.Fatal(err)
	}
	box.mustHold(t, c, live, map[string]string{}) // it was told
	box.mustPut(t, c, live, "c", "anew")
	gone := g.boxOf(t, left).PID
	g.kill()
	if err := syscall.Kill(gone, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.client(t)
	heard(left)
	box.mustHold(t, c, live, map[string]string{"c": "anew"})
	box.mustHold(t, c, other, map[string]string{"a": other})
	b.closeBoxes(t)
}
