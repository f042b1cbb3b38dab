package session_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/tine-mcp/tine/internal/session"
	"github.com/tine-mcp/tine/internal/workspace"
)

// A snapshot from before the workspace was used shows an empty one, as the session does.
func TestASnapshotBeforeTheWorkspaceWasUsed(t *testing.T) {
	w := newWorld(t, whole)
	snap := w.frozen(w.opened(session.OpenOptions{}), "before")
	shown := 0
	err := w.SpaceOf(t.Context(), snap.ID, func(f workspace.FS) error {
		shown++
		if list, err := f.ReadDir("."); err != nil || len(list) > 0 {
			t.Errorf("it has %v, %v", list, err)
		}
		if _, err := f.Lstat("a"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file that it does not have: %v", err)
		}
		return nil
	})
	if err != nil || shown != 1 {
		t.Errorf("shown %d times: %v", shown, failure(err))
	}
}
