//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/driver"
)

// A memory that waits in a state is verified once by the next gateway: before a
// program goes on from it, and before a snapshot takes it along.
func TestDamagedMemoryIsLost(t *testing.T) {
	spec := specAt(filepath.Join(t.TempDir(), "state"))
	d := keeper(t, Options{})
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	if err := d.suspended(t.Context(), newBrain("a thought"), spec.State, greetingText); err != nil {
		t.Fatal(err)
	}
	rec := recorded(t, spec.State)
	pages := filepath.Join(imageOf(spec.State), "pages.img")
	if err := os.WriteFile(pages, []byte("b thought"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.intact(spec, rec.Image); err != nil {
		t.Errorf("by the gateway that wrote it: %v", err)
	}

	next := keeper(t, Options{})
	var marked error
	spec.Session, spec.OnDamage = "ses_x", func(err error) { marked = err }
	err := next.intact(spec, rec.Image)
	var ours *api.Error
	if !errors.As(err, &ours) || ours.Kind != api.KindLost || !strings.Contains(err.Error(), imageOf(spec.State)) || !strings.Contains(err.Error(), "ses_x") {
		t.Errorf("damaged: %v", err)
	}
	if marked == nil {
		t.Error("the damage was not reported")
	}
	if _, err := next.Freeze(t.Context(), spec, nil, filepath.Join(t.TempDir(), "snapshot")); err == nil || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("frozen: %v", err)
	}
	reads(t, pages, "b thought")
	if err := os.WriteFile(pages, []byte("a thought"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := next.intact(spec, rec.Image); err != nil {
		t.Errorf("well again: %v", err)
	}
}

func TestDamagedRecordIsLost(t *testing.T) {
	spec := specAt(filepath.Join(t.TempDir(), "state"))
	d := keeper(t, Options{})
	if err := d.Seed(t.Context(), spec, driver.Source{}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(spec.State, stateName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		b := append([]byte(nil), whole...)
		b[i] ^= 0x08
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := d.stateOf(spec); err == nil {
			t.Errorf("byte %d of %d: read as %+v", i, len(whole), r)
		}
	}
	old := whole[:len(whole)-len("\n01234567\n")]
	if err := os.WriteFile(path, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.stateOf(spec); err != nil {
		t.Errorf("a record of an earlier version: %v", err)
	}
}
