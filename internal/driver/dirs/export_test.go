package dirs

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/internal/driver/drivertest"
)

// What Import refuses is refused before the export, and nothing else is.
func TestCheckExport(t *testing.T) {
	for target, bad := range map[string]bool{
		"/etc/shadow": true, "../../x": true, "..": false, "../x": false, "x/../y": true, "x": false, "./x": false,
	} {
		folder := t.TempDir()
		drivertest.Write(t, filepath.Join(folder, "data/d/x"), "x")
		if err := os.Symlink(target, filepath.Join(folder, "data/d/ln")); err != nil {
			t.Fatal(err)
		}
		set := Set{"data": true, "gone": false}
		err := CheckExport(t.Context(), set, folder)
		if (err != nil) != bad || bad && (!strings.Contains(err.Error(), "data/d/ln") || !strings.Contains(err.Error(), target)) {
			t.Errorf("a link to %s: %v", target, err)
		}
		var file bytes.Buffer
		if err := pack(t, set, folder, &file); err != nil {
			t.Fatal(err)
		}
		if _, err := unpack(t, t.TempDir(), &file, 1<<20, 100); (err != nil) != bad {
			t.Errorf("a link to %s: imported with %v", target, err)
		}
	}
}
