//go:build unix

package rlm

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/tine-mcp/tine/internal/native/rlm/body"
	"github.com/tine-mcp/tine/internal/testkit"
)

// Saving takes no memory of the size of what is saved: a kernel may use most of what it
// may have.
func TestSavedInPlace(t *testing.T) {
	w := newWorld(t, map[string]any{"save": "1s"})
	const peak = "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10" // in MiB
	before, err := strconv.Atoi(w.exec("import resource, threading\nx, y, lock = bytearray(200 << 20), b'y' * (100 << 20), threading.Lock()\n" + peak))
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "variables are saved", func() bool {
		info, err := os.Stat(filepath.Join(w.spec.State, body.State, "saved"))
		return err == nil && info.Size() > 300<<20
	})
	after, err := strconv.Atoi(w.exec(peak))
	if err != nil || after > before+50 {
		t.Errorf("it had %d MiB, and %d when it was saved: %v", before, after, err)
	}
	if left, err := filepath.Glob(filepath.Join(w.spec.State, body.State, "*.part")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
