package layout

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
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
// looks at few files: at those of the system by size and time, at others by their
// content, so that a file that was written anew as it was is the same.
//
// What is in a folder that is shown does not count, nor what is masked in it: a
// file that comes or goes there is no more to a server that was frozen than to one
// that runs. Nor does it count where the gateway keeps its own things, so that
// another gateway can go on from the same memory.
func (p *planner) digest(l *Layout) {
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
	var config bytes.Buffer
	_ = json.NewEncoder(&config).Encode([]any{
		w.Mode, dir, w.Image, w.UID, w.GID, w.Hostname, w.Network, sorted(w.AllowRead), sorted(w.AllowWrite), sorted(w.DenyRead), sorted(w.Reads),
	})
	l.Needs = map[string]string{NeedsConfig: sumText(config.Bytes())}
	stamped, summed := sha256.New(), sha256.New()
	stamped.Write(config.Bytes())
	summed.Write(config.Bytes())
	for _, at := range sorted(stamps) {
		real, info, err := p.host.stat(at)
		if err != nil || p.host.moved(real) {
			continue
		}
		stamp := fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
		sum := stamp
		if content := p.content(real, info); content != "" {
			sum = content
		}
		fmt.Fprintf(stamped, "%q %s\n", at, stamp)
		fmt.Fprintf(summed, "%q %s\n", at, sum)
		l.Needs[at] = sumText([]byte(sum))
	}
	l.Stamp, l.Digest = "sha256:"+hex.EncodeToString(stamped.Sum(nil)), "sha256:"+hex.EncodeToString(summed.Sum(nil))
}

// NeedsConfig stands among what a root needs for what the config says of it.
const NeedsConfig = "config"

func sumText(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// systemDirs is where programs of the system are: they change with its packages, and
// are many and large.
var systemDirs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/var/lib", "/nix/store", "/gnu/store"}

// maxSummed bounds the files that are compared by their content.
const maxSummed = 256 << 20

// content is the checksum of a file that is compared by its content; empty for others.
func (p *planner) content(real string, info fs.FileInfo) string {
	if !info.Mode().IsRegular() || info.Size() > maxSummed {
		return ""
	}
	if !within("/usr/local", real) && slices.ContainsFunc(systemDirs, func(dir string) bool { return within(dir, real) }) {
		return ""
	}
	sum, err := p.w.Sums.of(p.host.at(real))
	if err != nil {
		return ""
	}
	return sum
}

func sorted(paths []string) []string {
	all := make([]string, 0, len(paths))
	for _, at := range paths {
		all = append(all, path.Clean(at))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
