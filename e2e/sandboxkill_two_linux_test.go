package e2e

import (
	"fmt"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestSandboxKillTwoGateways runs two gateways with a state folder each. A restart
// of one never ends the sandboxes of the other.
func TestSandboxKillTwoGateways(t *testing.T) {
	t.Parallel()
	box := programShelf("box")
	type side struct {
		*gateway
		b       *boxes
		session string
		was     boxRecord
	}
	var sides []*side
	for range 2 {
		g := startGateway(t, "servers:\n"+yamlBox(t, "box"))
		s := &side{gateway: g, b: watchBoxes(t, g)}
		c := g.client(t)
		s.session = openSession(t, c, api.NewSession{}).ID
		box.mustPut(t, c, s.session, "k", s.session)
		s.was = g.boxOf(t, s.session)
		sides = append(sides, s)
	}
	same := func(when string) {
		t.Helper()
		for i, s := range sides {
			if now := s.boxOf(t, s.session); now != s.was {
				t.Errorf("%s: the sandbox of gateway %d is %+v, was %+v", when, i, now, s.was)
			}
			box.mustHold(t, s.client(t), s.session, map[string]string{"k": s.session})
		}
	}
	for i, s := range sides {
		s.kill()
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
		same(fmt.Sprintf("after a kill of gateway %d", i))
	}
	// One that ends takes its own with it, and no other.
	sides[0].b.closeBoxes(t)
	sides = sides[1:]
	same("after the end of the other")
	sides[0].b.closeBoxes(t)
}
