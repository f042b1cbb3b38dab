package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
	"github.com/tine-mcp/tine/internal/driver/dirs"
	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

// A state of which a directory is gone while nothing runs is damaged, and nothing
// empty takes its place; what the server has removed itself is not missing, nor is
// what was declared since.
func TestAStateThatVanished(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, spec *driver.Spec)
		want   string
	}{
		"a directory": {func(t *testing.T, spec *driver.Spec) { must(t, os.RemoveAll(filepath.Join(spec.State, "data"))) }, "/data of its state is gone"},
		"all of it":   {func(t *testing.T, spec *driver.Spec) { must(t, os.RemoveAll(spec.State)) }, "its state "},
		"removed by the server": {func(t *testing.T, spec *driver.Spec) {
			must(t, errors.Join(os.RemoveAll(filepath.Join(spec.State, "data")), dirs.Note(spec.State, spec.State, spec.Dirs)))
		}, ""},
		"declared since": {func(_ *testing.T, spec *driver.Spec) { spec.Dirs = append(spec.Dirs, driver.StateDir{Name: "more"}) }, ""},
		"of an earlier version": {func(t *testing.T, spec *driver.Spec) {
			must(t, errors.Join(os.RemoveAll(filepath.Join(spec.State, "data")), os.Remove(filepath.Join(spec.State, ".made"))))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d, dir := New(Options{}), t.TempDir()
			var reported []error
			spec := driver.Spec{
				Server: "db", Session: "ses_1", Dir: filepath.Join(dir, "instance"), State: filepath.Join(dir, "state"),
				Dirs: []driver.StateDir{{Name: "data"}}, Command: os.Args[0], Args: []string{"-test.run=^$"},
				OnDamage: func(err error) { reported = append(reported, err) },
			}
			must(t, d.Seed(t.Context(), spec, driver.Source{}))
			drivertest.Write(t, filepath.Join(spec.State, "data/x"), "x")
			test.change(t, &spec)
			_, froze := d.Freeze(t.Context(), spec, nil, filepath.Join(dir, "snap"))
			inst, err := d.Start(t.Context(), spec)
			if err == nil {
				must(t, inst.Stop(t.Context()))
			}
			if test.want == "" {
				if err != nil || froze != nil || len(reported) > 0 {
					t.Errorf("started: %v, frozen: %v, reported: %v", err, froze, reported)
				}
				return
			}
			for _, err := range []error{froze, err} {
				var ours *api.Error
				if !errors.As(err, &ours) || ours.Kind != api.KindLost || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v", err)
				}
			}
			if len(reported) != 2 {
				t.Errorf("reported: %v", reported)
			}
			if _, err := os.Lstat(filepath.Join(spec.State, "data")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("something took its place: %v", err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
