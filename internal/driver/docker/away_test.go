package docker

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

// A gateway starts without an engine, and says which is missing when a container
// is wanted.
func TestNoEngine(t *testing.T) {
	dir := t.TempDir()
	d := New(Options{Gateway: "test", Dir: filepath.Join(dir, "docker")})
	defer d.Close()
	if _, err := d.Sweep(t.Context(), dir, nil); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if err := d.Recover(t.Context(), nil, nil, true); err != nil {
		t.Errorf("recover: %v", err)
	}
	host := "unix://" + filepath.Join(dir, "not-there.sock")
	spec := driver.Spec{Server: "fs", Dir: filepath.Join(dir, "i"), Options: &Config{Host: host, Image: "x"}}
	_, err := d.Start(t.Context(), spec)
	says(t, err, `"fs"`, "does not answer", host, "docker.host")
	if !errors.Is(err, errAway) {
		t.Errorf("got %v", err)
	}
	empty(t, spec.Dir)
	options(spec).State, spec.State = []string{"/data"}, filepath.Join(dir, "s")
	says(t, d.Seed(t.Context(), spec, driver.Source{}), "does not answer")
	if _, err := os.Lstat(spec.State); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the state is left: %v", err)
	}
	// What was used once and is away now is no reason not to start.
	if err := d.noteHost(host); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Sweep(t.Context(), dir, nil); err != nil {
		t.Errorf("sweep: %v", err)
	}
	if err := d.Recover(t.Context(), nil, nil, true); err != nil {
		t.Errorf("recover: %v", err)
	}
	rec := record{Kind: recordInstance, Host: host, Name: "x"}
	if _, err := d.Adopt(t.Context(), driver.Handle{Server: "fs", Dir: filepath.Join(dir, "i"), Data: rec.data()}, nil); err == nil || errors.Is(err, driver.ErrGone) {
		t.Errorf("an instance whose engine is away: %v", err)
	}
}
