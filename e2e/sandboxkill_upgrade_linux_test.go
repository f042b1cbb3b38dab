package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// binaries are the copies of gateways that a state folder has for its sandboxes.
func (g *gateway) binaries(t testing.TB) (hashes []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(g.state(), "sandbox", "runsc-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		hashes = append(hashes, strings.TrimPrefix(filepath.Base(path), "runsc-"))
	}
	return hashes
}

// TestSandboxUpgrade has another build of the gateway take over the sandboxes and
// snapshots of one that was killed: they go on, and can be forked, with the binary
// that made them, which stays for as long as it is needed. A memory that another
// gVisor wrote whose binary is gone is refused by name.
func TestSandboxUpgrade(t *testing.T) {
	t.Parallel()
	newer, err := nextBinary()
	if err != nil {
		t.Fatal(err)
	}
	box := programShelf("box")
	g := startGateway(t, "servers:\n"+yamlBox(t, "box"))
	b := watchBoxes(t, g)
	c := g.client(t)
	s := openSession(t, c, api.NewSession{}).ID
	box.mustPut(t, c, s, "a", "older")
	snap, err := c.MakeSnapshot(t.Context(), s, api.SnapshotRequest{Name: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	box.mustPut(t, c, s, "b", "live")
	was := g.boxOf(t, s)
	if got := g.binaries(t); !slices.Equal(got, []string{was.Runsc}) {
		t.Fatalf("the binaries are %v, want %s alone", got, was.Runsc)
	}

	again := func() {
		t.Helper()
		g.kill()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		c = g.client(t)
	}
	g.program = newer
	again()
	box.mustHold(t, c, s, map[string]string{"a": "older", "b": "live"})
	if now := g.boxOf(t, s); now.PID != was.PID || now.Runsc != was.Runsc {
		t.Errorf("the sandbox is %+v after the upgrade, was %+v", now, was)
	}
	child := fork(t, c, s, 1)[0].ID
	box.mustHold(t, c, child, map[string]string{"a": "older", "b": "live"})
	thawed := openSession(t, c, api.NewSession{From: "kept"}).ID
	box.mustHold(t, c, thawed, map[string]string{"a": "older"})
	for _, id := range []string{child, thawed} {
		if got := g.boxOf(t, id); got.Runsc != was.Runsc {
			t.Errorf("a memory of %s goes on in %+v", was.Runsc, got)
		}
	}
	fresh := openSession(t, c, api.NewSession{}).ID
	box.mustPut(t, c, fresh, "a", "newer")
	ours := g.boxOf(t, fresh).Runsc
	if ours == was.Runsc {
		t.Error("the binaries are not told apart")
	}
	// It is kept for a snapshot alone, too.
	for _, id := range []string{s, child, thawed} {
		if err := c.CloseSession(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	again()
	if got := g.binaries(t); !slices.Contains(got, was.Runsc) || !slices.Contains(got, ours) {
		t.Errorf("the binaries are %v, and a snapshot needs %s", got, was.Runsc)
	}
	thawed = openSession(t, c, api.NewSession{From: "kept"}).ID
	box.mustHold(t, c, thawed, map[string]string{"a": "older"})
	if err := c.CloseSession(t.Context(), thawed); err != nil {
		t.Fatal(err)
	}

	// Without it this build reads what the same gVisor wrote, and refuses the rest.
	g.kill()
	if err := os.Remove(filepath.Join(g.state(), "sandbox", "runsc-"+was.Runsc)); err != nil {
		t.Fatal(err)
	}
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	c = g.client(t)
	thawed = openSession(t, c, api.NewSession{From: "kept"}).ID
	box.mustHold(t, c, thawed, map[string]string{"a": "older"})
	editImage(t, filepath.Join(g.state(), "snapshots", snap.ID, "box", "state.json"), object{"gvisor": "v0.0.0-other"})
	_, err = c.OpenSession(t.Context(), api.NewSession{From: "kept", Eager: true})
	if err == nil || !strings.Contains(err.Error(), "v0.0.0-other") || !strings.Contains(err.Error(), "box") || !strings.Contains(err.Error(), "again") {
		t.Errorf("a memory of another gVisor: %v, want an error that names it", err)
	}
	box.mustHold(t, c, thawed, map[string]string{"a": "older"})
	box.mustHold(t, c, fresh, map[string]string{"a": "newer"})

	// What nothing needs goes with the next start.
	if err := c.DeleteSnapshot(t.Context(), "kept"); err != nil {
		t.Fatal(err)
	}
	again()
	if got := g.binaries(t); !slices.Equal(got, []string{ours}) {
		t.Errorf("the binaries are %v, want %s alone", got, ours)
	}
	b.closeBoxes(t)
}
