//go:build linux

package e2e

import (
	"maps"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/client"
)

// containerServers is one server for each way that a container is spoken to and
// keeps its state.
func containerServers(e *engine) string {
	return e.yaml("pipe", imageStatic, `command: [stateserver, -dir, /data], state: [/data]`) +
		e.yaml("web", imageStatic, `command: [stateserver, -dir, /data, -http, ":8080"], port: 8080, state: [/data]`) +
		e.yaml("published", imageStatic, `command: [stateserver, -dir, /data, -http, ":8080"], port: 8080, reach: port, state: [/data]`) +
		e.yaml("whole", imageStatic, `command: [stateserver, -dir, /data], state: [root]`) +
		e.yaml("graph", imageServers, `command: [mcp-server-memory], state: [/data], init: true`, "env: {MEMORY_FILE_PATH: /data/graph.jsonl}")
}

func containerShelves() []*shelf {
	return []*shelf{programShelf("pipe"), programShelf("web"), programShelf("published"), programShelf("whole"), memoryShelf("graph")}
}

// startContainers runs a gateway whose servers are in containers of the engine.
func startContainers(t testing.TB, e *engine, config string) (g *gateway, id string) {
	t.Helper()
	e.sweepAfter(t, &id)
	g = startGateway(t, patientLists+"servers:\n"+config)
	id = gatewayID(t, g)
	return g, id
}

// putEach puts the same value on every shelf, at once.
func putEach(t *testing.T, c *client.Client, session, key, value string) {
	t.Helper()
	for _, s := range containerShelves() {
		s.mustPut(t, c, session, key, value)
	}
}

func holdEach(t *testing.T, c *client.Client, session string, want map[string]string) {
	t.Helper()
	for _, s := range containerShelves() {
		s.mustHold(t, c, session, want)
	}
}

// TestDockerBasic opens, forks, freezes, rewinds and closes sessions whose
// servers are containers: over stdio, over HTTP at the container's address and at
// a published port, with a volume and with the container's root as the state. No
// session sees what another wrote, and nothing is left in the engine.
func TestDockerBasic(t *testing.T) {
	t.Parallel()
	onEngines(t, bothEngines, func(t *testing.T, e *engine) {
		g, id := startContainers(t, e, containerServers(e))
		c := g.client(t)
		s := openSession(t, c, api.NewSession{})
		putEach(t, c, s.ID, "a", "before")
		if n := e.mustOwned(t, "tine.session="+s.ID).count("container"); n != len(containerShelves()) {
			t.Errorf("the session has %d containers, want %d", n, len(containerShelves()))
		}

		snap, err := c.MakeSnapshot(t.Context(), s.ID, api.SnapshotRequest{Name: "start"})
		if err != nil {
			t.Fatal(err)
		}
		children := fork(t, c, s.ID, 2)
		want := map[string]string{"a": "before"}
		for _, child := range children {
			holdEach(t, c, child.ID, want)
			putEach(t, c, child.ID, "b", child.ID)
		}
		putEach(t, c, s.ID, "c", "mine")
		for _, child := range children {
			holdEach(t, c, child.ID, map[string]string{"a": "before", "b": child.ID})
		}
		holdEach(t, c, s.ID, map[string]string{"a": "before", "c": "mine"})

		// A fork of a fork, and one from the snapshot, which outlives all of them.
		grandchild := fork(t, c, children[0].ID, 1)[0]
		holdEach(t, c, grandchild.ID, map[string]string{"a": "before", "b": children[0].ID})
		if _, err := c.Rewind(t.Context(), s.ID, api.RewindRequest{Snapshot: snap.ID}); err != nil {
			t.Fatal(err)
		}
		holdEach(t, c, s.ID, want)
		for _, id := range []string{s.ID, children[0].ID, children[1].ID, grandchild.ID} {
			if err := c.CloseSession(t.Context(), id); err != nil {
				t.Error(err)
			}
			if left := e.mustOwned(t, "tine.session="+id); left.count("container")+left.count("volume") > 0 {
				t.Errorf("after session %s was closed: %v", id, left)
			}
		}
		again := openSession(t, c, api.NewSession{From: "start"})
		holdEach(t, c, again.ID, want)
		putEach(t, c, again.ID, "d", "later")
		want = maps.Clone(want)
		want["d"] = "later"
		holdEach(t, c, again.ID, want)

		if err := closeAll(t.Context(), c); err != nil {
			t.Error(err)
		}
		nothingLeft(t, g)
		if _, err := g.stop(); err != nil {
			t.Fatal(err)
		}
		e.nothingOf(t, id)
	})
}

// TestDockerAdopts kills the gateway without a warning: the next one goes on with
// the same containers and all that was answered, and closing the sessions leaves
// nothing.
func TestDockerAdopts(t *testing.T) {
	t.Parallel()
	onEngines(t, oneEngine, func(t *testing.T, e *engine) {
		g, id := startContainers(t, e, containerServers(e))
		c := g.client(t)
		s := openSession(t, c, api.NewSession{})
		putEach(t, c, s.ID, "a", "before")
		before := e.mustOwned(t, "tine.session="+s.ID)
		g.kill()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		c = g.client(t)
		holdEach(t, c, s.ID, map[string]string{"a": "before"})
		putEach(t, c, s.ID, "b", "after")
		for name, what := range e.mustOwned(t, "tine.session="+s.ID) {
			// Podman closes the input of a container that nobody is attached to, which
			// ends it; its state stays.
			piped := e.name == "podman" && !strings.Contains(what, "tine.server:web") && !strings.Contains(what, "tine.server:published")
			if _, ok := before[name]; !ok && !piped {
				t.Errorf("%s is new after a restart", name)
			}
		}
		child := fork(t, c, s.ID, 1)[0]
		holdEach(t, c, child.ID, map[string]string{"a": "before", "b": "after"})
		if err := closeAll(t.Context(), c); err != nil {
			t.Error(err)
		}
		nothingLeft(t, g)
		if _, err := g.stop(); err != nil {
			t.Fatal(err)
		}
		e.nothingOf(t, id)
	})
}
