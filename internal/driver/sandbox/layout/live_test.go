//go:build unix

package layout

import (
	"os"
	"runtime"
	"testing"
)

// TestALayoutNoticesItsFolders changes a folder that is shown entry by entry.
func TestALayoutNoticesItsFolders(t *testing.T) {
	for name, tt := range map[string]struct {
		change         func(h host) error
		changed, stale bool
	}{
		"nothing":         {func(host) error { return nil }, false, false},
		"a file added":    {func(h host) error { return os.WriteFile(h.at("/srv/data/b"), nil, 0o644) }, true, true},
		"a file removed":  {func(h host) error { return os.Remove(h.at("/srv/data/a")) }, true, true},
		"a file replaced": {func(h host) error { return os.Rename(h.at("/srv/other"), h.at("/srv/data/a")) }, false, false},
		"a link changed":  {func(h host) error { return os.Rename(h.at("/srv/link"), h.at("/srv/data/link")) }, true, true},
		"a file for a folder": {func(h host) error {
			if err := os.Remove(h.at("/srv/data/dir")); err != nil {
				return err
			}
			return os.WriteFile(h.at("/srv/data/dir"), nil, 0o644)
		}, true, true},
		"what is hidden replaced": {func(h host) error { return os.Rename(h.at("/srv/other"), h.at("/srv/data/secret")) }, false, false},
		"what is hidden removed":  {func(h host) error { return os.Remove(h.at("/srv/data/secret")) }, false, false},
		"another part gone":       {func(h host) error { return os.RemoveAll(h.at("/srv/more")) }, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := machine(t, "/srv/data/secret", "/srv/data/dir/", "/srv/data/link -> a", "/srv/link -> b", "/srv/other", "/srv/more/x")
			w := wanted(h, "/usr/bin/tool")
			w.AllowRead, w.DenyRead = []string{"/srv/data", "/srv/more"}, []string{"/srv/data/secret"}
			l, err := Plan(w)
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.change(h); err != nil {
				t.Fatal(err)
			}
			if l.Changed() != tt.changed || l.Stale() != tt.stale {
				t.Errorf("changed %t and stale %t, want %t and %t", l.Changed(), l.Stale(), tt.changed, tt.stale)
			}
			if l.AsNow().Changed() {
				t.Error("it has changed since now")
			}
		})
	}
}

// TestATimeTellsOnlyLater looks at a folder right after it changed, when its time
// says nothing, and at one that has long been as it is.
func TestATimeTellsOnlyLater(t *testing.T) {
	h := fake(t, "/new/a")
	if got := h.changed("/new"); got != 0 {
		t.Errorf("a new folder has the time %d", got)
	}
	if got := (host{}).changed("/usr"); runtime.GOOS == "linux" && got == 0 {
		t.Error("/usr has no time")
	}
}
