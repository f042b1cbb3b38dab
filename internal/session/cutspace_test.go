package session_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tine-mcp/tine/api"
	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/testkit"
)

// A workspace whose log has lost its end is told once, marks the session, and goes
// on with what is left, as a server with such a log does.
func TestAWorkspaceWithoutItsEnd(t *testing.T) {
	const yaml = "workspace: true\nservers: {tree: {builtin: files}}\n"
	for _, bytes := range []int64{17, 40} {
		w := newWorld(t, yaml)
		s := w.opened(session.OpenOptions{})
		do(t.Context(), t, s, "tree", "write", "path", "f", "text", "x")
		do(t.Context(), t, s, "tree", "write", "path", "g", "text", "y")
		w.close(false)
		logs, err := filepath.Glob(filepath.Join(w.dir, "layers", "*.log"))
		if err != nil || len(logs) != 1 {
			t.Fatal(logs, err)
		}
		info, err := os.Stat(logs[0])
		if err == nil {
			err = os.Truncate(logs[0], info.Size()-bytes)
		}
		if err != nil {
			t.Fatal(err)
		}
		w.open(yaml)
		s = w.Get(s.ID)
		testkit.Has(t, "the first call", callIn(t, s, "tree", "list"), "lost: ", logs[0])
		testkit.Has(t, "the next call", do(t.Context(), t, s, "tree", "read", "path", "f"), "x")
		if all := s.Damaged(); len(all) != 1 || all[0].Kept != api.KeptPart {
			t.Errorf("the session is damaged by %+v", all)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(logs[0]), "*cut")); len(left) != 1 {
			t.Errorf("what was cut off: %q", left)
		}
	}
}
