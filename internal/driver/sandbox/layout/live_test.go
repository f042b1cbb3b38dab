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

// TestWhatGoesWhileItIsPlanned takes away what must be hidden when it was found, before
// it is: it may be back when the root is made, and must not be seen then.
func TestWhatGoesWhileItIsPlanned(t *testing.T) {
	for name, gone := range map[string]string{"the file": "/srv/data/in/secret", "its folder": "/srv/data/in", "all": "/srv/data"} {
		t.Run(name, func(t *testing.T) {
			h := machine(t, "/srv/data/in/secret", "/srv/data/in/plain")
			w := wanted(h, "/usr/bin/tool")
			w.AllowRead, w.DenyRead = []string{"/srv/data"}, []string{"/srv/data/in/secret"}
			p, err := newPlanner(w)
			if err != nil {
				t.Fatal(err)
			}
			p.given()
			if err := p.showAll(); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(h.at(gone), h.at("/srv/away")); err != nil {
				t.Fatal(err)
			}
			if _, err := p.masks(); err != nil {
				return // there is no root then
			}
			for _, b := range p.binds() {
				if within(b.node.source, "/srv/data/in/secret") {
					t.Errorf("%s is shown as a whole, with what is hidden", b.node.source)
				}
			}
		})
	}
}
