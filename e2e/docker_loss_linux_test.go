package e2e

import (
	"errors"
	"strings"
	"testing"

	moby "github.com/moby/moby/client"

	"github.com/tine-mcp/tine/api"
)

// TestContainerKilledBetweenCalls kills containers that keep what they know in
// memory, over stdio and over HTTP, and one with a volume: of the first two the
// next call hears of it, once, the third goes on with its files, and all are marked.
func TestContainerKilledBetweenCalls(t *testing.T) {
	t.Parallel()
	e := needEngine(t, "docker")
	g, id := startContainers(t, e,
		e.yaml("pipe", imageStatic, `command: [stateserver, -dir, /data], tmpfs: [/data]`, "fork: fresh")+
			e.yaml("web", imageStatic, `command: [stateserver, -dir, /data, -http, ":8080"], port: 8080, tmpfs: [/data]`, "fork: fresh")+
			e.yaml("kept", imageStatic, `command: [stateserver, -dir, /data], state: [/data]`))
	c := g.client(t)
	for server, kept := range map[string]string{"pipe": api.KeptNothing, "web": api.KeptNothing, "kept": api.KeptFiles} {
		s := openSession(t, c, api.NewSession{})
		shelf := programShelf(server)
		shelf.mustPut(t, c, s.ID, "a", "before")
		for name := range e.mustOwned(t, "tine.session="+s.ID) {
			if container, ok := strings.CutPrefix(name, "container "); ok {
				if _, err := e.cli.ContainerKill(t.Context(), container, moby.ContainerKillOptions{Signal: "KILL"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := eventually(func() error {
			now, err := c.Session(t.Context(), s.ID)
			if err == nil && len(now.Damaged) == 0 {
				err = errors.New("its death was not seen")
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"a": "before"}
		if kept == api.KeptNothing {
			want = map[string]string{}
			_, err := use(t.Context(), c, s.ID, server+"__put", object{"key": "b", "value": "late"})
			if k := kindOf(err); k == nil || k.Kind != api.KindLost || k.Server != server {
				t.Errorf("%s: the first call after the death: %v (%+v), want kind lost", server, err, k)
			}
		}
		shelf.mustHold(t, c, s.ID, want)
		damagedBy(t, c, s.ID, server, kept)
	}
	if err := closeAll(t.Context(), c); err != nil {
		t.Error(err)
	}
	if _, err := g.stop(); err != nil {
		t.Fatal(err)
	}
	e.nothingOf(t, id)
}
