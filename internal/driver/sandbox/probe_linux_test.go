//go:build amd64 || arm64

package sandbox

import (
	"os"
	"strings"
	"testing"
)

// What tine doctor asks: a sandbox is made and forked, and nothing is left of it.
func TestProbe(t *testing.T) {
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var names []string
	for _, f := range Probe(t.Context(), Options{Dir: dir, Binary: path}) {
		names = append(names, f.Name)
		if f.Detail == "" || !f.OK {
			t.Errorf("%+v", f)
		}
		// An ordinary user gets a finding that not all works.
		if without := strings.Contains(f.Detail, "sandbox.cpus has no effect"); f.Name == "limits" && without != (!rootful() || !cgroupsWork()) {
			t.Errorf("%+v", f)
		}
	}
	if got := strings.Join(names, ", "); got != "binary, namespaces, limits, directories, start, live forks" {
		t.Errorf("looked at %s", got)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A program that can't be a sandbox is not tried.
func TestProbeOfAnother(t *testing.T) {
	found := Probe(t.Context(), Options{Dir: t.TempDir(), Binary: "/no/such/program"})
	if len(found) != 1 || found[0].OK || !found[0].Needed || found[0].Mend == "" {
		t.Errorf("%+v", found)
	}
}
