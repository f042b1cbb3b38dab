//go:build linux && (amd64 || arm64)

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tine-mcp/tine/api"
)

// TestSandboxTemplate makes a template of a session with its memory, opens others
// from it, and carries it to another gateway in a file.
func TestSandboxTemplate(t *testing.T) {
	t.Parallel()
	config := "servers:\n" + yamlSand(t, nil)
	here, there := startCell(t, config), startCell(t, config)
	c := here.client(t)
	parent := openSession(t, c, api.NewSession{}).ID
	base := map[string]string{"k": "v"}
	sandShelf.mustPut(t, c, parent, "k", "v")
	was := mustLive(t, c, parent)
	snap, err := c.MakeSnapshot(t.Context(), parent, api.SnapshotRequest{Name: "base"})
	if err != nil {
		t.Fatal(err)
	}
	sandShelf.mustPut(t, c, parent, "late", "parent")

	// opens begins sessions from a template that know what it does.
	opens := func(w *cell, from string) {
		t.Helper()
		c := w.client(t)
		var all []api.OpenedSession
		for range 2 {
			all = append(all, *openSession(t, c, api.NewSession{From: from}))
		}
		for _, s := range all {
			sandShelf.mustHold(t, c, s.ID, base)
			sandShelf.mustPut(t, c, s.ID, "own", s.ID)
		}
		for _, s := range all {
			goesOn(t, c, s.ID, was)
			want := maps.Clone(base)
			want["own"] = s.ID
			sandShelf.mustHold(t, c, s.ID, want)
			if err := c.CloseSession(t.Context(), s.ID); err != nil {
				t.Error(err)
			}
		}
	}
	opens(here, "base")

	// It lasts longer than who it was made of, and than the gateway.
	if err := c.CloseSession(t.Context(), parent); err != nil {
		t.Fatal(err)
	}
	if code, err := here.stop(); err != nil || code != 0 {
		t.Fatalf("the gateway ended with %d, %v", code, err)
	}
	if err := here.start(); err != nil {
		t.Fatal(err)
	}
	c = here.client(t)
	opens(here, "base")

	file := filepath.Join(t.TempDir(), "base.tine")
	export := func(name, to string) {
		t.Helper()
		if _, err := here.tine(t.Context(), "session", "export", name, "-o", to); err != nil {
			t.Fatal(err)
		}
	}
	export("base", file)
	for _, w := range []*cell{here, there} {
		if _, err := w.tine(t.Context(), "session", "import", file, "--name", "again"); err != nil {
			t.Fatal(err)
		}
		opens(w, "again")
	}

	// What does not fit says what it is and what it would need.
	record := filepath.Join(here.state(), "snapshots", snap.ID, sand, "state.json")
	for n, tt := range []struct {
		name  string
		image map[string]any
		want  []string
	}{
		{"arch", object{"arch": "riscv64"}, []string{"riscv64", "another kind of machine"}},
		{"cpu", object{"cpu": []string{"sse2", "avx9000"}}, []string{"avx9000", "another CPU"}},
		{"gvisor", object{"runsc": strings.Repeat("01234567", 2), "gvisor": "v0.0.0-19990101000000-000000000000"}, []string{"v0.0.0-19990101000000-000000000000", "gVisor"}},
	} {
		restore := editImage(t, record, tt.image)
		want := append([]string{`"` + sand + `"`}, tt.want...)
		_, err := c.OpenSession(t.Context(), api.NewSession{From: "base", Eager: true})
		refusedFor(t, tt.name+": a session", err, want)
		other := filepath.Join(t.TempDir(), fmt.Sprint(n, ".tine"))
		export("base", other)
		_, err = there.tine(t.Context(), "session", "import", other, "--name", "odd"+tt.name)
		refusedFor(t, tt.name+": an import", err, want)
		restore()
	}
	opens(here, "base")
	here.over(t)
	there.over(t)
}

func refusedFor(t testing.TB, what string, err error, words []string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s is not refused, want %q in an error", what, words)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v, want %q in it", what, err, word)
		}
	}
}

// editImage changes what a record says of a memory, until restore is called. The
// gateway must have verified the record: what it writes has no checksum.
func editImage(t testing.TB, path string, fields map[string]any) (restore func()) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.NewDecoder(bytes.NewReader(before)).Decode(&record); err != nil {
		t.Fatal(err)
	}
	image, ok := record["image"].(map[string]any)
	if !ok {
		t.Fatalf("%s has no image: %s", path, before)
	}
	maps.Copy(image, fields)
	after, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	put := func(b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(after)
	return func() { put(before) }
}

// TestSandboxRest ends the gateway in good order, without --keep-instances, and
// starts it again, and kills it in between: what was in memory is there again.
func TestSandboxRest(t *testing.T) {
	t.Parallel()
	w := startCell(t, "servers:\n"+yamlSand(t, nil, "on_fork: notify"))
	c := w.client(t)
	root := openSession(t, c, api.NewSession{}).ID
	sandShelf.mustPut(t, c, root, "k", "v")
	was := mustLive(t, c, root)
	child := fork(t, c, root, 1)[0].ID
	sandShelf.mustPut(t, c, child, "own", child)
	wants := map[string]map[string]string{root: {"k": "v"}, child: {"k": "v", "own": child}}
	told := map[string]int{root: 0, child: 1}
	for n, end := range []string{"stop", "kill", "stop", "stop", "kill"} {
		if end == "kill" {
			w.kill()
		} else {
			if code, err := w.stop(); err != nil || code != 0 {
				t.Fatalf("the gateway ended with %d, %v", code, err)
			}
			if left := w.servers(); len(left) > 0 {
				t.Errorf("after end %d the processes %v are left", n, left)
			}
		}
		if err := w.start(); err != nil {
			t.Fatal(err)
		}
		c = w.client(t)
		for id, want := range wants {
			sandShelf.mustHold(t, c, id, want)
			// It is not a copy of another, and hears nothing of that.
			if now := goesOn(t, c, id, was); now.Forked != told[id] {
				t.Errorf("after end %d %s was told %d times that it is a copy, want %d", n, id, now.Forked, told[id])
			}
			key := fmt.Sprint("after", n)
			sandShelf.mustPut(t, c, id, key, id)
			want[key] = id
		}
	}
	w.over(t)
}
