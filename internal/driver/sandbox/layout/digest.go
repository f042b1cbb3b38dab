package layout

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
)

// databases are files that change when packages of a system do.
var databases = []string{
	"/var/lib/dpkg/status", "/lib/apk/db/installed", "/usr/lib/apk/db/installed", "/var/lib/pacman/local",
	"/var/lib/rpm/rpmdb.sqlite", "/var/lib/rpm/Packages", "/var/lib/rpm/Packages.db", "/usr/lib/sysimage/rpm/rpmdb.sqlite", "/usr/lib/sysimage/rpm/Packages.db",
}

// digest is of what a memory needs of its root to go on: the program and the
// system, whose files it has mapped, and the places that the config names. It
// looks at few files.
//
// What is in a folder that is shown does not count, nor what is masked in it: a
// file that comes or goes there is no more to a server that was frozen than to one
// that runs. Nor does it count where the gateway keeps its own things, so that
// another gateway can go on from the same memory.
func (p *planner) digest() string {
	w := p.w
	dir, stamps := w.Dir, slices.Clone(p.stamps)
	switch {
	case w.Mode != Dir:
		stamps = append(stamps, databases...)
	case w.Image != "":
		dir = "" // where an image was unpacked does not matter
	default:
		for _, at := range append([]string{w.Command}, databases...) {
			stamps = append(stamps, path.Join(dir, at))
		}
	}
	sum := sha256.New()
	_ = json.NewEncoder(sum).Encode([]any{
		w.Mode, dir, w.Image, w.UID, w.GID, w.Hostname, w.Network, sorted(w.AllowRead), sorted(w.AllowWrite), sorted(w.DenyRead), sorted(w.Reads),
	})
	for _, at := range sorted(stamps) {
		if real, info, err := p.host.stat(at); err == nil && !p.host.moved(real) {
			fmt.Fprintf(sum, "%q %d %d\n", at, info.Size(), info.ModTime().UnixNano())
		}
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

func sorted(paths []string) []string {
	all := make([]string, 0, len(paths))
	for _, at := range paths {
		all = append(all, path.Clean(at))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
