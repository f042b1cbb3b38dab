package e2e

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/tine-mcp/tine/api"
)

// TestSandboxKillFullDisk lets the disk be full when a memory is written to it. The
// fork fails and says why, the parent goes on, nothing is left half, and with room
// again it succeeds.
func TestSandboxKillFullDisk(t *testing.T) {
	t.Parallel()
	g := newGateway(t, "servers:\n"+yamlBox(t, "box"))
	smallDisk(t, g.state(), 512<<20)
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	b := watchBoxes(t, g)
	c := g.client(t)
	box := programShelf("box")
	s := openSession(t, c, api.NewSession{}).ID
	// More than there will be room for.
	if _, err := use(t.Context(), c, s, "box__put", object{"key": "large", "value": strings.Repeat("0123456789abcdef", 1<<19)}); err != nil {
		t.Fatal(err)
	}
	box.mustPut(t, c, s, "a", "before")
	first := fork(t, c, s, 1)[0].ID
	// What it began with goes when it is first used, and would make room.
	if _, err := box.all(t.Context(), box.on(c, first)); err != nil {
		t.Fatal(err)
	}
	for round := range 3 {
		free := fillBut(t, g.state(), 4<<20)
		if _, err := c.Fork(t.Context(), s, api.ForkRequest{Count: 2}); err == nil {
			t.Error("a memory was written to a full disk")
		} else if e := kindOf(err); e == nil || e.Kind != api.KindInfrastructure || !strings.Contains(err.Error(), "no space left") || !strings.Contains(err.Error(), "box") {
			t.Errorf("a fork on a full disk: %v (%+v)", err, e)
		}
		if _, err := c.MakeSnapshot(t.Context(), s, api.SnapshotRequest{}); err == nil {
			t.Error("a snapshot was written to a full disk")
		}
		if found := imagesIn(t, g); len(found) > 0 {
			t.Errorf("round %d: of what failed there is %v", round, found)
		}
		box.mustPut(t, c, s, "b", "meanwhile")
		if held, err := box.all(t.Context(), box.on(c, first)); err != nil || held["a"] != "before" {
			t.Errorf("the child made before: %v", err)
		}
		free()
	}
	// What is looked for above can be seen.
	if _, err := c.MakeSnapshot(t.Context(), s, api.SnapshotRequest{}); err != nil {
		t.Fatal(err)
	}
	if len(imagesIn(t, g)) == 0 {
		t.Error("a snapshot with room again has no memory in it")
	}
	later := fork(t, c, s, 1)[0].ID
	held, err := box.all(t.Context(), box.on(c, later))
	if err != nil || held["a"] != "before" || held["b"] != "meanwhile" || len(held["large"]) != 8<<20 {
		t.Errorf("a fork with room again has %d values, %v", len(held), err)
	}
	b.closeBoxes(t)
}

// imagesIn are the files of memories in snapshots and states.
func imagesIn(t testing.TB, g *gateway) (found []string) {
	t.Helper()
	for _, dir := range []string{"snapshots", "sessions"} {
		err := filepath.WalkDir(filepath.Join(g.state(), dir), func(path string, d fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // removed meanwhile
			case err == nil && strings.HasSuffix(path, ".img"):
				found = append(found, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return found
}

// fillBut takes the space on a folder's disk but for some bytes.
func fillBut(t *testing.T, dir string, left int64) (free func()) {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-left); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}
