//go:build amd64 || arm64

package sandbox

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/internal/driver"
)

// TestRestIsNoLoss looks at sandboxes that are gone: what they had in memory is lost,
// unless it lies in their state, as of one that a gateway had suspended when it was
// killed.
func TestRestIsNoLoss(t *testing.T) {
	d := keeper(t, Options{})
	state := filepath.Join(t.TempDir(), "state")
	put(t, filepath.Join(state, "x"), "")
	gone := func(when string, rec record, lost bool) {
		t.Helper()
		err := d.endLeftover(t.Context(), filepath.Join(t.TempDir(), "instance"), rec, "it has ended")
		if !errors.Is(err, driver.ErrGone) || errors.Is(err, driver.ErrLost) != lost {
			t.Errorf("%s: %v, want what is gone, and lost: %t", when, err, lost)
		}
	}
	mind := record{Memory: true, State: state}
	gone("before it ever rested", mind, true)
	if err := d.suspended(t.Context(), newBrain("much"), state, greetingText); err != nil {
		t.Fatal(err)
	}
	gone("laid to rest", mind, false)
	if err := d.took(state); err != nil {
		t.Fatal(err)
	}
	gone("after it went on", mind, true)
	gone("without a memory that counts", record{State: state}, false)
	gone("without a state", record{Memory: true}, true)
}
