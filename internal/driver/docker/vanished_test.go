package docker

import (
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
)

// A volume that was removed is damage to the state or the snapshot that it belonged to:
// the engine would make an empty one in its place.
func testVanished(t *testing.T, w *world) {
	c := w.stdio()
	c.State = []string{"/data"}
	spec := w.spec("vanished", c)
	reports := 0
	spec.OnDamage = func(error) { reports++ }
	inst, p := w.open(t, spec, driver.Source{})
	remember(t, p, "k", "v")
	snap := w.freeze(t, spec, inst, "vanished")
	if err := inst.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	lose := func(dir string) string {
		t.Helper()
		h, err := readHolding(dir)
		if err == nil {
			_, err = w.cli.VolumeRemove(t.Context(), h.Volumes[0].Volume, client.VolumeRemoveOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return h.Volumes[0].Volume
	}
	lost := func(what, volume string, err error) {
		t.Helper()
		var ours *api.Error
		if !errors.As(err, &ours) || ours.Kind != api.KindLost || !strings.Contains(err.Error(), volume) {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := w.cli.VolumeInspect(t.Context(), volume, client.VolumeInspectOptions{}); !gone(err) {
			t.Errorf("%s: something took its place: %v", what, err)
		}
	}
	volume := lose(spec.State)
	_, err := w.d.Start(t.Context(), spec)
	lost("a start", volume, err)
	_, err = w.d.Freeze(t.Context(), spec, nil, filepath.Join(w.dir, "snapshots", "again"))
	lost("a freeze", volume, err)
	if reports != 2 {
		t.Errorf("damage was reported %d times", reports)
	}
	volume = lose(snap.Dir)
	for _, take := range []bool{false, true} {
		lost("a seed", volume, w.d.Seed(t.Context(), w.spec("child", c), driver.Source{From: &snap, Take: take}))
	}
	lost("an export", volume, w.d.Export(t.Context(), snap, io.Discard))
}
